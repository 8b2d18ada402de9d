"""`check_family`: checks of the promises of a family that inference relies on.

Every check compares two ways to the same number that share no code: sums over the support against one, averages
against derivatives, derivatives against differences, the gradient of a small fit against differences of its evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm.families.base import Family
from ggpm.families.curvature import Blocks
from ggpm.families.integration import Rule
from ggpm.fields.dense import DenseField
from ggpm.learning.objective import Evidence
from ggpm.prediction.predictive import Predictive
from ggpm.sites import Laplace, Taylor

Array = NDArray[np.float64]

__all__ = ["FamilyReport", "check_family"]

ROWS = 8  # of data that a check looks at
DRAWS = 1024  # per row: six standard errors of the variance of a normal variable are a quarter of it
STEP = 1e-3  # of fourth-order differences: truncation 1e-12, rounding 1e-13, times derivatives of moderate size
DIFFERENCE_RTOL = 1e-6  # between a derivative and its differences: six digits more than the errors of STEP
STANDARD_ERRORS = 6.0  # of a mean over random nodes or draws: one false alarm in 1e9


@dataclass(frozen=True)
class FamilyReport:
    """Result of `check_family`: the largest error of every check, and what could not be checked."""

    family: str
    errors: dict[str, float]
    skipped: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{self.family}: {len(self.errors)} checks passed"]
        lines += [f"  {name}: largest error {error:.1e}" for name, error in self.errors.items()]
        return "\n".join(lines + [f"  {name}: not checked ({why})" for name, why in self.skipped.items()])


def check_family(family: Family, y: Any = None, *, reach: float = 50.0, seed: int = 0) -> FamilyReport:
    """Check a family against its own density; raises AssertionError that says what failed and by how much.

    Parameters
    ----------
    family : Family
        An instance, built-in or your own.
    y : observations, optional
        Some data that fix the number of parts, classes or levels. Without them the support makes up its own.
    reach : float
        Latent values up to ±reach must give finite numbers. Lower it for a family that is not meant to go so far.
    seed : int
        Of the latent values and draws.

    Returns
    -------
    FamilyReport
        The largest error of every check, and what was skipped for want of an optional method.

    Examples
    --------
    >>> from ggpm.families import Poisson
    >>> report = check_family(Poisson())
    >>> report.skipped
    {}
    """
    rng = np.random.default_rng(seed)
    raw = family.support.example(rng, ROWS) if y is None else np.asarray(y)
    bound = family.resolve(raw).adapted(raw)
    raw = raw[np.arange(ROWS) % len(raw)]
    eta = bound.origin + rng.normal(scale=0.7, size=(ROWS, bound.latent_dim))
    case = _Case(bound, raw, bound.encode(raw), eta, rng, reach)
    for name, check in _CHECKS.items():
        case.name = name
        try:
            check(case)
            case.record(0.0)
        except ImportError:
            raise
        except NotImplementedError as err:
            case.skipped[name] = str(err)
        except Exception as err:
            case.failures.append(f"{name}: could not be computed ({type(err).__name__}: {err})")
    if case.failures:
        title = f"{type(family).__name__} fails {len(case.failures)} check(s):"
        raise AssertionError("\n- ".join([title, *case.failures]))
    return FamilyReport(repr(family), case.errors, case.skipped)


@dataclass
class _Case:
    """A family bound to data, latent values to look at, and what was found."""

    family: Family
    raw: Any
    y: Array
    eta: Array
    rng: np.random.Generator
    reach: float
    name: str = ""
    errors: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _rules: dict[int, tuple[Rule, Array, Array]] = field(default_factory=dict)

    def fail(self, words: str) -> None:
        self.failures.append(f"{self.name}: {words}")

    @property
    def failed(self) -> bool:
        """True if the present check has found something already."""
        return bool(self.failures) and self.failures[-1].startswith(self.name + ":")

    def record(self, error: float) -> None:
        self.errors[self.name] = max(self.errors.get(self.name, 0.0), float(error))

    def close(self, got: Array, want: Array, words: str, tolerance: Any = None) -> None:
        """Compare, row by row; ``tolerance`` is absolute, else relative to the size of the wanted row."""
        got, want = np.asarray(got, dtype=float), np.asarray(want, dtype=float)
        if got.shape != want.shape:
            self.fail(f"{words}: got shape {got.shape}, expected {want.shape}")
            return
        axes = tuple(range(1, want.ndim))
        scale = np.abs(want).max(axis=axes, keepdims=True, initial=0.0) if want.ndim else np.abs(want)
        allowed = DIFFERENCE_RTOL * (1.0 + scale) if tolerance is None else tolerance
        error = np.abs(got - want)
        worse = ~(error <= allowed)  # NaN is worse
        self.record(np.max(error / (1.0 + scale), initial=0.0))
        if not worse.any():
            return
        at = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error - allowed)), error.shape)
        g, w = float(got[at]), float(want[at])
        ratio = g / w if w else np.nan
        hint = ""
        if np.isclose(ratio, -1.0, rtol=1e-4):
            hint = " (the sign is wrong)"
        elif any(np.isclose(ratio, f, rtol=1e-3) for f in (0.25, 0.5, 2.0, 4.0)):
            hint = f" (a factor {ratio:.3g})"
        place = f" at index {tuple(map(int, at))}" if at else ""
        self.fail(f"{words}: got {g:.6g}, expected {w:.6g}{place}, off by {abs(g - w):.2g}{hint}")

    def rules(self) -> Iterator[tuple[int, Array, Rule, Array, Array]]:
        """For some rows: latent, rule, its nodes encoded, and normalised probabilities of the nodes."""
        for i in range(3):
            e = self.eta[i : i + 1]
            if i not in self._rules:
                rule = self.family.support.rule(
                    lambda v, e=e: self.family.log_prob(e, self.family.encode(v)),  # type: ignore[misc]
                    np.asarray(self.raw[i]),
                )
                keep = np.isfinite(rule.log_weights)
                rule = replace(rule, y=rule.y[keep], log_weights=rule.log_weights[keep])
                nodes = self.family.encode(rule.y)
                with np.errstate(over="ignore"):
                    p = np.exp(self.family.log_prob(e, nodes) + rule.log_weights)
                seen = p > 0
                rule = replace(rule, y=rule.y[seen], log_weights=rule.log_weights[seen])
                self._rules[i] = rule, nodes[seen], p[seen]
            rule, nodes, p = self._rules[i]
            yield i, e, rule, nodes, p

    def average(self, p: Array, rule: Rule, values: Array) -> tuple[Array, Array]:
        """Mean of values over the normalised density, and how far it may be off."""
        p = p / p.sum()
        mean = np.tensordot(p, values, axes=1)
        size = np.sqrt(np.tensordot(p, values**2, axes=1))
        if not rule.random:
            return mean, rule.atol * (1.0 + size)
        spread = p.reshape(-1, *(1,) * (values.ndim - 1)) * (values - mean)
        return mean, STANDARD_ERRORS * np.sqrt(np.sum(spread**2, axis=0)) + 1e-4 * (1.0 + size)


# ---- the checks --------------------------------------------------------------------------------------------
def _shapes(c: _Case) -> None:
    """Shapes, and the same numbers with quadrature nodes in front."""
    f, (n, D) = c.family, c.eta.shape
    nodes = c.eta + np.array([0.0, 0.3])[:, None, None]
    V = Blocks(np.tile(np.eye(D), (n, 1, 1)))
    d_eta, d_phi = f.U_pullback(c.eta, c.y, V)
    for what, got, want in (
        ("log_prob", f.log_prob(c.eta, c.y), (n,)),
        ("u", f.u(c.eta, c.y), (n, D)),
        ("U", f.U(c.eta, c.y).dense(), (n, D, D)),
        ("the pullback in eta", d_eta, (n, D)),
        ("the pullback in phi", d_phi, (f.log_hyper.size,)),
        ("log_prob_phi", f.log_prob_phi(c.eta, c.y), (n, f.log_hyper.size)),
        ("u_phi", f.u_phi(c.eta, c.y), (n, D, f.log_hyper.size)),
        ("log_prob with two nodes per row", f.log_prob(nodes, c.y), (2, n)),
    ):
        if np.shape(got) != want:
            c.fail(f"{what} has shape {np.shape(got)}, expected {want}")
    for k in range(2):
        c.close(f.log_prob(nodes, c.y)[k], f.log_prob(nodes[k], c.y), "log_prob of nodes is not that of each node")


def _normalisation(c: _Case) -> None:
    for _, e, rule, _, p in c.rules():
        with np.errstate(over="ignore"):
            total = float(p.sum())
        error = STANDARD_ERRORS * float(np.sqrt(np.sum((p - total / p.size) ** 2))) + 1e-4 if rule.random else 0.0
        c.record(abs(total - 1.0))
        if not abs(total - 1.0) <= max(error, rule.atol):
            verb = "sums" if c.family.support.integer else "integrates"
            c.fail(
                f"the density {verb} to {total:.6g} over the support, not to 1, at eta = {_show(e)}: log h or b is "
                f"off by {np.log(total) if total > 0 else -np.inf:.3g}"
            )
            return


def _score(c: _Case) -> None:
    """E[u] = 0, which is E[T] = grad b carried through the link."""
    for _, e, rule, nodes, p in c.rules():
        mean, allowed = c.average(p, rule, c.family.u(e, nodes))
        c.close(
            mean[None], np.zeros((1, mean.size)), f"E[T] is not the gradient of b at eta = {_show(e)}: E[u]", allowed
        )


def _expected(c: _Case) -> None:
    f = c.family
    for i, e, rule, nodes, p in c.rules():
        values = f.U(np.broadcast_to(e, (len(nodes), e.size)), nodes).dense()
        mean, allowed = c.average(p, rule, values)
        given = f.U(e, c.y[i : i + 1], expected=True).dense()[0]
        if f.countable:  # the rule may have another number of trials
            given = f.U(e, nodes[:1], expected=True).dense()[0]
        c.close(given[None], mean[None], f"the expected curvature is not E[U] at eta = {_show(e)}", allowed)
        if c.failed:
            return


def _definite(c: _Case) -> None:
    for expected in (False, True):
        U = c.family.U(c.eta, c.y, expected=expected).dense()
        c.close(U, np.swapaxes(U, -1, -2), "U is not symmetric", 1e-12 * np.abs(U).max())
        if expected:
            lowest, size = np.linalg.eigvalsh(U)[:, 0], np.abs(U).max(axis=(1, 2))
            if np.any(lowest < -1e-10 * size):
                row = int(np.argmin(lowest / np.maximum(size, 1e-300)))
                c.fail(
                    f"the expected curvature is not positive semidefinite: eigenvalue {lowest[row]:.3g} at "
                    f"eta = {_show(c.eta[row])}"
                )


def _differences(function: Callable[[Array], Array], x: Array) -> Array:
    """Fourth-order central differences of rows in every coordinate of x (n, D), on a new last axis."""
    out = []
    for step in STEP * np.eye(x.shape[-1]):
        near, far = function(x + step) - function(x - step), function(x + 2 * step) - function(x - 2 * step)
        out.append((8.0 * near - far) / (12.0 * STEP))
    return np.stack(out, axis=-1)


def _gradient(c: _Case) -> None:
    f = c.family
    c.close(f.u(c.eta, c.y), _differences(lambda e: f.log_prob(e, c.y), c.eta), "u is not the gradient of log_prob")


def _hessian(c: _Case) -> None:
    f = c.family
    want = -_differences(lambda e: f.u(e, c.y), c.eta)
    c.close(f.U(c.eta, c.y).dense(), want, "U is not minus the derivative of u")


def _third(c: _Case) -> None:
    f, (n, D) = c.family, c.eta.shape
    A = c.rng.normal(size=(n, D, D))
    V = Blocks(A @ np.swapaxes(A, 1, 2))
    for expected in (False, True):
        kind = "expected" if expected else "observed"

        def inner(e: Array, expected: bool = expected) -> Array:
            return np.sum(V.values * f.U(e, c.y, expected=expected).dense(), axis=(-1, -2))

        got, got_phi = f.U_pullback(c.eta, c.y, V, expected=expected)
        c.close(got, _differences(inner, c.eta), f"U_pullback ({kind}) is not the derivative of <V, U> in eta")
        if f.log_hyper.size:

            def total(h: Array, expected: bool = expected) -> Array:
                return np.array([np.sum(V.values * f.with_log_hyper(h[0]).U(c.eta, c.y, expected=expected).dense())])

            want = _differences(total, f.log_hyper[None])[0]
            c.close(got_phi[None], want[None], f"U_pullback ({kind}) is not the derivative of <V, U> in phi")


def _phi(c: _Case) -> None:
    f = c.family
    h = f.log_hyper
    if not h.size:
        return
    c.close(f.with_log_hyper(h).log_hyper, h, "with_log_hyper and log_hyper are not inverse", 1e-9 * (1 + np.abs(h)))

    def over(method: Callable[[Family], Array]) -> Array:
        return _differences(lambda v: method(f.with_log_hyper(v[0]))[None], h[None])[0]

    c.close(f.log_prob_phi(c.eta, c.y), over(lambda g: g.log_prob(c.eta, c.y)), "log_prob_phi is not the derivative")
    c.close(f.u_phi(c.eta, c.y), over(lambda g: g.u(c.eta, c.y)), "u_phi is not the derivative of u in phi")
    w = c.rng.normal(size=c.eta.shape)
    want = over(lambda g: np.array([np.sum(w * g.expansion(c.y))]))[0]
    c.close(f.expansion_pullback(c.y, w), want, "expansion_pullback is not the derivative of the Taylor point in phi")


def _extremes(c: _Case) -> None:
    f, (n, D) = c.family, c.eta.shape
    signs = c.rng.choice([-1.0, 0.0, 1.0], size=(2 * n, D))
    signs[0], signs[1], signs[2] = 1.0, -1.0, 0.0
    for eta in (c.reach * signs[:n], c.reach * signs[n:]):
        with np.errstate(all="ignore"):
            values = {
                "log_prob": f.log_prob(eta, c.y),
                "u": f.u(eta, c.y),
                "U": f.U(eta, c.y).dense(),
                "the expected U": f.U(eta, c.y, expected=True).dense(),
            }
        for what, value in values.items():
            bad = ~np.isfinite(value.reshape(n, -1)).all(axis=1)
            if bad.any():
                row = int(np.argmax(bad))
                c.fail(
                    f"{what} is {value[row].ravel()[~np.isfinite(value[row].ravel())][0]} at eta = {_show(eta[row])}, "
                    f"y = {_show(c.y[row])}; write it so that it does not overflow, or lower reach={c.reach:g}"
                )


def _taylor(c: _Case) -> None:
    f = c.family
    eta = f.expansion(c.y)
    if eta.shape != c.eta.shape or not np.all(np.isfinite(eta)):
        c.fail(f"the Taylor point must be finite, of shape {c.eta.shape}; got shape {eta.shape}, {_show(eta[0])} first")
        return
    for what, value in (("log_prob", f.log_prob(eta, c.y)), ("u", f.u(eta, c.y)), ("U", f.U(eta, c.y).dense())):
        if not np.all(np.isfinite(value)):
            c.fail(f"{what} is not finite at the Taylor point")
    point = f.point(f.moment(eta))
    if not f.support.allows_mean(point):
        c.fail(f"the mean at the Taylor point lies outside the support: {_show(point[0])} first")


def _moments(c: _Case) -> None:
    """moment = E[y], or of what stands for y; spread = its variance."""
    f = c.family
    for _, e, rule, nodes, p in c.rules():
        trials = np.array([rule.y[0].sum()]) if f.countable else None
        moment = f.moment(e, trials)[0]
        values = f.support.embed(nodes)
        if f.kind == "classes" and np.ndim(moment):
            values = np.eye(len(moment))[rule.y.astype(int)]
        elif f.kind == "shares" and not np.ndim(moment):
            values = values[:, 0]
        elif values[0].size == np.size(moment):
            values = values.reshape(len(values), *np.shape(moment))
        if values.shape[1:] != np.shape(moment):
            raise NotImplementedError(f"moment has shape {np.shape(moment)}, y {values.shape[1:]}")
        mean, allowed = c.average(p, rule, values)
        c.close(moment[None], mean[None], f"moment is not E[y] at eta = {_show(e)}", allowed)
        if f.kind == "angles":  # their variance is that of no number
            continue
        spread, centred = f.spread(e, trials)[0], values - mean
        if spread.ndim == 2 and np.ndim(moment) == 1:
            squares = centred[:, :, None] * centred[:, None, :]
        else:
            squares = centred**2
        variance, allowed = c.average(p, rule, squares)
        c.close(spread[None], variance[None], f"spread is not Var[y] at eta = {_show(e)}", allowed)
        if c.failed:
            return


def _sampling(c: _Case) -> None:
    """Draws lie in the support, and their scores have mean 0 and the expected curvature as covariance."""
    f, (n, D) = c.family, c.eta.shape
    eta = np.broadcast_to(c.eta, (DRAWS, n, D))
    trials = np.full(n, 4.0) if f.countable else None
    draws = f.sample(eta, c.rng, trials)
    if draws.shape[:2] != (DRAWS, n):
        c.fail(f"draws have shape {draws.shape}, expected ({DRAWS}, {n}, ...)")
        return
    flat = draws.reshape(DRAWS * n, *draws.shape[2:])
    try:
        y = f.encode(flat)
    except ValueError as err:
        c.fail(f"draws lie outside the support ({err})")
        return
    u = f.u(eta.reshape(-1, D), y).reshape(DRAWS, n, D)
    error = STANDARD_ERRORS * u.std(axis=0) / np.sqrt(DRAWS) + 1e-9
    c.close(u.mean(axis=0), np.zeros((n, D)), "draws do not follow the density: the mean of u over them", error)
    squares = u[..., :, None] * u[..., None, :]
    want = f.U(c.eta, y.reshape(DRAWS, n, *y.shape[1:])[0], expected=True).dense()
    error = STANDARD_ERRORS * squares.std(axis=0) / np.sqrt(DRAWS) + 1e-6 * (1.0 + np.abs(want))
    c.close(squares.mean(axis=0), want, "draws do not follow the density: the covariance of u over them", error)


def _fit(c: _Case) -> None:
    """A small fit: the gradient of the evidence, and a prediction."""
    f, (n, D) = c.family, c.eta.shape
    X = c.rng.uniform(-1.0, 1.0, size=(n, 1))
    kernel = ConstantKernel(0.7) * RBF(0.6) + ConstantKernel(0.3)
    for inference in (Taylor(), Laplace()):
        label = type(inference).__name__
        evidence = Evidence(f, [kernel], DenseField(X, c.y, np.tile(f.origin, (n, 1))), inference)
        value, gradient, approximation = evidence.evaluate()
        assert gradient is not None
        if not np.isfinite(value) or not approximation.converged:
            c.fail(f"{label}: the posterior was not found (log evidence {value:.4g})")
            continue

        def at(theta: Array, evidence: Evidence = evidence) -> Array:
            return np.array([evidence.at(theta[0]).evaluate(gradient=False)[0]])

        want = _differences(at, evidence.theta[None])[0]
        # the mode is found to half the digits of the evidence
        allowed = 1e-5 * (1.0 + np.abs(want).max())
        c.close(gradient, want, f"{label}: the gradient of the evidence is not its derivative", allowed)
        prior = np.tile(np.eye(D), (n, 1, 1))
        predictive = Predictive(f, approximation.q.mean + f.origin, 0.1 * prior)
        for what, numbers in (("mean", predictive.mean()), ("log_prob", predictive.log_prob(c.raw))):
            if not np.all(np.isfinite(numbers)):
                c.fail(f"{label}: the predictive {what} is not finite")


def _show(x: Any) -> str:
    return np.array2string(np.squeeze(np.asarray(x)), precision=3, threshold=6, separator=", ").replace("\n", "")


_CHECKS: dict[str, Callable[[_Case], None]] = {
    "shapes": _shapes,
    "normalisation": _normalisation,
    "mean of T": _score,
    "gradient": _gradient,
    "curvature": _hessian,
    "expected curvature": _expected,
    "symmetry and definiteness": _definite,
    "third derivatives": _third,
    "derivatives in phi": _phi,
    "extremes": _extremes,
    "Taylor point": _taylor,
    "moments": _moments,
    "sampling": _sampling,
    "small fit": _fit,
}
