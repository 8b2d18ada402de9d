"""Special functions against mpmath, over their whole range and at the borders between methods."""

import mpmath as mp
import numpy as np
import pytest

from ggpm.families import special
from ggpm.families.special import careful_bessel, stable

# Measured errors are below 1e-13 (below 4e-12 for A'' at nu = 49); this is what the families promise.
RTOL = 1e-10


def relative_error(got, reference):
    """Largest relative error against mpmath numbers."""
    pairs = zip(np.ravel(got), reference, strict=True)
    return max(float(abs(mp.mpf(float(g)) / r - 1)) if r else abs(g) for g, r in pairs)


def bessel_reference(nu, k):
    """The fields of `CarefulRatio` and `careful_log_bessel`, from the definitions."""
    # at k = 1e10 the largest cancellation (A'') takes 30 digits
    with mp.workdps(80):
        nu, k = mp.mpf(nu), mp.mpf(float(k))
        I0, I1 = mp.besseli(nu, k), mp.besseli(nu + 1, k)
        A = I1 / I0
        slope = 1 - A**2 - (2 * nu + 1) * A / k
        bend = -2 * A * slope - (2 * nu + 1) * (slope / k - A / k**2)
        c1 = A / k
        rho = c1 - slope
        log_b = mp.log(mp.gamma(nu + 1) * (2 / k) ** nu * I0) - k
        return A, 1 - A, c1, slope, rho, slope / c1, -rho / k, bend, log_b


FIELDS = careful_bessel.CarefulRatio._fields


@pytest.mark.parametrize("nu", [0.0, 0.5, 1.0, 4.0, 24.5, 49.0])
def test_bessel_ratio_and_log_bessel(nu):
    far = careful_bessel._far(nu)
    borders = np.array([*careful_bessel._edges(far), 2 * np.sqrt(nu + 1)])
    around = np.outer(borders, [1 - 1e-12, 1.0, 1 + 1e-12]).ravel()
    k = np.concatenate([np.logspace(-12, 10, 67), np.linspace(1, 35, 18), around])
    reference = list(zip(*(bessel_reference(nu, v) for v in k)))
    for ratio in (careful_bessel.careful_bessel_ratio(nu, k), special.BesselRatio(nu, k)):
        for name, expected in zip(FIELDS, reference):
            assert relative_error(getattr(ratio, name), expected) < RTOL, name
    assert relative_error(careful_bessel.careful_log_bessel(nu, k), reference[-1]) < RTOL
    assert relative_error(special.BesselRatio(nu, k).log, reference[-1]) < RTOL


def test_bessel_at_zero_and_beyond():
    at_zero = special.BesselRatio(0.0, np.zeros(1))
    values = [getattr(at_zero, name)[0] for name in FIELDS]
    np.testing.assert_allclose(values, [0, 1, 0.5, 0.5, 0, 1, 0, 0], rtol=1e-15)
    assert at_zero.log[0] == 0.0
    huge = special.BesselRatio(0.0, np.array([1e150, 1e300]))
    assert all(np.all(np.isfinite(getattr(huge, name))) for name in FIELDS)
    np.testing.assert_allclose(huge.slope_over_c1, [0.5e-150, 0.5e-300], rtol=RTOL)
    np.testing.assert_allclose(huge.log[1], -0.5 * np.log(2e300 * np.pi), rtol=RTOL)


def test_bessel_keeps_shapes_and_nan():
    k = np.array([[0.0, 1.0, np.nan], [50.0, 3.0, 1e9]])
    ratio = special.BesselRatio(0.0, k)
    for name in (*FIELDS, "log"):
        assert getattr(ratio, name).shape == k.shape
        np.testing.assert_array_equal(np.isnan(getattr(ratio, name)), np.isnan(k))
    assert special.BesselRatio(0.0, np.array(1.0)).A.shape == ()


def test_log_bessel_where_the_bessel_function_underflows():
    k = np.array([40.0, 60.0, 150.0])  # I_600(60) is about 1e-522
    for nu in (300.0, 600.0):
        expected = [bessel_reference(nu, v)[-1] for v in k]
        assert relative_error(careful_bessel.careful_log_bessel(nu, k), expected) < RTOL
        assert relative_error(special.BesselRatio(nu, k).log, expected) < RTOL


X = np.concatenate([np.logspace(-22, 22, 89), [10.0, np.nextafter(10.0, 11), 9.999, 1.0]])


@pytest.mark.parametrize(
    "function, reference",
    [
        (
            stable.stirling_error,
            lambda x: mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2,
        ),
        (special.trigamma_excess, lambda x: x * x * mp.polygamma(1, x) - x),
        (special.log1p_minus, lambda x: mp.log1p(x) - x),
    ],
    ids=["stirling_error", "trigamma_excess", "log1p_minus"],
)
def test_functions_of_one_variable(function, reference):
    with mp.workdps(80):
        assert relative_error(function(X), [reference(mp.mpf(float(x))) for x in X]) < RTOL


def test_log1p_minus_of_negative_numbers():
    x = -np.array([1e-15, 1e-4, 0.1, 0.29999, 0.3, 0.5, 0.999])
    with mp.workdps(60):
        assert relative_error(special.log1p_minus(x), [mp.log1p(mp.mpf(v)) - mp.mpf(v) for v in x]) < RTOL


def test_digamma_increment():
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(-50, 50, 120))
    delta = x * np.exp(rng.uniform(-60, 20, 120))
    delta[:3] = x[:3] * [0.5, 0.499999, 0.500001]
    with mp.workdps(80):
        pairs = [(mp.mpf(a), mp.mpf(b)) for a, b in zip(x.tolist(), delta.tolist())]
        reference = [mp.digamma(a + b) - mp.digamma(a) for a, b in pairs]
        assert relative_error(special.digamma_increment(x, delta), reference) < RTOL


@pytest.mark.parametrize("spread", [(-7, 14), (-50, 50), (-3, 3), (10, 14), (-50, -20)])
def test_information_gap(spread):
    rng = np.random.default_rng(1)
    for d in (2, 5):
        alpha = np.exp(rng.uniform(*spread, (12, d)))
        with mp.workdps(120):
            rows = [[mp.mpf(v) for v in row] for row in alpha.tolist()]
            reference = [1 - sum(mp.polygamma(1, sum(row)) / mp.polygamma(1, v) for v in row) for row in rows]
            assert relative_error(special.information_gap(alpha), reference) < RTOL


def test_excess_log():
    rng = np.random.default_rng(2)
    p = np.exp(rng.uniform(-20, 0, 200))
    q = p * np.exp(rng.normal(size=200) * 10 ** rng.uniform(-7, 1, 200))
    with mp.workdps(60):
        pairs = [(mp.mpf(a), mp.mpf(b)) for a, b in zip(p.tolist(), q.tolist())]
        assert relative_error(stable.excess_log(p, q), [a * mp.log(a / b) - a + b for a, b in pairs]) < RTOL
    edge = stable.excess_log(np.array([0.0, 0.0, 0.5, 0.5]), np.array([0.0, 0.3, 0.0, 0.0]))
    np.testing.assert_array_equal(edge, [0.0, 0.3, np.inf, np.inf])
    # where q underflows its logarithm is still there
    got = stable.excess_log(np.array(0.5), np.array(0.0), log_b=np.array(-2000.0))
    np.testing.assert_allclose(got, 0.5 * (np.log(0.5) + 2000.0) - 0.5, rtol=1e-14)


def test_log_softmax_and_sum_of_others():
    eta = np.array([[50.0, 0.0, -50.0], [-50.0, -50.0, -50.0], [1e3, -1e3, 0.0], [0.3, 0.1, -2.0]])
    with mp.workdps(900):  # exp(-1000) beside one
        reference = [mp.mpf(v) - mp.log(sum(mp.exp(mp.mpf(w)) for w in row)) for row in eta.tolist() for v in row]
        # exp(-1000) is below the smallest float: there the logarithm of a probability next to one is zero
        reference = [mp.mpf(float(r)) for r in reference]
        assert relative_error(special.log_softmax(eta), reference) < RTOL
    x = np.exp(eta[[0, 1, 3]])
    expected = [1 + np.exp(-50), np.exp(50), np.exp(50)]
    np.testing.assert_allclose(special.sum_of_others(x)[0], expected, rtol=1e-15)
    np.testing.assert_allclose(special.sum_of_others(x), x @ (1 - np.eye(3)), rtol=1e-14)
