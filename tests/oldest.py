"""The oldest versions that pyproject.toml allows, one requirement a line: ``python tests/oldest.py > oldest.txt``.

Tools that only judge the source (mypy, ruff) stay out, as does scikit-survival, no version of which takes the oldest
scikit-learn: its tests are skipped without it.
"""

import re
import tomllib
from pathlib import Path

EXTRAS = ("jax", "plot", "parquet", "arviz", "report", "cli", "experiments", "dask")
LEFT_OUT = ("ggpm", "mypy", "ruff", "scikit-survival")


def oldest(text):
    """Requirements with ``>=`` turned into ``==``, each once."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(r for extra in (*EXTRAS, "test") for r in extras[extra])]
    return sorted({r.replace(">=", "==") for r in named if re.split(r"[\[>=]", r)[0] not in LEFT_OUT})


if __name__ == "__main__":
    print("\n".join(oldest((Path(__file__).parents[1] / "pyproject.toml").read_text())))
