"""Readers under attack: broken files, tables and kernel texts give documented errors, little memory, no actions.

``python tests/fuzzing.py --inputs 100000`` (``make fuzz``) takes about that many broken inputs over all readers; the
tests take half. Inputs are made from a corpus of good ones, the files in tests/data and those that are made here, by
mutations of bytes and of what the bytes mean: a changed model document gets a new digest, so that it is read and not
only refused.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import io
import json
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

import ggpm
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families
from ggpm.data.tables import TableError, features_of, read_table, target_of
from ggpm.kernels import Category, On
from ggpm.kernels.text import KernelTextError, kernel_from_text, kernel_text
from ggpm.learning.journal import Journal
from ggpm.persistence import LoadError

DATA = Path(__file__).parent / "data"
# What no reader has a reason to do. Readers import lazily: the good inputs are read first, without this list.
FORBIDDEN = ("os.system", "subprocess.Popen", "os.exec", "os.spawn", "os.posix_spawn", "os.fork", "socket.connect",
             "ctypes.dlopen", "shutil.rmtree", "os.remove", "os.rename", "pickle.find_class", "exec")  # fmt: skip
SLOW = 20.0  # seconds of processor time for one input: none of the good ones takes a tenth of one
MEMORY = 2**30  # bytes beyond what good inputs take
ODD = (b"", b"\0", b"\xff\xfe", b"NaN", b"-inf", b"1e999", b"-1", b"9" * 40, b'"', b"'", b"[[[[", b"}", b"\\u0000",
       b",", b"\r", b"\n", b"__import__('os')", b"2024-13-45", b"null", b"\xed\xa0\x80")  # fmt: skip
VALUES = (None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, -1e-308, "", "x" * 2000, "nan", [], {}, [[]], {"a": 1},
          {"float": "nan"}, {"float": "inf"}, {"list": []}, {"tuple": [1, 2]},
          {"array": [1], "dtype": "float64", "shape": [1]}, {"array": [1], "dtype": "float64", "shape": [2**40]},
          {"kernel": "RBF", "params": {}},
          {"family": "Poisson", "state": {}}, {"family": "os.system", "state": {}},
          {"inference": "Laplace", "settings": {"max_iter": -1}})  # fmt: skip


@dataclass
class Outcome:
    """What came of a run over one reader."""

    told: Counter = field(default_factory=Counter)
    faults: list = field(default_factory=list)
    slowest: float = 0.0


# ---- good inputs -----------------------------------------------------------------------------------------------------
def model_files():
    """Bytes of saved models of every kind of posterior, with labels, times, weights and holes."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (9, 2))
    frame = pd.DataFrame({"a": X[:, 0], "where": list("abcabcabc"),
                          "when": pd.date_range("2024-01-01", periods=9, freq="h")})  # fmt: skip
    held = {"optimizer": None, "inference": "laplace"}
    noisy = ConstantKernel(1.0) * Matern([1.0, 2.0], nu=1.5) + WhiteKernel(0.1)
    angle = rng.uniform(0, 6, 9)
    shares = rng.dirichlet([1.0, 2.0, 3.0], 9)
    holes = rng.normal(size=(9, 2))
    holes[2, 1] = np.nan
    models = [
        GGPRegressor("gaussian", noisy, **held).fit(X, X[:, 0]),
        GGPRegressor("von_mises", RBF(1.0), **held).fit(X, angle),
        GGPRegressor("dirichlet", [RBF(1.0), RBF(2.0), RBF(3.0)], **held).fit(X, shares),
        GGPRegressor("poisson", On(RBF(), "a") * Category("where") + On(RBF(2.0), "when"), **held).fit(
            frame, np.arange(9), np.linspace(1, 2, 9), offset=np.zeros(9) + 0.1
        ),
        GGPRegressor("gaussian", RBF(1.0), **held).fit(X, holes),
        GGPRegressor("multivariate_gaussian", RBF(1.0), **held).fit(X, np.nan_to_num(holes)),
        GGPClassifier(RBF(1.0), **held).fit(X, list("nyxnyxnyx")),
        GGPOrdinalClassifier(RBF(1.0), **held).fit(X, [0, 1, 2] * 3),
        GGPRegressor("gamma", RBF(1.0), inducing=3, **held).fit(X, np.exp(X[:, 0])),
        GGPRegressor(families.Poisson(), ConstantKernel(1.0) * Matern(1.0, nu=0.5), neighbours=3, **held).fit(
            X, np.arange(9)
        ),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = []
        for k, model in enumerate(models):
            path = Path(folder, f"{k}.ggpm")
            ggpm.save(model, path)
            out.append(path.read_bytes())
    return out


def tables():
    """Bytes of tables, with their endings."""
    frame = pd.DataFrame({
        "hour": [1, 2, 3, 4], "station": ["a", "b", "a", "b"], "when": ["2024-01-01T00:00", "2024-02-01T00:00",
        "2024-03-01T00:00", "2024-04-01T00:00"], "wind": [350.0, 10.5, np.nan, 20.0], "odd, name": [1.0, 2.0, 3.0, 4.0],
    })  # fmt: skip
    parquet = io.BytesIO()
    frame.to_parquet(parquet)
    return [
        (b"y,x\n1,2\n3,4\n", ".csv"), (frame.to_csv(index=False).encode(), ".csv"),
        ("größe;x\n1,5;2\n".encode("latin-1"), ".csv"), (b'"a","a"\n"1\n2",3\n', ".csv"),
        (b"\xef\xbb\xbfy,x\r\n1,2\r\n", ".csv"),
        (b",y,x\n0,1,2\n1,3,4\n", ".csv"), (parquet.getvalue(), ".parquet"),
    ]  # fmt: skip


def kernel_texts():
    kernels = [
        ConstantKernel(2.0) * RBF(1.0) + WhiteKernel(0.1),
        On(Matern([1.0, 2.0], nu=2.5), ["lat", "lon"]) * Category("where"),
        RBF(1.0, (0.1, 10.0)) ** 2 + ConstantKernel(1.0, "fixed"),
    ]  # fmt: skip
    return [kernel_text(k).encode() for k in kernels] + [
        b'C() * On(Cyclic(24), "time") + C(0.3) * Sphere(1.0, nu=1.5)', b"1.41**2 * RBF(length_scale=3) + 0.5",
        b"RationalQuadratic(alpha=1, length_scale=1) * (DotProduct() + 1.0)",
    ]  # fmt: skip


# ---- mutations -------------------------------------------------------------------------------------------------------
def mutated(content: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    """Some bytes changed, cut, doubled, moved, or replaced by odd ones or those of another input."""
    out = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        i, j = sorted(rng.integers(0, len(out) + 1, 2))
        j = min(j, i + int(rng.integers(1, 64)))
        match rng.integers(0, 7):
            case 0 if out:
                out[min(i, len(out) - 1)] ^= 1 << int(rng.integers(0, 8))
            case 1:
                out[i:j] = b""
            case 2:
                out[i:i] = out[i:j] * int(rng.integers(1, 20))
            case 3:
                out[i:j] = ODD[rng.integers(len(ODD))]
            case 4:
                out[i:j] = rng.bytes(j - i)
            case 5:
                del out[i:]
            case _:
                other = others[rng.integers(len(others))]
                k = int(rng.integers(0, len(other) + 1))
                out[i:j] = other[k : k + int(rng.integers(1, 200))]
    return bytes(out)


def places(value, path=()):
    """Paths to all parts of a document."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def redrawn(content: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    """A model file with parts of its document replaced, or numbers of its arrays, and a digest that fits."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    document = json.loads(header["__metadata__"]["ggpm"])
    document["sha256"] = "0" * 64
    for _ in range(int(rng.integers(1, 4))):
        if rng.uniform() < 0.2 and len(data) >= 8:
            k = 8 * int(rng.integers(0, len(data) // 8))
            odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, 1e-308, -1e300, rng.normal()])
            data[k : k + 8] = np.float64(odd).tobytes()
            continue
        target, all_places = document, [p for p in places(document) if p]
        path = all_places[rng.integers(len(all_places))]
        for key in path[:-1]:
            target = target[key]
        key = path[-1]
        match rng.integers(0, 4):
            case 0 if isinstance(target, dict):
                del target[key]
            case 1:
                source = json.loads(_document(others[rng.integers(len(others))]))
                parts = [p for p in places(source) if p]
                found = source
                for k in parts[rng.integers(len(parts))]:
                    found = found[k]
                target[key] = found
            case 2 if isinstance(target[key], int | float) and not isinstance(target[key], bool):
                factor, more = float(rng.choice([-1.0, 0.0, 1e3, 1e300])), int(rng.integers(-2, 3))
                value = 1e308 if abs(target[key]) > 1e308 else target[key] * factor + more
                target[key] = value if np.isfinite(value) else 1e308
            case _:
                target[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
        if not isinstance(document.get("sha256"), str) or len(document["sha256"]) != 64:
            document["sha256"] = "0" * 64
    if rng.uniform() < 0.05:
        document["format"] = VALUES[rng.integers(len(VALUES))]
    document = {"sha256": "0" * 64} | {k: v for k, v in document.items() if k != "sha256"}
    header["__metadata__"]["ggpm"] = json.dumps(document)
    text = json.dumps(header).encode()
    out = len(text).to_bytes(8, "little") + text + bytes(data)
    return out.replace(b"0" * 64, hashlib.sha256(out).hexdigest().encode(), 1)


def _document(content: bytes) -> str:
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length])["__metadata__"]["ggpm"]


# ---- readers ---------------------------------------------------------------------------------------------------------
class Models:
    errors = (LoadError,)

    def __init__(self, folder):
        earlier = [path.read_bytes() for path in sorted(DATA.rglob("*.ggpm"))]  # written by released versions
        self.corpus, self.path = model_files() + earlier, Path(folder, "model.ggpm")

    def make(self, rng):
        how = redrawn if rng.uniform() < 0.7 else mutated
        return how(self.corpus[rng.integers(len(self.corpus))], self.corpus, rng)

    def read(self, content):
        self.path.write_bytes(content)
        ggpm.load(self.path)


class Tables:
    errors = (TableError,)

    def __init__(self, folder):
        self.members, self.folder = tables(), folder
        self.corpus = [(content, ending) for content, ending in self.members]

    def make(self, rng):
        content, ending = self.members[rng.integers(len(self.members))]
        return mutated(content, [other for other, _ in self.members], rng), ending

    def read(self, given):
        content, ending = given
        path = Path(self.folder, f"table{ending}")
        path.write_bytes(content)
        table = read_table(path)
        names = [str(c) for c in table.columns]
        for names_or_none, labels in ((None, True), (names[1:], False)):
            try:
                features_of(table, names_or_none, exclude=names[:1], path=path)
                target_of(table, names[:1], labels=labels, path=path)
            except TableError:
                continue


class KernelTexts:
    errors = (KernelTextError,)

    def __init__(self, folder):
        self.corpus = kernel_texts()

    def make(self, rng):
        return mutated(self.corpus[rng.integers(len(self.corpus))], self.corpus, rng)

    def read(self, content):
        kernel_from_text(content.decode("utf-8", errors="replace"))


class Nothing(Exception):
    """A journal of which no step is left: the search starts anew."""


class Journals:
    """Journals of searches, which are never refused: what is not as it was written ends them."""

    errors = (Nothing,)

    def __init__(self, folder):
        self.path = Path(folder, "m.part")
        journal = Journal(self.path, "a")
        journal.note("RBF on 80 rows", optimum={"theta": [0.1], "message": "ü"}, loo=np.linspace(-1, 0, 9))
        journal.note(np.array([0.5, -1e-300]), value=np.nan, gradient=np.zeros(2))
        journal.close()
        self.corpus = [self.path.read_bytes()]

    def make(self, rng):
        return mutated(self.corpus[0], self.corpus, rng)

    def read(self, content):
        self.path.write_bytes(content)
        journal = Journal(self.path, "a")
        told = journal.recall("RBF on 80 rows")
        if told is None:
            raise Nothing
        assert len(told["loo"]) == 9 and told["optimum"]["message"] == "ü"


READERS = {"models": Models, "tables": Tables, "kernels": KernelTexts, "journals": Journals}


class Guard:
    """Notes forbidden actions while a reader is at work."""

    def __init__(self):
        self.armed, self.seen = False, []
        sys.addaudithook(self)

    def __call__(self, event, args):
        if self.armed and event.startswith(FORBIDDEN):
            self.seen.append((event, str(args)[:200]))


GUARD = Guard()


def memory():
    """The most memory that this process has had, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(name: str, inputs: int, seed: int = 0) -> Outcome:
    """Give a reader so many broken inputs; what is not a documented error is a fault."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = READERS[name](folder)
        for codec in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "cp1252"):
            "x".encode(codec)  # JSON and tables may be in any of them, whose modules are loaded when they are met
        repr(GGPRegressor(RBF())), repr(families.Poisson())  # so is what prints estimators in messages
        for good in reader.corpus:
            try:
                reader.read(good)
            except reader.errors:
                assert name == "tables"  # some of them are no good
        rng, before = np.random.default_rng([seed, list(READERS).index(name)]), memory()
        for k in range(inputs):
            content = reader.make(rng)
            start = time.process_time()
            GUARD.seen.clear()
            GUARD.armed = True
            try:
                reader.read(content)
                outcome.told["read"] += 1
            except reader.errors:
                outcome.told["refused"] += 1
            except BaseException as error:  # that is what is looked for
                if isinstance(error, KeyboardInterrupt):
                    raise
                outcome.faults.append((k, content, f"{type(error).__name__}: {error}"))
            finally:
                GUARD.armed = False
            if GUARD.seen:
                outcome.faults.append((k, content, f"did {GUARD.seen[0]}"))
            spent = time.process_time() - start
            outcome.slowest = max(outcome.slowest, spent)
            if spent > SLOW:
                outcome.faults.append((k, content, f"took {spent:.1f} s"))
            if memory() - before > MEMORY:
                outcome.faults.append((k, content, f"took {(memory() - before) / 2**20:.0f} MiB"))
                before = memory()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="over all readers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", choices=READERS, action="append")
    parser.add_argument("--keep", type=Path, help="folder for inputs that are faults")
    options = parser.parse_args()
    chosen = options.reader or list(READERS)
    bad = 0
    for name in chosen:
        start = time.process_time()
        found = run(name, options.inputs // len(chosen), options.seed)
        counts = ", ".join(f"{count} {what}" for what, count in sorted(found.told.items()))
        spent = time.process_time() - start
        print(f"{name}: {counts}, {len(found.faults)} faults; slowest {found.slowest:.2f} s, all {spent:.0f} s, "
              f"memory {memory() / 2**20:.0f} MiB", flush=True)  # fmt: skip
        for k, content, what in found.faults[:20]:
            print(f"  input {k}: {what[:300]}", flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                data, ending = content if isinstance(content, tuple) else (content, ".bin")
                (options.keep / f"{name}_{k}{ending}").write_bytes(data)
        bad += len(found.faults)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
