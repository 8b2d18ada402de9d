"""The derivatives of an exponential family's density, by JAX, vectorised over rows and compiled once.

JAX is imported here and nowhere else, and only when a family asks for a derivative that it has no closed form of.
Everything runs in float64 inside a local context; the user's own JAX settings stay as they are.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Diagonal

if TYPE_CHECKING:
    from ggpm.families.exponential import ExponentialFamily

Array = NDArray[np.float64]

# Rows are handed over in chunks, padded to a power of two: at most 14 shapes are ever compiled, and the memory
# of one call is bounded.
CHUNK = 2**13
# Families (class and settings) that keep their compiled functions: far more than one program uses, and a bound on the
# memory of one that makes settings in a loop.
KEPT = 64

_compiled: OrderedDict[Any, Derivatives] = OrderedDict()
_lock = threading.Lock()


def import_jax(what: str) -> Any:
    """Return JAX, or raise an error that says what it is needed for and how to get it."""
    try:
        import jax
    except ImportError as err:
        raise ImportError(
            f"{what} needs automatic differentiation, and JAX is not installed. Install the extra with "
            "pip install 'ggpm[jax]', or give the method in closed form."
        ) from err
    return jax


def _float64(jax: Any) -> Any:
    """A context in which JAX computes in float64, whatever its global setting."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # before JAX 0.8

    return enable_x64(True)


def derivatives_of(family: ExponentialFamily, what: str) -> Derivatives:
    """Compiled functions of a family: shared by all instances that differ in the values of phi alone.

    They belong to the attributes that the instance and its class have *now*: after a class attribute or a method is
    set anew, other functions are compiled. Global variables and closures that a function reads are not followed.
    """
    import_jax(what)
    key = (type(family), np.ndim(family.phi), _state(vars(family), ("phi", "phi_bounds")), _class_state(type(family)))
    with _lock:
        if key in _compiled:
            _compiled.move_to_end(key)
        else:
            _compiled[key] = Derivatives(family)
            while len(_compiled) > KEPT:
                _compiled.popitem(last=False)
        return _compiled[key]


def _class_state(cls: type) -> tuple[Any, ...]:
    """Attributes and methods of a user's class and its bases, up to this package's own."""
    settled = ("ggpm", "sklearn", "abc", "builtins")
    own = (base for base in cls.__mro__ if base.__module__.partition(".")[0] not in settled)
    return tuple(_state(vars(base), ("phi", "phi_bounds")) for base in own)


def _state(attributes: Mapping[str, Any], without: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(
        (name, _frozen(value))
        for name, value in sorted(attributes.items())
        if name not in without and not name.startswith("__")
    )


class _Same:
    """A value that is equal only to itself, and that stays alive as long as it is remembered."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _frozen(value: Any) -> Any:
    """A hashable stand-in that is equal for equal settings."""
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes())
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_frozen, value))
    if isinstance(value, (dict, set, frozenset)):
        items = value.items() if isinstance(value, dict) else value
        return (type(value), frozenset(_frozen(item) for item in items))
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return (type(value), value)  # 1, 1.0 and True are equal, but not the same setting


class Derivatives:
    """log p of one row as a function of (eta, y, log_hyper), with all derivatives that inference asks for."""

    def __init__(self, family: ExponentialFamily):
        self.jax = import_jax(type(family).__name__)
        self.scalar_phi = np.ndim(family.phi) == 0
        self.family = copy.copy(family)
        # T, b, h, a and the link are given phi; reading it from self would freeze its value
        self.family.phi = None
        self.functions: dict[str, Callable] = {}

    # ---- one row -------------------------------------------------------------------------------------------
    def phi(self, log_hyper: Any) -> Any:
        if log_hyper.shape[0] == 0:
            return None
        phi = self.family.phi_of(log_hyper)
        return phi[0] if self.scalar_phi and phi.shape == (1,) else phi

    def theta(self, log_hyper: Any, eta: Any) -> Any:
        given = self.family.link(eta[0] if self.family.latent_dim == 1 else eta, self.phi(log_hyper))
        return self.jax.numpy.asarray(given)

    def b(self, log_hyper: Any, theta: Any) -> Any:
        return self._number("log_partition", self.family.log_partition(theta, self.phi(log_hyper)))

    def _number(self, name: str, value: Any) -> Any:
        value = self.jax.numpy.asarray(value)
        if value.size != 1:
            raise ValueError(
                f"{type(self.family).__name__}.{name} must return one number for one row; got shape {value.shape}. "
                "The functions are written for a single row: theta as the link returns it, y as one observation."
            )
        return value.reshape(())

    def scale(self, log_hyper: Any, y: Any) -> Any:
        """trials/a."""
        return self.family.trials(y) / self.family.a(self.phi(log_hyper))

    def log_prob(self, log_hyper: Any, eta: Any, y: Any) -> Any:
        jnp = self.jax.numpy
        theta, T = self.theta(log_hyper, eta), jnp.asarray(self.family.T(y))
        if T.shape != theta.shape:
            raise ValueError(
                f"T(y) and theta = link(eta) must have one shape; {type(self.family).__name__} gives {T.shape} and "
                f"{theta.shape} for one row (eta is a number where latent_dim is 1, else a vector)."
            )
        log_h = self._number("log_base_measure", self.family.log_base_measure(y, self.phi(log_hyper)))
        # paper eq. (1): h(y, phi) exp{[T(y)^T theta - b(theta)]/a(phi)}
        return self.scale(log_hyper, y) * (jnp.sum(T * theta) - self.b(log_hyper, theta)) + log_h

    def _curvature(self, log_hyper: Any, eta: Any, y: Any, expected: bool) -> Any:
        """U of one row, (D, D), or its diagonal (D,) where that is all there is."""
        jax, jnp = self.jax, self.jax.numpy
        diagonal = self.family.curvature_type is Diagonal
        if not expected:

            def gradient(e: Any) -> Any:
                return jax.grad(self.log_prob, argnums=1)(log_hyper, e, y)

            return -jax.jvp(gradient, (eta,), (jnp.ones_like(eta),))[1] if diagonal else -jax.jacfwd(gradient)(eta)

        # J^T (Hessian of b) J trials/a, the part of the Hessian that does not depend on the residual
        def theta(e: Any) -> Any:
            return self.theta(log_hyper, e)

        at, back = jax.vjp(theta, eta)
        slope = jax.grad(lambda t: self.b(log_hyper, t))

        def along(direction: Any) -> Any:
            return back(jax.jvp(slope, (at,), (jax.jvp(theta, (eta,), (direction,))[1],))[1])[0]

        dense = along(jnp.ones_like(eta)) if diagonal else jax.vmap(along)(jnp.eye(eta.shape[0]))
        return self.scale(log_hyper, y) * dense

    def _contracted(self, log_hyper: Any, eta: Any, y: Any, V: Any, expected: bool) -> Any:
        """<V, U>; its gradient is the pullback, and no array is larger than D×D."""
        return self.jax.numpy.sum(V * self._curvature(log_hyper, eta, y, expected))

    def _mean(self, log_hyper: Any, eta: Any) -> Any:
        theta = self.theta(log_hyper, eta)
        given = self.family.mean(theta, self.phi(log_hyper))
        return self.jax.grad(self.b, argnums=1)(log_hyper, theta) if given is None else self.jax.numpy.asarray(given)

    def _covariance(self, log_hyper: Any, eta: Any) -> Any:
        """Covariance of T in one trial, a times the Hessian of b."""
        theta = self.theta(log_hyper, eta)
        return self.family.a(self.phi(log_hyper)) * self.jax.hessian(self.b, argnums=1)(log_hyper, theta)

    def _row_function(self, name: str) -> Callable:
        jax = self.jax
        return {
            "log_prob": self.log_prob,
            "u": jax.grad(self.log_prob, argnums=1),
            "U": lambda h, e, y: self._curvature(h, e, y, False),
            "U_expected": lambda h, e, y: self._curvature(h, e, y, True),
            "pullback": jax.grad(lambda h, e, y, V: self._contracted(h, e, y, V, False), argnums=(1, 0)),
            "pullback_expected": jax.grad(lambda h, e, y, V: self._contracted(h, e, y, V, True), argnums=(1, 0)),
            "log_prob_phi": jax.grad(self.log_prob, argnums=0),
            "u_phi": jax.jacfwd(jax.grad(self.log_prob, argnums=1), argnums=0),
            "theta": self.theta,
            "mean": self._mean,
            "covariance": self._covariance,
            "total": lambda h, y: self.jax.numpy.asarray(self.family.trials(y) * self.family.T(y)),
        }[name]

    # ---- many rows -----------------------------------------------------------------------------------------
    def __call__(self, name: str, log_hyper: Array, *rows: Array) -> tuple[Array, ...]:
        """The function ``name`` of every row; ``rows`` share their first axis, ``log_hyper`` is common."""
        results = []
        with _float64(self.jax):
            if name not in self.functions:
                axes = (None, *(0 for _ in rows))
                self.functions[name] = self.jax.jit(self.jax.vmap(self._row_function(name), in_axes=axes))
            for start in range(0, len(rows[0]), CHUNK):
                part = [r[start : start + CHUNK] for r in rows]
                size = len(part[0])
                padding = (1 << (size - 1).bit_length()) - size
                part = [np.concatenate([r, np.repeat(r[:1], padding, axis=0)]) if padding else r for r in part]
                try:
                    out = self.functions[name](log_hyper, *part)
                except self.jax.errors.TracerArrayConversionError as err:
                    raise TypeError(
                        f"the parameter functions of {type(self.family).__name__} must be written with jax.numpy (and "
                        "jax.scipy): a NumPy or SciPy function was called on a value that is to be differentiated."
                    ) from err
                out = out if isinstance(out, tuple) else (out,)
                results.append(tuple(np.asarray(o)[:size] for o in out))
        return tuple(np.concatenate(parts) for parts in zip(*results))
