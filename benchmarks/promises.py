"""Do regions of 90 % cover 90 %? Many small data sets per family, hyperparameters learned and averaged over.

    python benchmarks/promises.py [--averaging integrate] [--sets 200] [--families gamma beta] [--seconds 600]

Every data set is drawn from its family's own prior: a Gaussian process in the plane, 60 rows to learn from and 60 to
predict (`replicate` of tests/test_coverage.py). Finished data sets are kept in out/promises/, so that a run that was
stopped, or that ended after so many seconds of processor time, is taken up again. Families take turns. Rows of one data
set share a posterior: standard errors are those of data sets. Exit code 1 if a coverage is off 0.9 by more than 0.02
and two standard errors.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from test_coverage import CONTINUOUS, DISCRETE, N_TEST, replicate, uniformity_of

ROOT = Path(__file__).parents[1]
LEVEL, ALLOWED = 0.9, 0.02


def path_of(averaging: str, family: str) -> Path:
    return ROOT / "out" / "promises" / averaging / f"{family}.json"


def found(averaging: str, family: str) -> list[dict]:
    path = path_of(averaging, family)
    return json.loads(path.read_text()) if path.is_file() else []


def add(averaging: str, family: str) -> float:
    """One more data set of a family; returns the processor time that it took."""
    known = found(averaging, family)
    began = time.process_time()
    report = replicate(family, len(known), averaging=averaging)
    seconds = time.process_time() - began
    transforms = report.pit.reshape(N_TEST, -1)[:, 0]
    known.append(
        {"coverage": report.coverage[2], "pit": np.round(transforms, 5).tolist(), "seconds": round(seconds, 3)}
    )
    path = path_of(averaging, family)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known))
    return seconds


def line(averaging: str, family: str, sets: int) -> tuple[str, bool]:
    """A line of the table, and whether the promise is kept."""
    known = found(averaging, family)[:sets]
    coverage = np.array([one["coverage"] for one in known])
    error = coverage.std(ddof=1) / np.sqrt(len(coverage)) if len(coverage) > 1 else np.nan
    transforms = np.array([one["pit"] for one in known])
    kept = bool(abs(coverage.mean() - LEVEL) <= ALLOWED + 2 * error) or family in DISCRETE
    p = uniformity_of(transforms) if len(known) > 2 else np.nan
    return (
        f"| {family} | {len(known)} | {coverage.mean():.3f} ± {error:.3f} | {transforms.mean():.3f} "
        f"| {transforms.var():.4f} | {p:.3f} | {np.mean([one['seconds'] for one in known]):.2f} |"
    ), kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--averaging", default="integrate", choices=["none", "stack", "integrate", "auto"])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--families", nargs="*", default=CONTINUOUS, choices=CONTINUOUS + DISCRETE)
    parser.add_argument("--seconds", type=float, default=np.inf, help="of processor time, after which it stops")
    options = parser.parse_args()
    left = options.seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(options.sets):
            for family in options.families:
                if left > 0 and len(found(options.averaging, family)) <= number:
                    left -= add(options.averaging, family)
    print("| family | data sets | coverage of 90 % regions | PIT mean | PIT variance | p | seconds each |")
    print("|---|---|---|---|---|---|---|")
    done = [family for family in options.families if found(options.averaging, family)]
    lines = [line(options.averaging, family, options.sets) for family in done]
    print("\n".join(text for text, _ in lines))
    broken = [family for family, (_, kept) in zip(done, lines) if not kept]
    print(f"not kept: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
