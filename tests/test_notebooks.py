"""What notebooks show of results: short tables, with labels as text whatever they contain."""

import numpy as np
import pytest

import ggpm
from cases import FAMILIES, simulate
from ggpm import GGPClassifier, GGPRegressor

html5lib = pytest.importorskip("html5lib")


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
