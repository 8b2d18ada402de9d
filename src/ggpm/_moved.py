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
from types import CodeType, ModuleType
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
    "sparse.data": "data.door",
    "sparse.inducing": "fields.inducing.points",
    "sparse.kinds": "data.kinds",
    "sparse.lazy": "prediction.lazy",
    "sparse.parquet": "data.parquet",
    "sparse.rows": "data.rows",
    "summaries": "prediction.summaries",
    "tables": "data.tables",
}
"""Old path below ``ggpm.`` and where its content lives now; what lies below it is found below the new one."""

ELSEWHERE = {
    "ggpm.evaluation": {"kind_of_picture": "ggpm.plotting"},
    "ggpm.inference": {"Approximation": "ggpm.fields.base"},
    "ggpm.sparse": {
        "ClusterError": "ggpm.data.cluster",
        "ParquetRows": "ggpm.data.parquet",
        "cluster_map": "ggpm.data.cluster",
        "predict_parquet": "ggpm.data.parquet",
    },
}
"""Names that an old module offered and that live apart from the rest of it now."""


def home_of(name: str) -> str | None:
    """New name of a module that is called by its old one; None if the name is not an old one.

    >>> home_of("ggpm.inference.laplace"), home_of("ggpm.sparse.rows"), home_of("ggpm.kernels")
    ('ggpm.sites.laplace', 'ggpm.data.rows', None)
    """
    package, _, path = name.partition(".")
    head, _, below = path.partition(".")
    if package != "ggpm" or head not in HOMES:
        return None
    return f"ggpm.{HOMES[path] if path in HOMES else f'{HOMES[head]}.{below}'}"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers an import of an old path with the module at the new one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        home = home_of(fullname)
        return None if home is None else importlib.machinery.ModuleSpec(fullname, self, loader_state=home)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        # the import machinery writes the old name into the module it is given: keep the real one out of its hands
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        home = importlib.import_module(module.__spec__.loader_state)
        for name, elsewhere in ELSEWHERE.get(module.__name__, {}).items():
            setattr(home, name, getattr(importlib.import_module(elsewhere), name))
        sys.modules[module.__name__] = home

    def get_code(self, fullname: str) -> CodeType:
        """Code that runs the new module, for ``python -m`` with an old path."""
        code = f"import runpy; runpy.run_module({home_of(fullname)!r}, run_name='__main__', alter_sys=True)"
        return compile(code, fullname, "exec")


class Package(ModuleType):
    """The package ``ggpm``, on which ``ggpm.calibration`` stays the function when the old module is imported too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "calibration" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


def install() -> None:
    """Answer for old paths from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        # before the finder of files, which would find what lies below an old package a second time
        sys.meta_path.insert(0, _Finder())
    sys.modules["ggpm"].__class__ = Package
