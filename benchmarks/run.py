"""All benchmarks side by side on this machine: ``python benchmarks/run.py [--quick]``.

Every system runs in a process of its own with the same number of BLAS threads; repeats of different systems
alternate, so that a slow minute of the machine hits all of them. Results are medians and ratios, written to
benchmarks/results.md and results.json. A peer that is not installed is reported as missing. A row with a target says
whether that was met; those that were missed are listed at the end, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = {"ggpm": "ggpm", "sklearn": "scikit-learn", "gpboost": "gpboost", "gpy": "GPy", "gpflow": "gpflow"}
MODULES = {"ggpm": "ggpm", "sklearn": "sklearn", "gpboost": "gpboost", "gpy": "GPy", "gpflow": "gpflow"}
SCALAR = ("gaussian", "bernoulli", "binomial", "poisson", "negative_binomial", "gamma", "inverse_gaussian", "beta",
          "ordinal")  # fmt: skip
ALL = "abcdefghijkl"
SAME_EVIDENCE = 1e-4
THREADS = ("1", "default")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS",
                    "TF_NUM_INTEROP_THREADS")  # fmt: skip
SLOW = {"gpy"}  # measured once
NOTES = {("gpy", "fit/bernoulli"): "probit, it has no logit: another evidence"}
VECTOR = {"von_mises": 2, "multivariate_gaussian": 2, "categorical": 3, "multinomial": 3, "dirichlet": 3,
          "von_mises_fisher": 3, "wishart": 3}  # fmt: skip


def environment(threads: str) -> dict[str, str]:
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    for name in THREAD_VARIABLES:
        if threads == "default":
            env.pop(name, None)
        else:
            env[name] = threads
    return env


def run(system: str, task: str, threads: str, repeats: int, timeout: int = 1800) -> dict | None:
    """Seconds of every repeat and the value reached, or None with the reason printed."""
    if importlib.util.find_spec(MODULES[system]) is None:
        return None
    command = [sys.executable, str(HERE / "systems.py"), system, task, str(repeats)]
    try:
        done = subprocess.run(command, env=environment(threads), capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"seconds": [float(timeout)], "value": None, "note": f"stopped after {timeout} s"}
    if done.returncode != 0:
        return {"seconds": [], "value": None, "note": done.stderr.strip().splitlines()[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


class Report:
    """Collects rows and writes both files after every section, so that an interrupted run leaves what it has."""

    def __init__(self, quick: bool, keep: bool):
        # a run of some sections keeps what an earlier run wrote of the others
        earlier = HERE / "results.json"
        self.sections: dict[str, list[dict]] = json.loads(earlier.read_text())["sections"] if keep else {}
        missing = [s for s in PACKAGES if importlib.util.find_spec(MODULES[s]) is None]
        self.head = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {cpu_name()}",
            "python": platform.python_version(),
            "versions": {s: importlib.metadata.version(PACKAGES[s]) for s in PACKAGES if s not in missing}
            | {p: importlib.metadata.version(p) for p in ("numpy", "scipy")},
            "missing": missing,
            "quick": quick,
        }

    def missed(self) -> list[str]:
        """Rows whose target was not met."""
        return [f"{title}: {row}" for title, rows in self.sections.items() for row in rows if row.get("met") == "no"]

    def add(self, title: str, rows: list[dict]) -> None:
        self.sections[title] = rows
        print(f"\n{title}")
        for row in rows:
            print("  " + ", ".join(f"{k}: {_show(v)}" for k, v in row.items()), flush=True)
        (HERE / "results.json").write_text(json.dumps({**self.head, "sections": self.sections}, indent=1) + "\n")
        (HERE / "results.md").write_text(self.markdown())

    def markdown(self) -> str:
        lines = [
            "# Benchmarks",
            "",
            "Written by `make bench`; times in seconds, medians; ratios are what to compare, within a section.",
            "Sections may come from separate runs (`--only`), and then of different states of the code.",
            "",
        ]
        lines += [f"- machine: {self.head['machine']}, Python {self.head['python']}"]
        lines += ["- versions: " + ", ".join(f"{k} {v}" for k, v in self.head["versions"].items())]
        lines += ["- missing peers: " + (", ".join(self.head["missing"]) or "none")]
        for title, rows in sorted(self.sections.items()):
            columns = list(dict.fromkeys(k for row in rows for k in row))
            lines += ["", f"## {title}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
            lines += ["| " + " | ".join(_show(row.get(c, "")) for c in columns) + " |" for row in rows]
        return "\n".join(lines) + "\n"


def _show(v) -> str:
    return f"{v:.3g}" if isinstance(v, float) and abs(v) < 100 else f"{v:.3f}" if isinstance(v, float) else str(v)


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"


def median(result: dict | None) -> float | None:
    return statistics.median(result["seconds"]) if result and result["seconds"] else None


def judged(row: dict, key: str, *, least: float = -math.inf, most: float = math.inf) -> dict:
    """The row with its target, and whether the value under the key meets it."""
    target = f"≥ {least:g}" if math.isfinite(least) else f"≤ {most:g}"
    return {**row, "target": target, "met": "yes" if least <= row[key] <= most else "no"}


def compare(
    task: str, systems: list[str], threads: str, rounds: int, targets: dict[str, float] | None = None,
    same_evidence: bool = False,
) -> list[dict]:  # fmt: skip
    """One row per system: median seconds, the value reached, and how many times ggpm is faster.

    ``targets`` are least ratios by system. With ``same_evidence`` a peer must have reached the same value, too, unless
    a note says that it computes another one.
    """
    collected: dict[str, list] = {s: [] for s in systems}
    for number in range(rounds):
        for s in systems:
            if number == 0 or s not in SLOW:
                collected[s].append(run(s, task, threads, 1))
    rows, ours = [], None
    for s in systems:
        good = [r for r in collected[s] if r and r["seconds"]]
        if not good:
            note = next((r["note"] for r in collected[s] if r), "not installed")
            rows.append({"task": task, "threads": threads, "system": s, "seconds": "missing", "note": note})
            continue
        time = statistics.median(t for r in good for t in r["seconds"])
        ours = time if s == "ggpm" else ours
        row = {"task": task, "threads": threads, "system": s, "seconds": time, "value": good[0]["value"]}
        row["ggpm is faster by"] = time / ours if ours else ""
        other = (s, task.split(":")[0]) in NOTES
        if other:
            row["note"] = NOTES[s, task.split(":")[0]]
        if targets and s in targets and ours:
            row = judged(row, "ggpm is faster by", least=targets[s])
            if same_evidence and not other and abs(row["value"] - rows[0]["value"]) > SAME_EVIDENCE:
                row["met"], row["note"] = "no", "another evidence"
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, smaller sizes")
    parser.add_argument("--only", default=ALL, help="letters of the sections to run")
    args = parser.parse_args()
    report, rounds = Report(args.quick, args.only != ALL and (HERE / "results.json").exists()), 2 if args.quick else 3
    sizes = [300, 600] if args.quick else [300, 600, 1000]

    if "a" in args.only:
        n = 500 if args.quick else 1000
        for threads in THREADS:
            targets = {"sklearn": 5.0, "gpboost": 2.5, "gpy": 10.0}
            rows = compare(f"fit/bernoulli:{n}", ["ggpm", *targets], threads, rounds, targets, same_evidence=True)
            rows += compare(f"fit/poisson:{n}", ["ggpm", "gpboost", "gpy"], threads, rounds)
            report.add(f"(a) Bernoulli and Poisson, full fit, threads: {threads}", rows)
    if "b" in args.only:
        for threads in THREADS:
            rows = []
            for n in sizes:
                targets = {"sklearn": 2.5 if threads == "1" else 4.0} if n <= 600 else {}
                rows += compare(f"fit/digits:{n}", ["ggpm", "sklearn"], threads, rounds if n <= 600 else 1, targets)
            rows += compare("fit/digits:300", ["ggpm", "gpflow"], threads, rounds, {"gpflow": 5.0})
            title = "(b) digits, full fit (sklearn: one-vs-rest; gpflow: VGP, 100 iterations), threads"
            report.add(f"{title}: {threads}", rows)
            rows = []
            for n in sizes:
                rows += compare(f"gradient/digits:{n}", ["ggpm"], threads, rounds)
            report.add(f"(b) digits, one evidence and gradient from a cold start, threads: {threads}", rows)
    if "c" in args.only:
        for threads in THREADS:
            rows = [
                r
                for n in (200, 1000, *([] if args.quick else [2000]))
                for r in compare(f"fit/von_mises:{n}", ["ggpm"], threads, rounds)
            ]
            report.add(f"(c) von Mises, full fit, threads: {threads}", rows)
    if "d" in args.only:
        n = 500 if args.quick else 1000
        for threads in THREADS:
            rows = [r for d in (3, 10) for r in compare(f"fit/dirichlet:{n}:{d}", ["ggpm"], threads, 2)]
            report.add(f"(d) Dirichlet, full fit, threads: {threads}", rows)
    if "e" in args.only:
        tasks = ("bernoulli:1000", "von_mises:1000", "dirichlet:1000:3", "digits:600")
        for threads in THREADS:
            rows = [r for t in tasks for r in compare(f"predict/{t}", ["ggpm"], threads, 1)]
            report.add(f"(e) latent mean and full D×D covariance at 10,000 points, threads: {threads}", rows)
    if "f" in args.only:
        title = "full fit against 3·D scikit-learn regressions with learned noise, threads"
        for threads in THREADS:
            for n in (30, 100):
                rows = small_fits(n, threads, 5 if n == 100 and threads == "1" else 1)
                report.add(f"(f) n = {n}: {title}: {threads}", rows)
    if "g" in args.only:
        rows = []
        for _ in range(3 if args.quick else 7):
            row = {}
            for name, module in (("ggpm", "ggpm"), ("sklearn", "sklearn.gaussian_process")):
                code = f"import time; t=time.perf_counter(); import {module}; print(time.perf_counter()-t)"
                out = subprocess.run([sys.executable, "-c", code], env=environment("1"), capture_output=True, text=True)
                row[name] = float(out.stdout)
            rows.append(row)
        both = {k: statistics.median(r[k] for r in rows) for k in rows[0]}
        report.add("(g) import", [{**both, "ratio": both["ggpm"] / both["sklearn"]}])
    if "h" in args.only:
        sizes = [(n, f"von_mises:{n}") for n in (250, 500, 1000, *([] if args.quick else [2000, 4000]))]
        dimensions = [(d, f"dirichlet:500:{d}") for d in (2, 4, 8, 16, 32)]
        for threads in THREADS:
            rows = growth("n", sizes, threads, most=3.0)
            report.add(f"(h) growth with n: evidence and gradient, von Mises, threads: {threads}", rows)
            rows = growth("D", dimensions, threads, most=1.1)
            report.add(f"(h) growth with D: evidence and gradient, Dirichlet, n = 500, threads: {threads}", rows)
    if "i" in args.only:
        for threads in THREADS:
            pairs = [[median(run("ggpm", f"taylor/1000:{d}", threads, 5)) for d in (2, 50)] for _ in range(rounds)]
            two, fifty = (statistics.median(times) for times in zip(*pairs))
            row = {"2 classes": two, "50 classes": fifty, "ratio": statistics.median(b / a for a, b in pairs)}
            title = "(i) multinomial Taylor, shared kernel, n = 1000, threads"
            report.add(f"{title}: {threads}", [judged(row, "ratio", most=2.0)])
    if "j" in args.only:
        tasks = ("bernoulli:1000", "von_mises:1000", "dirichlet:1000:3", "digits:1000")
        for threads in THREADS:
            rows = [judged(row, "ratio", most=1.6) for row in floor(*tasks, threads=threads, repeats=7)]
            report.add(f"(j) evidence and gradient against the LAPACK floor, threads: {threads}", rows)
    if "k" in args.only:
        rows = []
        for row in floor("mem/bernoulli:1000", "mem/dirichlet:1000:3", "mem/digits:600"):
            for when, most in (("peak", 2 * row["D"] + 6), ("after", row["D"] + 3)):
                rows.append(
                    judged({"task": row["task"], "D": row["D"], "when": when, "n²": row[when]}, "n²", most=most)
                )
        report.add("(k) memory in units of n² doubles", rows)
    if "l" in args.only:
        for threads in THREADS:
            report.add(
                f"(l) digits, 300 rows: predictions for 1497 others, threads: {threads}", digits(rounds, threads)
            )
    if missed := report.missed():
        sys.exit("targets missed:\n" + "\n".join(missed))


def small_fits(n: int, threads: str, rounds: int) -> list[dict]:
    """Every family with D <= 3 against the yardstick; the target is for n = 100 and one thread."""
    rows = []
    for name, D in {**dict.fromkeys(SCALAR, 1), **VECTOR}.items():
        both = ("ggpm", f"small/{name}:{n}"), ("sklearn", f"regression/{n}")
        pairs = [[median(run(system, task, threads, 9)) for system, task in both] for _ in range(rounds)]
        if any(None in pair for pair in pairs):
            rows.append({"family": name, "D": D, "share": "failed", "met": "no"})
            continue
        times, yards = zip(*pairs)
        row = {
            "family": name, "D": D, "seconds": statistics.median(times),
            "3·D regressions": 3 * D * statistics.median(yards),
            "share": statistics.median(time / (3 * D * yard) for time, yard in pairs),
        }  # fmt: skip
        rows.append(judged(row, "share", most=1.0) if n == 100 and threads == "1" else row)
    return rows


def growth(key: str, tasks: list[tuple[int, str]], threads: str, most: float) -> list[dict]:
    """Seconds of one evidence and gradient by size, exponents between neighbours, and that of the whole range."""
    rows: list[dict] = []
    for size, task in tasks:
        time = median(run("ggpm", f"gradient/{task}", threads, 3 if size < 2000 else 1))
        rows.append({key: size, "seconds": time, "exponent": ""})
        if len(rows) > 1:
            rows[-1]["exponent"] = _exponent(key, *rows[-2:])
    whole = {key: f"{tasks[0][0]} to {tasks[-1][0]}", "exponent": _exponent(key, rows[0], rows[-1])}
    return [*rows, judged(whole, "exponent", most=most)]


def _exponent(key: str, first: dict, last: dict) -> float:
    return math.log(last["seconds"] / first["seconds"]) / math.log(last[key] / first[key])


def digits(rounds: int, threads: str) -> list[dict]:
    """Log-loss, accuracy and seconds of both objectives, beside GPflow's 100 iterations."""

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment(threads), capture_output=True, text=True, check=True).stdout

    if importlib.util.find_spec("gpflow") is None:
        return [{"system": "gpflow", "seconds": "missing", "note": "not installed"}]
    found: dict[str, list[dict]] = {"loo": [], "evidence": []}
    peer = []
    for _ in range(rounds):
        for objective, results in found.items():
            lines = python(str(HERE / "digits.py"), objective).strip().splitlines()
            results.append({name: float(value) for name, value in (line.split() for line in lines)})
        peer.append(float(python(str(HERE / "gpflow_reference.py"), "digits").splitlines()[-1].split()[1]))
    theirs = statistics.median(peer)
    rows = []
    for (objective, results), most in zip(found.items(), (0.17, 0.28)):
        row = {"hyperparameters by": objective, **{k: results[0][k] for k in ("log_loss", "accuracy")}}
        seconds = statistics.median(r["seconds"] for r in results)
        row |= {"seconds": seconds, "GPflow's": theirs, "ratio": theirs / seconds}
        targets: tuple = (("log_loss", {"most": most}), ("accuracy", {"least": 0.955}), ("ratio", {"least": 1.0}))
        rows += [judged(row, key, **target) | {"of": key} for key, target in targets]
    return rows


def floor(*tasks: str, threads: str = "1", repeats: int = 1) -> list[dict]:
    command = [sys.executable, str(HERE / "floor.py"), str(repeats), *tasks]
    done = subprocess.run(command, env=environment(threads), capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
