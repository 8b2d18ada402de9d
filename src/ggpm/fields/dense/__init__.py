"""The dense field: all rows at once, by factorisations that use the shape of the sites' curvature."""

from ggpm.fields.dense.field import DenseField
from ggpm.fields.dense.matrices import JointMatrix, KernelMatrices
from ggpm.fields.dense.posterior import DensePosterior
from ggpm.fields.dense.solution import Solution, factorise

__all__ = ["DenseField", "DensePosterior", "JointMatrix", "KernelMatrices", "Solution", "factorise"]
