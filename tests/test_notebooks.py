"""What notebooks show of results: short tables, with labels as text whatever they contain."""

import re
from pathlib import Path

import numpy as np
import pytest

import ggpm
from cases import FAMILIES, simulate
from ggpm import GGPClassifier, GGPRegressor

html5lib = pytest.importorskip("html5lib")
DOCS = Path(__file__).parents[1] / "docs"


def text_of(shown):
    """The words of a piece of HTML, after a parser that accepts no error within it."""
    tree = html5lib.parseFragment(shown._repr_html_(), namespaceHTMLElements=False)
    assert not list(tree.iter("script"))
    return " ".join(" ".join(tree.itertext()).split())


@pytest.mark.parametrize("name", ["von_mises", "dirichlet", "poisson", "binomial", "categorical", "wishart"])
def test_predictive_distributions_show_their_first_rows(name):
    X, y, _ = simulate(name, n=12)
    model = GGPRegressor(FAMILIES[name][0], optimizer=None, inference="laplace").fit(X, y)
    shown = text_of(model.predict_dist(X))
    assert f"{type(model.family_).__name__}(" in shown and "and 4 more rows" in shown
    mean = np.ravel(model.predict_dist(X[:1]).mean())[0]
    assert f"{mean:.4g}" in shown


def test_labels_are_text():
    X, label = np.arange(8.0)[:, None], np.array(["<script>", "b & c"] * 4)
    model = GGPClassifier(optimizer=None).fit(X, label)
    assert "<script>" in text_of(model.predict_dist(X))


def test_judgements_show_their_numbers():
    X, y, _ = simulate("gamma", n=20)
    model = GGPRegressor("gamma", optimizer=None, inference="laplace").fit(X, y)
    loo, found = model.loo(), ggpm.calibration(model, X, y)
    assert f"{loo.total:.4g}" in text_of(loo) and f"{found.log_loss:.4g}" in text_of(found)
    assert "length_scale" in text_of(model.summary())


@pytest.mark.parametrize("name", FAMILIES)
def test_fitted_models_show_what_was_learned(name):
    X, y, _ = simulate(name, n=12)
    model = GGPRegressor(FAMILIES[name][0], optimizer=None, inference="laplace").fit(X, y)
    shown, printed = text_of(model), str(model)
    for text in (shown, " ".join(printed.split())):
        assert f"family {type(model.family_).__name__}" in text and "inference laplace" in text
        assert f"log evidence {model.log_marginal_likelihood_value_:.6g}" in text and "length_scale=" in text
    assert len(shown) < 1500 + 200 * len(model.fit_.kernels) and len(printed.splitlines()) < 12
    bundle = model._repr_mimebundle_()
    assert bundle == {"text/plain": printed, "text/html": model._repr_html_()}


def test_estimators_that_are_not_fitted_show_their_settings():
    model = GGPRegressor("poisson", inference="taylor")
    diagram = model._repr_html_()  # scikit-learn's
    assert str(model) == repr(model) and "taylor" in diagram and "not fitted" in diagram.lower()


def test_what_a_family_of_ones_own_is_called_is_text():
    named = type("A<b>", (ggpm.families.Poisson,), {"__module__": "mine"})
    shown = text_of(GGPRegressor(named(), optimizer=None).fit([[0.0], [1.0]], [1, 2]))
    assert "A<b>" in shown


def test_links_lead_to_the_documentation_where_its_place_is_known(monkeypatch, tmp_path):
    model = GGPRegressor("poisson", optimizer=None).fit([[0.0], [1.0]], [1, 2])
    results = [model, model.summary(), model.predict_dist([[0.0]]), model.loo(), ggpm.calibration(model, [[0.0]], [1])]
    monkeypatch.delenv("GGPM_DOCS", raising=False)
    monkeypatch.setattr(ggpm.data.text, "_declared", lambda: None)
    assert not any("href" in shown._repr_html_() for shown in results)
    for home, start in (("https://example.org/ggpm/", "https://example.org/ggpm/"), (tmp_path, tmp_path.as_uri())):
        monkeypatch.setenv("GGPM_DOCS", str(home))
        for shown in results:
            links = re.findall(r'href="([^"]*)"', shown._repr_html_())
            assert links and all(link.startswith(start) and link.endswith(".html") for link in links)
            for page in (link.removeprefix(start).strip("/").removesuffix(".html") for link in links):
                assert (DOCS / f"{page}.md").exists() or page.startswith("reference/ggpm."), page
