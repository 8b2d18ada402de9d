"""Probabilities on scikit-learn's digits, hyperparameters learned from 300 rows by the variational bound."""

import importlib.util
from pathlib import Path

import pytest


@pytest.mark.slow
def test_log_loss_and_accuracy_on_digits():
    path = Path(__file__).parents[1] / "benchmarks" / "digits.py"
    spec = importlib.util.spec_from_file_location("digits", path)
    digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    found = digits.run("evidence", "coarse")
    assert found["log_loss"] <= 0.28
    assert found["accuracy"] >= 0.955
