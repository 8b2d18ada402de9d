"""Every picture is drawn, on the ax that was given, and shows what it should."""

import re

import numpy as np
import pytest

from cases import FAMILIES, simulate
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families, load, plotting, save

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def models():
    x = np.linspace(0, 4, 30)
    rng = np.random.default_rng(0)
    X2, y2, _ = simulate("categorical", n=30)
    _, parts, _ = simulate("dirichlet", n=30)
    grades = (3 * x / 4.1).astype(int)
    return {
        "angles": GGPRegressor(families.VonMises(units="degrees"), optimizer=None).fit(x[:, None], 300 + 40 * x),
        "hours": GGPRegressor(families.VonMises(units="hours"), optimizer=None).fit(x[:, None], 20 + 2 * x),
        "counts": GGPRegressor("poisson", optimizer=None).fit(x[:, None], rng.poisson(3 + x)),
        "parts": GGPRegressor("dirichlet", optimizer=None).fit(x[:, None], parts),
        "classes": GGPClassifier(optimizer=None).fit(X2, y2.astype(int)),
        "grades": GGPOrdinalClassifier(optimizer=None).fit(x[:, None], grades),
    }


CALLS = {
    "angles": lambda m, ax: plotting.plot_angles(m["angles"], n=30, ax=ax),
    "hours": lambda m, ax: plotting.plot_angles(m["hours"], n=30, data=False, ax=ax),
    "bands": lambda m, ax: plotting.plot_bands(m["counts"], n=30, ax=ax),
    "bands of parts": lambda m, ax: plotting.plot_bands(m["parts"], n=20, ax=ax),
    "ternary": lambda m, ax: plotting.plot_ternary(m["parts"], n=20, regions=1, ax=ax),
    "ternary density": lambda m, ax: plotting.plot_ternary_density(m["parts"], [[2.0]], data=None, ax=ax),
    "class map": lambda m, ax: plotting.plot_class_map(m["classes"], n=12, ax=ax),
    "ordinal": lambda m, ax: plotting.plot_ordinal(m["grades"], n=30, ax=ax),
    "evidence": lambda m, ax: plotting.plot_evidence(m["counts"], n=5, ax=ax),
    "calibration": lambda m, ax: plotting.plot_calibration(m["counts"], np.zeros((9, 1)), np.arange(9), ax=ax),
    "reliability": lambda m, ax: plotting.plot_calibration(m["grades"], np.zeros((9, 1)), np.arange(9) % 3, ax=ax),
    "pit": lambda m, ax: plotting.plot_pit(m["angles"], np.zeros((9, 1)), np.arange(9.0), ax=ax),
    "pit of parts": lambda m, ax: plotting.plot_pit(m["parts"], np.zeros((2, 1)), [[0.2, 0.3, 0.5]] * 2, ax=ax),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_ax_is_accepted_and_returned(name, models, tmp_path):
    figure, ax = plt.subplots()
    assert CALLS[name](models, ax) is ax
    assert ax.has_data() or ax.images
    figure.savefig(tmp_path / "p.png", dpi=30)
    own = CALLS[name](models, None)
    assert own is not ax and own.figure is not figure


def test_polar(models, tmp_path):
    own = plotting.plot_polar(models["angles"], n=40)
    assert own.name == "polar" and own.get_theta_direction() == -1
    own.figure.savefig(tmp_path / "p.png", dpi=30)
    _, polar = plt.subplots(subplot_kw={"projection": "polar"})
    assert plotting.plot_polar(models["hours"], n=40, ax=polar) is polar
    _, flat = plt.subplots()
    with pytest.raises(ValueError, match="polar ax"):
        plotting.plot_polar(models["angles"], ax=flat)


def test_the_fan_wraps(models):
    """The mean crosses north: it is drawn in both turns, and every point of a band is within reach of the axis."""
    ax = plotting.plot_angles(models["angles"], n=60, data=False)
    lines = [line.get_ydata() for line in ax.lines]
    assert len(lines) == 2
    np.testing.assert_allclose(lines[0] - lines[1], 360)
    assert ax.get_ylim() == (0, 360)
    visible = sum(np.sum((y >= 0) & (y < 360)) for y in lines)
    assert visible == 60  # each abscissa shows the mean once


def test_evidence_surface_is_the_evidence(models, monkeypatch):
    model, drawn, contourf = models["counts"], [], plt.Axes.contourf
    monkeypatch.setattr(plt.Axes, "contourf", lambda ax, *a, **k: drawn.append(a) or contourf(ax, *a, **k))
    ax = plotting.plot_evidence(model, 0, 1, width=1.0, n=3)
    star = next(line for line in ax.lines if line.get_marker() == "*")
    np.testing.assert_allclose(star.get_xdata(), np.exp(model.theta_[0]))
    assert ax.get_xlabel() == "k1__k1__constant_value" and ax.get_xscale() == "log"
    ((x, y, drop),) = drawn
    np.testing.assert_allclose(np.log(x), model.theta_[0] + [-1, 0, 1], atol=1e-12)
    np.testing.assert_allclose(np.log(y), model.theta_[1] + [-1, 0, 1], atol=1e-12)
    grid = [[np.r_[np.log([a, b]), model.theta_[2:]] for a in x] for b in y]
    evidence = np.array([[model.log_marginal_likelihood(theta) for theta in row] for row in grid])
    np.testing.assert_allclose(drop, evidence.max() - evidence, rtol=1e-6, atol=1e-8)  # modes found from other starts


def test_the_wrong_picture_is_told(models):
    with pytest.raises(ValueError, match=r"for angles.*Poisson.*plot_bands"):
        plotting.plot_angles(models["counts"])
    with pytest.raises(ValueError, match="for compositions"):
        plotting.plot_ternary(models["counts"])
    with pytest.raises(ValueError, match=r"for ordered outputs.*Try plot_angles"):
        plotting.plot_bands(models["angles"])
    with pytest.raises(ValueError, match=r"for classifiers.*Try plot_bands"):
        plotting.plot_class_map(models["counts"])
    with pytest.raises(ValueError, match=r"two inputs.*Try plot_ordinal"):
        plotting.plot_class_map(models["grades"])
    with pytest.raises(ValueError, match="column number below 1"):
        plotting.plot_bands(models["counts"], 4)
    with pytest.raises(ValueError, match="two different entries of theta_"):
        plotting.plot_evidence(models["counts"], 0, 0)
    four = GGPRegressor("dirichlet", optimizer=None).fit(np.zeros((2, 1)), np.full((2, 4), 0.25))
    with pytest.raises(ValueError, match="3 parts; this model has 4"):
        plotting.plot_ternary(four)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_advice_of_a_wrong_picture_can_be_followed(name):
    """Whatever the family: the function that the message names draws a picture of this model."""
    X, y, _ = simulate(name, n=12)
    model = GGPRegressor(FAMILIES[name][0], optimizer=None).fit(X, y)
    with pytest.raises(ValueError, match=r"Try plot_") as caught:
        plotting.plot_class_map(model)
    advice = re.findall(r"plot_\w+", str(caught.value).partition("Try")[2])
    for function in advice:
        arguments = {"plot_calibration": (X, y)}.get(function, ())
        keywords = {"plot_calibration": {}, "plot_evidence": {"n": 3}}.get(function, {"n": 12})
        assert getattr(plotting, function)(model, *arguments, **keywords).has_data()


def test_calibration_of_a_right_model_is_the_diagonal():
    """Draws from the predictive distribution itself: the levels of their regions are uniform."""
    rng = np.random.default_rng(3)
    for name in ("von_mises", "gamma", "dirichlet", "von_mises_fisher"):
        X, y, _ = simulate(name, n=25)
        model = GGPRegressor(name, optimizer=None).fit(X, y)
        new = rng.normal(size=(100, 2))
        depth = plotting.coverage_depth(model, new, model.predict_dist(new).sample(None, 7))
        # the largest distance of 100 uniform numbers from the diagonal exceeds 0.2 once in 1500
        assert np.max(np.abs(np.sort(depth) - (np.arange(100) + 0.5) / 100)) < 0.2, name


def test_loaded_models_can_be_drawn(models, tmp_path):
    save(models["angles"], tmp_path / "m.ggpm")
    ax = plotting.plot_angles(load(tmp_path / "m.ggpm"), n=30)
    assert len(ax.lines) == 3  # the mean in two turns, and the training rows, which are in the file
