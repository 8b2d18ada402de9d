"""Nodes of kernels made of others: sums, products and powers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.kernels.distances import Distances
from ggpm.kernels.nodes import Block, Node, Pulled, node

Array = NDArray[np.float64]


class Operator(Node):
    """A kernel made of two."""

    children = ("k1", "k2")

    def __init__(self, kernel: Any, points: Distances) -> None:
        self.kernel, self.points = kernel, points
        self.k1, self.k2 = node(kernel.k1, points), node(kernel.k2, points)
        self.size = self.k1.size + self.k2.size

    @property
    def has_noise(self) -> bool:
        return self.k1.has_noise or self.k2.has_noise


class SumNode(Operator):
    """``k1 + k2``."""

    def value(self, rows: slice, out: Array | None = None) -> Block:
        first = self.k1.value(rows, out)
        if isinstance(first, np.ndarray):
            return self.k2.add_to(rows, first)
        second = self.k2.value(rows, out)
        second += first
        return second

    def add_to(self, rows: slice, block: Array) -> Array:
        return self.k2.add_to(rows, self.k1.add_to(rows, block))

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        return _joined(self.k1.pull(rows, G, None, inputs), self.k2.pull(rows, G, None, inputs))

    def diag_pull(self, g: Array) -> Array:
        return np.concatenate([self.k1.diag_pull(g), self.k2.diag_pull(g)])

    def shared_diag(self) -> Array:
        return self.k1.shared_diag() + self.k2.shared_diag()

    def shared_diag_pull(self, g: Array) -> Array:
        return np.concatenate([self.k1.shared_diag_pull(g), self.k2.shared_diag_pull(g)])


class ProductNode(Operator):
    """``k1 * k2``."""

    def value(self, rows: slice, out: Array | None = None) -> Block:
        first = self.k1.value(rows, out)
        if isinstance(first, np.ndarray):
            first *= self.k2.value(rows)
            return first
        second = self.k2.value(rows, out)
        second *= first
        return second

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        first, second = self.k1.value(rows), self.k2.value(rows)
        return _joined(
            _pull_scaled(self.k1, rows, G, second, first, inputs),
            _pull_scaled(self.k2, rows, G, first, second, inputs),
        )

    def diag_pull(self, g: Array) -> Array:
        first, second = self.kernel.k1.diag(self.points.X), self.kernel.k2.diag(self.points.X)
        return np.concatenate([self.k1.diag_pull(g * second), self.k2.diag_pull(g * first)])

    def shared_diag(self) -> Array:
        return self.k1.shared_diag() * self.k2.shared_diag()

    def shared_diag_pull(self, g: Array) -> Array:
        first, second = self.k1.shared_diag(), self.k2.shared_diag()
        return np.concatenate([self.k1.shared_diag_pull(g * second), self.k2.shared_diag_pull(g * first)])


class ExponentiationNode(Node):
    """``k ** exponent``."""

    children = ("kernel",)

    def __init__(self, kernel: Any, points: Distances) -> None:
        self.kernel, self.points = kernel, points
        self.base = node(kernel.kernel, points)
        self.size = self.base.size

    def value(self, rows: slice, out: Array | None = None) -> Block:
        base = self.base.value(rows, out)
        base **= self.kernel.exponent
        return base

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        base, exponent = self.base.value(rows), self.kernel.exponent
        return _pull_scaled(self.base, rows, G, exponent * base ** (exponent - 1), base, inputs)

    def diag_pull(self, g: Array) -> Array:
        base, exponent = self.kernel.kernel.diag(self.points.X), self.kernel.exponent
        return self.base.diag_pull(g * exponent * base ** (exponent - 1))

    @property
    def has_noise(self) -> bool:
        return self.base.has_noise

    def shared_diag(self) -> Array:
        return self.base.shared_diag() ** self.kernel.exponent

    def shared_diag_pull(self, g: Array) -> Array:
        base, exponent = self.base.shared_diag(), self.kernel.exponent
        return self.base.shared_diag_pull(g * exponent * base ** (exponent - 1))


def _pull_scaled(node: Node, rows: slice, G: Array, factor: Block, value: Block, inputs: bool) -> Pulled:
    """Pull ``factor * G`` back; a constant factor is taken out, as pullbacks are linear."""
    if not (node.size or inputs):
        return np.zeros(0), None
    if isinstance(factor, np.ndarray):
        return node.pull(rows, G * factor, value, inputs)
    grad, grad_inputs = node.pull(rows, G, value, inputs)
    return factor * grad, None if grad_inputs is None else factor * grad_inputs


def _joined(first: Pulled, second: Pulled) -> Pulled:
    """Pullbacks of two kernels: hyperparameters after each other, points added."""
    grad = np.concatenate([first[0], second[0]])
    if first[1] is None or second[1] is None:
        return grad, second[1] if first[1] is None else first[1]
    return grad, first[1] + second[1]
