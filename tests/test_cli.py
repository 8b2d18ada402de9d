"""The command line as scripts use it, and tables from files that nobody vouches for."""

import json
import re
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("click")
pd = pytest.importorskip("pandas")
from cases import click_runner  # noqa: E402
from ggpm import calibration, load, save  # noqa: E402
from ggpm.cli import main  # noqa: E402
from ggpm.data.tables import TableError, column_as_numbers, features_of, read_table, target_of, write_table  # noqa: E402
from ggpm.prediction.evaluation import evaluate  # noqa: E402


def run(*arguments, code=0):
    result = click_runner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    hour = np.linspace(0, 24, 40)
    table = pd.DataFrame({"hour": hour, "dir": np.mod(300 + 8 * hour + 10 * rng.normal(size=40), 360).round(1)})
    table["sand"], table["silt"] = 40 + hour, 30.0
    table["clay"] = 100 - table["sand"] - table["silt"]
    table["kind"] = np.array(["a", "b", "c"])[np.arange(40) % 3]
    table["grade"] = np.array(["low", "mid", "high"])[(hour / 8.1).astype(int)]
    table["bare"], table["rate"] = 0.0, 0.5
    table["count"], table["code"] = rng.poisson(2 + hour / 4), (hour / 8.1).astype(int)
    table.to_csv(folder / "data.csv", index=False)
    table.to_parquet(folder / "data.parquet")
    common = ("--features", "hour", "--json")
    run("fit", folder / "data.csv", "--target", "dir", "--family", "von_mises", "--units", "degrees",
        "--out", folder / "wind.ggpm", *common)  # fmt: skip
    run("fit", folder / "data.parquet", "--target", "sand,silt,clay", "--family", "dirichlet", "--closure",
        "--kernel", "1.0 * RBF(5.0) + 1.0", "--out", folder / "soil.ggpm", *common)  # fmt: skip
    run("fit", folder / "data.csv", "--target", "grade", "--family", "ordinal", "--order", "low,mid,high",
        "--out", folder / "grade.ggpm", *common)  # fmt: skip
    run(
        "fit",
        folder / "data.csv",
        "--target",
        "code",
        "--family",
        "categorical",
        "--out",
        folder / "code.ggpm",
        *common,
    )
    return folder


def test_fit_tells_which_kernels_were_tried(folder):
    call = ("fit", folder / "data.csv", "--target", "count", "--family", "poisson", "--features", "hour")
    told = json.loads(run(*call, "--out", folder / "tried.ggpm", "--json").stdout)
    winner = load(folder / "tried.ggpm").search_.winner
    assert winner in {line["name"] for line in told["search"] if line["kept"]}
    shown = run(*call, "--out", folder / "tried.ggpm").stdout
    assert "kernels that were tried" in shown and winner in shown
    given = run(*call, "--out", folder / "given.ggpm", "--kernel", "RBF(5.0)", "--json").stdout
    assert json.loads(given)["search"] is None


def test_fit_predict_evaluate_agree_with_python(folder):
    model, table = load(folder / "wind.ggpm"), pd.read_csv(folder / "data.csv")
    assert model.family_.units == "degrees" and model.target_names_ == ["dir"]
    out = run("predict", folder / "wind.ggpm", folder / "data.csv", "--json").stdout
    rows = json.loads(out)["rows"]
    np.testing.assert_allclose([r["mean"] for r in rows], model.predict(table[["hour"]]))
    run("predict", folder / "wind.ggpm", folder / "data.parquet", "--out", folder / "p.parquet", "--level", "0.5")
    assert pd.read_parquet(folder / "p.parquet").columns.tolist() == ["mean", "sd", "arc_start", "arc_end"]
    text = run("predict", folder / "wind.ggpm", folder / "data.csv").stdout
    assert text.startswith("mean,sd,arc_start,arc_end\n") and len(text.splitlines()) == 41
    found = json.loads(run("evaluate", folder / "wind.ggpm", folder / "data.csv", "--json").stdout)
    assert found == evaluate(model, table[["hour"]], table["dir"])
    more = json.loads(run("evaluate", folder / "wind.ggpm", folder / "data.csv", "--calibration", "--json").stdout)
    report = calibration(model, table[["hour"]], table["dir"])
    assert more.items() >= found.items() and more["crps"] == report.crps
    assert {name: more[name] for name in report.frame.index} == dict(report.frame["value"])
    assert found["error_name"] == "mean absolute angle" and 3 < found["error"] < 15 and found["coverage"] > 0.7


@pytest.mark.parametrize(
    "name, error", [("soil", "mean total variation"), ("grade", "error rate"), ("code", "error rate")]
)
def test_evaluate_other_outputs(folder, name, error):
    if name == "soil":  # percentages come back as percentages
        out = json.loads(run("predict", folder / "soil.ggpm", folder / "data.csv", "--json").stdout)["rows"]
        np.testing.assert_allclose(pd.DataFrame(out)[["sand_mean", "silt_mean", "clay_mean"]].sum(axis=1), 100)
    found = json.loads(run("evaluate", folder / f"{name}.ggpm", folder / "data.csv", "--json").stdout)
    assert found["error_name"] == error and found["rows"] == 40 and 0 <= found["coverage"] <= 1
    table = run("evaluate", folder / f"{name}.ggpm", folder / "data.csv").stdout
    assert "log density" in table and "coverage" in table


def test_report(folder):
    page = folder / "wind.html"
    told = json.loads(run("report", folder / "wind.ggpm", folder / "data.csv", "--out", page, "--json").stdout)
    assert told["rows"] == 40 and page.read_text("utf-8").startswith("<!DOCTYPE html>")
    facts = json.loads(page.with_suffix(".json").read_text())
    found = json.loads(run("evaluate", folder / "wind.ggpm", folder / "data.csv", "--json").stdout)
    assert facts["trust"]["log_density"]["mean"] == pytest.approx(found["log_density"])
    run("report", folder / "wind.ggpm", folder / "data.csv", "--out", folder / "wind.pdf", code=1)


@pytest.mark.parametrize("model, kind", [("wind", "auto"), ("wind", "polar"), ("soil", "auto"), ("grade", "auto")])
def test_plot(folder, model, kind):
    result = json.loads(
        run("plot", folder / f"{model}.ggpm", "--out", folder / "p.png", "--kind", kind, "--json").stdout
    )
    expected = {"wind": "angles", "soil": "ternary", "grade": "ordinal"}[model] if kind == "auto" else kind
    assert result["kind"] == expected
    assert (folder / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_plots_of_held_out_rows(folder):
    run("plot", folder / "wind.ggpm", "--out", folder / "p.png", "--kind", "pit", "--data", folder / "data.csv")
    run(
        "plot", folder / "grade.ggpm", "--out", folder / "p.png", "--kind", "calibration", "--data", folder / "data.csv"
    )
    assert "needs --data" in run("plot", folder / "wind.ggpm", "--out", "p.png", "--kind", "pit", code=2).stderr


def test_families_demo_and_help(tmp_path):
    assert json.loads(run("families", "--json").stdout)["von_mises"].startswith("Angles")
    assert "dirichlet" in run("families").stdout
    result = json.loads(run("demo", "--out", tmp_path / "demo", "--json").stdout)
    assert len(result["files"]) == 3 and result["training_score"] > 0.5
    assert "ggpm fit data.csv" in run("fit", "--help").stdout
    assert run("--version").stdout.strip().startswith("ggpm")


@pytest.mark.parametrize("arguments, code, message", [
    (["--target", "dri", "--family", "von_mises"], 1, "there is no column 'dri'. Did you mean 'dir'?"),
    (["--target", "kind", "--family", "von_mises"], 1, "column 'kind', row 1: 'a' is not a number"),
    (["--target", "dir", "--family", "vonmises"], 2, "Did you mean 'von_mises'?"),
    (["--target", "dir", "--family", "poisson"], 1, "counts (non-negative integers)"),
    (["--target", "dir", "--family", "gamma", "--units", "degrees"], 2, "--units belongs to --family von_mises"),
    (["--target", "dir", "--family", "von_mises", "--units", "1,x"], 2, "Invalid value for --units"),
    (["--target", "dir", "--family", "von_mises", "--units", "360,0"], 2, "LOW < HIGH"),
    (["--target", "dir", "--family", "von_mises", "--units", "degree"], 2, "Did you mean 'degrees'?"),
    (["--target", "dir", "--family", "von_mises", "--restarts", "-1"], 2, "'--restarts'"),
    (["--target", "dir", "--family", "von_mises", "--inducing", "0"], 2, "'--inducing'"),
    (["--target", "dir", "--family", "von_mises", "--features", "hour,heigth"], 1, "there is no column 'heigth'"),
    (["--target", "dir", "--family", "von_mises", "--inference", "magic"], 2, "'--inference'"),
    (["--target", "sand,silt,clay", "--family", "dirichlet"], 1, "use --closure, which divides every row by its sum"),
    (["--target", "bare,silt,clay", "--family", "dirichlet", "--closure"], 1, "Try --zeros additive"),
    (["--target", "dir", "--family", "multinomial"], 1, "one column per category"),
    (["--target", "rate", "--family", "poisson"], 1, "exposure goes into --offset"),
    (["--target", "grade", "--family", "ordinal", "--order", "low,mid"], 1, "--order must list every label"),
    (["--family", "von_mises"], 2, "Missing option '--target'"),
])  # fmt: skip
def test_faults_are_named_and_have_exit_codes(folder, tmp_path, arguments, code, message):
    result = run("fit", folder / "data.csv", *arguments, "--out", tmp_path / "m.ggpm", code=code)
    assert message in result.stderr.replace("\n", " ") and not (tmp_path / "m.ggpm").exists()
    assert result.stdout == "" and not PYTHON.search(result.stderr)


PYTHON = re.compile(r"\w=\w|\w\(\w*=|GGP[A-Z]|np\.|\bplot_|inference=|n_restarts")  # what a shell does not know


def test_warnings_speak_flags(folder, tmp_path):
    arguments = ("--features", "hour", "--out", tmp_path / "m.ggpm")
    told = run("fit", folder / "data.csv", "--target", "dir", "--family", "von_mises", *arguments).stderr
    assert "for degrees try --units degrees" in told.replace("\n", " ") and not PYTHON.search(told)
    told = run("fit", folder / "data.csv", "--target", "grade", "--family", "ordinal", *arguments).stderr
    assert "Give --order, lowest first" in told.replace("\n", " ") and not PYTHON.search(told)
    assert "training score" in run("fit", folder / "data.csv", "--target", "count", "--family", "poisson", *arguments,
                                   ).stdout  # fmt: skip
    wrong = run("plot", folder / "grade.ggpm", "--out", tmp_path / "p.png", "--kind", "angles", code=1).stderr
    assert "Try --kind ordinal" in wrong.replace("\n", " ") and not PYTHON.search(wrong)


@pytest.mark.parametrize(("target", "family"), [("kind", "categorical"), ("grade", "ordinal")])
def test_labels_with_an_offset(folder, tmp_path, target, family):
    table = pd.read_csv(folder / "data.csv").assign(shift=0.2)
    table.to_csv(tmp_path / "data.csv", index=False)
    flags = ["--target", target, "--family", family, "--features", "hour", "--offset", "shift"]
    told = json.loads(run("fit", tmp_path / "data.csv", *flags, "--out", tmp_path / "m.ggpm", "--json").stdout)
    assert 0 < told["training_score"] <= 1 and load(tmp_path / "m.ggpm").family_ is not None


def test_a_target_without_a_name_is_asked_for(folder, tmp_path):
    model = load(folder / "wind.ggpm")
    model.fit_ = replace(model.fit_, target=replace(model.fit_.target, names=None))
    save(model, tmp_path / "m.ggpm")
    data = folder / "data.csv"
    plot = ["plot", tmp_path / "m.ggpm", "--kind", "pit", "--data", data, "--out", tmp_path / "p.png"]
    for command in (["evaluate", tmp_path / "m.ggpm", data], plot):
        assert "give --target" in run(*command, code=2).stderr


def test_predictions_carry_the_columns_that_are_kept(folder, tmp_path):
    model, data = folder / "wind.ggpm", folder / "data.csv"
    table = pd.read_csv(data)
    run("predict", model, data, "--keep", "kind,hour", "--out", tmp_path / "p.csv")
    out = pd.read_csv(tmp_path / "p.csv")
    assert out.columns.tolist() == ["kind", "hour", "mean", "sd", "arc_start", "arc_end"]
    pd.testing.assert_frame_equal(out[["kind", "hour"]], table[["kind", "hour"]])
    run("predict", model, folder / "data.parquet", "--keep", "all", "--out", tmp_path / "p.parquet")
    out = pd.read_parquet(tmp_path / "p.parquet")
    assert out.columns.tolist() == [*table.columns, "mean", "sd", "arc_start", "arc_end"]
    assert "Did you mean 'kind'?" in run("predict", model, data, "--keep", "kin", code=1).stderr
    far = run("predict", model, folder / "data.parquet", "--keep", "kin", "--out", tmp_path / "q.parquet", code=1)
    assert "Did you mean 'kind'?" in far.stderr.replace("\n", " ")
    table.rename(columns={"kind": "mean"}).to_csv(tmp_path / "t.csv")
    assert "'mean' cannot be kept" in run("predict", model, tmp_path / "t.csv", "--keep", "mean", code=1).stderr
    assert "'--level'" in run("predict", model, data, "--level", "1", code=2).stderr


def test_the_progress_bar_shows_the_search(monkeypatch):
    from ggpm import GGPRegressor
    from ggpm.cli.terminal import Waiting, watched

    told = []
    monkeypatch.setattr(Waiting, "tell", lambda self, state: told.append(state))
    with Waiting("fitting") as bar:
        watched(GGPRegressor("poisson"), bar).fit(np.arange(8.0)[:, None], np.arange(8))
    assert len(told) > 2 and re.fullmatch(r"log evidence -\d+\.\d\d, evaluation \d+", told[-1])


def test_bad_files_have_exit_codes(folder, tmp_path):
    assert "not a ggpm model file" in run("predict", folder / "data.csv", folder / "data.csv", code=1).stderr.replace(
        "\n", " "
    )
    (tmp_path / "t.txt").write_text("a")
    assert ".csv or .parquet" in run("predict", folder / "wind.ggpm", tmp_path / "t.txt", code=1).stderr.replace(
        "\n", " "
    )
    (tmp_path / "t.csv").write_text("height\n1\n")
    assert "no column 'hour'" in run("predict", folder / "wind.ggpm", tmp_path / "t.csv", code=1).stderr
    assert run("predict", folder / "wind.ggpm", tmp_path / "none.csv", code=2).stdout == ""


def test_a_fit_that_did_not_converge_has_its_own_code(folder, tmp_path, monkeypatch):
    import ggpm.estimators

    real = ggpm.estimators.GGPRegressor.fit

    def fit(self, *arguments, **keywords):
        real(self, *arguments, **keywords)
        self.fit_, self.converged_ = replace(self.fit_, converged=False), False
        return self

    monkeypatch.setattr(ggpm.estimators.GGPRegressor, "fit", fit)
    run("fit", folder / "data.csv", "--target", "count", "--features", "hour", "--family", "poisson",
        "--out", tmp_path / "m.ggpm", code=3)  # fmt: skip
    assert load(tmp_path / "m.ggpm").converged_ is False


# ---- tables --------------------------------------------------------------------------------------------------
def test_values_are_checked_by_column(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n1,x,\n2,y,3\ninf,z,4\n")
    table = read_table(tmp_path / "t.csv")
    with pytest.raises(TableError, match=r"column 'c', row 1: the value is missing \(1 such"):
        column_as_numbers(table, "c", "t.csv")
    with pytest.raises(TableError, match="column 'a', row 3: the value is infinite"):
        column_as_numbers(table, "a", "t.csv")
    with pytest.raises(TableError, match="column 'c', row 1: the label is missing"):
        target_of(table, ["c"], labels=True, path="t.csv")
    with pytest.raises(TableError, match="no column of use"):
        features_of(table[["b"]], None, exclude=[], path="t.csv")
    (tmp_path / "twice.parquet").write_bytes(b"PAR1")
    with pytest.raises(TableError, match="not a readable PARQUET file"):
        read_table(tmp_path / "twice.parquet")


def test_writing_is_atomic(tmp_path):
    write_table(pd.DataFrame({"a": [1]}), tmp_path / "t.csv")
    with pytest.raises(TableError, match="expected a file ending in"):
        write_table(pd.DataFrame({"a": [2]}), tmp_path / "t.xls")
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def damaged(content, rng):
    """Flips, truncation, insertions of things that tables do not expect."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 6)):
        if not content:
            return b"\0"
        at = int(rng.integers(len(content)))
        kind = rng.integers(5)
        if kind == 0:
            content[at] ^= 1 << rng.integers(8)
        elif kind == 1:
            del content[at : at + int(rng.integers(1, 20))]
        elif kind == 2:
            content[at:at] = [b'"', b"\0", b"\n\n", b",,,,", b"\xff\xfe", b"1e999", b"=cmd()", b"9" * 400][
                rng.integers(8)
            ]
        elif kind == 3:
            content = content[: max(at, 1)]
        else:
            content[at : at + 4] = rng.bytes(4)
    return bytes(content) or b"\0"


def fuzz_tables(tmp_path, folder, count):
    rng = np.random.default_rng(0)
    sources = [(kind, (folder / f"data.{kind}").read_bytes()) for kind in ("csv", "parquet")]
    accepted, worst = 0, 0.0
    for i in range(count):
        kind, source = sources[i % 10 == 9]
        content = damaged(source, rng)
        path = tmp_path / f"t.{kind}"
        path.write_bytes(content)
        watched = i % 20 == 0
        if watched:
            tracemalloc.start()
        try:
            table = read_table(path)
            features_of(table, "hour", exclude=[], path=path)
            target_of(table, ["dir"], labels=False, path=path)
            accepted += 1
        except TableError:
            pass
        if watched:
            worst = max(worst, tracemalloc.get_traced_memory()[1] / (len(content) + 2**16))
            tracemalloc.stop()
    assert worst < 60  # readers have buffers of a fixed size beside the table itself
    return accepted


@pytest.mark.filterwarnings("ignore")
def test_damaged_tables_are_refused_or_read(tmp_path, folder):
    accepted = fuzz_tables(tmp_path, folder, 400)
    assert 0 < accepted < 400


def test_exponents_that_no_integer_holds_are_text(tmp_path):
    """They made pandas' own reader of numbers read beyond its memory."""
    (tmp_path / "t.csv").write_text("hour,dir\n1.5,10\n23.381e9994615384615387,20\n")
    table = read_table(tmp_path / "t.csv")
    assert table["dir"].tolist() == [10, 20]
    assert table["hour"].tolist() == ["1.5", "23.381e9994615384615387"]
    with suppress(TableError):
        features_of(table, "hour", exclude=[], path="t.csv")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ten_thousand_damaged_tables(tmp_path, folder):
    fuzz_tables(tmp_path, folder, 10_000)


def test_claims_larger_than_the_file_are_refused(tmp_path):
    """A million equal values compress to almost nothing: what is claimed must be in proportion to the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000_000, dtype=np.int8)), pa.array([1.0]))
    pq.write_table(pa.table({"a": column}), tmp_path / "t.parquet", compression="zstd")
    assert (tmp_path / "t.parquet").stat().st_size < 100_000
    with pytest.raises(TableError, match="more than it can plausibly hold"):
        read_table(tmp_path / "t.parquet")
    (tmp_path / "wide.csv").write_bytes(b"," * 200_000)
    with pytest.raises(TableError, match="columns"):
        read_table(tmp_path / "wide.csv")
