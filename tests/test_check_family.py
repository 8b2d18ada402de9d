"""`check_family`: every built-in passes it, and every kind of mistake fails it with the right words."""

import jax.numpy as jnp
import numpy as np
import pytest

import twins
from cases import FAMILIES
from ggpm import families
from ggpm.families import support as s
from ggpm.families.curvature import Blocks, Diagonal
from ggpm.testing import check_family


@pytest.mark.parametrize("name", FAMILIES)
def test_every_built_in_passes(name):
    family, y = FAMILIES[name]
    report = check_family(family, y)
    assert report.skipped == {} and len(report.errors) == 14
    exact = {k: v for k, v in report.errors.items() if k != "sampling"}
    assert max(exact.values()) < 1e-5, report


@pytest.mark.parametrize("name", families.FAMILIES)
def test_every_built_in_passes_on_data_that_its_support_makes_up(name):
    assert check_family(families.FAMILIES[name](), seed=3).skipped == {}


@pytest.mark.slow
def test_other_shapes_of_the_same_families():
    """Quasi-random rules: a sphere in 5 dimensions, 3×3 matrices; two parts; degrees."""
    rng = np.random.default_rng(0)
    check_family(families.VonMisesFisher(), s.Sphere(columns=5).example(rng, 4))
    check_family(families.Wishart(phi=7.0), s.SPD(columns=3).example(rng, 4))
    check_family(families.Dirichlet(closure=True), 100 * s.Simplex(columns=3).example(rng, 4))
    check_family(families.Dirichlet(), s.Simplex(columns=2).example(rng, 4))
    check_family(families.Dirichlet(), s.Simplex(columns=5).example(rng, 4))
    check_family(families.VonMises(units="degrees"))


def test_the_report_says_what_was_checked():
    text = str(check_family(families.Gamma(phi=0.3)))
    assert text.startswith("Gamma(phi=0.3): 14 checks passed")
    assert "third derivatives: largest error" in text


# ---- mutants of built-ins: one method wrong at a time ------------------------------------------------------
class WrongSignInU(families.Poisson):
    def U(self, eta, y, expected=False):
        return Diagonal(-super().U(eta, y, expected).gamma)


class WrongSignInGradient(families.Gamma):
    def u(self, eta, y):
        return -super().u(eta, y)


class ForgottenFactorInGradient(families.VonMises):
    def u(self, eta, y):
        return 2 * super().u(eta, y)


class WrongPullback(families.Dirichlet):
    def U_pullback(self, eta, y, V, expected=False):
        d_eta, d_phi = super().U_pullback(eta, y, V, expected)
        return 1.01 * d_eta, d_phi


class ForgottenPullbackInPhi(families.Gamma):
    def U_pullback(self, eta, y, V, expected=False):
        d_eta, d_phi = super().U_pullback(eta, y, V, expected)
        return d_eta, 0 * d_phi


class ObservedForExpected(families.InverseGaussian):
    def U(self, eta, y, expected=False):
        return super().U(eta, y)


class NotSymmetric(families.Wishart):
    def U(self, eta, y, expected=False):
        return Blocks(super().U(eta, y, expected).values + 0.1 * np.eye(eta.shape[-1], k=1))


class WrongDerivativeInPhi(families.NegativeBinomial):
    def log_prob_phi(self, eta, y):
        return super().log_prob_phi(eta, y) / self.phi  # in phi, not in log phi


class OverflowsFarOut(families.Bernoulli):
    def log_prob(self, eta, y):
        with np.errstate(all="ignore"):
            return super().log_prob(eta, y) + 0.0 / (np.abs(eta[..., 0]) < 40)


class InfiniteTaylorPoint(families.Poisson):
    def expansion(self, y):
        with np.errstate(divide="ignore"):
            return np.log(y)[..., None]


class MeanOutside(families.Gamma):
    def moment(self, eta, trials=None):
        return -super().moment(eta)


class WrongSampler(families.Gaussian):
    def sample(self, eta, rng, trials=None):
        return self.decode(eta + 2 * rng.standard_normal(eta.shape))


class DrawsOutside(families.Beta):
    def sample(self, eta, rng, trials=None):
        return 1.5 * super().sample(eta, rng)


class WrongSpread(families.Multinomial):
    def spread(self, eta, trials=None):
        return 2 * super().spread(eta, trials)


class FixedExpansionPullback(families.Ordinal):
    def expansion_pullback(self, y, cotangent):
        return 0 * super().expansion_pullback(y, cotangent)


class WrongShape(families.Poisson):
    def u(self, eta, y):
        return super().u(eta, y)[..., 0]


MUTANTS = [
    (WrongSignInU(), r"curvature: U is not minus the derivative of u: .*the sign is wrong"),
    (WrongSignInU(), r"expected curvature is not positive semidefinite: eigenvalue -"),
    (WrongSignInGradient(phi=0.3), r"gradient: u is not the gradient of log_prob: got .*the sign is wrong"),
    (ForgottenFactorInGradient(), r"u is not the gradient of log_prob: .*\(a factor 2\)"),
    (WrongPullback(), r"third derivatives: U_pullback \(observed\) is not the derivative of <V, U> in eta"),
    (WrongPullback(), r"small fit: Laplace: the gradient of the evidence is not its derivative"),
    (ForgottenPullbackInPhi(phi=0.3), r"is not the derivative of <V, U> in phi"),
    (ObservedForExpected(phi=0.4), r"the expected curvature is not E\[U\]"),
    (NotSymmetric(phi=5.0), r"U is not symmetric: .*off by 0.1"),
    (WrongDerivativeInPhi(phi=0.5), r"derivatives in phi: log_prob_phi is not the derivative: .*\(a factor 2\)"),
    (OverflowsFarOut(), r"extremes: log_prob is nan at eta = -?50\.?, y = .*lower reach=50"),
    (InfiniteTaylorPoint(), r"Taylor point: the Taylor point must be finite"),
    (MeanOutside(phi=0.3), r"the mean at the Taylor point lies outside the support"),
    (WrongSampler(phi=1.0), r"sampling: draws do not follow the density: the covariance of u"),
    (DrawsOutside(), r"sampling: draws lie outside the support"),
    (WrongSpread(), r"moments: spread is not Var\[y\]"),
    (FixedExpansionPullback(phi=[-1.0, 0.3, 1.0]), r"expansion_pullback is not the derivative of the Taylor point"),
    (WrongShape(), r"shapes: u has shape \(8,\), expected \(8, 1\)"),
]


@pytest.mark.parametrize("family, words", MUTANTS, ids=[f"{type(f).__name__}-{i}" for i, (f, _) in enumerate(MUTANTS)])
def test_mutants_fail_with_the_right_words(family, words):
    with pytest.raises(AssertionError, match=rf"(?s){type(family).__name__} fails \d+ check\(s\):.*{words}"):
        check_family(family)


# ---- mutants of the parameter functions --------------------------------------------------------------------
class ForgottenFactorInB(twins.Poisson):
    def log_partition(self, theta, phi):
        return 0.5 * jnp.exp(theta)


class WrongBaseMeasure(twins.Poisson):
    def log_base_measure(self, y, phi):
        return -jnp.log(y + 1.0)


class ConstantForgottenInBaseMeasure(twins.Gamma):
    def log_base_measure(self, y, phi):
        return super().log_base_measure(y, phi) + 0.1


PARAMETER_MUTANTS = [
    (ForgottenFactorInB(), r"normalisation: the density sums to 1\.\d+ over the support, not to 1, at eta = .*"
                           r"mean of T: E\[T\] is not the gradient of b"),
    (WrongBaseMeasure(), r"normalisation: the density sums to .*mean of T: E\[T\] is not the gradient of b"),
    (ConstantForgottenInBaseMeasure(phi=0.3), r"the density integrates to 1\.10517 over the support.*off by 0\.1"),
]  # fmt: skip


@pytest.mark.parametrize("family, words", PARAMETER_MUTANTS, ids=lambda v: type(v).__name__)
def test_wrong_parameter_functions_fail_with_the_right_words(family, words):
    with pytest.raises(AssertionError, match=rf"(?s){words}"):
        check_family(family)


def test_a_users_family_passes_and_says_what_it_lacks():
    report = check_family(twins.Poisson())
    assert set(report.skipped) == {"sampling"} and "sample(eta, rng, trials=None)" in report.skipped["sampling"]
    assert "sampling: not checked" in str(report)


def test_a_support_without_examples_asks_for_data():
    class Odd(s.Support):
        def validate(self, y):
            return np.asarray(y, dtype=float)

    class Family(twins.Poisson):
        support = Odd()

    with pytest.raises(NotImplementedError, match="pass y"):
        check_family(Family())
