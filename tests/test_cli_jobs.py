"""Jobs from the shell: tables as they come, one command each, and the same result after any interruption."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("click")
pytest.importorskip("rich")
pd = pytest.importorskip("pandas")
from cases import click_runner  # noqa: E402
from ggpm import GGPRegressor, load  # noqa: E402
from ggpm.cli import main  # noqa: E402
from ggpm.data.tables import TableError, features_of, left_out, read_table, split_columns, target_of  # noqa: E402
from ggpm.kernels import Category, Scaled, kernel_from_text  # noqa: E402
from ggpm.learning.arena import Arena  # noqa: E402
from ggpm.learning.journal import Journal  # noqa: E402
from test_cli import run  # noqa: E402


def said(result):
    return result.stderr.replace("\n", " ")


# ---- three jobs ------------------------------------------------------------------------------------------------------
def wind(folder):
    rng = np.random.default_rng(0)
    n = 60
    moment = pd.to_datetime("2024-06-01") + pd.to_timedelta(np.sort(rng.integers(0, 8 * 24 * 60, n)), "min")
    station = rng.choice(["coast", "hill"], n)
    turn = 200 + 60 * np.sin(2 * np.pi * moment.hour / 24) + np.where(station == "hill", 50, 0)
    table = pd.DataFrame({"time": moment, "station": station, "dir": np.mod(turn + rng.normal(0, 8, n), 360)})
    table.to_csv(folder / "wind.csv")  # with its index, as people do
    kernel = 'C() * On(Cyclic(24), "time") + C() * Category("station") + C()'
    return ["fit", folder / "wind.csv", "--target", "dir", "--family", "von_mises", "--units", "degrees",
            "--kernel", kernel]  # fmt: skip


def soil(folder):
    rng = np.random.default_rng(1)
    n = 40
    table = pd.DataFrame({"lat": rng.uniform(50, 52, n), "lon": rng.uniform(6, 9, n)})
    table["use"] = rng.choice(["crop", "wood"], n)
    alpha = np.stack([8 + 2 * (table["lat"] - 51), np.where(table["use"] == "wood", 9.0, 4.0), np.full(n, 5.0)], axis=1)
    parts = 100 * np.array([rng.dirichlet(a) for a in 3 * alpha])
    parts[::5, 1:] = np.nan  # sand alone was measured
    parts[::7] = np.nan  # lost samples
    table[["sand", "silt", "clay"]], table["samples"] = parts, rng.integers(1, 4, n)
    table.to_csv(folder / "soil.csv", index=False)
    # a reach that is learned ends at nothing here: forty rows do not show it
    place = 'On(Sphere(0.01, length_scale_bounds="fixed"), ["lat", "lon"])'
    kernel = f'C(9.0) * {place} + C(9.0) * Category("use") + C(100.0)'
    return ["fit", folder / "soil.csv", "--target", "sand,silt,clay", "--family", "dirichlet", "--closure",
            "--weight", "samples", "--kernel", kernel, "--inference", "laplace"]  # fmt: skip  # variational: 15 s


def ratings(folder):
    rng = np.random.default_rng(2)
    n, subjects = 72, 9
    table = pd.DataFrame({"subject": np.arange(n) % subjects, "age": rng.uniform(20, 70, n)})
    minutes, level = rng.uniform(5, 60, n), rng.normal(0, 0.6, subjects)
    table["log_minutes"] = np.log(minutes / 20)
    table["score"] = rng.poisson(minutes / 20 * np.exp(0.02 * (table["age"] - 45) + level[table["subject"]]))
    table["comment"] = [f"comment {i}" for i in range(n)]
    table.to_csv(folder / "ratings.csv", index=False)
    return ["fit", folder / "ratings.csv", "--target", "score", "--family", "poisson", "--offset", "log_minutes",
            "--group", "subject", "--ignore", "comment", "--standardise", "--kernel", 'C() * On(RBF(), "age") + C()',
            ]  # fmt: skip


JOBS = {"wind": wind, "soil": soil, "ratings": ratings}


def chosen(folder):
    """The last job with a kernel of its own choice: a contest, then a search."""
    job = ratings(folder)
    return job[: job.index("--standardise")]


@pytest.mark.filterwarnings("ignore")
def test_three_jobs_from_raw_tables(tmp_path):
    found = {name: json.loads(run(*job(tmp_path), "--out", tmp_path / f"{name}.ggpm", "--json").stdout)
             for name, job in JOBS.items()}  # fmt: skip
    assert found["wind"]["kinds"] == {"time": "time", "station": "category"}
    assert found["wind"]["skipped"] == {"Unnamed: 0": "numbers the rows"}
    new = pd.DataFrame({"time": ["2024-07-15 06:00", "2024-07-15 18:00"], "station": ["coast", "hill"]})
    new.to_csv(tmp_path / "new.csv", index=False)
    rows = json.loads(run("predict", tmp_path / "wind.ggpm", tmp_path / "new.csv", "--probability", "150,300",
                          "--json").stdout)["rows"]  # fmt: skip
    found_at = [row["mean"] for row in rows]
    np.testing.assert_allclose(found_at, [260.0, 190.0], atol=25)  # latents add up, angles only nearly
    assert all(row["p(150,300)"] > 0.5 for row in rows)
    assert found["soil"]["rows"] == 34 and found["soil"]["kinds"]["use"] == "category"
    told = json.loads(run("predict", tmp_path / "soil.ggpm", tmp_path / "soil.csv", "--json").stdout)
    rows = pd.DataFrame(told["rows"])
    table = pd.read_csv(tmp_path / "soil.csv")
    assert rows["silt_mean"][table["use"] == "wood"].mean() > rows["silt_mean"][table["use"] == "crop"].mean() + 5
    assert found["ratings"]["kinds"] == {"subject": "category", "age": "number"}
    assert found["ratings"]["skipped"] == {"comment": "in --ignore"}
    model = load(tmp_path / "ratings.ggpm")
    kernel = kernel_from_text(found["ratings"]["kernel"])
    np.testing.assert_array_equal(kernel.theta, model.kernel_.theta)
    assert isinstance(kernel.k2.k2, Category) and isinstance(kernel.k1.k1.k2.kernel, Scaled)
    assert not list(tmp_path.glob("*.part"))


# ---- interrupted -----------------------------------------------------------------------------------------------------
class Killed(BaseException):
    """Ends everything at once, as a signal that cannot be caught would."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("job", [wind, pytest.param(soil, marks=pytest.mark.slow), ratings, chosen])
def test_jobs_that_are_killed_end_with_the_same_result(job, tmp_path, monkeypatch):
    """A process that goes away after any step, in the middle of a line, leaves what the next one needs."""
    job, rng = job(tmp_path), np.random.default_rng(3)
    whole = json.loads(run(*job, "--out", tmp_path / "whole.ggpm", "--json").stdout)
    note, counts = Journal.note, [0]

    def dying(self, asked, **told):
        counts[0] -= 1
        note(self, asked, **told)
        if counts[0] == 0:
            self.close()
            with open(self.path, "a") as file:
                file.write("01234567 [[0.1, 0.")
            raise Killed

    monkeypatch.setattr(Journal, "note", dying)
    kills = 0
    for _ in range(50):
        counts[0] = int(rng.integers(1, 7))
        result = _invoke([*job, "--out", tmp_path / "cut.ggpm", "--json"])
        if result is None:
            kills += 1
            assert not (tmp_path / "cut.ggpm").exists() and (tmp_path / "cut.ggpm.part").exists()
            continue
        break
    assert kills >= 2 and result.exit_code == 0
    again = json.loads(result.stdout)
    assert again["log_evidence"] == pytest.approx(whole["log_evidence"], abs=1e-4)
    columns = [load(tmp_path / f"{file}.ggpm") for file in ("whole", "cut")]
    np.testing.assert_allclose(columns[1].theta_, columns[0].theta_, atol=2e-2)
    assert not (tmp_path / "cut.ggpm.part").exists()


def _invoke(arguments):
    """The result of a command, or None where it was killed."""
    try:
        return click_runner().invoke(main, list(map(str, arguments)))
    except Killed:
        return None


@pytest.mark.filterwarnings("ignore")
def test_stopping_leaves_the_best_so_far(tmp_path, monkeypatch):
    """Ctrl-C after the fourth evaluation: a model on disk, its own exit code, and the way to go on."""
    job, note, counts = ratings(tmp_path), Journal.note, [0]

    def stopping(self, asked, **told):
        note(self, asked, **told)
        counts[0] += 1
        if counts[0] == 4:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "note", stopping)
        result = run(*job, "--out", tmp_path / "m.ggpm", "--json", code=130)
    told = json.loads(result.stdout)
    assert told["converged"] is False and "The same command again goes on" in said(result)
    assert load(tmp_path / "m.ggpm").log_marginal_likelihood_value_ == told["log_evidence"]
    again = run(*job, "--out", tmp_path / "m.ggpm", "--json")
    assert "after 4 steps" in said(again) and not (tmp_path / "m.ggpm.part").exists()
    whole = json.loads(run(*job, "--out", tmp_path / "w.ggpm", "--json").stdout)
    done = json.loads(again.stdout)
    assert done["converged"] and done["log_evidence"] > told["log_evidence"]
    assert done["log_evidence"] == pytest.approx(whole["log_evidence"], abs=1e-6)
    # another question does not go on from the answer to this one
    Journal(tmp_path / "m.ggpm.part", "other").note(np.zeros(3), value=1.0, gradient=np.zeros(3))
    assert "going on" not in said(run(*job, "--out", tmp_path / "m.ggpm"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("signalled", [False, True])
def test_candidates_of_a_contest_are_tried_once(signalled, tmp_path, monkeypatch):
    """Killed or stopped in a contest between kernels: finished candidates stay, and the end is the same to the bit."""
    job, note, tried, names = chosen(tmp_path), Journal.note, Arena.tried, []
    monkeypatch.setattr(Arena, "tried", lambda self, *a, **k: names.append(str(a[0])) or tried(self, *a, **k))
    run(*job, "--out", tmp_path / "whole.ggpm")
    whole, names[:] = list(names), []

    def ending(self, asked, **told):
        note(self, asked, **told)
        if len(names) == 4:
            if not signalled:
                raise Killed
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "note", ending)
        result = _invoke([*job, "--out", tmp_path / "cut.ggpm"])
    assert (result.exit_code == 130 and (tmp_path / "cut.ggpm").exists()) if signalled else result is None
    run(*job, "--out", tmp_path / "cut.ggpm")
    assert names == whole and len(names) > 5
    models = [load(tmp_path / f"{file}.ggpm") for file in ("whole", "cut")]
    np.testing.assert_array_equal(models[1].theta_, models[0].theta_)
    assert [t.name for t in models[1].search_] == [t.name for t in models[0].search_]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_processes_that_are_killed_end_with_the_same_result(tmp_path):
    job = [str(part) for part in wind(tmp_path)]
    command = [sys.executable, "-m", "ggpm.cli", *job, "--json", "--out"]
    whole = json.loads(subprocess.run([*command, tmp_path / "w.ggpm"], check=True, capture_output=True).stdout)
    part, rng = tmp_path / "m.ggpm.part", np.random.default_rng(0)
    for _ in range(4):
        known = part.read_text().count("\n") if part.exists() else 0
        wanted = known + int(rng.integers(1, 4))
        process = subprocess.Popen([*command, tmp_path / "m.ggpm"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while process.poll() is None and (not part.exists() or part.read_text().count("\n") < wanted):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.communicate()
    done = json.loads(subprocess.run([*command, tmp_path / "m.ggpm"], check=True, capture_output=True).stdout)
    assert done["log_evidence"] == pytest.approx(whole["log_evidence"], abs=1e-4)


# ---- columns ---------------------------------------------------------------------------------------------------------
def test_labels_stay_as_they_are_written(tmp_path):
    (tmp_path / "t.csv").write_text("x,kind\n" + "".join(f"{i},{['001', '01', '1'][i % 3]}\n" for i in range(12)))
    told = run("fit", tmp_path / "t.csv", "--target", "kind", "--family", "categorical", "--out", tmp_path / "m.ggpm")
    assert load(tmp_path / "m.ggpm").classes_.tolist() == ["001", "01", "1"] and told.exit_code == 0
    found = json.loads(run("evaluate", tmp_path / "m.ggpm", tmp_path / "t.csv", "--json").stdout)
    assert found["rows"] == 12
    rows = json.loads(run("predict", tmp_path / "m.ggpm", tmp_path / "t.csv", "--json").stdout)["rows"]
    assert {row["label"] for row in rows} <= {"001", "01", "1"}
    # as an input it is an error, unless it is said to be labels
    (tmp_path / "u.csv").write_text("code,n\n" + "".join(f"{['001', '01', '2'][i % 3]},{i % 4}\n" for i in range(12)))
    job = ["fit", tmp_path / "u.csv", "--target", "n", "--family", "poisson", "--out", tmp_path / "m.ggpm"]
    assert "'001' and '01' would be one number" in said(run(*job, code=1))
    told = json.loads(run(*job, "--category", "code", "--json").stdout)
    assert told["kinds"] == {"code": "category"}
    assert load(tmp_path / "m.ggpm").fit_.columns.members[0].labels == ("001", "01", "2")
    run("predict", tmp_path / "m.ggpm", tmp_path / "u.csv")
    # numbers that are padded alike stay numbers, and labels that are plain integers stay integers
    (tmp_path / "v.csv").write_text("month,kind\n01,3\n02,4\n12,3\n")
    table = read_table(tmp_path / "v.csv", text=["kind"])
    assert features_of(table, None, exclude=["kind"], path="v")["month"].tolist() == [1.0, 2.0, 12.0]
    assert target_of(table, ["kind"], labels=True, path="v").tolist() == [3, 4, 3]


def test_columns_that_occur_twice_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,x\n1,2,3\n4,5,6\n")
    with pytest.raises(TableError, match="column 'x' occurs more than once"):
        read_table(tmp_path / "t.csv")


def test_names_with_commas_and_spaces(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a,b": rng.normal(size=20), " x ": rng.normal(size=20), 'q"': 1.0, "n,m": rng.poisson(3, 20)})
    table.to_csv(tmp_path / "t.csv", index=False)
    job = ["fit", tmp_path / "t.csv", "--family", "poisson", "--out", tmp_path / "m.ggpm", "--json"]
    told = json.loads(run(*job, "--target", '"n,m"', "--features", '"a,b"," x "').stdout)
    assert told["features"] == ["a,b", " x "] and told["target"] == ["n,m"]
    for command in ("predict", "evaluate"):
        run(command, tmp_path / "m.ggpm", tmp_path / "t.csv", "--json")
    run("predict", tmp_path / "m.ggpm", tmp_path / "t.csv", "--keep", '"a,b"," x "', "--out", tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv").columns.tolist()[:2] == ["a,b", " x "]
    kernel = 'C() * On(RBF(), "a,b") + C() * On(RBF(), " x ")'
    told = json.loads(run(*job, "--target", '"n,m"', "--kernel", kernel).stdout)
    assert told["skipped"] == {'q"': "no part of --kernel looks at it"}
    run("predict", tmp_path / "m.ggpm", tmp_path / "t.csv")
    assert split_columns('a, "b""c" ,,d') == ["a", 'b"c', "d"]


PLAIN = "x,n\n" + "".join(f"{0.5 * i},{i % 4}\n" for i in range(8))


@pytest.mark.parametrize("content", [
    "\ufeff" + PLAIN, PLAIN.replace("\n", "\r\n"), PLAIN.replace("\n", "\r"), PLAIN.replace(",", ";"),
    PLAIN.replace(",", "\t"), PLAIN.replace(",", "|"), PLAIN.replace(",", ";").replace(".", ","), "sep=,\n" + PLAIN,
    PLAIN.replace("\n", ",\n"), PLAIN.replace("\n", "\n\n"), PLAIN.replace("x", '"x"').replace("0.5", '"0.5"'),
], ids=["bom", "crlf", "cr", "semicolons", "tabs", "bars", "decimal commas", "sep", "empty column", "blank lines",
        "quotes"])  # fmt: skip
def test_tables_in_other_forms_are_the_same_table(content, tmp_path):
    (tmp_path / "t.csv").write_text(content, newline="")
    table = read_table(tmp_path / "t.csv")
    X = features_of(table, ["x"], exclude=[], path="t")
    np.testing.assert_array_equal(X["x"], 0.5 * np.arange(8))
    np.testing.assert_array_equal(target_of(table, ["n"], labels=False, path="t"), np.arange(8) % 4)
    assert left_out(table, ["x", "n"]) in ({}, {"Unnamed: 2": "has no values"})


@pytest.mark.parametrize("content, message", [
    (b"", "the file is empty"),
    (b"\n\n", "not a readable CSV file"),
    (b"x,n\n", "the table has no rows"),
    (b"x,x,n\n1,2,3\n", "column 'x' occurs more than once"),
    (PLAIN.encode("utf-16"), "line 1: there are zero bytes, as in UTF-16. Save the table as CSV in UTF-8"),
    ("größe,n\n1,2\n".encode("latin-1"), "line 1: byte 0xf6 is not UTF-8"),
    (b"x,n\n1,2\n2,\x003\n", "line 3: there are zero bytes"),
    (b",".join(b"c%d" % i for i in range(100_000)) + b"\n", "more than 10000 columns"),
    (b"x,n\n" + b"1" * 200_000 + b",2\n", "field larger than field limit"),
    (b'x,n\n"1,2\n3,4\n', "EOF inside string"),
    (b"x,n\n1,2,3\n", "row 1 has 3 fields, the header 2"),
    (b"x,n\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
    (b" x , n \n1,2\n", "there is no column 'n'. It has ' x ', ' n '"),
    (b'x,n\n"1,000",2\n"2,000",3\n"3,000",3\n', "'x' is text that differs in every row, such as '1,000'"),
    (b"x;n\n1,000;2\n2,000;3\n3,000;1\n", "'x' is text that differs in every row, such as '1,000'"),
    (b"x,n\n1,2\ninf,3\n", "column 'x', row 2: the value is infinite"),
    (b"x,n\n1,2\n2,many\n", "column 'n', row 2: 'many' is not a number"),
])  # fmt: skip
def test_tables_that_cannot_be_meant(content, message, tmp_path):
    (tmp_path / "t.csv").write_bytes(content)
    job = ["fit", tmp_path / "t.csv", "--target", "n", "--family", "poisson", "--out", tmp_path / "m.ggpm"]
    assert message in said(run(*job, code=1)) and not (tmp_path / "m.ggpm").exists()


@pytest.mark.filterwarnings("ignore")
def test_one_row_and_names_of_all_kinds(tmp_path):
    for text in (
        "x,n\n1,2\n",
        "日本,n,😀 b\n1,2,3\n2,3,1\n3,1,4\n",
        '"a\nb",n\n1,2\n2,3\n',
        "a" * 9999 + ",n\n1,2\n2,1\n",
    ):
        (tmp_path / "t.csv").write_text(text)
        run("fit", tmp_path / "t.csv", "--target", "n", "--family", "poisson", "--out", tmp_path / "m.ggpm")
        run("predict", tmp_path / "m.ggpm", tmp_path / "t.csv", "--json")


@pytest.mark.parametrize("how, count", [("integrate", 3), ("stack", 1), ("none", 1)])
def test_models_are_averaged(how, count, tmp_path):
    """Integrated hyperparameters are several fits in one file, with the predictions of the same model in Python."""
    (tmp_path / "t.csv").write_text(PLAIN)
    job = ["fit", tmp_path / "t.csv", "--target", "n", "--family", "poisson", "--out", tmp_path / "m.ggpm"]
    run(*job, "--averaging", how)
    table = pd.read_csv(tmp_path / "t.csv")
    model = GGPRegressor("poisson", averaging=how, random_state=0).fit(table[["x"]], table["n"])
    rows = json.loads(run("predict", tmp_path / "m.ggpm", tmp_path / "t.csv", "--json").stdout)["rows"]
    np.testing.assert_allclose([row["mean"] for row in rows], model.predict(table[["x"]]), rtol=1e-6)
    assert 1 + len(load(tmp_path / "m.ggpm").fit_.others) >= count
    assert "is not one of 'auto', 'none', 'stack'" in said(run(*job, "--averaging", "all", code=2))


def test_times_in_other_forms(tmp_path):
    def fitted(values, code=0):
        pd.DataFrame({"when": values, "n": [1, 2, 0, 3]}).to_csv(tmp_path / "t.csv", index=False)
        return run("fit", tmp_path / "t.csv", "--target", "n", "--family", "poisson", "--time", "when", "--kernel",
                   'C() * On(RBF(24), "when")', "--out", tmp_path / "m.ggpm", "--json", code=code)  # fmt: skip

    told = json.loads(fitted(["31.5.2024 06:00", "1.6.2024 06:00", "2.6.2024 18:00", "3.6.2024 00:00"]).stdout)
    assert told["kinds"] == {"when": "time"}
    day = pd.Timestamp("2024-05-31 06:00") - pd.Timestamp("1970-01-01")
    assert load(tmp_path / "m.ggpm").posterior_.inputs[0, 0] == day / pd.Timedelta("1h")
    run("predict", tmp_path / "m.ggpm", tmp_path / "t.csv")
    assert "could have the day or the month first" in said(fitted(["1/2/2024", "2/2/2024", "3/2/2024", "4/2/2024"], 1))
    assert "row 2: 'late' is not a time" in said(fitted(["2024-01-01", "late", "2024-01-03", "2024-01-04"], 1))


# ---- results ---------------------------------------------------------------------------------------------------------
def test_small_numbers_are_not_rounded_and_gaps_are_null(tmp_path):
    table = pd.DataFrame({"x": np.arange(12.0), "y": 2.3e-12 * (1 + np.arange(12) % 3)})
    table.to_csv(tmp_path / "t.csv", index=False)
    run("fit", tmp_path / "t.csv", "--target", "y", "--family", "gamma", "--out", tmp_path / "m.ggpm")
    pd.DataFrame({"x": [1.0, np.nan]}).to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", tmp_path / "m.ggpm", tmp_path / "new.csv", "--json")
    rows = json.loads(result.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))["rows"]
    mean = load(tmp_path / "m.ggpm").predict(table[["x"]])[1]  # sums over members end otherwise beside other rows
    assert rows[0]["mean"] == pytest.approx(mean, rel=1e-14, abs=0) and mean < 1e-11
    assert rows[1]["mean"] is None


@pytest.mark.parametrize("command", ["fit", "predict", "plot"])
def test_a_missing_folder_is_told_before_the_work(command, tmp_path, monkeypatch):
    import ggpm

    monkeypatch.setattr(ggpm.GGPRegressor, "fit", lambda *_: pytest.fail("the work was done first"))
    monkeypatch.setattr(ggpm, "load", lambda *_: pytest.fail("the work was done first"))
    (tmp_path / "t.csv").write_text("x,n\n1,2\n2,3\n")
    (tmp_path / "m.ggpm").write_text("")
    data, out = tmp_path / "t.csv", tmp_path / "none" / "file.png"
    arguments = {
        "fit": ["fit", data, "--target", "n", "--family", "poisson", "--out", tmp_path / "none" / "m.ggpm"],
        "predict": ["predict", tmp_path / "m.ggpm", data, "--out", tmp_path / "none" / "p.csv"],
        "plot": ["plot", tmp_path / "m.ggpm", "--out", out],
    }[command]
    assert "none does not exist" in said(run(*arguments, code=1))


@pytest.mark.parametrize("options, message", [
    (["--kernel", "RFB()"], "Did you mean 'RBF'?"),
    (["--kernel", "__import__('os').system('touch owned')"], "is not a kernel"),
    (["--kernel", 'C() * On(RBF(), "xx")'], "X has no column 'xx'"),
    (["--time", "x", "--category", "x"], "cannot be a time and a category"),
    (["--ignore", "x", "--group", "x"], "named as an input"),
    (["--standardise"], "--standardise belongs to --kernel"),
    (["--group", "subjct"], "Did you mean 'subject'?"),
    (["--weight", "n"], "'n' is named twice among --target, --offset and --weight"),
    (["--features", "x,n"], "'n' in --features is the target too"),
    (["--features", "x,x"], "'x' in --features is there twice"),
    (["--target", ""], "--target names no column"),
])  # fmt: skip
def test_options_that_cannot_be_meant(options, message, tmp_path):
    (tmp_path / "t.csv").write_text("x,subject,n\n1,a,2\n2,b,3\n3,a,1\n")
    job = ["fit", tmp_path / "t.csv", "--target", "n", "--family", "poisson", "--out", tmp_path / "m.ggpm"]
    result = click_runner().invoke(main, list(map(str, [*job, *options])))
    assert result.exit_code in (1, 2) and message in said(result) and not (tmp_path / "m.ggpm").exists()


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_results_do_not_take_the_place_of_the_data(command, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(PLAIN)
    fit = ["fit", table, "--target", "n", "--family", "poisson", "--out"]
    run(*fit, tmp_path / "m.ggpm")
    job = [*fit, table] if command == "fit" else ["predict", tmp_path / "m.ggpm", table, "--out", table]
    assert "is DATA itself, which would be lost" in said(run(*job, code=2)) and table.read_text() == PLAIN
    (tmp_path / "link.csv").symlink_to(table)
    run(*job[:-1], tmp_path / "link.csv", code=2)
    assert table.read_text() == PLAIN


def test_models_are_compared(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": np.linspace(0, 4, 40), "day": np.arange(40) // 8})
    table["y"] = rng.gamma(10.0, np.exp(np.sin(2 * table["x"])) / 10)
    table.to_csv(tmp_path / "t.csv", index=False)
    for family in ("gamma", "gaussian"):
        run("fit", tmp_path / "t.csv", "--target", "y", "--features", "x", "--family", family,
            "--out", tmp_path / f"{family}.ggpm")  # fmt: skip
    models = [tmp_path / "gaussian.ggpm", tmp_path / "gamma.ggpm"]
    found = json.loads(run("compare", *models, "--json").stdout)["models"]
    assert [row["model"] for row in found] == ["gamma", "gaussian"] and found[0]["difference"] == 0
    groups = json.loads(run("compare", *models, "--data", tmp_path / "t.csv", "--groups", "day", "--json").stdout)
    assert len(groups["models"]) == 2 and groups["models"][0]["elpd"] < found[0]["elpd"]
    assert "elpd" in run("compare", *models).stdout
    assert "two models" in said(run("compare", models[0], code=2))
    assert "--groups and --data" in said(run("compare", *models, "--groups", "day", code=2))
    table.assign(day=table["day"].where(table["x"] > 1)).to_csv(tmp_path / "gaps.csv", index=False)
    asked = run("compare", *models, "--data", tmp_path / "gaps.csv", "--groups", "day", code=1)
    assert "column 'day', row 1: the group is missing (10 such row(s))" in said(asked)


@pytest.mark.filterwarnings("ignore")
def test_a_report_on_rows_that_were_not_fitted(tmp_path):
    pytest.importorskip("jinja2", reason="needs jinja2 (the extra ggpm[report])")
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": np.linspace(0, 4, 40)})
    table["n"] = rng.poisson(np.exp(1 + np.sin(table["x"])))
    for name, part in (("old", table[::2]), ("new", table[1::2])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    run("fit", tmp_path / "old.csv", "--target", "n", "--family", "poisson", "--out", tmp_path / "m.ggpm")
    page = tmp_path / "page.html"
    told = json.loads(run("report", tmp_path / "m.ggpm", tmp_path / "new.csv", "--out", page, "--json").stdout)
    assert told["rows"] == 20 and page.exists() and (tmp_path / "page.json").exists()
    assert "ending in .html" in said(run("report", tmp_path / "m.ggpm", tmp_path / "new.csv", "--out", "p.pdf", code=1))
