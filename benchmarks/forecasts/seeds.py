"""Is the place of the default luck? Its scores with other seeds of the contest of kernels, beside those of the others.

    python benchmarks/forecasts/seeds.py [--sets wind glass] [--held-back]

Needs the scores of `run.py`; those of further seeds are kept beside them in out/forecasts/.
"""

from __future__ import annotations

import argparse
import json
import warnings
from functools import partial

import numpy as np
from methods import default
from report import OURS, summary, verdict
from run import measured, path_of, scores_of
from sets import IN_SIGHT, SETS

SEEDS = (1, 2)  # 0 is the default's
PLACE = "best or within one standard error"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", choices=[s.name for s in SETS])
    parser.add_argument("--held-back", action="store_true", help="the other sets too: when nothing changes any more")
    options = parser.parse_args()
    chosen = [s for s in (SETS if options.held_back else IN_SIGHT) if not options.sets or s.name in options.sets]
    held = np.zeros(1 + len(SEEDS), int)
    spreads = []
    print("| set | " + " | ".join(f"seed {seed}" for seed in (0, *SEEDS)) + " | spread | standard error | holds |")
    print("|---|" + "---|" * (len(SEEDS) + 4))
    for dataset in chosen:
        scores = scores_of((dataset,))[dataset.name]
        means, verdicts = [], []
        for seed in (0, *SEEDS):
            if seed:
                path = path_of(dataset, f"{OURS} seed {seed}")
                if not path.is_file():
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        path.write_text(json.dumps(measured(dataset, partial(default, random_state=seed))))
                scores[OURS] = json.loads(path.read_text())
            result = summary({dataset.name: scores}, [dataset])[dataset.name]
            means.append(result["methods"][OURS]["log_density"])
            verdicts.append(bool(verdict(result)[PLACE]))
        held += verdicts
        best = max((name for name in scores if name != OURS), key=lambda name: np.mean(scores[name]["log_density"]))
        error = result["methods"][best]["ours_ahead_error"]
        spreads.append((np.std(means, ddof=1), error))
        shown = " | ".join(f"{mean:.4f}" for mean in means)
        print(f"| {dataset.name} | {shown} | {spreads[-1][0]:.4f} | {error:.4f} | {verdicts} |", flush=True)
    ratio = np.median([spread / error for spread, error in spreads])
    print(f"{PLACE}: {held.tolist()} of {len(chosen)}; spread over seeds, in standard errors: median {ratio:.2f}")


if __name__ == "__main__":
    main()
