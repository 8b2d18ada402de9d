"""Tables of the benchmark of forecasts: means, paired standard errors, and what the default holds of its promises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from methods import GAUSSIAN_PROCESSES
from scores import mean_and_error
from sets import HELD_BACK, DataSet

OURS, BEFORE = "ggpm", "ggpm 0.1"
LEVEL = 0.9
DISCRETE = ("class", "grade", "count", "counts")
MANY = 300  # test rows from which coverage is judged
START, END = "<!-- made by make forecasts -->", "<!-- end -->"

Results = dict[str, dict[str, Any]]


def summary(scores: dict[str, dict[str, dict]], sets: Sequence[DataSet], before: Results | None = None) -> Results:
    """Means of every set and method, and differences from ours with paired standard errors of groups.

    Methods of a set that have no scores of rows keep what was written ``before``: their means, and where one of the two
    has no rows the standard error of their difference, which was that of a former version's forecasts.
    """
    written = before or {}
    return {
        dataset.name: _of_one_set(dataset, scores[dataset.name], written.get(dataset.name, {"methods": {}})["methods"])
        for dataset in sets
        if scores.get(dataset.name)
    }


def _of_one_set(dataset: DataSet, found: dict[str, dict], before: dict[str, dict]) -> dict[str, Any]:
    """The same of one set: scores of rows by method, and what was written of those without."""
    known = {name: method for name, method in before.items() if name not in found}
    groups = np.asarray(next(iter(found.values()))["group"])
    means = {name: float(np.mean(values["log_density"])) for name, values in found.items()}
    means |= {name: method["log_density"] for name, method in known.items()}
    best = max(means, key=lambda name: means[name])

    def ahead(one: str, other: str) -> tuple[float, float]:
        if one in found and other in found:
            rows = [np.asarray(found[name]["log_density"]) for name in (one, other)]
            return mean_and_error(rows[0] - rows[1], groups)
        without_rows = known[other] if other in known else known[one]
        error = without_rows.get("ours_ahead_error", without_rows["behind_best_error"])
        return means[one] - means[other], error

    methods = dict(known)
    for name, values in found.items():
        inside = (np.asarray(values["depth"]) <= LEVEL).astype(float)
        coverage, error = mean_and_error(inside, groups)
        methods[name] = {
            "log_density": means[name],
            "energy": float(np.mean(values["energy"])),
            "error": float(np.mean(values["error"])),
            "coverage": coverage,
            "coverage_error": error,
            "seconds": values["seconds"],
        }
    for name in methods:
        behind = ahead(best, name) if name != best else (0.0, 0.0)
        methods[name] = methods[name] | {"behind_best": behind[0], "behind_best_error": behind[1]}
        if OURS in methods and name != OURS:
            ours = ahead(OURS, name)
            methods[name] |= {"ours_ahead": ours[0], "ours_ahead_error": ours[1]}
    return {
        "about": dataset.about, "kind": dataset.kind, "family": dataset.family, "rows": len(groups),
        "groups": len(np.unique(groups)), "held_back": dataset in HELD_BACK, "best": best, "methods": methods,
    }  # fmt: skip


def verdict(result: dict[str, Any]) -> dict[str, bool | None]:
    """What the default holds on one set; None where it cannot be said."""
    methods = result["methods"]
    ours = methods.get(OURS)
    if ours is None:
        return {}
    others = [methods[name] for name in GAUSSIAN_PROCESSES if name in methods]
    before = methods.get(BEFORE)
    tolerance = max(0.04, 3 * ours["coverage_error"])
    return {
        "best or within one standard error": ours["behind_best"] <= ours["behind_best_error"],
        "not worse than every other Gaussian process": any(o["log_density"] <= ours["log_density"] for o in others)
        if others
        else None,
        "not behind all of them by more than one standard error": any(
            o["ours_ahead"] >= -o["ours_ahead_error"] for o in others
        )
        if others
        else None,
        "not behind version 0.1 by more than one standard error": None
        if before is None
        else before["ours_ahead"] >= -before["ours_ahead_error"],
        "coverage": None if result["rows"] < MANY else abs(ours["coverage"] - LEVEL) <= tolerance,
    }


def table(results: Results) -> str:
    """All sets and methods in Markdown: log densities, what they lie behind the best, and the other scores."""
    lines = []
    for name, result in results.items():
        shown = "held back" if result["held_back"] else "in sight"
        lines += [
            f"## {name}: {result['about']}",
            "",
            f"{result['kind']}, family `{result['family']}`, {result['rows']} test rows"
            + (f" in {result['groups']} groups" if result["groups"] < result["rows"] else "")
            + f"; {shown}.",
            "",
            "| method | log density | behind the best | energy score | error | coverage of 90 % | seconds |",
            "|---|---|---|---|---|---|---|",
        ]
        for method, m in sorted(result["methods"].items(), key=lambda item: -item[1]["log_density"]):
            label = f"**{method}**" if method == OURS else method
            behind = "best" if method == result["best"] else f"{m['behind_best']:.3f} ± {m['behind_best_error']:.3f}"
            lines.append(
                f"| {label} | {m['log_density']:.3f} | {behind} | {m['energy']:.4g} | {m['error']:.4g} "
                f"| {m['coverage']:.3f} ± {m['coverage_error']:.3f} | {m['seconds']:.1f} |"
            )
        lines.append("")
    return "\n".join(lines)


def overview(results: Results) -> str:
    """One line per set: the default, the best other method, version 0.1, coverage; and how often promises hold."""
    blocks = [_places(results)]
    for title, held_back in (("Held back", True), ("In sight", False)):
        chosen = {name: result for name, result in results.items() if result["held_back"] == held_back}
        blocks += [f"**{title}**", _lines(chosen)]
    return "\n\n".join(blocks)


def _places(results: Results) -> str:
    """How often promises hold: of the sets that were held back, of those in sight, of all."""
    counts: dict[str, list[tuple[bool, bool, str]]] = {}
    for name, result in results.items():
        for promise, held in verdict(result).items():
            if held is not None:
                counts.setdefault(promise, []).append((held, result["held_back"], name))
    lines = ["| | held back | in sight | all | not on |", "|---|---|---|---|---|"]
    for promise, found in counts.items():
        parts = [[held for held, back, _ in found if back in which] for which in ((True,), (False,), (True, False))]
        missed = ", ".join(name for held, _, name in found if not held)
        lines.append(f"| {promise} | " + " | ".join(f"{sum(part)} of {len(part)}" for part in parts) + f" | {missed} |")
    return "\n".join(lines)


def _lines(results: Results) -> str:
    lines = [
        "| set | output | ggpm | best other | ggpm ahead by | ggpm 0.1 | coverage of 90 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        methods = result["methods"]
        if OURS not in methods:
            continue
        ours = methods[OURS]
        others = [m for m in methods if m not in (OURS, BEFORE)]
        best = max(others, key=lambda m: methods[m]["log_density"])
        m = methods[best]
        before = f"{methods[BEFORE]['log_density']:.3f}" if BEFORE in methods else ""
        lines.append(
            f"| {name} | {result['kind']} | {ours['log_density']:.3f} "
            f"| {best}, {m['log_density']:.3f} | {m['ours_ahead']:+.3f} ± {m['ours_ahead_error']:.3f} | {before} "
            f"| {ours['coverage']:.3f} ± {ours['coverage_error']:.3f} |"
        )
    return "\n".join(lines)


def earlier(sets: Sequence[DataSet], root: Path) -> Results:
    """Results of sets as they were written before."""
    path = root / "benchmarks" / "forecasts" / "results.json"
    known: Results = json.loads(path.read_text()) if path.is_file() else {}
    beyond = {"log_density": -np.inf, "behind_best": np.inf, "ours_ahead": np.inf}  # what JSON does not know
    for result in known.values():
        for method in result["methods"].values():
            method |= {key: beyond.get(key, np.nan) for key, value in method.items() if value is None}
    return {s.name: known[s.name] | {"held_back": s in HELD_BACK} for s in sets if s.name in known}


def write(results: Results, root: Path) -> None:
    """Write results.json, the overview into docs/forecasts.md and all tables into docs/forecasts_sets.md.

    Both between the two marks of the page.
    """
    (root / "benchmarks" / "forecasts" / "results.json").write_text(json.dumps(_finite(results), indent=1) + "\n")
    for page, made in (("forecasts.md", overview(results)), ("forecasts_sets.md", table(results))):
        path = root / "docs" / page
        text = path.read_text()
        path.write_text(f"{text[: text.index(START)]}{START}\n\n{made}\n\n{text[text.index(END) :]}")


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not know: a density of zero, and what follows from it."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value
