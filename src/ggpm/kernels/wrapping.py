"""A kernel around another one, whose hyperparameters are all that it has: the base of `On` and `Scaled`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels.nodes import Block, Node, Pulled

Array = NDArray[np.float64]


class Wrapping(sk.Kernel):
    """A kernel that looks at X through a function of its rows, `seen`, and leaves the rest to an inner kernel."""

    kernel: sk.Kernel

    def seen(self, X: Any) -> Any:
        """What the inner kernel sees of X."""
        raise NotImplementedError

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of this kernel, with those of the inner one as ``kernel__...``."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            params.update((f"kernel__{name}", value) for name, value in self.kernel.get_params().items())
        return params

    @property
    def hyperparameters(self) -> list[sk.Hyperparameter]:
        """Hyperparameters of the inner kernel."""
        return [
            sk.Hyperparameter(f"kernel__{h.name}", h.value_type, h.bounds, h.n_elements)
            for h in self.kernel.hyperparameters
        ]

    @property
    def theta(self) -> Array:
        """Free log-hyperparameters of the inner kernel."""
        return self.kernel.theta

    @theta.setter
    def theta(self, theta: Array) -> None:
        self.kernel.theta = theta

    @property
    def bounds(self) -> Array:
        """Bounds of `theta`."""
        return self.kernel.bounds

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        if eval_gradient:
            return self.kernel(self.seen(X), None if Y is None else self.seen(Y), eval_gradient=True)
        return self.kernel(self.seen(X), None if Y is None else self.seen(Y))

    def diag(self, X: Any) -> Array:
        """k(x, x) of every row."""
        return self.kernel.diag(self.seen(X))

    def is_stationary(self) -> bool:
        """Whether the inner kernel is."""
        return self.kernel.is_stationary()

    @property
    def requires_vector_input(self) -> bool:
        """Rows must be vectors: they have columns."""
        return True


class WrappingNode(Node):
    """The inner kernel's node at the points as it sees them; a subclass sets ``inner`` and carries inputs back."""

    children = ("kernel",)
    inner: Node

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.inner.size

    def value(self, rows: slice, out: Array | None = None) -> Block:
        return self.inner.value(rows, out)

    def add_to(self, rows: slice, block: Array) -> Array:
        return self.inner.add_to(rows, block)

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        grad, part = self.inner.pull(rows, G, value, inputs)
        return grad, None if part is None else self.carried_back(part)

    def carried_back(self, part: Array) -> Array:
        """``dL/dZ`` in all columns, from that in what the inner kernel sees."""
        raise NotImplementedError

    def diag_pull(self, g: Array) -> Array:
        return self.inner.diag_pull(g)

    @property
    def has_noise(self) -> bool:
        return self.inner.has_noise

    def shared_diag(self) -> Array:
        return self.inner.shared_diag()

    def shared_diag_pull(self, g: Array) -> Array:
        return self.inner.shared_diag_pull(g)
