"""Kernels as text and back: what ``ggpm fit --kernel`` takes, and what results and reports print.

The text is an expression as in Python, of kernels by name, numbers, ``+``, ``*`` and ``**``:

    C() * On(Matern(24, nu=1.5), "time") + C(0.3) * On(Cyclic(24), "time") + C() * Category("station")

Nothing is executed: the text is parsed into a tree, and only what is listed here is made of it. Text that kernels print
themselves (``repr``) is read too; there, numbers are rounded and products of sums have lost their parentheses, which
`kernel_text` keeps.
"""

from __future__ import annotations

import ast
import re
import warnings
from inspect import signature
from typing import Any, NoReturn

import numpy as np
from sklearn.gaussian_process import kernels as sk

from ggpm.data.text import did_you_mean
from ggpm.kernels.additive import Additive
from ggpm.kernels.columns import Category, Cyclic, On, Sphere
from ggpm.kernels.scaled import Scaled

__all__ = ["KERNELS", "KernelTextError", "kernel_from_text", "kernel_text"]

KERNELS: dict[str, Any] = {
    c.__name__: c
    for c in (
        sk.ConstantKernel, sk.WhiteKernel, sk.RBF, sk.Matern, sk.RationalQuadratic, sk.ExpSineSquared, sk.DotProduct,
        sk.PairwiseKernel, On, Category, Sphere, Cyclic, Scaled, Additive,
    )
}  # fmt: skip
"""Kernels by name, as text and files know them."""
SHORT = {"C": "ConstantKernel", "White": "WhiteKernel", "Constant": "ConstantKernel"}
NUMBERS = {"inf": np.inf}
MAX_TEXT, MAX_DEPTH = 200_000, 60  # characters and nesting: far beyond any kernel that can be fitted
MAX_POWER = 8.0  # exponents are small numbers; a power of powers could take hours
PAIRWISE = ("linear", "polynomial", "poly", "rbf", "laplacian", "sigmoid", "cosine", "additive_chi2", "chi2")


class KernelTextError(ValueError):
    """Text that is not a kernel; the message says where and why.

    >>> issubclass(KernelTextError, ValueError)
    True
    """


# ---- from text -------------------------------------------------------------------------------------------------------
def kernel_from_text(text: str) -> sk.Kernel:
    """The kernel that a text describes; nothing of it is executed.

    >>> kernel_from_text("C(2.0) * On(RBF(3), ['lat', 'lon']) + 0.5 * Category('station')")
    1.41**2 * On(RBF(length_scale=3), ['lat', 'lon']) + 0.707**2 * Category('station')
    >>> kernel_from_text("RFB()")
    Traceback (most recent call last):
    ...
    ggpm.kernels.text.KernelTextError: kernel 'RFB()': there is no kernel RFB. Did you mean 'RBF'?
    """
    if len(text) > MAX_TEXT:
        raise KernelTextError(f"a kernel has at most {MAX_TEXT} characters; got {len(text)}.")
    reader = _Reader(text)
    try:
        with warnings.catch_warnings():  # odd escapes in strings: what is wrong with them shows below
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        what = error.msg if isinstance(error, SyntaxError) else "it cannot be read"
        reader.fail(f"{what}. Write it like C() * RBF() + C()")
    found = reader.value(tree, 0)
    if isinstance(found, bool) or not isinstance(found, float | int | sk.Kernel):
        reader.fail("it is no kernel")
    return _constant(found, reader)


def _constant(value: Any, reader: _Reader) -> sk.Kernel:
    """A kernel, from one or from a number that stands for a constant one."""
    if isinstance(value, sk.Kernel):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        reader.fail(f"{value!r} can be no variance: positive numbers can")
    return sk.ConstantKernel(float(value))


class _Reader:
    """Turns the tree of a text into values, and says what is wrong with it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, why: str) -> NoReturn:
        shown = self.text if len(self.text) <= 120 else self.text[:117] + "..."
        raise KernelTextError(f"kernel {shown!r}: {why}{'' if why.endswith('?') else '.'}") from None

    def value(self, node: ast.AST, depth: int) -> Any:
        """A number, a string, a list of them, or a kernel."""
        if depth > MAX_DEPTH:
            self.fail(f"it is nested more than {MAX_DEPTH} deep")
        match node:
            case ast.Constant(value=bool() | str() | None as value):
                return value
            case ast.Constant(value=int() | float() as value) if abs(value) < 1e300:
                return value
            case ast.Name(id=name) if name in NUMBERS:
                return NUMBERS[name]
            case ast.Name(id=name) if name in PAIRWISE:
                return name  # scikit-learn prints metrics without quotes
            case ast.Name(id=name) if SHORT.get(name, name) in KERNELS:
                self.fail(f"{name} needs parentheses, {name}()")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.value(operand, depth + 1)
                return -self.number(inner)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self.value(element, depth + 1) for element in elements]
            case ast.BinOp(left=left, op=op, right=right):
                return self.combined(self.value(left, depth + 1), op, self.value(right, depth + 1))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                given = [self.value(argument, depth + 1) for argument in args]
                if any(keyword.arg is None for keyword in keywords):
                    self.fail("** has no meaning among arguments")
                named = {str(keyword.arg): self.value(keyword.value, depth + 1) for keyword in keywords}
                return self.kernel(name, given, named)
        part = ast.unparse(node)
        self.fail(f"{part if len(part) < 60 else part[:57] + '...'} is not a kernel, a number, a name or a list")

    def number(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"{value!r} is not a number")
        return float(value)

    @np.errstate(over="ignore", invalid="ignore")
    def combined(self, left: Any, op: ast.operator, right: Any) -> Any:
        kernels = [value for value in (left, right) if isinstance(value, sk.Kernel)]
        if isinstance(op, ast.Pow):
            power = self.number(right)
            if not 0 < power <= MAX_POWER:
                self.fail(f"a power must be above 0 and at most {MAX_POWER:g}; got {power:g}")
            if not kernels:
                return float(np.float64(self.number(left)) ** power)
            return sk.Exponentiation(left, power)
        if not isinstance(op, ast.Add | ast.Mult):
            self.fail("kernels are combined by +, * and ** alone")
        if not kernels:
            a, b = self.number(left), self.number(right)
            return a + b if isinstance(op, ast.Add) else a * b
        both = _constant(left, self), _constant(right, self)
        return sk.Sum(*both) if isinstance(op, ast.Add) else sk.Product(*both)

    def kernel(self, name: str, given: list, named: dict[str, Any]) -> sk.Kernel:
        """A kernel from its name and arguments, each of them checked."""
        kind = KERNELS.get(SHORT.get(name, name))
        if kind is None:
            self.fail(f"there is no kernel {name}.{did_you_mean(name, KERNELS) or ' Known are ' + ', '.join(KERNELS)}")
        parameters = [p for p in signature(kind).parameters if p not in ("at", "pairwise_kernels_kwargs")]
        if len(given) > len(parameters):
            self.fail(f"{name} has at most {len(parameters)} arguments, {', '.join(parameters)}; got {len(given)}")
        unknown = [key for key in named if key not in parameters]
        if unknown:
            self.fail(f"{name} has no argument {unknown[0]}: it has {', '.join(parameters)}")
        twice = [key for key in parameters[: len(given)] if key in named]
        if twice:
            self.fail(f"{twice[0]} of {name} is given twice")
        values = {**dict(zip(parameters, given)), **named}
        values = {key: self.argument(name, key, value) for key, value in values.items()}
        if values.get("sigma_0") == 0:
            values.setdefault("sigma_0_bounds", "fixed")  # from zero, no search finds a way
        try:
            kernel = kind(**values)
            bounds, theta = kernel.bounds, kernel.theta
        except (TypeError, ValueError) as error:
            self.fail(f"{name}: {str(error).rstrip('.')}")
        if len(bounds) != len(theta):
            self.fail(f"{name}: as many bounds as values are needed, or one pair for all of them")
        if isinstance(kernel, Scaled) and not 0 < len(kernel.centre) == len(kernel.spread):
            self.fail(f"{name} needs as many centres as spreads")
        if isinstance(kernel, Scaled) and kernel.knots and len(kernel.knots) != len(kernel.spread):
            self.fail(f"{name} needs knots for as many columns as it has spreads")
        return kernel

    def argument(self, name: str, key: str, value: Any) -> Any:
        """One argument of a kernel, as its constructor takes it."""
        where = f"{key} of {name}"
        if key == "kernel":
            return _constant(value, self)
        if key == "columns":
            names = value if isinstance(value, list) else [value]
            good = all(isinstance(v, str) or (isinstance(v, int) and not isinstance(v, bool) and v >= 0) for v in names)
            if not (names and good):
                self.fail(f"{where} must be a column's name or number, or a list of them; got {value!r}")
            return value
        if key == "metric":
            if value not in PAIRWISE:
                self.fail(f"{where} must be one of {', '.join(PAIRWISE)}; got {value!r}")
            return value
        if key.endswith("_bounds"):
            return self.bounds(where, value)
        if key == "knots":
            return self.knots(where, value)
        numbers = [self.number(v) for v in (value if isinstance(value, list) else [value])]
        if key in ("centre", "spread"):
            if not isinstance(value, list) or not all(np.isfinite(numbers)) or (key == "spread" and min(numbers) <= 0):
                self.fail(f"{where} must be a list of {'positive ' * (key == 'spread')}numbers; got {value!r}")
            return tuple(numbers)
        if isinstance(value, list) and (key != "length_scale" or name in ("Sphere", "Cyclic", "Additive")):
            self.fail(f"{where} must be one number; got {value!r}")
        least = 0.0 if key == "sigma_0" else np.nextafter(0.0, 1.0)
        if not numbers or min(numbers) < least or (max(numbers) == np.inf and key != "nu"):
            self.fail(f"{where} must be positive; got {value!r}")
        return numbers if isinstance(value, list) else numbers[0]

    def knots(self, where: str, value: Any) -> tuple:
        """Curves of `Scaled`: for each column nothing, or as many values as places, both rising."""
        out: list[tuple] = []
        for curve in value if isinstance(value, list) else [value]:
            pair = isinstance(curve, list) and len(curve) in (0, 2) and all(isinstance(part, list) for part in curve)
            if not pair:
                self.fail(f"{where} must be a list of ([places], [values]) or []; got {curve!r}")
            numbers = [tuple(self.number(v) for v in part) for part in curve]
            if numbers and not (
                len(numbers[0]) == len(numbers[1]) > 1 and all(np.all(np.diff(part) > 0) for part in numbers)
            ):
                self.fail(f"{where} must have as many values as places, both rising; got {curve!r}")
            out.append(tuple(numbers))
        return tuple(out)

    def bounds(self, where: str, value: Any) -> Any:
        if value == "fixed":
            return value
        pairs = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
        for pair in pairs:
            if not (isinstance(pair, list) and len(pair) == 2):
                self.fail(f"{where} must be (low, high) or 'fixed'; got {value!r}")
            low, high = map(self.number, pair)
            if not 0 < low <= high < np.inf:
                self.fail(f"{where} must have 0 < low <= high; got ({low:g}, {high:g})")
        out = [tuple(map(float, pair)) for pair in pairs]
        return out[0] if pairs[0] is value else np.array(out)


# ---- to text ---------------------------------------------------------------------------------------------------------
def kernel_text(kernel: sk.Kernel, digits: int | None = None) -> str:
    """A kernel as text that `kernel_from_text` reads back: exactly, or with so many digits.

    Arguments that are as by default are left out.

    >>> kernel_text((sk.RBF(2.0) + sk.WhiteKernel(0.1)) * On(sk.DotProduct(), "dose"))
    "(RBF(2.0) + WhiteKernel(0.1)) * On(DotProduct(), 'dose')"
    """
    if type(kernel) in (sk.Sum, sk.Product):
        left, right = kernel_text(kernel.k1, digits), kernel_text(kernel.k2, digits)
        if type(kernel) is sk.Sum:
            return f"{left} + {f'({right})' if type(kernel.k2) is sk.Sum else right}"
        left = f"({left})" if type(kernel.k1) is sk.Sum else left
        return f"{left} * {f'({right})' if type(kernel.k2) in (sk.Sum, sk.Product) else right}"
    if type(kernel) is sk.Exponentiation:
        inner = kernel_text(kernel.kernel, digits)
        compound = type(kernel.kernel) in (sk.Sum, sk.Product, sk.Exponentiation)
        return f"{f'({inner})' if compound else inner} ** {_written(kernel.exponent, digits)}"
    kind = type(kernel)
    if KERNELS.get(kind.__name__) is not kind:
        raise KernelTextError(f"{kind.__name__} is no kernel that text knows: {', '.join(KERNELS)} are.")
    arguments: list[str] = []
    plain = True  # while all arguments so far are written, names are not needed
    for name, parameter in signature(kind).parameters.items():
        value = getattr(kernel, name)
        if name in ("at", "pairwise_kernels_kwargs") or _same(value, parameter.default):
            plain = False
            continue
        text = kernel_text(value, digits) if isinstance(value, sk.Kernel) else _written(value, digits)
        plain = plain and len(arguments) < 2
        arguments.append(text if plain else f"{name}={text}")
    return f"{kind.__name__}({', '.join(arguments)})"


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, sk.Kernel) or default is None:
        return value is default
    return type(value) is type(default) and bool(np.array_equal(value, default))


def _written(value: Any, digits: int | None) -> str:
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, np.ndarray | list | tuple):
        parts = [_written(v, digits) for v in (value.tolist() if isinstance(value, np.ndarray) else value)]
        return f"({', '.join(parts)})" if isinstance(value, tuple) and len(parts) > 1 else f"[{', '.join(parts)}]"
    if isinstance(value, bool | None):
        return repr(value)
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, int) or digits is None:
        return repr(value)
    return re.sub(r"e([+-])0", r"e\1", f"{value:.{digits}g}")
