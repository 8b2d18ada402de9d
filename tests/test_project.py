"""Project files that must say the same thing in several places."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import ggpm

ROOT = Path(__file__).parents[1]
PACKAGE = Path(ggpm.__file__).parent  # outside of the source tree the installed one
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMPORT_NAMES = {"scikit-learn": "sklearn", "scikit-image": "skimage"}


def test_the_version_is_written_once():
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ggpm.__version__"}
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation.get("version", ggpm.__version__) == ggpm.__version__
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest and ggpm.__version__.partition(".dev")[0] == newest[1]


def test_the_installed_version_is_this_one():
    try:
        installed = importlib.metadata.distribution("ggpm")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("ggpm is on the path, not installed")
    environment, source = Path(str(installed.locate_file(""))), installed.read_text("direct_url.json") or ""
    if ROOT.as_uri() not in source and ROOT not in environment.parents:
        pytest.skip(f"what is installed is another copy of ggpm: {source or environment}")
    assert installed.version == ggpm.__version__, "the installed metadata are old: make lint renews them"


def test_the_citation_names_the_software_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["title"] == PROJECT["project"]["name"]
    assert citation["license"] == PROJECT["project"]["license"] and citation["authors"] == PROJECT["project"]["authors"]
    (paper,) = citation["references"]
    assert paper["title"] in (ROOT / "docs" / "paper.md").read_text()
    assert paper["url"] == PROJECT["project"]["urls"]["Paper"]


def test_pre_commit_runs_the_commands_of_make_lint():
    rule = re.search(r"^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert rule
    wanted = [line.strip().replace("$(BIN)", ".venv/bin") for line in rule[1].splitlines()]
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == wanted and len(wanted) == 3
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in repository["hooks"])


def declared(*extras):
    """Import names of what pyproject.toml declares: always, and with these extras."""
    lists = [PROJECT["project"]["optional-dependencies"][extra] for extra in extras]
    names = {re.match(r"[\w-]+", r)[0] for r in sum(lists, PROJECT["project"]["dependencies"])}
    return {IMPORT_NAMES.get(name, name) for name in names}


def imported(path, *, everywhere):
    """Packages from elsewhere that a file imports: when it is loaded, or also inside its functions."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"ggpm"}


def test_what_is_imported_is_declared():
    files = sorted(PACKAGE.rglob("*.py"))
    extras = set(PROJECT["project"]["optional-dependencies"]) - {"bench", "test"}
    for path in files:
        # distributed comes with dask's own extra of that name
        assert imported(path, everywhere=True) <= declared(*extras) | {"distributed"}, path
    # what the two programs load is declared with each of them
    for extra, folders in {"cli": ("cli", "paper"), "experiments": ("paper",)}.items():
        for folder in folders:
            for path in (PACKAGE / folder).glob("*.py"):
                assert imported(path, everywhere=False) <= declared(extra), (extra, path)


def test_links_of_the_project_files_lead_somewhere():
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)]+)\)", (ROOT / name).read_text()):
            assert target.startswith("https://") or (ROOT / target).is_file(), f"{name}: {target}"
