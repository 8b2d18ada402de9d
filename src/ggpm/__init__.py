"""Gaussian processes for outputs that are not plain real numbers."""
