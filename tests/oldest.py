"""The oldest versions that pyproject.toml allows, one requirement a line: ``python tests/oldest.py > oldest.txt``.

Tools that only judge the source (mypy, ruff) stay out, as do extras whose tests skip without them (jax, dask, arviz).
"""

import re
import tomllib
from pathlib import Path

TOOLS = ("mypy", "ruff", "build")
EXTRAS = ("plot", "parquet", "report", "cli", "experiments")
TESTED = ("hypothesis", "mpmath", "pytest", "pytest-xdist", "pyyaml", "html5lib")


def oldest(text):
    """Requirements with ``>=`` turned into ``==``, each once."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(r for extra in EXTRAS for r in extras.get(extra, ()))]
    named += [r for r in extras["test"] if re.split(r"[\[>=]", r)[0] in TESTED]
    return sorted({r.replace(">=", "==") for r in named if re.split(r"[\[>=]", r)[0] not in TOOLS})


if __name__ == "__main__":
    print("\n".join(oldest((Path(__file__).parents[1] / "pyproject.toml").read_text())))
