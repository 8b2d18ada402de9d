"""What a user may pass by mistake: the message names the argument, what was expected, what came, what to try."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import OptimizeResult
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, Laplace, Variational, calibration, families, save
from ggpm.families import (
    Beta,
    Categorical,
    Dirichlet,
    ExponentialFamily,
    Gamma,
    Gaussian,
    MultivariateGaussian,
    NegativeBinomial,
    Ordinal,
    Wishart,
)
from ggpm.plotting import plot_evidence

X = np.random.default_rng(0).normal(size=(20, 2))


def fit(family="gaussian", y=None, X=X, offset=None, **settings):
    return GGPRegressor(family, **settings).fit(X, y, offset=offset)


def label(y):
    return GGPClassifier().fit(X, y)


class WithoutSupport(ExponentialFamily):
    def log_partition(self, theta, phi):
        return theta


HELD = {"optimizer": None}
N, P = np.arange(20), np.full((20, 2), 0.5)
MATRICES = np.stack([np.eye(2)] * 20)
# what a user may pass by mistake, and what the message must say
MISTAKES = [
    ("masked y", lambda: fit("poisson", y=np.ma.masked_array(N, mask=N > 15)), "y must not have masked.*row 16"),
    ("masked X", lambda: fit("poisson", X=np.ma.masked_array(X, mask=X > 1), y=N), "X must not have masked"),
    ("complex y", lambda: fit("von_mises", y=np.exp(1j * N)), "y must be angles; got complex.*np.angle"),
    ("dates", lambda: fit(y=N.astype("datetime64[D]")), "y must be real numbers; got dates.*day of the year"),
    ("durations", lambda: fit(y=N.astype("timedelta64[h]")), "got dates or times.*hours since"),
    ("complex amounts", lambda: fit(Dirichlet(closure=True), y=P + 1j), "y must be amounts.*complex"),
    ("masked amounts", lambda: Dirichlet(closure=True).encode(np.ma.masked_array(P, mask=P > 0)), "masked"),
    ("no columns", lambda: fit(y=np.ones((20, 0))), r"without columns, of shape \(20, 0\)"),
    ("no rows", lambda: fit(X=X[:0], y=N[:0]), r"must have at least one row; got shapes \(0, 2\) and \(0,\)"),
    ("no rows, frame", lambda: fit(X=pd.DataFrame(X[:0]), y=pd.Series(N[:0])), "must have at least one row"),
    ("no rows, labels", lambda: GGPClassifier().fit(X[:0], []), "must have at least one row"),
    ("no rows, inducing", lambda: fit(X=X[:0], y=N[:0], inducing=5), "must have at least one row"),
    ("no rows of y", lambda: fit(y=[]), r"inconsistent numbers of samples: \[20, 0\]"),
    ("no further rows", lambda: FITTED["poisson"].update(X[:0], N[:0]), "must have at least one row"),
    ("no matrices", lambda: fit("wishart", y=np.ones((20, 0, 0))), "without columns"),
    ("ragged y", lambda: fit("dirichlet", y=[[0.5, 0.5]] * 19 + [[1.0]]), "y must have rows of one length"),
    ("ragged labels", lambda: label([["a"]] * 19 + [["a", "b"]]), "y must have rows of one length"),
    ("mixed labels", lambda: label(np.array(["a", 1] * 10, dtype=object)), "one type; got int and str"),
    ("labels as dates", lambda: label(N.astype("datetime64[D]")), "labels .text"),
    ("one bound", lambda: fit(Gamma(phi_bounds=(1,)), y=N + 1), r"phi_bounds must be .fixed.*got \(1,\)"),
    ("fix", lambda: fit(Gamma(phi_bounds="fix"), y=N + 1), "phi_bounds must be .fixed.*'fix'"),
    ("reversed bounds", lambda: fit(Gamma(phi_bounds=(9, 1)), y=N + 1), r"low <= high.*got \(9, 1\)"),
    ("negative bounds", lambda: fit(Beta(phi_bounds=(-1, 1)), y=P[:, 0]), "0 < low"),
    ("no bounds", lambda: fit(Gamma(phi_bounds=None), y=N + 1), "phi_bounds must be.*got None"),
    ("bounds, matrix", lambda: fit(MultivariateGaussian(phi_bounds=(1,)), y=X), "phi_bounds must be"),
    ("bounds, cuts", lambda: fit(Ordinal(phi_bounds=(1,)), y=N // 7), "phi_bounds must be"),
    ("bounds, Wishart", lambda: fit(Wishart(phi_bounds="fix"), y=MATRICES), "phi_bounds must be"),
    ("phi text", lambda: fit(Gamma(phi="one"), y=N + 1), "phi must be a number for Gamma.*'one'"),
    ("phi list", lambda: fit(NegativeBinomial(phi=[1.0, 2.0]), y=N), r"a number for.*shape \(2,\)"),
    ("phi None", lambda: fit(Gamma(phi=None), y=N + 1), "phi must be a number for Gamma; got None"),
    ("phi matrix", lambda: fit(Gaussian(phi=np.eye(2)), y=X), r"number or a list.*shape \(2, 2\)"),
    ("phi complex", lambda: fit(Gamma(phi=1 + 2j), y=N + 1), "phi must be a number.*complex"),
    ("phi of cuts", lambda: fit(Ordinal(phi=3.0), y=N // 7), "a list of numbers for Ordinal; got 3.0"),
    ("phi of Wishart", lambda: fit(Wishart(phi=[3.0, 4.0]), y=MATRICES), "a number for Wishart"),
    ("no support", lambda: fit(WithoutSupport(), y=N), "WithoutSupport must say what y may be.*support ="),
    ("restarts", lambda: fit("poisson", n_restarts_optimizer=-1, y=N), "n_restarts_optimizer.*got -1"),
    ("restarts 1.5", lambda: fit("poisson", n_restarts_optimizer=1.5, y=N), "whole number.*got 1.5"),
    *(
        (f"budget {b}", lambda b=b: fit(y=N, budget=b), f"budget must be .* number of seconds, or None; got {b!r}")
        for b in ("5s", -1, 0, np.nan)
    ),
    *(
        (f"jobs {k}", lambda k=k: fit(y=N, n_jobs=k), f"n_jobs must be a whole number other than 0, or None; got {k!r}")
        for k in (1.5, "two", 0)
    ),
    ("X", lambda: fit("poisson", X=1e300 * X, y=N), "X must be of a size.*e.300. Divide"),
    ("kernel bounds", lambda: fit("poisson", kernel=RBF(1.0, (10, 1)), y=N), "length_scale_bounds of kernel.*10"),
    ("kernel bounds < 0", lambda: fit("poisson", kernel=RBF(1.0, (-1, 1)), y=N), "0 <= low.*-1"),
    ("kernel bounds text", lambda: fit("poisson", kernel=RBF(1.0, "fix"), y=N), "length_scale_bounds.*'fix'"),
    ("kernel value", lambda: fit("poisson", kernel=1.0 * RBF(0.0), **HELD, y=N), "k2__length_scale.*positive.*got 0.0"),
    ("kernel variance", lambda: fit("poisson", kernel=[ConstantKernel(-1.0, "fixed")], y=N), r"kernel\[0\].*or more"),
    ("theta", lambda: FITTED["poisson"].log_marginal_likelihood([0.0, -800.0, 0.0]), "between -350 and 350.*-800"),
    ("theta NaN", lambda: FITTED["poisson"].log_marginal_likelihood([0.0, np.nan, 0.0]), "between -350 and 350.*nan"),
    ("theta text", lambda: FITTED["poisson"].log_marginal_likelihood("a"), "theta must be log-hyperparameters"),
    ("trials", lambda: FITTED["binomial"].predict_dist(X, trials=np.inf), "trials must be positive integers; got inf"),
    ("trials text", lambda: FITTED["binomial"].predict_dist(X, trials="ten"), "positive integers.*'ten'"),
    ("trials shape", lambda: FITTED["binomial"].predict_dist(X, trials=[1, 2, 3]), r"20 rows; got shape \(3,\)"),
    ("sample", lambda: FITTED["poisson"].sample_y(X, 1.5), "whole number, 0 or more; got 1.5"),
    ("q", lambda: FITTED["poisson"].predict_dist(X).quantile("a"), "q must be one number between 0 and 1; got 'a'"),
    ("qs", lambda: FITTED["poisson"].predict_dist(X).quantile([0.1, 0.9]), r"got \[0.1, 0.9\]. Call it once for each"),
    ("sparse, X", lambda: fit("poisson", X=1e300 * X, y=N, inducing=5), "X must be of a size"),
    ("sparse, labels", lambda: GGPClassifier(inducing=5).fit(X, np.array(["a", 1] * 10, dtype=object)), "one type"),
    ("sparse, offset", lambda: fit("poisson", y=N, offset=N + 1j, inducing=5), "offset must be.*complex"),
    ("sparse, y", lambda: fit(y=N + 1j, inducing=5), "y must be numbers; got complex"),
    ("order", lambda: GGPOrdinalClassifier(order="ab").fit(X, ["a", "b"] * 10), "order must be a list.*got 'ab'"),
    ("order of sets", lambda: GGPOrdinalClassifier(order={"a", "b"}).fit(X, ["a", "b"] * 10), "order must be a list"),
    ("n_classes", lambda: fit(Categorical(n_classes=2.5), y=N % 2), "n_classes must be a whole number, 2 or more"),
    ("n_levels", lambda: fit(Ordinal(n_levels=1), y=N % 2), "n_levels must be a whole number, 2 or more; got 1"),
    ("epsilon", lambda: fit(Dirichlet(zeros_epsilon="a"), y=P), "zeros_epsilon must be a positive number; got 'a'"),
    ("max_iter", lambda: Laplace(max_iter=-1), "max_iter must be a whole number, 1 or more; got -1"),
    ("tol", lambda: Variational(tol=0), "tol must be a positive number; got 0"),
    ("inference class", lambda: fit("poisson", y=N, inference=Laplace), r"not its class. Try Laplace\(\)"),
    ("levels", lambda: calibration(FITTED["poisson"], X, N, levels="a"), "levels must be one number.*got 'a'"),
    ("evidence", lambda: plot_evidence(FITTED["poisson"], 0, "x"), "second must be an entry of theta_.*'x'"),
    ("region", lambda: FITTED["poisson"].predict_dist(X).interval(2), "level must be one number.*got 2"),
    ("offset", lambda: fit("poisson", y=N, offset=N + 1j), "offset must be one number per row.*complex"),
    *(
        (f"optimizer, {name}", lambda a=answer: fit("poisson", kernel=RBF(), optimizer=lambda f, x, b: a, y=N),
         r"must return \(theta, value\).*result\.x, result\.fun")
        for name, answer in {"result": OptimizeResult(x=np.zeros(1), fun=0.0), "None": None, "text": ("a", 1)}.items()
    ),
]  # fmt: skip
FITTED = {name: fit(name, y, **HELD) for name, y in {"poisson": N, "binomial": np.ones((20, 2))}.items()}


@pytest.mark.parametrize("call, message", [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_mistakes_are_named(call, message):
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        call()


def test_what_only_looks_like_a_mistake_is_taken():
    """A mask that hides nothing, an empty variance that is held, bounds that start at zero."""
    for y in (np.ma.masked_array(N, mask=np.zeros(20)), N.astype(object), N > 3):
        fit("poisson", **HELD, y=y)
    fit("poisson", kernel=RBF() + ConstantKernel(0.0, "fixed"), **HELD, y=N)
    fit("poisson", kernel=RBF(1.0, (0.0, 10.0)), **HELD, y=N)


def test_bare_pandas_arrays_are_taken_as_series():
    """As y in fit, update and score: with their order of labels, and with gaps."""
    grades = pd.Categorical(["low", "mid", "high", "mid"] * 5, ["low", "mid", "high"], ordered=True)
    assert GGPOrdinalClassifier(**HELD).fit(X, grades).classes_.tolist() == ["low", "mid", "high"]
    classes = GGPClassifier(**HELD).fit(X, grades)
    assert classes.score(X, grades) == classes.score(X, pd.Series(grades))
    counts = pd.array([None, *N[1:]], dtype="Int64")
    with pytest.warns(UserWarning, match="y is missing in 1 of 20"):
        model = fit("poisson", **HELD, y=counts)
        expected = fit("poisson", **HELD, y=pd.Series(counts))
        np.testing.assert_array_equal(model.predict(X), expected.predict(X))
        assert model.score(X, counts) == expected.score(X, pd.Series(counts))
        np.testing.assert_array_equal(
            model.update(X, counts).predict(X), expected.update(X, pd.Series(counts)).predict(X)
        )


def test_saving_to_no_folder_names_the_path_that_was_given(tmp_path):
    path = tmp_path / "none" / "m.ggpm"
    with pytest.raises(FileNotFoundError, match="no such folder") as error:
        save(FITTED["poisson"], path)
    assert error.value.filename == str(path)


# ---- numbers that have lost what they were to say -----------------------------------------------------------------
@pytest.mark.parametrize("units", ["radians", "degrees", (0, 24)])
def test_angles_of_a_million_million_turns_are_refused_before_the_fit(units):
    family = families.VonMises(units=units)
    turn = family.support.period
    rng = np.random.default_rng(0)
    X, angle = rng.uniform(size=(12, 1)), turn * rng.uniform(0, 0.9, 12)
    with pytest.raises(ValueError, match=r"digits left after whole turns.* in row 5, where neighbouring numbers are"):
        GGPRegressor(family).fit(X, angle + np.where(np.arange(12) == 5, 1e12 * turn, 0.0))
    settings = {"optimizer": None, "kernel": RBF(0.3), "inference": "laplace"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that they are more than a turn
        near = GGPRegressor(family, **settings).fit(X, angle).predict_latent(X)[0]
        far = GGPRegressor(family, **settings).fit(X, angle + 1e6 * turn).predict_latent(X)[0]
    np.testing.assert_allclose(near, far, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"inducing": 5}, {"kernel": RBF(1e-160)}])
@pytest.mark.parametrize("scale", [1e-160, 1e-300])
def test_inputs_whose_squares_vanish_are_refused(settings, scale):
    X = np.stack([np.arange(12.0), scale * np.arange(12.0)], axis=1)
    with pytest.raises(ValueError, match=r"column 'b' of X has values within .* squares are lost. Multiply it"):
        GGPRegressor("gaussian", **settings).fit(pd.DataFrame(X, columns=["a", "b"]), np.sin(X[:, 0]))
    small = 1e-145 * X[:, :1]
    fitted = GGPRegressor("gaussian").fit(small, np.sin(X[:, 0]))
    np.testing.assert_allclose(fitted.predict(small), np.sin(X[:, 0]), atol=0.1)


def test_collinear_outputs_are_named():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (40, 1))
    f, e = np.sin(2 * X[:, 0]), rng.normal(size=(3, 40))
    Y = np.stack([f + 0.1 * e[0], 0.3 * e[1], 2 * f + 0.2 * e[0] + 1, np.ones(40)], axis=1)
    with pytest.raises(ValueError, match="columns 0, 2 of y are collinear"):
        GGPRegressor("multivariate_gaussian").fit(X, Y)
    nearly = np.stack([f + 0.1 * e[0], 2 * f + 0.2 * e[0] + 1e-2 * e[1]], axis=1)
    predicted = GGPRegressor("multivariate_gaussian").fit(X, nearly).predict(X)
    np.testing.assert_allclose(predicted, np.stack([f, 2 * f], axis=1), atol=0.4)  # four times the noise
    given = families.MultivariateGaussian(phi=np.eye(4), phi_bounds="fixed")
    assert np.all(np.isfinite(GGPRegressor(given, RBF()).fit(X, Y).predict(X)))
