"""Every picture is drawn, on the ax that was given, and shows what it should."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from cases import FAMILIES, simulate
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families, load, plotting, save
from ggpm.kernels import Category, On
from ggpm.learning import objective
from ggpm.learning.contest import SearchTable, Trial
from ggpm.plotting import style, ternary
from ggpm.plotting.evidence import DEEP, FINER, evidence_around
from ggpm.prediction.description import readable_names

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
        "votes": GGPRegressor("multinomial", optimizer=None).fit(x[:, None], rng.multinomial(9, [0.2, 0.3, 0.5], 30)),
        "classes": GGPClassifier(optimizer=None).fit(X2, y2.astype(int)),
        "grades": GGPOrdinalClassifier(optimizer=None).fit(x[:, None], grades),
    }


CALLS = {
    "angles": lambda m, ax: plotting.plot_angles(m["angles"], n=30, ax=ax),
    "hours": lambda m, ax: plotting.plot_angles(m["hours"], n=30, data=False, ax=ax),
    "bands": lambda m, ax: plotting.plot_bands(m["counts"], n=30, ax=ax),
    "multinomial": lambda m, ax: plotting.plot_effects(m["votes"], n=8, axes=None if ax is None else [ax])[0],
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
    assert ax.get_ylim() == pytest.approx((-0.03 * 360, 1.03 * 360))
    visible = sum(np.sum((y >= 0) & (y < 360)) for y in lines)
    assert visible == 60  # each abscissa shows the mean once


# Laplace's evidence is exact but for modes found from other starts; a bound is promised to some hundredths of a nat
EVIDENCES = {"laplace": {"rtol": 1e-6, "atol": 1e-8}, "variational": {"atol": 0.03}}


@pytest.mark.parametrize("inference", EVIDENCES)
def test_evidence_surface_is_the_evidence(inference, monkeypatch):
    x, drawn, contourf = np.linspace(0, 4, 30), [], plt.Axes.contourf
    model = GGPRegressor("poisson", inference=inference, optimizer=None).fit(x[:, None], (3 + x).astype(int))
    monkeypatch.setattr(plt.Axes, "contourf", lambda ax, *a, **k: drawn.append(a) or contourf(ax, *a, **k))
    ax = plotting.plot_evidence(model, 0, 1, width=1.0, n=3)
    star = next(line for line in ax.lines if line.get_marker() == "*")
    np.testing.assert_allclose(star.get_xdata(), np.exp(model.theta_[0]))
    assert ax.get_xlabel() == "RBF: variance" and ax.get_xscale() == "log"
    ((x, y, drop),) = drawn
    x, y, drop = x[::FINER], y[::FINER], drop[::FINER, ::FINER]
    np.testing.assert_allclose(np.log(x), model.theta_[0] + [-1, 0, 1], atol=1e-12)
    np.testing.assert_allclose(np.log(y), model.theta_[1] + [-1, 0, 1], atol=1e-12)
    grid = [[np.r_[np.log([a, b]), model.theta_[2:]] for a in x] for b in y]
    evidence = np.array([[model.log_marginal_likelihood(theta) for theta in row] for row in grid])
    np.testing.assert_allclose(drop, evidence.max() - evidence, **EVIDENCES[inference])


def test_evidence_curve_is_the_evidence(models):
    model = models["counts"]
    ax = plotting.plot_evidence(model, 1, None, width=1.0, n=3)
    x, drop = (values[::FINER] for values in ax.lines[0].get_data())
    np.testing.assert_allclose(np.log(x), model.theta_[1] + [-1, 0, 1], atol=1e-12)
    thetas = [np.r_[model.theta_[0], np.log(v), model.theta_[2:]] for v in x]
    evidence = np.array([model.log_marginal_likelihood(theta) for theta in thetas])
    np.testing.assert_allclose(drop, evidence - evidence.max(), **EVIDENCES["variational"])
    np.testing.assert_allclose(ax.lines[1].get_xdata(), np.exp(model.theta_[1]))


def test_evidence_is_drawn_over_what_was_learned_of_parts_that_have_variance():
    """Whichever part of the kernel comes first; with names of terms on the axes."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, size=(30, 1))
    off = ConstantKernel(1e-5) * RBF(1.0)  # its length scale may be anything
    on = ConstantKernel(1.0) * Matern(1.0)
    for kernel, expected in ((off + on, (2, 3)), (on + off, (0, 1))):
        model = GGPRegressor("poisson", kernel, optimizer=None).fit(X, rng.poisson(3.0, 30))
        ax = plotting.plot_evidence(model, n=3)
        told = readable_names(model.fit_)
        assert (ax.get_xlabel(), ax.get_ylabel()) == tuple(told[k] for k in expected)
        assert ax.get_xlabel() == "Matern: variance"
        assert plotting.plot_evidence(model, second=None, n=3).get_xlabel() == ax.get_xlabel()
        assert plotting.plot_evidence(model, expected[1], n=3).get_ylabel() == ax.get_xlabel()
    alone = GGPRegressor("poisson", RBF(), optimizer=None).fit(X, rng.poisson(3.0, 30))
    assert plotting.plot_evidence(alone, n=3).get_ylabel() == "log evidence below its maximum"


def test_evidence_is_followed_from_neighbour_to_neighbour(models, monkeypatch):
    """No point searches for its posterior from scratch, and none lies beyond points that are out of the question."""
    model = models["angles"]
    monkeypatch.setattr(objective, "best_of", lambda *_: pytest.fail("a point that starts from scratch"))
    values, reached = evidence_around(model, (0, 1), np.linspace(-4, 4, 9))
    assert reached[4, 4] and not reached.all()
    low = values < np.nanmax(values) - DEEP
    for i, j in zip(*np.nonzero(~reached)):
        near = np.s_[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]
        assert np.all(low[near] | np.isnan(values[near]))


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
        drawn = np.ravel(getattr(plotting, function)(model, *arguments, **keywords))
        assert all(ax.has_data() for ax in drawn)


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


# ---- what a reader needs: legends, whole points, and where other columns are held ----------------------------------
@pytest.fixture(scope="module")
def slices():
    """Models of three columns, one of them labels, whose median, mean and most frequent label differ."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame({
        "depth": np.linspace(0, 4, 40), "slope": rng.exponential(size=40), "soil": rng.choice(["loam", "peat"], 40),
    })  # fmt: skip
    y = {
        "counts": rng.poisson(4, 40), "degrees": rng.uniform(0, 360, 40), "parts": rng.dirichlet([2, 3, 4], 40),
        "four": rng.dirichlet([2, 3, 4, 5], 40), "votes": rng.multinomial(9, [0.2, 0.3, 0.5], 40),
    }  # fmt: skip
    family = {
        "counts": "poisson", "degrees": families.VonMises(units="degrees"), "parts": "dirichlet", "four": "dirichlet",
        "votes": "multinomial",
    }  # fmt: skip
    kernel = On(RBF(), ["depth", "slope"]) + Category("soil")
    out = {k: GGPRegressor(family[k], kernel, optimizer=None, inference="laplace").fit(X, y[k]) for k in y}
    label = np.array(["oak", "beech", "pine"])[np.digitize(X["depth"] + 0.3 * rng.normal(size=40), [1.3, 2.6])]
    return X, out | {"trees": GGPClassifier(kernel, optimizer=None, inference="laplace").fit(X, label)}


SLICES = {
    "bands": lambda m, **k: plotting.plot_bands(m["counts"], "depth", n=12, **k),
    "angles": lambda m, **k: plotting.plot_angles(m["degrees"], "depth", n=12, **k),
    "polar": lambda m, **k: plotting.plot_polar(m["degrees"], "depth", n=12, **k),
    "ternary": lambda m, **k: plotting.plot_ternary(m["parts"], "depth", n=12, regions=0, **k),
    "ordinal": lambda m, **k: plotting.plot_ordinal(m["trees"], "depth", n=12, **k),
    "parts": lambda m, **k: plotting.plot_parts(m["votes"], "depth", n=12, **k)[0],
    "effects": lambda m, **k: plotting.plot_effects(m["counts"], ["depth"], n=12, **k)[0],
    "map": lambda m, **k: plotting.plot_map(m["counts"], ("depth", "slope"), n=6, **k),
    "class map": lambda m, **k: plotting.plot_class_map(m["trees"], ("depth", "slope"), n=6, **k),
}


def title_of(ax):
    above = ax.figure.get_suptitle()
    return f"{above} {ax.get_title()}".replace("\n", " ")


@pytest.mark.parametrize("name", SLICES)
def test_the_title_says_where_other_columns_are_held(name, slices):
    X, models = slices
    two = name.endswith("map")
    said = title_of(SLICES[name](models))
    where = "most frequent label: " if two else "median or most frequent label: slope = "
    assert f"other columns at their {where}" in said
    assert two or f"slope = {X['slope'].median():.4g}" in said
    assert f"soil = {X['soil'].mode()[0]}" in said
    said = title_of(SLICES[name](models, at={"soil": "peat"} if two else {"soil": "peat", "slope": 2}))
    assert "soil = peat" in said and "at " in said and "median" not in said
    assert two or "slope = 2" in said
    with pytest.raises(ValueError, match=r"soil.*has no label 'clay'; there are 'loam', 'peat'"):
        SLICES[name](models, at={"soil": "clay"})
    if name != "effects":  # where each panel varies another column
        with pytest.raises(ValueError, match="depth, which is on an axis"):
            SLICES[name](models, at={"depth": 1.0})
    with pytest.raises(ValueError, match=r"feature must be one of.*Did you mean 'slope'"):
        SLICES[name](models, at={"slop": 1.0})


def test_numbers_that_are_groups_to_the_kernel_are_drawn_as_labels():
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"height": rng.normal(size=40), "year": rng.choice(["95", "96", "97"], 40)})
    X["place"] = rng.choice([1001, 1002, 1004, 1004], 40)
    kernel = On(RBF(), "height") + Category("year") + Category("place") + On(RBF(), "place")
    model = GGPRegressor("poisson", kernel, optimizer=None, inference="laplace").fit(X, rng.poisson(4, 40))
    height, year, place, smooth = plotting.plot_effects(model, n=7)
    assert [t.get_text() for t in year.get_xticklabels()] == ["95", "96", "97"] and len(year.containers) == 1
    assert [t.get_text() for t in place.get_xticklabels()] == ["1001", "1002", "1004"] and len(place.containers) == 1
    assert not height.containers and not smooth.containers  # curves: the term along them is smooth
    said = title_of(height)
    assert f"their most frequent label: year = {X['year'].mode()[0]}, place = {X['place'].mode()[0]}" in said
    rows = pd.DataFrame({"height": X["height"].median(), "year": ["95", "96", "97"], "place": X["place"].mode()[0]})
    np.testing.assert_allclose(year.lines[0].get_ydata(), model.predict(rows))


def test_a_slice_is_that_of_the_row_which_at_names(slices):
    _, models = slices
    ax = plotting.plot_bands(models["counts"], "depth", n=5, at={"slope": 2.5, "soil": "peat"}, data=False)
    rows = pd.DataFrame({"depth": np.linspace(0, 4, 5), "slope": 2.5, "soil": "peat"})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), models["counts"].predict(rows))


def texts(ax):
    return [t.get_text() for t in ax.get_legend().get_texts()]


def test_legends_name_mean_band_and_points(slices):
    _, models = slices
    assert texts(SLICES["bands"](models)) == ["90% interval", "mean", "observed"]
    assert texts(SLICES["angles"](models)) == ["90% arc", "50% arc", "mean direction", "observed"]
    assert texts(SLICES["polar"](models)) == ["90% arc", "mean direction", "observed"]
    assert texts(plotting.plot_bands(models["parts"], n=8)) == ["y0, mean", "y1, mean", "y2, mean"]
    assert texts(plotting.plot_parts(models["votes"], n=8)[-1]) == ["90% interval of the share", "mean", "observed"]


def whole(ax):
    """Points that lie within the axes with room for their markers on all sides."""
    ax.figure.canvas.draw()
    for line in ax.lines:
        if line.get_marker() in (".", "o") and len(line.get_xdata()) > 1:
            corner = ax.transAxes.inverted().transform(ax.transData.transform(np.stack(line.get_data(), axis=1)))
            assert len(corner) == 40
            yield np.all(corner > 0.005) and np.all(corner < 0.995)


@pytest.mark.parametrize("name", ["bands", "angles", "ordinal", "parts", "map", "class map"])
def test_no_point_is_cut_by_the_edge_of_the_axes(name, slices):
    _, models = slices
    if name == "class map":  # a line for every class
        ax = plotting.plot_class_map(models["trees"], ("depth", "slope"), n=6)
        x, y = (np.concatenate([line.get_data()[k] for line in ax.lines]) for k in (0, 1))
        assert len(x) == 40 and x.min() > ax.get_xlim()[0] and x.max() < ax.get_xlim()[1]
        assert y.min() > ax.get_ylim()[0] and y.max() < ax.get_ylim()[1]
        return
    found = list(whole(SLICES[name](models)))
    assert found and all(found)


def test_given_points_widen_the_axes_and_limits_leave_points_out(slices):
    X, models = slices
    moved, y = X.assign(depth=X["depth"] + 3), np.full(40, 5)
    ax = plotting.plot_bands(models["counts"], "depth", n=12, data=(moved, y))
    assert ax.get_xlim()[0] < 0 and ax.get_xlim()[1] > 7
    ax = plotting.plot_bands(models["counts"], "depth", n=12, limits=(1, 2))
    (points,) = [line for line in ax.lines if line.get_marker() == "."]
    assert len(points.get_xdata()) == np.sum((X["depth"] >= 1) & (X["depth"] <= 2))


def test_every_part_has_its_panel(slices):
    _, models = slices
    axes = plotting.plot_parts(models["four"], n=8)
    assert [ax.get_title() for ax in axes] == ["y0", "y1", "y2", "y3"]
    shown = np.stack([ax.lines[0].get_ydata() for ax in axes], axis=1)
    np.testing.assert_allclose(shown.sum(axis=1), 1.0)  # means of parts of a whole
    axes = plotting.plot_parts(models["votes"], n=8)
    observed = np.stack([ax.lines[1].get_ydata() for ax in axes], axis=1)
    np.testing.assert_allclose(observed.sum(axis=1), 1.0)  # counts are drawn as shares
    five = GGPRegressor("dirichlet", optimizer=None).fit(np.arange(6.0)[:, None], np.full((6, 5), 0.2))
    axes = plotting.plot_parts(five, n=4)
    assert len({round(ax.get_position().y0, 3) for ax in axes}) == 2 and axes[-1].get_xlabel() == "x"
    names = GGPRegressor("binomial", optimizer=None).fit(np.arange(6.0)[:, None], [[3, 1]] * 6)
    assert [ax.get_title() for ax in plotting.plot_parts(names, n=4)] == ["successes"]


def test_three_parts_are_a_triangle_whatever_the_number_of_latents():
    """Logistic normal compositions have one latent less than parts."""
    rng, X = np.random.default_rng(0), np.arange(12.0)[:, None]
    three, four = (GGPRegressor("logistic_normal", optimizer=None).fit(X, rng.dirichlet([3.0] * d, 12)) for d in (3, 4))
    assert [plotting.kind_of_picture(model) for model in (three, four)] == ["ternary", "parts"]
    assert plotting.plot_ternary(three, n=6, regions=1).has_data()
    assert len(plotting.plot_parts(four, n=4)) == 4


def test_names_of_classes_stand_where_they_are_most_probable(slices):
    X, models = slices
    ax = plotting.plot_class_map(models["trees"], ("depth", "slope"), n=24)
    names = {t.get_text(): t.get_position() for t in ax.texts}
    assert set(names) == set(models["trees"].classes_) and ax.get_legend() is None
    for name, (depth, slope) in names.items():
        row = X.iloc[:1].assign(depth=depth, slope=slope, soil=X["soil"].mode()[0])
        assert models["trees"].predict(row)[0] == name
    rare = np.where(np.arange(40) == 20, "rare", "common")  # most probable nowhere: the legend has it
    model = GGPClassifier(0.01 * RBF(5.0), optimizer=None, inference="laplace").fit(X[["depth", "slope"]], rare)
    ax = plotting.plot_class_map(model, n=8)
    shown = {t.get_text() for t in ax.texts} | set(texts(ax) if ax.get_legend() else [])
    assert shown == {"rare", "common"}


def test_ticks_of_the_triangle_lie_on_lines_of_their_part():
    """Every label is beyond the end of the line on which its part has that share."""
    ax = plt.subplots()[1]
    ternary.frame(ax, ["sand", "silt", "clay"])
    labels = [t for t in ax.texts if t.get_text().endswith("%")]
    assert len(labels) == 12
    back = np.linalg.inv(np.column_stack([ternary.CORNERS, np.ones(3)]))  # from the plane to the three parts
    for label, part in zip(labels, np.repeat(range(3), 4)):
        parts = np.array([*label.get_position(), 1.0]) @ back
        assert parts[part] == pytest.approx(float(label.get_text()[:-1]) / 100, abs=1e-9)
        assert parts.min() < 0  # outside
    named = [t.get_text() for t in ax.texts if not t.get_text().endswith("%")]
    assert sorted(named) == sorted(["← sand", "← silt", "clay →", "sand", "silt", "clay"])


def test_colours_are_told_apart_with_any_colour_vision():
    """Colours of classes under the three dichromacies (Viénot, Brettel and Mollon 1999; Machado et al. 2009)."""
    from matplotlib.colors import to_rgb

    # Machado, Oliveira and Fernandes 2009, severity 1.0
    matrices = {
        "normal": np.eye(3),
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    }
    rgb = np.array([to_rgb(colour) for colour in style.COLOURS])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    for name, matrix in matrices.items():
        lab = cielab(np.clip(linear @ np.array(matrix).T, 0, 1))
        apart = np.linalg.norm(lab[:, None] - lab[None], axis=2)[np.triu_indices(len(lab), 1)]
        assert apart.min() > 8, name  # 2.3 is a just noticeable difference; 8 is seen at a glance


def cielab(linear):
    """Linear sRGB in CIELAB, D65."""
    xyz = linear @ np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]).T
    t = xyz / [0.95047, 1.0, 1.08883]
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def test_colours_are_in_one_file():
    """No picture names a colour of its own; greys of axes and white are ink, not colours."""
    from pathlib import Path

    for path in Path(plotting.__file__).parent.glob("*.py"):
        if path.name != "style.py":
            assert not re.findall(r"#[0-9A-Fa-f]{6}", path.read_text()), path.name


def test_lines_of_a_search_are_told_apart_and_one_has_won():
    trials = [Trial("RBF", 80, -1.3, -1.3, -1.3, 0.1), Trial("RBF", 80, -1.2, -1.2, -1.2, 0.1, True)]
    trials.append(Trial("Matérn 5/2", 80, -1.4, -1.4, -1.4, 0.1))
    model = SimpleNamespace(fit_=SimpleNamespace(search=SearchTable(tuple(trials))))
    ax = plotting.plot_search(model)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["RBF, start 1", "RBF, start 2", "Matérn 5/2"]
    colours = ax.collections[0].get_facecolors()
    assert not np.array_equal(colours[1], colours[0]) and np.array_equal(colours[0], colours[2])


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"site": list("abc") * 8, "depth": rng.uniform(0, 5, 24)})
    return frame, np.array([{"a": 0.5, "b": 1.0, "c": 2.0}[s] for s in frame.site])


def labels_of(ax):
    return [t.get_text() for t in ax.get_xticklabels()]


def test_bands_over_labels_are_points_with_bars(sites):
    frame, level = sites
    model = GGPRegressor("gamma", optimizer=None).fit(frame, np.exp(level))
    ax = plotting.plot_bands(model, "site", at={"depth": 2.0})
    assert labels_of(ax) == ["a", "b", "c"] and ax.get_xlabel() == "site"
    at = model.predict_dist(pd.DataFrame({"site": list("abc"), "depth": 2.0}))
    bars = np.array(ax.collections[0].get_segments())
    np.testing.assert_allclose(bars[:, :, 1], at.interval(0.9), rtol=1e-9)
    means, observed = ax.lines
    np.testing.assert_allclose(means.get_ydata(), at.mean(), rtol=1e-12)
    np.testing.assert_array_equal(np.round(observed.get_xdata()), [0, 1, 2] * 8)
    line = plotting.plot_bands(model, "depth", n=12)
    assert len(line.lines[0].get_xdata()) == 12


def test_parts_and_triangles_over_labels(sites):
    frame, level = sites
    y = np.stack([level, np.ones(24), np.ones(24)], axis=1) / (level + 2)[:, None]
    model = GGPRegressor("dirichlet", optimizer=None).fit(frame, y)
    panels = plotting.plot_parts(model, "site")
    assert all(labels_of(ax) == ["a", "b", "c"] for ax in panels)
    mean = model.predict(pd.DataFrame({"site": list("abc"), "depth": np.median(frame.depth)}))
    np.testing.assert_allclose([ax.lines[0].get_ydata() for ax in panels], mean.T, rtol=1e-12)
    ax = plotting.plot_ternary(model, "site", regions=3)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b", "c"]


def test_angles_over_labels(sites):
    frame, level = sites
    model = GGPRegressor("von_mises", optimizer=None).fit(frame, level)
    mean = model.predict(pd.DataFrame({"site": list("abc"), "depth": np.median(frame.depth)}))
    fan = plotting.plot_angles(model, "site")
    np.testing.assert_allclose(np.mod(fan.lines[0].get_ydata() - mean + np.pi, 2 * np.pi), np.pi, atol=1e-9)
    assert labels_of(fan) == ["a", "b", "c"]
    polar = plotting.plot_polar(model, "site")
    assert [t.get_text() for t in polar.get_yticklabels()] == ["a", "b", "c"]


def test_cut_points_are_no_logarithms_on_the_axis_of_the_evidence():
    x = np.linspace(0, 1, 18)
    model = GGPOrdinalClassifier(1.0 * RBF(0.5)).fit(x[:, None], (3 * x).astype(int).clip(0, 2))
    ax = plotting.plot_evidence(model, 2, None, n=5)
    assert ax.get_xscale() == "linear" and ax.lines[1].get_xdata()[0] == model.theta_[2]
    assert plotting.plot_evidence(model, 0, None, n=3).get_xscale() == "log"


def test_grades_over_labels_are_bars():
    frame = pd.DataFrame({"size": list("sml") * 6, "x": np.arange(18.0)})
    grades = np.arange(18) // 6
    model = GGPOrdinalClassifier(optimizer=None).fit(frame, grades)
    ax = plotting.plot_ordinal(model, "size", at={"x": 3.0})
    assert [t.get_text() for t in ax.get_xticklabels()] == ["l", "m", "s"]
    heights = np.array([[bar.get_height() for bar in bars] for bars in ax.containers])
    expected = model.predict_proba(pd.DataFrame({"size": ["l", "m", "s"], "x": 3.0}))
    np.testing.assert_allclose(heights.T, expected, rtol=1e-12)
    x = ax.lines[0].get_xdata()
    np.testing.assert_array_equal(np.round(x), [2, 1, 0] * 6)  # every row within the bar of its label


def test_times_are_dates_on_axes():
    times = pd.date_range("2024-02-27", periods=12, freq="12h")
    model = GGPRegressor("von_mises", optimizer=None).fit(pd.DataFrame({"t": times}), np.linspace(0, 2, 12))
    for ax in (plotting.plot_angles(model, n=20), plotting.plot_effects(model, n=20)[0]):
        ax.figure.canvas.draw()
        assert ax.get_xlabel() == "t (2024)"
        days = pd.Timestamp(0) + pd.to_timedelta(ax.get_xticks(), unit="h")
        assert len(days) > 2 and [t.get_text() for t in ax.get_xticklabels()] == list(days.strftime("%d %b"))
    polar = plotting.plot_polar(model, n=20)
    polar.figure.canvas.draw()
    assert polar.yaxis.get_ticklabels()[0].get_text() == "27 Feb" and polar.get_xlabel() == "radius: t (2024)"
    short = plotting.plot_angles(model, limits=(times[1], times[2]), n=20)
    np.testing.assert_allclose(np.diff(short.lines[0].get_xdata()[[0, -1]]), 12.0)


def test_effects_of_angles_stay_on_the_circle():
    x = np.linspace(0, 4, 30)
    turning = GGPRegressor(families.VonMises(units="degrees"), 30.0 * RBF(0.5), optimizer=None)
    ax = plotting.plot_effects(turning.fit(x[:, None], np.mod(300 + 150 * x, 360)), n=50)[0]
    low, high = ax.get_ylim()
    assert low < 0 < 360 < high and high - low < 390 and ax.get_yticklabels()[0].get_text() == "0° N"
    drawn = np.array([line.get_ydata() for line in ax.lines])
    assert np.all(np.any((drawn >= 0) & (drawn <= 360), axis=0))  # the mean is on the axis at every x
    ax = plotting.plot_effects(turning.fit(x[:, None], np.mod(340 + 10 * x, 360)), n=50)[0]
    ax.figure.canvas.draw()
    assert np.ptp(ax.get_ylim()) < 200  # a part of the circle, across north
    assert all(0 <= float(t.get_text()) < 360 for t in ax.get_yticklabels())


def test_polar_spirals_follow_the_circle():
    x = np.linspace(0, 4, 30)
    model = GGPRegressor(families.VonMises(units="degrees"), RBF(0.1), optimizer=None).fit(x[:, None], 170.0 * (x > 2))
    ax = plotting.plot_polar(model, n=40)
    theta = ax.lines[0].get_xdata()
    assert np.ptp(theta) > 2.5 and np.abs(np.diff(theta)).max() < np.radians(2.01)
    patch = ax.patches[0].get_xy()[:, 0]
    assert np.abs(np.diff(patch)).max() < np.radians(7)  # the rim and the hub have 60 points each


def test_bounds_are_not_drawn_as_observed():
    x = np.arange(8.0)
    y = np.array([[2, 2], [3, 3], [2, np.inf], [4, np.inf], [5, np.inf], [0, 1], [1, 3], [2, 4]])
    model = GGPRegressor("censored_weibull", optimizer=None).fit(x[:, None], y)
    ax = plotting.plot_bands(model, n=10)
    drawn = {line.get_label(): line.get_xydata() for line in ax.lines}
    np.testing.assert_array_equal(drawn["observed"], [[0, 2], [1, 3]])
    np.testing.assert_array_equal(drawn["at least"], [[2, 2], [3, 4], [4, 5]])
    np.testing.assert_array_equal(drawn["at most"], [[5, 1]])
    (lines,) = (c for c in ax.collections if c.get_label() == "between")
    np.testing.assert_array_equal(lines.get_segments(), [[[6, 1], [6, 3]], [[7, 2], [7, 4]]])
    given = plotting.plot_bands(model, data=(x[:2, None], [2.0, 5.0]), n=10)
    assert "at least" not in [line.get_label() for line in given.lines]


def test_terms_of_no_size_have_no_panel_and_long_names_fit():
    rng = np.random.default_rng(0)
    names = ["length of the bill", "depth of the bill", "length of the flipper"]
    frame = pd.DataFrame(rng.normal(size=(30, 3)), columns=names).assign(g=np.tile(["a", "b"], 15))
    kernel = On(RBF([1.0, 1.0, 1.0]), names) + 1e-9 * Category("g")
    model = GGPRegressor("poisson", kernel, optimizer=None).fit(frame, rng.poisson(np.exp(frame[names[0]])))
    axes = plotting.plot_effects(model, n=8)
    assert [ax.get_xlabel() for ax in axes] == names
    assert [ax.get_xlabel() for ax in plotting.plot_effects(model, ["g"], n=8)] == ["g"]  # asked for
    axes[0].figure.canvas.draw()
    places = [ax.title.get_window_extent() for ax in axes]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(places))


def test_a_map_tells_where_other_columns_are():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(20, 6)), columns=list("abcdef")).assign(g=np.tile(["u", "v"], 10))
    model = GGPClassifier(optimizer=None).fit(frame, frame["a"] > 0)
    title = plotting.plot_class_map(model, n=8).get_title().replace("\n", " ")
    assert f"c = {frame['c'].median():.4g}" in title and "g = u" in title
