"""Import time of ggpm against that of scikit-learn's Gaussian processes, in fresh interpreters, turn by turn.

    python benchmarks/import_time.py [repeats]

Prints the medians and their ratio (to be at most 1.3), and which heavy packages `import ggpm` adds.
"""

import json
import statistics
import subprocess
import sys

CLOCK = "import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
ADDED = (
    "import sys, json; import sklearn.gaussian_process; before = set(sys.modules); import ggpm; "
    "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before})))"
)


def measure(module: str) -> float:
    """Seconds for one import in a fresh interpreter."""
    return float(
        subprocess.run([sys.executable, "-c", CLOCK.format(module=module)], capture_output=True, text=True).stdout
    )


def added() -> list[str]:
    """Top-level packages that `import ggpm` loads beyond scikit-learn's Gaussian processes."""
    return json.loads(subprocess.run([sys.executable, "-c", ADDED], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    times: dict[str, list[float]] = {"ggpm": [], "sklearn.gaussian_process": []}
    for _ in range(repeats):
        for module, seen in times.items():
            seen.append(measure(module))
    ours, theirs = (statistics.median(seen) for seen in times.values())
    print(f"ggpm {ours:.2f} s, sklearn.gaussian_process {theirs:.2f} s, ratio {ours / theirs:.2f}; added: {added()}")
