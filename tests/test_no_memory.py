"""Answers depend on the question alone: no memory of earlier arrays, of other threads or of a class's former state."""

from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import truncnorm

import twins
from ggpm import GGPRegressor
from ggpm.families import Ordinal
from ggpm.families.curvature import Diagonal
from ggpm.families.special.truncated import truncated_normal


def test_an_array_that_is_changed_in_place_gives_its_own_numbers():
    family, y = Ordinal(phi=[-1.0, 0.5, 1.5]), np.array([0.0, 1.0, 2.0, 3.0])
    eta = np.zeros((4, 1))
    before = family.u(eta, y)
    eta += 1.0
    np.testing.assert_array_equal(family.u(eta, y), family.u(np.ones((4, 1)), y))
    assert not np.allclose(family.u(eta, y), before)
    lo, hi, width = np.array([-1.0]), np.array([1.0]), np.array([2.0])
    truncated_normal(lo, hi, width)
    lo += 0.5
    width -= 0.5
    np.testing.assert_array_equal(truncated_normal(lo, hi, width).mean, truncated_normal(lo + 0, hi, width).mean)
    np.testing.assert_allclose(truncated_normal(lo, hi, width).mean, truncnorm(-0.5, 1.0).mean(), rtol=1e-12)


def test_what_was_received_may_be_changed():
    family, y = Ordinal(phi=[-1.0, 1.0]), np.array([0.0, 1.0, 2.0])
    first = family.u(np.zeros((3, 1)), y)
    kept = first.copy()
    first[:] = np.nan
    np.testing.assert_array_equal(family.u(np.zeros((3, 1)), y), kept)


def test_two_threads_give_what_each_gives_alone():
    rng = np.random.default_rng(0)
    tasks = []
    for seed in range(2):
        cuts = np.sort(rng.normal(size=3 + seed))
        y = rng.integers(0, cuts.size + 1, 300).astype(float)
        tasks.append((Ordinal(phi=cuts), rng.normal(size=(300, 1)), y))

    def work(task):
        family, eta, y = task
        V = Diagonal(np.ones_like(eta))
        return [
            np.concatenate([np.ravel(part) for part in (family.u(eta, y), *family.U_pullback(eta, y, V))])
            for _ in range(50)
        ]

    alone = [work(task)[0] for task in tasks]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(work, tasks))
    for want, results in zip(alone, together):
        for got in results:
            np.testing.assert_array_equal(got, want)


def test_two_fits_in_two_threads_give_what_each_gives_alone():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(25, 2))
    grades = [np.digitize(X[:, 0] + 0.3 * rng.normal(size=25), cuts) for cuts in ([-0.5, 0.5], [-1.0, 0.0, 1.0])]

    def fit(y):
        model = GGPRegressor("ordinal").fit(X, y)
        return model.theta_, model.log_marginal_likelihood_value_

    alone = [fit(y) for y in grades]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(fit, grades))
    for (theta, value), (theta_together, value_together) in zip(alone, together):
        np.testing.assert_array_equal(theta_together, theta)
        assert value_together == value


# ---- compiled functions ------------------------------------------------------------------------------------------
class Scaled(twins.Poisson):
    scale = 1.0
    table: ClassVar = {"shift": 0.0}

    def link(self, eta, phi):
        return self.scale * eta + self.table["shift"]


class Below(Scaled):
    """A subclass sees what its parent's attributes become."""


@pytest.mark.parametrize("kind", [Scaled, Below])
def test_class_attributes_are_read_anew(kind, monkeypatch):
    eta, y = np.array([[1.0]]), np.array([0.0])

    def value():
        return float(kind().resolve([1]).log_prob(eta, y)[0])

    np.testing.assert_allclose(value(), -np.exp(1.0))
    monkeypatch.setattr(Scaled, "scale", 2.0)
    np.testing.assert_allclose(value(), -np.exp(2.0))
    monkeypatch.setitem(Scaled.table, "shift", 0.5)  # changed in place
    np.testing.assert_allclose(value(), -np.exp(2.5))
    monkeypatch.setattr(Scaled, "link", lambda self, eta, phi: 3.0 * eta)  # a method, as well
    np.testing.assert_allclose(value(), -np.exp(3.0))
    monkeypatch.undo()
    np.testing.assert_allclose(value(), -np.exp(1.0))


def test_class_attributes_that_cannot_be_hashed():
    class Holder:
        __hash__ = None

        def __init__(self, value):
            self.value = value

    class Held(twins.Poisson):
        held = Holder(1.0)

        def log_base_measure(self, y, phi):
            return jnp.zeros(()) + self.held.value

    eta, y = np.array([[0.0]]), np.array([0.0])
    found = []
    for value in range(5):  # each is freed before the next is made, and may lie at the same address
        Held.held = Holder(float(value))
        found.append(float(Held().resolve([1]).log_prob(eta, y)[0]))
    np.testing.assert_allclose(found, np.arange(5.0) - 1.0)
