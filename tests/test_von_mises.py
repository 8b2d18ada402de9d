"""Angles and directions: units, every concentration and dimension, and what von Mises families have in common."""

import math
import warnings

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate

from ggpm.families.curvature import Blocks
from ggpm.families.von_mises import VonMises
from ggpm.families.von_mises_fisher import VonMisesFisher
from test_vector_families import CASES, RTOL, assert_close, polar, random_V

UNITS = {"radians": (-math.pi, math.pi), "degrees": (0, 360), "hours": (0, 24), (-180, 180): (-180, 180)}


@pytest.mark.parametrize("units", UNITS)
def test_units_round_trip_and_density_per_unit(units):
    family, (low, high) = VonMises(units=units), UNITS[units]
    y = np.linspace(low, high, 13)[:-1]
    encoded = family.resolve(y).encode(y)
    back = family.decode(encoded)
    np.testing.assert_allclose(back, y, atol=1e-12 * high)
    # full turns and rounding next to the open end stay in the half-open range
    for turned in (encoded + 2 * np.pi, encoded - 2 * np.pi, encoded - 1e-17, np.array([-1e-18, 1e-18])):
        assert np.all(family.decode(turned) >= low) and np.all(family.decode(turned) < high)
    eta = np.array([0.4, 1.1])
    total, _ = integrate.quad(lambda v: np.exp(family.log_prob(eta, family.encode([v]))[0]), low, high)
    np.testing.assert_allclose(total, 1.0, rtol=1e-8)
    # the point prediction, the constant and the loss speak the user's units
    shifted = np.array([1.0, 1.2, 1.1])
    user = family.decode(shifted)
    mean = family.constant(family.encode(user))
    np.testing.assert_allclose(mean, family.decode(np.array([1.1])), rtol=1e-12)
    np.testing.assert_allclose(family.loss(shifted, user[[1, 1, 1]]), 1 - np.cos(shifted - 1.2), atol=1e-14)
    draws = family.sample(np.broadcast_to(eta, (500, 2)), np.random.default_rng(0))
    assert draws.min() >= low and draws.max() < high


def test_degrees_by_the_look_of_it_warn():
    message = r'expected angles in radians, got values up to 270.*units="degrees"'
    with pytest.warns(UserWarning, match=message):
        VonMises().resolve([10.0, 270.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VonMises().resolve([0.1, -6.28])
        VonMises(units="degrees").resolve([10.0, 270.0])


def test_circular_variance():
    moment = np.array([[0.6, 0.0], [0.0, -1.0]])
    np.testing.assert_allclose(VonMises().variance(moment, np.zeros(2), np.zeros(2)), [0.4, 0.0])


def test_von_mises_fisher_on_the_circle_is_von_mises():
    _, eta, y = CASES["von_mises"].bound()
    eta = np.concatenate([eta, [polar(1e8, 1.0), [0.0, 0.0]]])
    y = np.concatenate([y, [1.0001, 2.0]])
    circle, sphere, T = VonMises(), VonMisesFisher(), np.stack([np.cos(y), np.sin(y)], axis=-1)
    # at kappa = 1e8 the rounding of (cos y, sin y) is 1e-12 of the angle between them
    np.testing.assert_allclose(sphere.log_prob(eta, T), circle.log_prob(eta, y), rtol=1e-10)
    np.testing.assert_allclose(sphere.u(eta, T), circle.u(eta, y), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(sphere.U(eta, T).dense(), circle.U(eta, y).dense(), rtol=1e-12, atol=1e-20)
    V = Blocks(random_V(len(y), 2))
    np.testing.assert_allclose(sphere.U_pullback(eta, T, V)[0], circle.U_pullback(eta, y, V)[0], rtol=1e-12, atol=1e-28)


def test_pullback_where_the_length_is_far_less_certain_than_the_direction():
    """Along an axis V is exact in float64: V_rr = 1e12 V_tt costs no digits."""
    for d in (2, 3, 5):
        eta, y = 1e8 * np.eye(d)[:1], np.eye(d)[:1]
        v = np.r_[1.0, 1e-12 * np.arange(1.0, d)]
        family = VonMisesFisher()
        got = family.U_pullback(eta, y, Blocks(np.diag(v)[None]))[0]
        with mp.workdps(60):
            nu, k = mp.mpf(d) / 2 - 1, mp.mpf(10) ** 8
            A = mp.besseli(nu + 1, k) / mp.besseli(nu, k)
            slope = 1 - A**2 - (2 * nu + 1) * A / k
            bend = -2 * A * slope - (2 * nu + 1) * (slope / k - A / k**2)
            radial = bend * mp.mpf(v[0]) + (slope / k - A / k**2) * sum(mp.mpf(float(x)) for x in v[1:])
            assert_close(got, [radial] + [mp.mpf(0)] * (d - 1))


@pytest.mark.parametrize("d", [2, 3, 4, 10, 50])
@pytest.mark.parametrize("kappa", [0.0, 1e-9, 1e-3, 1.0, 30.0, 1e3, 1e5, 1e8])
def test_von_mises_fisher_at_every_concentration_and_dimension(d, kappa):
    """Density, gradient and curvature along and across the mean direction, from kappa = 0 to 1e8."""
    family, tilt = VonMisesFisher(), 1.0 / math.sqrt(1.0 + kappa)
    eta, y = np.zeros((1, d)), np.zeros((1, d))
    eta[0, 0], y[0, 0], y[0, 1] = kappa, math.cos(tilt), math.sin(tilt)
    with mp.workdps(60):
        nu, k, cosine = mp.mpf(d) / 2 - 1, mp.mpf(kappa), mp.cos(mp.mpf(tilt))
        if kappa:
            log_b = mp.log(mp.besseli(nu, k)) - nu * mp.log(k)
            A = mp.besseli(nu + 1, k) / mp.besseli(nu, k)
            slope, c1 = 1 - A**2 - (2 * nu + 1) * A / k, A / k
        else:  # I_nu(k) k^-nu -> 2^-nu/Gamma(nu + 1)
            log_b, A, slope, c1 = -nu * mp.log(2) - mp.loggamma(nu + 1), 0, mp.mpf(1) / d, mp.mpf(1) / d
        log_p = k * cosine - log_b - (nu + 1) * mp.log(2 * mp.pi)
        assert_close(family.log_prob(eta, y), [log_p], floor=1.0)
        u, U = family.u(eta, y)[0], family.U(eta, y).dense()[0]
        # the rounding of cos(tilt) in y is seen against 1 - A
        assert abs(mp.mpf(float(u[0])) - (cosine - A)) < RTOL * abs(cosine - A) + mp.mpf(2) ** -52
        assert_close(u[1], [mp.sin(mp.mpf(tilt))])
        assert_close(U[1, 1], [c1])
        # gamma - rho cancels in the dense matrix; the gap keeps the digits
        assert_close(family.U(eta, y).gap, [slope / c1])


def test_zero_concentration_is_uniform():
    y = np.array([0.0, 1.0, 3.0])
    family = VonMises()
    eta = np.zeros((3, 2))
    np.testing.assert_allclose(family.log_prob(eta, y), -np.log(2 * np.pi), rtol=1e-15)
    np.testing.assert_allclose(family.u(eta, y), family.expansion(y), atol=1e-15)
    np.testing.assert_allclose(family.U(eta, y).dense(), np.tile(0.5 * np.eye(2), (3, 1, 1)), atol=1e-15)
    np.testing.assert_array_equal(family.U_pullback(eta, y, Blocks(random_V(3, 2)))[0], 0.0)
    np.testing.assert_array_equal(family.moment(eta), 0.0)
