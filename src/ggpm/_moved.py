"""Old import paths: what version 0.1 kept in a module of another name is still found there.

``import ggpm.priors`` gives the module `ggpm.learning.priors` itself, so that classes and their state are the same
whichever path they came by. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

HOMES = {
    "baselines": "paper.baselines",
    "calibration": "prediction.calibration",
    "curvature": "families.curvature",
    "evaluation": "prediction.evaluation",
    "experiments": "paper",
    "inference": "sites",
    "links": "families.links",
    "loo": "prediction.loo",
    "objective": "learning.objective",
    "posterior": "fields.dense.posterior",
    "predictive": "prediction.predictive",
    "priors": "learning.priors",
    "regions": "prediction.regions",
    "solvers": "fields.dense",
    "sparse": "fields.inducing",
    "sparse.cluster": "data.cluster",
    "sparse.inducing": "fields.inducing.points",
    "sparse.parquet": "data.parquet",
    "sparse.rows": "data.rows",
    "summaries": "prediction.summaries",
    "tables": "data.tables",
}
"""Old path below ``ggpm.`` and where its content lives now."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers an import of an old path with the module at the new one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        head, _, tail = rest.partition(".")
        if package != "ggpm" or (rest not in HOMES and HOMES.get(head) not in ("paper", "sites")):
            return None
        home = HOMES.get(rest) or f"{HOMES[head]}.{tail}"
        return importlib.machinery.ModuleSpec(fullname, self, loader_state=f"ggpm.{home}")

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        # the import machinery writes the old name into the module it is given: keep the real one out of its hands
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        sys.modules[module.__name__] = importlib.import_module(module.__spec__.loader_state)


class Package(ModuleType):
    """The package ``ggpm``, on which ``ggpm.calibration`` stays the function when the old module is imported too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "calibration" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


def install() -> None:
    """Answer for old paths from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
    sys.modules["ggpm"].__class__ = Package
