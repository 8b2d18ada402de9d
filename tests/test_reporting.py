"""Reports: one file of every family, valid, small, without a network, with the numbers of the Python interface."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ggpm
from cases import FAMILIES, simulate
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families, load, save
from ggpm.prediction.evaluation import evaluate
from ggpm.reporting.baselines import baselines
from ggpm.reporting.facts import collect
from ggpm.reporting.words import _on_coverage

html5lib = pytest.importorskip("html5lib")
HOSTILE = '<script>alert("1")</script> & $x_{'


def parsed(path):
    """The page as a tree, after a parser that accepts no error."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(path.read_text("utf-8"))


def leaves_the_page(text):
    """Addresses that a browser would fetch: none but fragments and data."""
    found = re.findall(r"""(?:src|href)\s*=\s*["']([^"']+)|url\(([^)]+)\)|@import\s+(\S+)""", text)
    return [a for groups in found for a in groups if a and not a.startswith(("#", "data:"))]


@pytest.fixture(scope="module")
def fitted():
    """A model of every family on 24 rows and 10 held-out ones: made once."""
    made = {}

    def model(name):
        if name not in made:
            X, y, _ = simulate(name, n=34)
            made[name] = GGPRegressor(FAMILIES[name][0], optimizer=None, inference="laplace").fit(X[:24], y[:24])
        X, y, _ = simulate(name, n=34)
        return made[name], X[24:], y[24:]

    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_a_report(name, fitted, tmp_path):
    model, X, y = fitted(name)
    page = ggpm.report(model, X, y, tmp_path / "report.html")
    tree, text = parsed(page), page.read_text("utf-8")
    assert page.stat().st_size < 3_000_000 and not leaves_the_page(text)
    assert not list(tree.iter("script")) and tree.find(".//title").text.startswith(type(model.family_).__name__)
    facts, expected = json.loads((tmp_path / "report.json").read_text()), evaluate(model, X, y)
    assert facts["trust"]["log_density"]["mean"] == pytest.approx(expected["log_density"], rel=1e-12)
    assert facts["trust"]["error"]["mean"] == pytest.approx(expected["error"], rel=1e-12)
    assert facts["trust"]["score"] == pytest.approx(expected["score"], rel=1e-12)
    assert facts["model"]["formula"] in text and type(model.family_).__name__ in facts["model"]["formula"]
    assert len(facts["verdict"]) == 3 and all(sentence.endswith(".") for sentence in facts["verdict"])
    assert len(facts["provenance"]["held_out_sha256"]) == 64 and len(facts["worst"]) == 10
    shown = " ".join(tree.itertext())
    assert f"{expected['log_density']:.4g}" in shown and f"{expected['error']:.4g}" in shown
    assert len(facts["verdict"]) == 3 and all(sentence in shown for sentence in facts["verdict"])


def test_hyperparameters_have_their_intervals_and_the_posterior_its_diagnosis(tmp_path):
    X, y, family = simulate("poisson", n=40)
    kernel = ConstantKernel(1.0) * RBF(1.0)
    model = GGPRegressor(family, kernel, inference="laplace").fit(X[:30], y[:30])
    page = ggpm.report(model, X[30:], y[30:], tmp_path / "report.html")
    facts, shown = json.loads((tmp_path / "report.json").read_text())["model"], " ".join(parsed(page).itertext())
    told = model.summary().to_frame()
    for entry in facts["hyperparameters"]:
        expected = told.loc[entry["name"], ["lower", "upper"]].tolist()
        np.testing.assert_allclose(entry["interval"], expected, rtol=1e-12)
        assert all(f"{end:.3g}" in shown for end in expected)
    assert facts["gaussian_posterior"] == repr(model.diagnose(draws=1000)).splitlines()
    assert "of 30 rows warn" in shown and "largest k̂" in shown
    # a curve of the evidence for each of them, named below it
    (picture,) = [
        e for e in parsed(page).iter() if (e.get("aria-label") or "").startswith("Log evidence") and e.get("tabindex")
    ]
    written = " ".join(picture.itertext())
    assert all(name in written for name in ("variance", "length_scale"))
    fixed = GGPRegressor(family, kernel, optimizer=None).fit(X[:30], y[:30])  # nothing was learned: nothing to know
    assert "Log evidence of the training rows as" not in ggpm.report(fixed, X[30:], y[30:], page).read_text("utf-8")


def test_the_numbers_of_the_worst_rows_are_those_of_the_model(fitted, tmp_path):
    model, X, y = fitted("gamma")
    ggpm.report(model, X, y, tmp_path / "r.html")
    worst = json.loads((tmp_path / "r.json").read_text())["worst"]
    density = model.log_predictive_density(X, y)
    assert [w["row"] for w in worst] == np.argsort(density).tolist()
    np.testing.assert_allclose([w["log_density"] for w in worst], np.sort(density))
    np.testing.assert_allclose([float(w["observed"]) for w in worst], y[np.argsort(density)], rtol=1e-3)


def test_names_and_labels_are_text_whatever_they_contain(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({HOSTILE: rng.normal(size=40), "b": rng.choice([HOSTILE, "</svg>", "]]>"], 40)})
    y = pd.Series(np.where(X[HOSTILE] > 0, HOSTILE, "--><img src=x onerror=alert(1)>"), name=HOSTILE)
    model = GGPClassifier(optimizer=None).fit(X[:30], y[:30])
    page = ggpm.report(model, X[30:], y[30:], tmp_path / "r.html", title=HOSTILE, command=HOSTILE)
    tree = parsed(page)
    assert not list(tree.iter("script")) and not list(tree.iter("img")) and not leaves_the_page(page.read_text("utf-8"))
    assert HOSTILE in "".join(tree.find(".//h1").itertext()) and HOSTILE in " ".join(tree.itertext())


def test_pictures_do_not_share_their_identifiers(fitted, tmp_path):
    model, X, y = fitted("von_mises")
    tree = parsed(ggpm.report(model, X, y, tmp_path / "r.html"))
    names = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(set(names)) == len(names)
    referred = re.findall(r"""(?:url\(#|href="#)([^)"]+)""", (tmp_path / "r.html").read_text("utf-8"))
    assert referred and set(referred) <= set(names)
    images = [e for e in tree.iter() if e.get("role") == "img"]
    assert len(images) >= 3 and all(e.get("aria-label") for e in images)


def test_gains_are_those_of_models_that_see_less():
    """A constant and a linear model are worse where the truth is neither, and the linear one is not where it is."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (120, 1))
    curved, straight = rng.poisson(np.exp(2 * np.cos(2 * X[:, 0]))), rng.poisson(np.exp(1 + X[:, 0]))
    gains = {}
    for name, y in (("curved", curved), ("straight", straight)):
        model = GGPRegressor("poisson").fit(X[:80], y[:80])
        found = baselines(model, X[80:], y[80:], None, model.log_predictive_density(X[80:], y[80:]))
        gains[name] = {b["name"]: b["gain"] / b["gain_standard_error"] for b in found}
    assert gains["curved"]["constant"] > 3 and gains["curved"]["linear"] > 3
    assert gains["straight"]["constant"] > 3 and abs(gains["straight"]["linear"]) < 3


def test_offsets_weights_inducing_points_and_files(tmp_path):
    rng = np.random.default_rng(2)
    X, exposure = pd.DataFrame({"x": rng.uniform(0, 3, 60)}), rng.uniform(1, 5, 60)
    y = rng.poisson(exposure * np.exp(np.sin(X["x"])))
    offset = np.log(exposure)
    model = GGPRegressor("poisson", optimizer=None).fit(
        X[:40], y[:40], np.r_[np.full(20, 2), np.ones(20)], offset=offset[:40]
    )
    save(model, tmp_path / "m.ggpm")
    held = X[40:], y[40:]
    first = ggpm.report(model, *held, tmp_path / "a.html", offset=offset[40:])
    again = ggpm.report(load(tmp_path / "m.ggpm"), *held, tmp_path / "b.html", offset=offset[40:])
    one, other = (json.loads(p.with_suffix(".json").read_text()) for p in (first, again))
    assert one["trust"] == other["trust"] and one["baselines"] == other["baselines"] and len(one["baselines"]) == 2
    sparse = GGPRegressor("poisson", inducing=8, optimizer=None).fit(X[:40], y[:40], offset=offset[:40])
    save(sparse, tmp_path / "s.ggpm")
    page = ggpm.report(load(tmp_path / "s.ggpm"), *held, tmp_path / "s.html", offset=offset[40:])
    facts = json.loads(page.with_suffix(".json").read_text())
    assert facts["baselines"] == [] and "not at hand" in facts["verdict"][0]


@pytest.mark.parametrize("weight", [None, np.arange(1.0, 41.0)])
def test_models_with_inducing_points_compare_with_what_exact_ones_do(weight, tmp_path):
    X, held = np.linspace(0, 3, 40)[:, None], np.linspace(0.1, 2.9, 9)[:, None]
    found = []
    for inducing in (None, 8):  # without an offset rows are encoded, and have that of the family, as they are read
        model = GGPRegressor("gaussian", inducing=inducing, optimizer=None).fit(X, 5 + np.sin(X[:, 0]), weight)
        page = ggpm.report(model, held, 5 + np.sin(held[:, 0]), tmp_path / "r.html")
        found.append([told["log_density"] for told in json.loads(page.with_suffix(".json").read_text())["baselines"]])
    np.testing.assert_allclose(*found, rtol=1e-3)


def test_rows_beyond_the_training_rows_are_told(fitted, tmp_path):
    X = np.linspace(0, 1, 20)[:, None]
    model = GGPRegressor("poisson", optimizer=None).fit(X, np.arange(20))
    ggpm.report(model, np.array([[0.5], [40.0], [50.0]]), [10, 3, 4], tmp_path / "r.html")
    limits = json.loads((tmp_path / "r.json").read_text())["limits"]
    assert limits["beyond"] == [{"name": "column 0", "rows": 2}] and limits["far_rows"] == 2


def test_mistakes_are_told(fitted, tmp_path):
    model, X, y = fitted("gamma")
    with pytest.raises(ValueError, match=r"report\.html; got r\.json"):
        ggpm.report(model, X, y, tmp_path / "r.json")
    with pytest.raises(FileNotFoundError, match="no folder"):
        ggpm.report(model, X, y, tmp_path / "nowhere" / "r.html")
    with pytest.raises(ValueError, match="two rows or more"):
        ggpm.report(model, X[:1], y[:1], tmp_path / "r.html")


def test_angles_are_worded_in_their_unit(tmp_path):
    x = np.linspace(0, 3, 40)
    model = GGPRegressor(families.VonMises(units="hours"), optimizer=None).fit(x[::2, None], 20 + 2 * x[::2])
    page = ggpm.report(model, x[1::2, None], np.mod(20 + 2 * x[1::2], 24), tmp_path / "r.html")
    assert "mean absolute" in json.loads(page.with_suffix(".json").read_text())["verdict"][1]


def test_the_verdict_says_how_many_times_as_probable():
    """The words are the geometric mean of the ratios of densities at the held-out rows."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, (120, 1))
    y = rng.poisson(np.exp(2 * np.cos(2 * X[:, 0])))
    model = GGPRegressor("poisson", ConstantKernel(2.0) * RBF(1.0), optimizer=None).fit(X[:80], y[:80])
    facts = collect(model, X[80:], y[80:], offset=None, level=0.9, command=None)
    constant = next(b for b in facts["baselines"] if b["name"] == "constant")
    density = model.log_predictive_density(X[80:], y[80:])
    times = np.exp(np.mean(density) - constant["log_density"])
    assert f"typically {times:.2g} times as probable as under the best constant" in facts["verdict"][0]
    assert (
        times > 1.5 and f"{constant['gain']:+.2g} ± {constant['gain_standard_error']:.2g} nats" in facts["verdict"][0]
    )


def test_times_are_dates_in_the_table_of_columns(tmp_path):
    frame = pd.DataFrame({"t": pd.date_range("2024-02-27 06:00", periods=12, freq="12h")})
    model = GGPRegressor("poisson", optimizer=None, inference="laplace").fit(frame[:8], np.arange(8))
    ggpm.report(model, frame[8:], np.arange(4), tmp_path / "report.html")
    (column,) = json.loads((tmp_path / "report.json").read_text())["data"]["columns"]
    assert (column["low"], column["high"]) == ("2024-02-27 06:00", "2024-03-01 18:00")


def test_training_rows_are_told_from_new_ones(fitted, tmp_path):
    model, X, y = fitted("von_mises")
    data = collect(model, X, y, offset=None, level=0.9, command=None)["data"]
    assert data["rows_seen"] == 0
    old, known, _ = simulate("von_mises", n=34)
    with pytest.warns(UserWarning, match="Of the 12 rows 2 are training rows, in X and y"):
        page = ggpm.report(model, old[22:], known[22:], tmp_path / "report.html")
    facts = json.loads((tmp_path / "report.json").read_text())
    assert facts["data"]["rows_seen"] == 2 and facts["verdict"][0].startswith("Of the 12 rows 2 are")
    assert "2 of them training rows" in " ".join(parsed(page).itertext())
    # rows of few values have their like among others by chance
    x, coin = np.repeat([[0.0], [1.0]], 20, axis=0), np.arange(40) % 2
    again = GGPClassifier(optimizer=None, inference="laplace").fit(x[::2], coin[:20])
    assert collect(again, x[:20], coin[:20], offset=None, level=0.9, command=None)["data"]["rows_seen"] == 0


def test_cut_points_are_told_as_such(tmp_path):
    x = np.linspace(0, 3, 42)[:, None]
    grades = np.round(x[:, 0] + 0.5 * np.sin(9 * x[:, 0])).clip(0, 3).astype(int)
    model = GGPOrdinalClassifier(inference="laplace", kernel=RBF(1.0)).fit(x[::2], grades[::2])
    page = ggpm.report(model, x[1::2], grades[1::2], tmp_path / "report.html")
    facts, shown = json.loads((tmp_path / "report.json").read_text()), " ".join(parsed(page).itertext())
    first, *gaps = facts["model"]["hyperparameters"][-3:]
    assert first["name"] == "cut point 1" and first["lower"] is None and first["log_value"] is None
    cuts = np.cumsum([first["value"], *(gap["value"] for gap in gaps)])
    np.testing.assert_allclose(cuts, model.family_.phi, rtol=1e-12)
    assert f"cut points = {model.family_.phi[0]:.4g}" in shown and "dispersion" not in shown and "e-44" not in shown


def test_sets_of_labels_that_hold_more_are_not_as_promised():
    said = _on_coverage(0.9, 0.997, 0.016, True)
    assert "more than promised" in said and "whole labels" in said and "up to chance" not in said
    assert "up to chance" in _on_coverage(0.9, 0.92, 0.016, True)


def test_what_is_no_fitted_model_is_told(tmp_path):
    X, y, path = np.arange(6.0)[:, None], np.arange(6), tmp_path / "report.html"
    pipeline = make_pipeline(StandardScaler(), GGPRegressor("poisson", optimizer=None)).fit(X, y)
    with pytest.raises(TypeError, match=r"got Pipeline.*report\(pipeline\[-1\].*GGPRegressor"):
        ggpm.report(pipeline, X, y, path)
    with pytest.warns(UserWarning, match="training rows"):  # the advice can be followed
        ggpm.report(pipeline[-1], pipeline[:-1].transform(X), y, path)
    with pytest.raises(NotFittedError, match="Call fit"):
        ggpm.report(GGPRegressor("poisson"), X, y, path)
    with pytest.raises(TypeError, match="got StandardScaler"):
        ggpm.report(StandardScaler(), X, y, path)
