"""Import time of ggpm against that of scikit-learn's Gaussian processes, in fresh interpreters, turn by turn.

    python benchmarks/import_time.py [repeats]

Prints medians and ratios (to be at most 1.3; processor time is the steadier of the two), and the packages that
`import ggpm` adds.
"""

import json
import statistics
import subprocess
import sys

CLOCK = (
    "import time; wall, cpu = time.perf_counter(), time.process_time(); import {module}; "
    "print(time.perf_counter() - wall, time.process_time() - cpu)"
)
ADDED = (
    "import sys, json; import sklearn.gaussian_process; before = set(sys.modules); import ggpm; "
    "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before})))"
)


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    times: dict[str, list[list[float]]] = {"ggpm": [], "sklearn.gaussian_process": []}
    for _ in range(repeats):
        for module, seen in times.items():
            seen.append([float(part) for part in run(CLOCK.format(module=module)).split()])
    for k, clock in enumerate(("wall", "processor")):
        ours, theirs = (statistics.median(t[k] for t in seen) for seen in times.values())
        print(f"{clock}: ggpm {ours:.2f} s, sklearn.gaussian_process {theirs:.2f} s, ratio {ours / theirs:.2f}")
    print(f"added packages: {', '.join(json.loads(run(ADDED)))}")
