"""Families from their parameter functions: derivatives by JAX against the closed forms, and the engine around them."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import twins
from cases import FAMILIES, kernels, simulate
from ggpm import GGPRegressor, Taylor, Variational, families, load, save
from ggpm.families import ExponentialFamily, autodiff
from ggpm.families import support as s
from ggpm.families.curvature import Blocks, Diagonal, Kronecker, RankOne
from ggpm.families.exponential import rank_one

RTOL = 1e-8  # the promise; measured: below 1e-10
# XLA takes seconds to compile the third derivatives of gamma functions, normal tails and factorisations
HEAVY = {
    "ordinal", "beta", "dirichlet, exp", "wishart", "multivariate_gaussian", "negative_binomial", "gamma, softplus",
    "von_mises", "gaussian, 3 outputs", "inverse_gaussian", "dirichlet", "gamma", "categorical",
}  # fmt: skip
names = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in HEAVY else []) for n in twins.TWINS]
)


def assert_rows_close(got, want, floor=0.0):
    """Relative to the largest entry of each row, or to ``floor`` where all of it is zero or a constant."""
    axes = tuple(range(1, want.ndim))
    scale = np.maximum(np.abs(want).max(axis=axes, keepdims=True), floor)
    assert np.all(np.abs(got - want) <= RTOL * scale), np.max(np.abs(got - want) / np.maximum(scale, 1e-300))


def latents(family, n, rng):
    """|eta| <= 5, and where they have a meaning kappa and alpha from 0.1 to 100."""
    D = family.latent_dim
    eta = rng.uniform(-5, 5, size=(n, D))
    wide = 10.0 ** rng.uniform(-1, 2, size=(n, D))
    if isinstance(family, families.VonMises | families.VonMisesFisher):
        direction = rng.normal(size=(n, D))
        eta[n // 2 :] = (wide[:, :1] * direction / np.linalg.norm(direction, axis=1, keepdims=True))[n // 2 :]
    if isinstance(family, families.Dirichlet):
        eta[n // 2 :] = (np.log(wide) if family.link == "exp" else np.log(np.expm1(wide)))[n // 2 :]
    return eta


def test_every_built_in_has_a_twin():
    assert set(twins.TWINS) | set(twins.DENSITIES) == set(FAMILIES)


@names
def test_autodiff_equals_the_closed_forms(name):
    n, rng = 32, np.random.default_rng(1)
    _, y, family = simulate(name, n=n)
    twin = twins.twin_of(name, family, y)
    Y, Y_twin, eta = family.encode(y), twin.encode(y), latents(family, n, rng)
    A = rng.normal(size=(*eta.shape, family.latent_dim))
    V = Blocks(A @ np.swapaxes(A, 1, 2))
    np.testing.assert_allclose(twin.log_prob(eta, Y_twin), family.log_prob(eta, Y), rtol=RTOL, atol=RTOL)
    assert_rows_close(twin.u(eta, Y_twin), family.u(eta, Y))
    for expected in (False, True):
        U = family.U(eta, Y, expected=expected).dense()
        assert_rows_close(twin.U(eta, Y_twin, expected=expected).dense(), U)
        mine, theirs = (f.U_pullback(eta, v, V, expected=expected) for f, v in ((twin, Y_twin), (family, Y)))
        # the third derivative may vanish identically: then it is compared with the curvature
        size = np.abs(U).max() if not np.any(theirs[0]) else 0.0
        assert_rows_close(mine[0], theirs[0], floor=size)
        np.testing.assert_allclose(mine[1], theirs[1], rtol=RTOL, atol=RTOL * np.abs(theirs[1]).max(initial=0.0))
    if family.log_hyper.size:
        assert_rows_close(twin.log_prob_phi(eta, Y_twin), family.log_prob_phi(eta, Y), floor=1.0)
        assert_rows_close(twin.u_phi(eta, Y_twin), family.u_phi(eta, Y))


@pytest.mark.parametrize("name", twins.DENSITIES)
def test_autodiff_of_the_density_equals_the_closed_forms(name):
    """Of families that have no T and b; `check_family` compares their expected curvature with averages."""
    n, rng = 12, np.random.default_rng(1)
    _, y, family = simulate(name, n=n)
    Y, D = family.encode(y), family.latent_dim
    eta = rng.uniform(-3, 3, size=(n, D))
    A = rng.normal(size=(n, D, D))
    V = A @ np.swapaxes(A, 1, 2)
    log_p, u, U, d_eta, d_phi, log_p_phi, u_phi = twins.derivatives(twins.DENSITIES[name], eta, Y, family.log_hyper, V)
    np.testing.assert_allclose(family.log_prob(eta, Y), log_p, rtol=1e-10, atol=1e-10)
    assert_rows_close(family.u(eta, Y), u)
    assert_rows_close(family.U(eta, Y).dense(), U)
    mine = family.U_pullback(eta, Y, Blocks(V))
    assert_rows_close(mine[0], d_eta, floor=np.abs(U).max(axis=(1, 2), keepdims=True)[:, 0] * 1e-3)
    np.testing.assert_allclose(mine[1], d_phi, rtol=RTOL, atol=RTOL)
    if family.log_hyper.size:
        assert_rows_close(family.log_prob_phi(eta, Y), log_p_phi, floor=1.0)
        assert_rows_close(family.u_phi(eta, Y), u_phi, floor=1e-3)


def test_what_autodiff_loses_far_out_is_what_the_page_says():
    """docs/families.md: a score of 2e-9 keeps seven digits, one of 2e-22 none; the closed form keeps all."""
    twin, family = twins.Bernoulli().resolve([0, 1]), families.Bernoulli()
    y, eta = np.ones(2), np.array([[20.0], [50.0]])
    closed, derived = family.u(eta, y)[:, 0], twin.u(eta, y)[:, 0]
    np.testing.assert_allclose(closed, [1 / (1 + np.exp(20.0)), np.exp(-50.0)], rtol=1e-14)
    assert 1e-8 < abs(derived[0] / closed[0] - 1) < 1e-5
    assert derived[1] == 0.0


@pytest.mark.slow
def test_a_norm_has_no_derivative_at_zero_and_large_concentrations_lose_the_third():
    """docs/families.md: von Mises written with kappa = sqrt(theta^T theta) and i0e."""

    class ByBessel(twins.VonMises):
        def log_partition(self, theta, phi):
            kappa = jnp.sqrt(jnp.sum(theta**2))
            return kappa + jnp.log(jax.scipy.special.i0e(kappa)) + np.log(2 * np.pi)

    y, family, twin = np.array([1.0]), families.VonMises(), ByBessel().resolve([1.0])
    assert np.all(np.isnan(twin.u(np.zeros((1, 2)), y)))
    V = Blocks(np.array([[[1.0, 0.3], [0.3, 2.0]]]))
    for kappa, low, high in ((1e2, 0.0, 1e-11), (1e4, 1e-9, 1e-6), (1e6, 1e-6, 1e-2)):
        eta = kappa * np.array([[np.cos(1.0), np.sin(1.0)]])
        got, want = twin.U_pullback(eta, y, V)[0], family.U_pullback(eta, y, V)[0]
        assert low <= np.abs(got - want).max() / np.abs(want).max() < high, kappa


# ---- a user's copy in the whole engine ---------------------------------------------------------------------
class DirichletCopy(twins.Dirichlet):
    """The twin with the one thing that T, b and h do not tell: E[y]."""

    def mean(self, theta, phi):
        return theta / jnp.sum(theta)


class RankOneDirichletCopy(DirichletCopy):
    curvature = RankOne


class RankOneMultinomialCopy(twins.Multinomial):
    curvature = RankOne


COPIES = [
    pytest.param("multinomial", twins.Multinomial, "laplace", True),
    pytest.param("multinomial", twins.Multinomial, "variational", True),
    pytest.param("multinomial", RankOneMultinomialCopy, "taylor", False, marks=pytest.mark.slow),
    pytest.param("dirichlet", DirichletCopy, "laplace", True, marks=pytest.mark.slow),
    pytest.param("dirichlet", DirichletCopy, "variational", False, marks=pytest.mark.slow),
    pytest.param("dirichlet", RankOneDirichletCopy, "laplace", False, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name, copy, inference, shared", COPIES)
def test_a_users_copy_is_the_built_in(name, copy, inference, shared):
    """Evidence, its gradient, latents and means to 1e-7; densities are other integrals, right to 1e-6 each."""
    X, y, family = simulate(name, n=16)
    X_new = np.random.default_rng(4).uniform(-2, 2, (5, 2))
    models = []
    for f in (copy(), family):
        # the same expansion point: the default of a user's family is its own
        method = Taylor(family.expansion(family.encode(y)) + 0.1) if inference == "taylor" else inference
        if inference == "variational":  # the built-in averages over contrasts, the copy over all latents: other nodes
            method = Variational(accuracy="fine", tol=1e-9)
        models.append(GGPRegressor(f, kernels(family.latent_dim, shared), inference=method, optimizer=None).fit(X, y))
    mine, theirs = models
    np.testing.assert_allclose(mine.log_marginal_likelihood_value_, theirs.log_marginal_likelihood_value_, rtol=1e-7)
    gradients = [m.log_marginal_likelihood(eval_gradient=True)[1] for m in models]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-7, atol=1e-7 * np.abs(gradients[1]).max())
    for a, b in zip(mine.predict_latent(X_new), theirs.predict_latent(X_new)):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(mine.predict(X_new), theirs.predict(X_new), rtol=1e-7)
    density = [m.log_predictive_density(X_new, y[:5]) for m in models]
    np.testing.assert_allclose(density[0], density[1], rtol=1e-7 if "irichlet" not in name else 0.0, atol=1e-6)


class GammaCopy(twins.Gamma):
    """With a sampler, and phi to be learned."""

    def sample(self, eta, rng, trials=None):
        return -self.phi / self.theta_of(eta) * rng.gamma(1 / self.phi, size=eta.shape[:-1])


@pytest.mark.parametrize("inference", ["laplace", pytest.param("taylor", marks=pytest.mark.slow)])
def test_learning_with_a_hyperparameter_is_that_of_the_built_in(inference):
    X, y, family = simulate("gamma", n=25)
    # a kernel is given: the default one starts from the scale of y, of which a user's family need not tell
    kernel = ConstantKernel() * RBF() + ConstantKernel()
    rule = Taylor(lambda y: np.log(y)) if inference == "taylor" else "auto"
    copy, built_in = (GGPRegressor(f, kernel, inference=rule).fit(X, y) for f in (GammaCopy(phi=0.3), family))
    np.testing.assert_allclose(copy.log_marginal_likelihood_value_, built_in.log_marginal_likelihood_value_, rtol=1e-7)
    np.testing.assert_allclose(copy.family_.phi, built_in.family_.phi, rtol=1e-3)  # the optimiser's own tolerance
    np.testing.assert_allclose(copy.predict(X), built_in.predict(X), rtol=1e-3)
    draws = copy.sample_y(X[:3], 2000, random_state=0)
    assert draws.shape == (3, 2000)
    p = copy.predict_dist(X[:3])
    np.testing.assert_allclose(draws.mean(axis=1), p.mean(), atol=6 * np.sqrt(p.var().max() / 2000))


@pytest.mark.parametrize("settings", [{"inference": "variational"}, {"inducing": 8}], ids=str)
def test_a_users_family_goes_wherever_a_built_in_goes(settings, tmp_path):
    """Variational and sparse posteriors, offsets, saving and loading."""
    X, y, family = simulate("gamma", n=25)
    offset = np.linspace(-0.2, 0.2, 25)
    copy, built_in = (
        GGPRegressor(f, kernels(1, True), optimizer=None, random_state=0, **settings).fit(X, y, offset=offset)
        for f in (GammaCopy(phi=0.3), family)
    )
    np.testing.assert_allclose(copy.log_marginal_likelihood_value_, built_in.log_marginal_likelihood_value_, rtol=1e-7)
    np.testing.assert_allclose(copy.predict(X, offset=offset), built_in.predict(X, offset=offset), rtol=1e-6)
    save(copy, tmp_path / "model.ggpm")
    again = load(tmp_path / "model.ggpm", families=[GammaCopy])
    np.testing.assert_array_equal(again.predict(X, offset=offset), copy.predict(X, offset=offset))


def test_a_closed_form_wins_over_the_derived_one():
    class Marked(twins.Poisson):
        calls = 0

        def u(self, eta, y):
            type(self).calls += 1
            return y[..., None] - np.exp(eta)

    X, y, family = simulate("poisson", n=12)
    laplace = {"inference": "laplace", "optimizer": None}
    model = GGPRegressor(Marked(), kernels(1, True), **laplace).fit(X, y)
    built_in = GGPRegressor(family, kernels(1, True), **laplace).fit(X, y)
    assert Marked.calls > 0
    np.testing.assert_allclose(
        model.log_marginal_likelihood_value_, built_in.log_marginal_likelihood_value_, rtol=1e-10
    )


def test_default_expansion_is_finite_and_moves_with_phi():
    family = GammaCopy(phi=0.3).resolve([1.0])
    y = np.array([1e-8, 0.3, 5.0, 1e8])
    eta = family.expansion(y)
    # the mode of log p(y|eta) - eta²/2
    np.testing.assert_allclose(family.u(eta, y), eta, atol=1e-8 * np.abs(eta).max())
    w, h = np.array([[0.3], [-1.0], [2.0], [0.5]]), 1e-4
    up, down = (np.sum(w * family.with_log_hyper(family.log_hyper + d).expansion(y)) for d in (h, -h))
    np.testing.assert_allclose(family.expansion_pullback(y, w), (up - down) / (2 * h), rtol=1e-6)


def test_default_expansion_stays_finite_where_derivatives_fail():
    class ByNorm(twins.VonMises):  # the square root has no derivative at zero, where the search starts
        def log_partition(self, theta, phi):
            return jnp.sqrt(jnp.sum(theta**2))

    y = np.array([0.0, 2.0])
    eta = ByNorm().resolve(y).expansion(y)
    assert np.all(np.isfinite(eta))


# ---- shapes of the curvature -------------------------------------------------------------------------------
def test_rank_one_is_found_in_a_dense_matrix():
    rng = np.random.default_rng(0)
    for D in (2, 3, 6):
        gamma, omega = rng.normal(size=(20, D)), rng.normal(size=(20, D))
        omega[0] = 0.0  # no coupling at all
        omega[1, 1:] = 0.0
        omega[2, :] *= 1e-6
        H = gamma[..., None] * np.eye(D) - omega[:, :, None] * omega[:, None, :]
        U = rank_one(H)
        np.testing.assert_allclose(U.dense(), H, rtol=1e-12, atol=1e-14)
        if D > 2:  # for D = 2 the split is not unique
            np.testing.assert_allclose(U.gamma[3:], gamma[3:], rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="declared RankOne"):
        rank_one(np.cov(rng.normal(size=(4, 30)))[None])
    with pytest.raises(ValueError, match="wrong sign"):
        rank_one(np.ones((1, 3, 3)))


def sizes(jaxpr):
    """Sizes of all arrays in a JAX program."""
    for equation in jaxpr.eqns:
        yield from (v.aval.size for v in equation.outvars)
        for parameter in equation.params.values():
            for part in parameter if isinstance(parameter, tuple | list) else [parameter]:
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from sizes(inner)


def test_third_derivatives_never_form_an_array_of_order_three():
    D = 12
    derivatives = twins.DirichletExp().resolve(np.full((1, D), 1 / D))._derivatives("test")
    for name in ("pullback", "pullback_expected"):
        program = jax.make_jaxpr(derivatives._row_function(name))(np.zeros(0), np.ones(D), np.ones(D) / D, np.eye(D))
        assert D**2 <= max(sizes(program.jaxpr)) <= 2 * D**2


def test_curvature_may_be_declared():
    class Independent(twins.Gaussian):
        curvature = Diagonal

    y = np.random.default_rng(0).normal(size=(4, 3))
    family = Independent(phi=0.5).resolve(y)
    U = family.U(y + 0.1, y)
    assert isinstance(U, Diagonal)
    np.testing.assert_allclose(U.gamma, 2.0, rtol=1e-14)
    assert isinstance(twins.Gaussian(phi=0.5).resolve(y).U(y, y), Blocks)
    assert isinstance(twins.Poisson().resolve([1]).U(np.zeros((1, 1)), np.ones(1)), Diagonal)

    class Wrong(twins.Poisson):
        curvature = Kronecker

    with pytest.raises(TypeError, match="Diagonal, RankOne or Blocks"):
        Wrong().resolve([1])


def test_nodes_broadcast_and_chunks_agree(monkeypatch):
    family = twins.Multinomial().resolve([[1, 2, 3]])
    rng = np.random.default_rng(0)
    eta, y = rng.normal(size=(5, 7, 3)), rng.integers(1, 5, size=(7, 3)).astype(float)
    whole = family.u(eta, y)
    assert whole.shape == (5, 7, 3)
    np.testing.assert_array_equal(whole, [family.u(e, y) for e in eta])
    monkeypatch.setattr(autodiff, "CHUNK", 8)
    np.testing.assert_array_equal(family.u(eta, y), whole)


# ---- settings and caching ----------------------------------------------------------------------------------
def test_float64_without_touching_the_users_settings():
    assert jnp.ones(3).dtype == jnp.float32  # the user's world is float32
    got = twins.Poisson().resolve([1]).log_prob(np.array([[0.1]]), np.array([3.0]))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, 0.3 - np.exp(0.1) - np.log(6.0), rtol=1e-15)
    assert jnp.ones(3).dtype == jnp.float32
    assert not jax.config.jax_enable_x64


def test_compiled_functions_are_shared_between_fits():
    traced = []

    class Counting(twins.Gamma):
        def log_partition(self, theta, phi):
            traced.append(1)
            return super().log_partition(theta, phi)

    X, y, _ = simulate("gamma", n=12)
    GGPRegressor(Counting(phi=0.3), inference="laplace", optimizer=None).fit(X, y)
    first = len(traced)
    settings = {
        "inference": "laplace",
        "averaging": "none",
    }  # members may need more nodes, which are a shape of its own
    model = GGPRegressor(Counting(phi=0.7), **settings).fit(X, y + 0.1)  # learns, with other ones all the time
    assert model.n_iter_ > 0
    # the gradient's functions were traced anew, once each, and nothing that was there before
    assert first > 0 and len(traced) - first < 30
    before = len(traced)
    GGPRegressor(clone(model.family), **settings).fit(X, y)
    assert len(traced) == before


def test_settings_of_a_family_are_part_of_the_key():
    class Scaled(twins.Poisson):
        def __init__(self, scale=1.0, phi=None):
            super().__init__(phi)
            self.scale = scale

        def link(self, eta, phi):
            return self.scale * eta

    eta, y = np.array([[1.0]]), np.array([0.0])
    values = [Scaled(scale).resolve([1]).log_prob(eta, y)[0] for scale in (1.0, 2.0, 1.0)]
    np.testing.assert_allclose(values, [-np.exp(1.0), -np.exp(2.0), -np.exp(1.0)], rtol=1e-14)


# ---- errors ------------------------------------------------------------------------------------------------
def test_what_is_missing_is_named():
    class Empty(ExponentialFamily):
        support = s.Positive()

    with pytest.raises(NotImplementedError, match=r"Empty must give log_base_measure|Empty must give log_partition"):
        Empty().log_prob(np.zeros((1, 1)), np.ones(1))
    dirichlet = twins.Dirichlet().resolve([[0.5, 0.5]])
    with pytest.raises(NotImplementedError, match=r"mean\(theta, phi\).*T\(y\) is not y"):
        dirichlet.moment(np.zeros((1, 2)))
    with pytest.raises(NotImplementedError, match=r"spread\(eta, trials=None\)"):
        dirichlet.spread(np.zeros((1, 2)))
    with pytest.raises(NotImplementedError, match=r"sample\(eta, rng, trials=None\)"):
        dirichlet.sample(np.zeros((1, 2)), np.random.default_rng(0))

    class WrongShape(twins.Dirichlet):
        def T(self, y):
            return jnp.log(y)[:1]

    with pytest.raises(ValueError, match=r"T\(y\) and theta = link\(eta\) must have one shape.*\(1,\) and \(2,\)"):
        WrongShape().resolve([[0.5, 0.5]]).log_prob(np.zeros((1, 2)), np.full((1, 2), 0.5))

    class NotANumber(twins.Dirichlet):
        def log_partition(self, theta, phi):
            return theta

    with pytest.raises(ValueError, match="log_partition must return one number"):
        NotANumber().resolve([[0.5, 0.5]]).log_prob(np.zeros((1, 2)), np.full((1, 2), 0.5))


def test_numpy_in_a_parameter_function_is_named():
    class Numpy(twins.Poisson):
        def log_partition(self, theta, phi):
            return np.exp(np.asarray(theta))

    with pytest.raises(TypeError, match=r"parameter functions of Numpy must be written with jax\.numpy"):
        Numpy().resolve([1]).u(np.zeros((1, 1)), np.ones(1))


WITHOUT_JAX = """
    import sys
    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("jax", "jaxlib"):
                raise ImportError("No module named jax")
    sys.meta_path.insert(0, Refuse())
    import numpy as np
    from ggpm import GGPRegressor
    from ggpm.families.curvature import Diagonal
    from ggpm.families import ExponentialFamily
    from ggpm.families.support import Counts

    class Derived(ExponentialFamily):
        support = Counts()
        def log_partition(self, theta, phi): return np.exp(theta)
        def log_base_measure(self, y, phi): return 0.0

    class Closed(Derived):
        def log_prob(self, eta, y): return y * eta[..., 0] - np.exp(eta[..., 0])
        def u(self, eta, y): return (y - np.exp(eta[..., 0]))[..., None]
        def U(self, eta, y, expected=False): return Diagonal(np.exp(eta) + 0 * y[..., None])
        def U_pullback(self, eta, y, V, expected=False): return V.diag * np.exp(eta), np.zeros(0)
        def moment(self, eta, trials=None): return np.exp(eta[..., 0])

    X, y = np.arange(8.0)[:, None], np.array([0, 1, 2, 4, 4, 3, 1, 0])
    model = GGPRegressor(Closed(), inference="laplace").fit(X, y)
    builtin = GGPRegressor("poisson", inference="laplace").fit(X, y)
    np.testing.assert_allclose(model.predict(X), builtin.predict(X), rtol=1e-4)
    try:
        GGPRegressor(Derived()).fit(X, y)
    except ImportError as err:
        print(err)
"""


def run(code):
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_without_jax_closed_forms_work_and_the_rest_names_the_extra():
    message = run(WITHOUT_JAX)
    assert "Derived." in message and "ggpm[jax]" in message


def test_built_ins_never_import_jax():
    run(
        """
        import sys, numpy as np
        import ggpm, ggpm.testing
        from ggpm import GGPRegressor, families
        rng = np.random.default_rng(0)
        X = rng.normal(size=(8, 1))
        for name, family in families.FAMILIES.items():
            y = family().support.example(rng, 8)
            GGPRegressor(name, optimizer=None).fit(X, y).predict(X)
        assert not [m for m in sys.modules if m.split(".")[0] in ("jax", "jaxlib")]
        """
    )
