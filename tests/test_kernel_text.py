"""Kernels as text: what is printed is read back, and nothing else is, nor is anything executed."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

from ggpm.kernels import (
    Additive,
    Category,
    Cyclic,
    KernelTextError,
    On,
    Scaled,
    Sphere,
    kernel_from_text,
    kernel_text,
)  # fmt: skip

C = ConstantKernel
KERNELS = [
    C(0.1 + 0.2) * RBF(1 / 3) + C(2.0, "fixed"),
    (RBF([1.0, 2.0]) + WhiteKernel(0.3, (1e-3, 1.0))) * (C() + Matern(7.0, nu=2.5)),
    RBF() * (RBF(2.0) * RBF(3.0)) + (RBF(4.0) + (RBF(5.0) + RBF(6.0))),
    Exponentiation(RBF() + C(), 2.0) * Exponentiation(Exponentiation(RBF(), 2.0), 3.0),
    On(Sphere(0.1, nu=0.5), ["lat", "lon"])
    + Category(["site", "a,b"]) * On(Cyclic(24.0, period_bounds=(20.0, 30.0)), 3),
    On(RBF(), "x") * Category(["site", "use"], None, [0.5, 2.0], (0.1, 9.0)) + Category(1, length_scale=2.0),
    RationalQuadratic(2.0, 0.5) + ExpSineSquared(0.7, 24.0, periodicity_bounds="fixed") + DotProduct(0.0, "fixed"),
    Scaled(
        Additive(0.5, 1.5) + Matern([1.0, 2.0], np.array([[0.1, 1.0], [1.0, 9.0]]), np.inf), (0.5, 1e-7), (3.0, 2.0)
    ),
    Scaled(RBF(), (0.0, 1.0), (1.0, 2.0), knots=((), ((-1.0, 0.5, 3.0), (-0.7, 0.0, 0.7)))),
    PairwiseKernel(0.4, metric="laplacian"),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_what_is_written_is_read_back(kernel):
    again = kernel_from_text(kernel_text(kernel))
    assert kernel_text(again) == kernel_text(kernel)
    np.testing.assert_array_equal(again.theta, kernel.theta)
    np.testing.assert_array_equal(again.bounds, kernel.bounds)
    X = np.random.default_rng(0).normal(size=(5, 2))
    if not any(word in str(kernel) for word in ("On", "Category")):
        np.testing.assert_array_equal(again(X), kernel(X))


def test_what_kernels_print_is_read():
    """There numbers have three digits, and products of sums no parentheses: sums of products are as they were."""
    kernel = C(2.0) * On(Matern(24.0, nu=1.5), "time") + C(0.25) * Category("site") + WhiteKernel(0.1) + C(1.0)
    again = kernel_from_text(repr(kernel))
    assert repr(again) == repr(kernel)
    np.testing.assert_allclose(again.theta, kernel.theta, atol=0.01)  # 1.41 for the root of 2
    for one in KERNELS:
        if "Scaled" not in repr(one) and "** 2.0" not in repr(one):  # no centre is printed, nor what a power is of
            assert repr(kernel_from_text(repr(one))) == repr(one)


def test_numbers_are_variances():
    assert kernel_text(kernel_from_text("2 * RBF() + 0.5")) == "ConstantKernel(2.0) * RBF() + ConstantKernel(0.5)"
    assert kernel_text(kernel_from_text("1.5**2")) == "ConstantKernel(2.25)"
    assert kernel_text(kernel_from_text("2 * 3 * RBF() ** 2"), 3) == "ConstantKernel(6) * RBF() ** 2"
    assert kernel_text(RBF(1.23456789e-5), digits=3) == "RBF(1.23e-5)"


@pytest.mark.parametrize("text, why", [
    ("RFB()", "Did you mean 'RBF'?"),
    ("RBF", "needs parentheses"),
    ("RBF(", "never closed"),
    ("", "invalid syntax"),
    ("RBF() - RBF()", "combined by"),
    ("RBF(-1)", "must be positive"),
    ("RBF(1e999)", "not a kernel, a number"),
    ("RBF(length=1)", "RBF has no argument length: it has length_scale, length_scale_bounds"),
    ("RBF(1, length_scale=2)", "given twice"),
    ("RBF(length_scale_bounds=(2, 1))", "0 < low <= high"),
    ("RBF(length_scale_bounds=[(1, 2), (3, 4)])", "as many bounds"),
    ("RBF(**x)", "no meaning"),
    ("On(RBF(), [])", "a column's name or number"),
    ("On(RBF(), 'x', at=(1,))", "has no argument at"),
    ("Category(True)", "a column's name or number"),
    ("Scaled(RBF(), [1], [0])", "positive numbers"),
    ("Scaled(RBF(), [1, 2], [1])", "as many centres"),
    ("Scaled(RBF(), [1, 2], [1, 1], knots=[[]])", "as many columns"),
    ("Scaled(RBF(), [1], [1], knots=[[[1, 2], [2, 1]]])", "both rising"),
    ("Scaled(RBF(), [1], [1], knots=[[1, 2]])", "places"),
    ("PairwiseKernel(metric='precomputed')", "must be one of"),
    ("0 * RBF()", "no variance"),
    ("-2 * RBF()", "no variance"),
    ("True", "no kernel"),
    ("1e200 ** 8 * RBF()", "no variance"),
    ("9**9**9**9", "a power must be"),
    ("Sphere([1, 2])", "must be one number"),
    ("__import__('os').system('true')", "is not a kernel"),
    ("().__class__", "is not a kernel"),
    ("(lambda: RBF())()", "is not a kernel"),
    ("[RBF() for _ in 'x']", "is not a kernel"),
    ("f'{RBF()}'", "is not a kernel"),
    ("RBF() if 1 else 2", "is not a kernel"),
    ("+".join(["RBF()"] * 100), "nested more than"),
    ("(" * 3000 + "RBF()" + ")" * 3000, "kernel '(((("),
    ("'" + "x" * 200_000 + "'", "at most 200000 characters"),
    ("\0", "null bytes"),
])  # fmt: skip
def test_other_text_is_refused(text, why):
    with pytest.raises(KernelTextError) as caught:
        kernel_from_text(text)
    assert why in str(caught.value) and len(str(caught.value)) < 500


def test_kernels_of_others_have_no_text():
    class Mine(RBF):
        pass

    with pytest.raises(KernelTextError, match="Mine is no kernel that text knows"):
        kernel_text(1.0 * Mine())


def test_mutilated_text_is_a_kernel_or_an_error():
    rng = np.random.default_rng(0)
    texts = [kernel_text(kernel) for kernel in KERNELS]
    letters = "()[]{},.*+-/0129e'\"=_ aBx\n\\@:;"
    read = 0
    for _ in range(3000):
        text = list(texts[rng.integers(len(texts))])
        for _ in range(rng.integers(1, 5)):
            place = rng.integers(len(text))
            text[place : place + rng.integers(0, 3)] = rng.choice(list(letters), rng.integers(0, 3)).tolist()
        try:
            kernel_text(kernel_from_text("".join(text)))
            read += 1
        except KernelTextError:
            pass
    assert 100 < read < 2900  # some of it stays a kernel
