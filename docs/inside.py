"""The page of names that lie behind the reference: what modules declare as public and `api.md` does not list."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import ggpm

HERE = Path(__file__).parent
HEAD = """# Inside

Names of modules that the estimators are made of, for those who add a family, a rule or a field
([Architecture](architecture.md)). They may change between versions, unlike those of the [reference](api.md).
"""
LIST = """```{{eval-rst}}
.. currentmodule:: {}
.. autosummary::
   :toctree: reference
   :template: item.rst

{}
```
"""


def modules() -> list[Any]:
    """Modules that say what is public, top first."""
    names = [m.name for m in pkgutil.walk_packages(ggpm.__path__, "ggpm.") if "._" not in m.name]
    found = [ggpm, *(importlib.import_module(name) for name in sorted(names, key=lambda n: (n.count("."), n)))]
    return [module for module in found if hasattr(module, "__all__")]


def listed(text: str) -> set[str]:
    """Full names on a page of the reference: in lists with pages of their own, and in backticks."""
    out = set(re.findall(r"^- `(ggpm[\w.]+)`", text, flags=re.M))
    for module, names in re.findall(r"currentmodule:: (\S+)\n.*?item.rst\n\n(.*?)```", text, flags=re.S):
        out |= {f"{module}.{name}" for name in names.split()}
    return out


def key(module: str, name: str) -> Any:
    """One key for an object that several modules offer; constants are known by name."""
    value = getattr(importlib.import_module(module), name)
    return id(value) if inspect.isclass(value) or inspect.isfunction(value) else name


def page() -> str:
    """Everything that modules declare and the reference has not, module by module, each object once."""
    seen = {key(*name.rsplit(".", 1)) for name in listed((HERE / "api.md").read_text())}
    out = [HEAD]
    for module in modules():
        own, constants = [], []
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or (known := key(module.__name__, name)) in seen:
                continue
            seen.add(known)
            (own if inspect.isclass(value) or inspect.isfunction(value) else constants).append(name)
        if own or constants:
            out.append(f"## {module.__name__}\n")
            out += [LIST.format(module.__name__, "\n".join(f"   {name}" for name in own))] if own else []
            out += ["\n".join(f"- `{module.__name__}.{name}`" for name in constants) + "\n"] if constants else []
    return "\n".join(out)


def write() -> None:
    """Write the page, unless it is as it was: a new time would have it read anew."""
    path, text = HERE / "inside.md", page()
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
