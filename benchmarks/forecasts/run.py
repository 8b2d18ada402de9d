"""The benchmark of forecasts: which method predicts unseen rows of public data best?

    python benchmarks/forecasts/run.py [--held-back] [--sets wind glass] [--methods ggpm GPR] [--again] [--write]

Scores of every row are kept in out/forecasts/, one file per set and method, and a finished one is not run again unless
asked to (`--again`). Without `--held-back` only the sets in sight are run and shown. `--write` makes
benchmarks/forecasts/results.json and the tables of docs/forecasts.md from all scores there are; sets and methods
without any keep what was written before.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
import warnings
import zlib
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from methods import METHODS, Method, Task, methods_of
from report import earlier, summary, table, write
from scores import MEASURES, score
from sets import HELD_BACK, IN_SIGHT, SETS, DataSet

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "forecasts"


def measured(dataset: DataSet, method: Method) -> dict:
    """Scores of all test rows of a set, their groups, and the processor time that fits and predictions took."""
    data = dataset.load()
    grades = int(data.y.max()) + 1 if dataset.kind in ("class", "grade") else 0
    found: dict[str, list] = {measure: [] for measure in (*MEASURES, "row", "group")}
    seconds = 0.0
    for train, test in dataset.splits(data):
        task = Task(
            kind=dataset.kind,
            family=dataset.family,
            X=data.X.iloc[train].reset_index(drop=True),
            y=data.y[train],
            groups=None if data.groups is None else data.groups[train],
            X_new=data.X.iloc[test].reset_index(drop=True),
            trials=data.y[test].sum(axis=1) if dataset.kind == "counts" else None,
            grades=grades,
        )
        began = time.process_time()
        forecast = method(task)
        values = score(dataset.kind, forecast, data.y[test], zlib.crc32(dataset.name.encode()))
        seconds += time.process_time() - began
        for measure in MEASURES:
            found[measure] += [float(f"{v:.6g}") for v in values[measure]]
        found["row"] += test.tolist()
        found["group"] += (test if data.groups is None else data.groups[test]).tolist()
    return {**found, "seconds": round(seconds, 2)}


def path_of(dataset: DataSet, name: str) -> Path:
    return OUT / dataset.name / f"{name.replace(' ', '_').replace(',', '')}.json"


def scores_of(datasets: tuple[DataSet, ...]) -> dict[str, dict[str, dict]]:
    """Finished scores by set and method."""
    out: dict[str, dict[str, dict]] = {}
    for dataset in datasets:
        names = [name for name in methods_of(dataset.kind) if path_of(dataset, name).is_file()]
        out[dataset.name] = {name: json.loads(path_of(dataset, name).read_text()) for name in names}
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", choices=[s.name for s in SETS])
    parser.add_argument("--methods", nargs="*", choices=list(METHODS))
    parser.add_argument("--held-back", action="store_true", help="the other half too: when nothing changes any more")
    parser.add_argument("--again", action="store_true", help="run what is there already")
    parser.add_argument("--unseen", action="store_true", help="run, and show no scores")
    parser.add_argument("--write", action="store_true", help="write results.json and docs/forecasts.md")
    options = parser.parse_args()
    allowed = SETS if options.held_back else IN_SIGHT
    hidden = [s for s in HELD_BACK if options.sets and s.name in options.sets and not options.held_back]
    if hidden:
        parser.error(f"{', '.join(s.name for s in hidden)}: held back; add --held-back when the method is final")
    chosen = [s for s in allowed if not options.sets or s.name in options.sets]
    failed = 0
    for dataset in chosen:
        for name in methods_of(dataset.kind):
            path = path_of(dataset, name)
            if (options.methods is not None and name not in options.methods) or (path.is_file() and not options.again):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = measured(dataset, METHODS[name][0])
            except ImportError as missing:
                print(f"{dataset.name}, {name}: missing ({missing})")
                continue
            except Exception:
                failed += 1
                print(f"{dataset.name}, {name}: failed\n{traceback.format_exc()}", flush=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result))
            shown = "" if options.unseen else f"log density {np.mean(result['log_density']):.4f}, "
            print(f"{dataset.name}, {name}: {shown}{result['seconds']:.1f} s", flush=True)
    before = earlier(allowed, ROOT)
    results = summary(scores_of(tuple(allowed)), allowed, before)
    if options.write:
        results = {s.name: results.get(s.name) or before[s.name] for s in allowed if s.name in results | before}
        write(results, ROOT)
    if not options.unseen:
        print(table(results))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
