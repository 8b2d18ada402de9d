"""The nodes of scikit-learn's kernels: the table of them, and those that are neither stationary nor made of others.

A node evaluates one type of kernel for some rows of K(X, Z) and carries the cotangent of those rows back to the
kernel's free log-hyperparameters and to Z. `ggpm.kernels` is the door to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels.linalg import product
from ggpm.kernels.nodes import NODES, Block, Node, Pulled
from ggpm.kernels.nodes import is_free as is_free
from ggpm.kernels.nodes import node as node
from ggpm.kernels.operators import ExponentiationNode, ProductNode, SumNode
from ggpm.kernels.stationary import ExpSineSquaredNode, MaternNode, RationalQuadraticNode, RBFNode

Array = NDArray[np.float64]


class ConstantNode(Node):
    """``k = constant_value``."""

    hyperparameters = ("constant_value",)

    def value(self, rows: slice, out: Array | None = None) -> Block:
        return float(self.kernel.constant_value)

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        return self.diag_pull(G), None

    def diag_pull(self, g: Array) -> Array:
        return np.array([self.kernel.constant_value * g.sum()] if self.size else [])


class WhiteNode(Node):
    """``k = noise_level`` of a row with itself, else zero."""

    hyperparameters = ("noise_level",)

    def value(self, rows: slice, out: Array | None = None) -> Block:
        out = self.block(rows) if out is None else out
        out.fill(0.0)
        return self.add_to(rows, out)

    def add_to(self, rows: slice, block: Array) -> Array:
        self.points.add_own(rows, block, self.kernel.noise_level)
        return block

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        return self.diag_pull(np.array([self.points.own_sum(rows, G)])), None

    def diag_pull(self, g: Array) -> Array:
        return np.array([self.kernel.noise_level * g.sum()] if self.size else [])

    @property
    def has_noise(self) -> bool:
        return True

    def shared_diag(self) -> Array:
        return np.zeros(len(self.points.X))

    def shared_diag_pull(self, g: Array) -> Array:
        return np.zeros(self.size)


class DotProductNode(Node):
    """``k = sigma_0² + x·z``."""

    hyperparameters = ("sigma_0",)

    def value(self, rows: slice, out: Array | None = None) -> Block:
        return np.add(self.points.inner[rows], self.kernel.sigma_0**2, out=out)

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        return self.diag_pull(G), product(G.T, self.points.rows[rows]) if inputs else None

    def diag_pull(self, g: Array) -> Array:
        return np.array([2.0 * self.kernel.sigma_0**2 * g.sum()] if self.size else [])


NODES.update(
    {
        sk.ConstantKernel: ConstantNode,
        sk.WhiteKernel: WhiteNode,
        sk.DotProduct: DotProductNode,
        sk.RBF: RBFNode,
        sk.Matern: MaternNode,
        sk.RationalQuadratic: RationalQuadraticNode,
        sk.ExpSineSquared: ExpSineSquaredNode,
        sk.Sum: SumNode,
        sk.Product: ProductNode,
        sk.Exponentiation: ExponentiationNode,
    }
)
