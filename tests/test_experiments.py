"""The paper's experiments at toy size: what they compute, that they repeat, and what they say when misused."""

import csv
import json
import os
import re
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import ttest_rel
from skimage import io
from sklearn.exceptions import ConvergenceWarning

from cases import DATA, click_runner, needs_data
from ggpm.cli import main
from ggpm.paper import annotation, features, label_regression, runner, simplex, triangle
from ggpm.paper.baselines import wrap
from ggpm.paper.command import reproduce
from ggpm.paper.runner import Report, Runner, Table, publish, seeds

QUIET = Runner(jobs=1, progress=False)
TRIANGLE = triangle.Settings(sizes=(4, 6), trials=1, n_test=20)
SIMPLEX = simplex.Settings(trials=1, n=40, n_test=30, grid=5, choices=0)


# ---- runner ------------------------------------------------------------------------------------------------------
def test_rows_are_the_same_for_one_process_and_two():
    one = triangle.run(TRIANGLE, 3, QUIET)
    two = triangle.run(TRIANGLE, 3, Runner(jobs=2, progress=False))
    assert one.rows == two.rows
    assert [table.cells() for table in one.tables] == [table.cells() for table in two.tables]
    assert triangle.run(TRIANGLE, 4, QUIET).rows != one.rows


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_default_number_of_processes_is_that_of_the_cores_this_process_may_use(monkeypatch):
    allowed = os.sched_getaffinity(0)
    monkeypatch.setattr(runner, "Parallel", None)  # several processes would fail
    try:
        os.sched_setaffinity(0, {min(allowed)})
        rows = Runner(progress=False).run("squares", runner._square_row, [1, 2])
    finally:
        os.sched_setaffinity(0, allowed)
    assert rows == [{"square": 1}, {"square": 4}]


def test_finished_tasks_are_not_repeated(tmp_path):
    """Cut off at any task, in the middle of a line: what was finished stays, and the rows are the same in the end."""
    done, store = [], tmp_path / "finished.jsonl"

    def task(number):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(number)
        return [{"number": number, "root": np.sqrt(number), "bad": float("nan")}]

    keeping = Runner(jobs=1, progress=False, store=store)
    with pytest.raises(KeyboardInterrupt):
        keeping.run("roots", task, range(5))
    store.write_text(store.read_text() + '["abc", [{"num')
    done.append("after the break")
    rows = keeping.run("roots", task, range(5))
    assert done == [4, 3, 2, "after the break", 1, 0]
    done.append("again")
    expected = Runner(jobs=1, progress=False).run("roots", task, range(5))
    assert [(row["number"], row["root"]) for row in rows] == [(row["number"], row["root"]) for row in expected]
    assert all(np.isnan(row["bad"]) for row in rows) and len(store.read_text().splitlines()) == 5
    done.clear()
    done.append("other tasks")
    keeping.run("cubes", task, range(2))
    assert done == ["other tasks", 1, 0]


def test_tasks_under_other_settings_are_other_tasks(tmp_path):
    done = []

    def task(power, number):
        done.append((power, number))
        return [{"value": number**power}]

    keeping = Runner(jobs=1, progress=False, store=tmp_path / "finished.jsonl")
    values = [keeping.run("powers", partial(task, power), [3]) for power in (2, 3, 2)]
    assert values == [[{"value": 9}], [{"value": 27}], [{"value": 9}]]
    assert done == [(2, 3), (3, 3)]


def test_reproduce_goes_on_and_speaks_json(tmp_path, monkeypatch):
    from ggpm.paper import command

    def interrupted(*arguments):
        raise KeyboardInterrupt

    order = ["reproduce", "labels", "--fast", "--quiet", "--jobs", "1", "--out", str(tmp_path), "--json"]
    with monkeypatch.context() as patched:
        patched.setattr(command, "_run", interrupted)
        stopped = click_runner().invoke(main, order)
    assert stopped.exit_code == 130 and "The same command goes on" in stopped.stderr
    monkeypatch.setattr(command, "_run", lambda *_: Report("labels", [{"a": 1.0}], [Table("t", ["a"], [["x"]])]))
    result = click_runner().invoke(main, order)
    assert json.loads(result.stdout)["experiments"][0]["experiment"] == "labels" and result.exit_code == 0


def test_published_folder_holds_rows_tables_and_figure(tmp_path, capsys):
    report = triangle.run(TRIANGLE, 0, QUIET)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # neither the tasks nor the figure may chatter
        publish(report, tmp_path)
    folder = tmp_path / "triangle"
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(report.rows) == 2 * (5 * 2 + 2)
    assert float(rows[0]["error"]) == report.rows[0]["error"]  # full precision
    assert (folder / "summary.csv").read_text().count("#") == len(report.tables)
    assert io.imread(folder / "triangle.png").shape[1] > 1000
    shown = capsys.readouterr().out
    assert "VM-Lap" in shown and "results.csv" in shown


def test_missing_package_is_named_with_the_remedy():
    with pytest.raises(runner.MissingExtra, match=r"no_such_package.*pip install .*experiments"):
        runner.require("no_such_package.inner")


def test_table_rounds_floats_and_leaves_the_rest():
    assert Table("t", ["a"], [[0.12345], [3], [None], ["x"]], digits=2).cells() == [["0.12"], ["3"], [""], ["x"]]


# ---- triangle ----------------------------------------------------------------------------------------------------
def test_shapes_are_rotations_of_one_triangle_by_the_heading():
    rng = np.random.default_rng(0)
    shapes = triangle.Shapes.random(rng, noise=0.0)
    X, y = shapes.observe(rng, 50)
    assert np.all((-np.pi <= y) & (y < np.pi))
    z = X[:, 0::2] + 1j * X[:, 1::2]
    assert np.allclose(z * np.exp(-1j * y)[:, None], shapes.corners * np.exp(-1j * shapes.heading))
    noisy, _ = triangle.Shapes(shapes.corners, shapes.heading, 0.1).at(np.random.default_rng(1), np.zeros(4000))
    assert np.std(noisy - noisy.mean(axis=0)) == pytest.approx(0.1, rel=0.03)  # 24000 draws: 0.5 % standard error


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_size_of_a_trial_sees_the_same_shapes():
    stream = seeds(0, 1)[0]
    rows = {n: triangle.trial(TRIANGLE, (0, n, stream)) for n in (4, 6)}
    again = triangle.trial(TRIANGLE, (0, 4, stream))
    assert rows[4] == again
    nls = [next(r["error"] for r in rows[n] if r["method"] == "NLS") for n in (4, 6)]
    assert nls[0] != nls[1] and max(nls) < 0.5


def test_best_kernel_and_evidence_kernel_are_chosen_as_said():
    rows = [
        {"n": 5, "trial": t, "method": "VM-Lap", "kernel": k, "error": e, "log_evidence": v}
        for t, k, e, v in [(0, "linear", 1.0, 9.0), (0, "rbf", 4.0, 1.0), (1, "linear", 2.0, 1.0), (1, "rbf", 3.0, 9.0)]
    ]
    chosen = triangle.with_choices(rows)
    assert triangle.errors(chosen, "VM-Lap", "best", 5).tolist() == [1.0, 2.0]  # the smaller mean
    assert triangle.errors(chosen, "VM-Lap", "evidence", 5).tolist() == [1.0, 3.0]  # per trial


def test_von_mises_models_beat_the_angle_and_the_neighbour():
    settings = triangle.Settings(sizes=(20,), trials=3, n_test=50)
    rows = triangle.with_choices(triangle.run(settings, 0, QUIET).rows)
    nls = triangle.errors(rows, "NLS", "best", 20).mean()
    for method in ("VM-Lap", "VM-Tay"):
        own = triangle.errors(rows, method, "best", 20)
        for other in ("GPR (angle)", "NN"):
            assert own.mean() < 0.6 * triangle.errors(rows, other, "best", 20).mean()
        assert own.mean() < 1.5 * nls


def test_table_says_who_is_better_and_who_does_as_well():
    own = np.linspace(0.04, 0.05, 20)
    noise = np.random.default_rng(0).normal(0, 0.01, 20)
    rows = []
    for method, errors in [
        ("VM-Lap", own),
        ("VM-Tay", own),
        ("GPR (angle)", own + 0.2 + noise),
        ("CGP", own - 0.02 + 0.1 * noise),
    ]:
        rows += [{"n": 5, "trial": t, "method": method, "kernel": "best", "error": e} for t, e in enumerate(errors)]
    for method, errors in [("NN", own + noise), ("GPR (cos, sin)", own), ("NLS", own / 1.25)]:
        rows += [{"n": 5, "trial": t, "method": method, "kernel": "best", "error": e} for t, e in enumerate(errors)]
    _, _, angle, cgp, nn, cos_sin, above = triangle.claims(rows, triangle.Settings(sizes=(5,), trials=20)).rows[0]
    assert angle.startswith("better, ") and angle.endswith("(20)")
    assert cgp.startswith("worse, ") and cgp.endswith("(0)")
    assert nn.startswith("as well, ") and nn.endswith(f"({np.sum(noise > 0)})")
    assert cos_sin == "as well, 1 (0)" and above == "+25.0 %"


def test_neighbours_are_in_order_of_error_with_paired_tests():
    rng = np.random.default_rng(0)
    trials, common = 12, rng.uniform(0.5, 1.5, 12)  # hard and easy trials, which a test that is not paired would see
    order = ["VM-Tay", "NLS", "VM-Lap", "GPR (cos, sin)", "CGP", "GPR (angle)", "NN"]
    levels = zip(order, (0.1, 0.102, 0.3, 0.4, 0.5, 0.7, 0.9))
    made = {method: level * common * np.exp(0.05 * rng.standard_normal(trials)) for method, level in levels}
    made["VM-Lap"] = made["GPR (cos, sin)"].copy()  # the same numbers: p = 1
    rows = [
        {"n": n, "trial": t, "method": method, "kernel": "best", "error": e * n}
        for n in (7, 5)
        for method, errors in made.items()
        for t, e in reversed(list(enumerate(errors)))  # trials are matched by number, not by place
    ]
    table = triangle.neighbours(rows, triangle.Settings(sizes=(5, 7), trials=trials))
    assert [row[:2] for row in table.rows] == [[n, method] for n in (5, 7) for method in order]
    for (n, method, mean, p, mark, of_logs), following in zip(table.rows, 2 * [*order[1:], None]):
        assert mean == pytest.approx(n * made[method].mean())
        if following is None:
            assert (p, mark, of_logs) == ("", "", "")
        elif method == "VM-Lap":
            assert (p, mark, of_logs) == ("1.0e+00", "no", "1.0e+00")
        else:
            plain = ttest_rel(made[method], made[following]).pvalue
            assert p == f"{plain:.1e}" and mark == ("yes" if plain < 1e-3 else "no")
            assert of_logs == f"{ttest_rel(np.log(made[method]), np.log(made[following])).pvalue:.1e}"
    assert {row[4] for row in table.rows} == {"yes", "no", ""}


@pytest.mark.slow
def test_full_triangle_reaches_its_targets():
    settings = triangle.Settings(sizes=tuple(n for n in triangle.FULL_SIZES if n >= 10))
    rows = triangle.with_choices(triangle.run(settings, 0, Runner(progress=False)).rows)
    doubtful = set()
    for method in ("VM-Lap", "VM-Tay"):
        for n in settings.sizes:
            own = triangle.errors(rows, method, "best", n)
            for other in ("GPR (angle)", "CGP", "NN"):
                theirs = triangle.errors(rows, other, "best", n)
                assert own.mean() < theirs.mean(), (method, other, n)
                assert triangle.p_value(np.log(own), np.log(theirs)) < 1e-3, (method, other, n)
                if triangle.p_value(own, theirs) >= 1e-3:
                    doubtful.add((method, other, n))
        nls = triangle.errors(rows, "NLS", "best", 100).mean()
        assert triangle.errors(rows, method, "best", 100).mean() < 1.1 * nls
    # in two trials at n = 20 CGP fails altogether, which alone makes the plain test doubt (docs/paper.md)
    assert doubtful == {("VM-Lap", "CGP", 20)}


# ---- simplex -----------------------------------------------------------------------------------------------------
def test_quantised_targets_are_equal_shares_of_what_exceeds_the_threshold():
    problem = simplex.make(SIMPLEX, seeds(0, 1)[0])
    p = problem.truth(problem.X)
    assert np.allclose(p.sum(axis=1), 1)
    present = p > 0.2
    assert np.allclose(problem.y, present / present.sum(axis=1, keepdims=True))
    assert (problem.y == 0).any()
    kept = simplex.make(SIMPLEX, seeds(0, 1)[0], "value")
    assert np.array_equal(kept.X, problem.X)
    assert np.allclose(kept.y, p * present / (p * present).sum(axis=1, keepdims=True))
    with pytest.raises(ValueError, match="reading"):
        simplex.quantise(p, "other")


def test_truth_is_bayes_rule():
    problem = simplex.make(SIMPLEX, seeds(0, 1)[0])
    x = np.array([[0.3, -0.4]])
    density = np.exp(-0.5 * ((x - problem.centres) ** 2).sum(axis=1))
    assert np.allclose(problem.truth(x)[0], density / density.sum())


def test_dirichlet_laplace_is_below_cgp_and_gpc():
    settings = simplex.Settings(trials=1, n_test=300, grid=15, choices=0)
    report = simplex.run(settings, 0, QUIET)
    assert report.tables[1].rows[0][-1] == "yes"
    mae = {row["method"]: row["mae"] for row in report.rows}
    assert mae["Dirichlet-Laplace"] < 0.045


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_full_simplex_reaches_its_targets(seed):
    report = simplex.run(simplex.Settings(choices=0), seed, Runner(progress=False))
    assert [row[-1] for row in report.tables[1].rows] == ["yes"] * 10  # below CGP and GPC, every data set
    own = [row["mae"] for row in report.rows if row["method"] == "Dirichlet-Laplace"]
    assert len(own) == 10 and np.mean(own) <= 0.045


@pytest.mark.slow
def test_one_against_all_probabilities_are_spoilt_by_laplace_and_not_by_normalising():
    problem = simplex.make(simplex.Settings(), seeds(0, 1)[0])
    choices = simplex.METHODS["GPC"], simplex.CHOICES["GPC, variational instead of Laplace"].method
    laplace, variational = (
        simplex._mae(method(problem.X).fit(problem.X, problem.y), problem, problem.X_test) for method in choices
    )
    assert laplace > 0.1 > 0.045 > variational


def test_every_choice_has_its_row_and_filling_up_zeros_does_no_harm():
    report = simplex.run(replace(SIMPLEX, n=100, n_test=100, choices=1), 0, QUIET)
    table = report.tables[2]
    assert [row[0] for row in table.rows] == list(simplex.CHOICES)
    errors = {name: (points, on_map) for name, points, on_map in table.rows}
    # a mean absolute error of probability vectors of three parts is at most 2/3
    assert np.all(np.array(list(errors.values())) > 0) and np.all(np.array(list(errors.values())) < 2 / 3)
    # predictions undo what was filled up: measured 0.027 against 0.053 at the points, 0.046 against 0.078 on the map
    small, large = errors["Laplace, additive 1e-3 (as above)"], errors["Laplace, additive 0.2"]
    assert large[0] < 0.75 * small[0] and large[1] < 0.75 * small[1]
    # that which is done "as above" is what the methods did, and n = 100 is what it is called
    own = next(row for row in report.rows if row["part"] == "methods" and row["method"] == "Dirichlet-Laplace")
    assert small == (own["mae"], own["mae_map"]) == errors["n = 100: Laplace"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_simplex_figure_shows_targets_truth_and_a_map_per_method(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.append(figure))
    simplex.draw(SIMPLEX, seeds(0, 1)[0], tmp_path / "maps.png")
    first, *maps = figures[0].axes
    problem = simplex.make(SIMPLEX, seeds(0, 1)[0])
    assert first.get_title() == "training points, quantised targets" and not first.images
    np.testing.assert_array_equal(first.collections[0].get_offsets(), problem.X)
    np.testing.assert_allclose(first.collections[0].get_facecolors()[:, :3], problem.y)
    truth = problem.truth(problem.X_map)
    for ax, name in zip(maps, ["true probabilities", *simplex.METHODS], strict=True):
        (image,) = ax.images
        assert image.get_array().shape == (SIMPLEX.grid, SIMPLEX.grid, 3)
        shown = image.get_array().reshape(-1, 3)
        error = float(np.mean(np.abs(shown - truth)))  # the map is the predictions, and the title their error
        assert ax.get_title() == (name if name == "true probabilities" else f"{name}, error {error:.3f}")
        assert (error == 0) == (name == "true probabilities")


# ---- label regression --------------------------------------------------------------------------------------------
def test_taylor_without_coupling_is_label_regression_on_a_real_data_set():
    rows = label_regression.trial(label_regression.FAST, ("wine", 0, 0))
    found = {row["method"]: row for row in rows}
    # two solvers of one linear system with condition number below 1e3
    assert found[label_regression.REGRESSION]["difference_from_taylor_c0"] < 1e-11
    assert found[label_regression.REGRESSION]["accuracy"] == found["Taylor, c = 0"]["accuracy"] > 0.9
    assert found["Laplace"]["accuracy"] > 0.9


# ---- annotation --------------------------------------------------------------------------------------------------
def test_f_scores_by_hand():
    scores = np.array([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [3.0, 2.0, 1.0]])
    present = np.array([[True, False, True], [False, True, False], [False, True, False]])
    # k = 1: word 0 given twice, once right; word 1 given once, right; word 2 never
    expected = np.mean([2 * 0.5 * 1 / 1.5, 2 * 1 * 0.5 / 1.5, 0.0])
    curve = annotation.f_scores(scores, present)
    assert curve[0] == pytest.approx(expected)
    precision = present.mean(axis=0)  # k = 3: everything given, recall one
    assert curve[2] == pytest.approx(np.mean(2 * precision / (precision + 1)))


@pytest.fixture
def folder(tmp_path):
    """Twenty small pictures: the sky is blue, the grass is green, the night is dark."""
    rng = np.random.default_rng(0)
    lines = ["file,sky,grass,night"]
    for i in range(20):
        sky, grass, night = i % 2, (i // 2) % 2, int(i % 4 == 0)
        image = np.full((12, 12, 3), 128 if not night else 10, dtype=float)
        if sky:
            image[:6] = (60, 120, 230)
        if grass:
            image[6:] = (40, 180, 50)
        noisy = np.clip(image + rng.normal(0, 8, image.shape), 0, 255).astype(np.uint8)
        io.imsave(tmp_path / f"{i}.png", noisy, check_contrast=False)
        lines.append(f"{i}.png,{sky},{grass},{int(not sky and not grass)}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("space", ["luv", "hsv"])
def test_histograms_sum_to_one_and_tell_colours_apart(space):
    blue, green = np.zeros((2, 5, 5, 3), dtype=np.uint8)
    blue[..., 2], green[..., 1] = 255, 255
    a, b = features.color_histogram(blue, space), features.color_histogram(green, space)
    assert a.sum() == pytest.approx(1.0) and a.shape == (np.prod(features.BINS[space]),)
    assert a @ b == 0.0
    half = np.concatenate([blue, green])
    assert np.allclose(features.color_histogram(half, space), (a + b) / 2)


def test_all_srgb_colours_lie_within_the_ranges_of_luv():
    levels = np.linspace(0, 1, 18)
    cube = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(1, -1, 3)
    from skimage.color import rgb2luv

    pixels = rgb2luv(cube).reshape(-1, 3)
    low, high = np.array(features.RANGES["luv"]).T
    assert np.all(pixels >= low - 1e-6) and np.all(pixels <= high + 1e-6)


def test_annotation_from_a_folder_of_images(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(annotation, "AMPLITUDES", (5.0,))
    monkeypatch.setattr(annotation, "LENGTHS", (1.0, 2.0))
    data = features.read(folder, "hsv")
    assert data.words == ("sky", "grass", "night") and data.X.shape == (20, 128)
    settings = annotation.Settings(splits=2, train=0.7, choices=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        report = annotation.run(settings, 0, QUIET, data)
    at_one = {row[0]: row[1] for row in report.tables[0].rows}
    assert at_one["Dirichlet (cross-validated)"] > at_one["hard ranking"]
    assert at_one["GPC (cross-validated)"] > at_one["hard ranking"]
    last = [row[-1] for row in report.tables[0].rows]
    assert np.ptp(last) == 0  # all words given: all methods are the same
    publish(report, tmp_path / "out")
    assert (tmp_path / "out" / "annotation" / "annotation.png").is_file()


def test_table_of_features_is_read_and_its_faults_are_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("image_id,hsv_0,hsv_1,top10_sea,top10_sky\n1,0.5,0.5,1,0\n2,1,0,1,1\n")
    data = features.read(path, "hsv")
    assert data.words == ("sea", "sky") and data.X.tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert data.present.tolist() == [[True, False], [True, True]]
    with pytest.raises(ValueError, match=r"luv_\*"):
        features.read(path, "luv")
    path.write_text("hsv_0,top10_sea,top10_sky\n1,2,0\n")
    with pytest.raises(ValueError, match="0 or 1; row 1 has '2'"):
        features.read(path, "hsv")
    path.write_text("hsv_0,top10_sea,top10_sky\n1,0,0\n")
    with pytest.raises(ValueError, match="at least one word"):
        features.read(path, "hsv")
    with pytest.raises(ValueError, match=r"labels\.csv"):
        features.read(tmp_path, "hsv")


@needs_data
def test_shared_table_has_the_papers_size():
    data = features.read(DATA / "corel5k_482.csv", "luv")
    assert data.X.shape == (482, 144) and len(data.words) == 10
    assert round(annotation.Settings().train * len(data.X)) == 300


@needs_data
@pytest.mark.slow
def test_the_less_a_zero_is_smoothed_the_less_the_evidence_sees_of_the_images():
    data = features.read(DATA / "corel5k_482.csv", "hsv")
    X, present = np.sqrt(data.X[:300]), data.present[:300]
    gains = [annotation.by_evidence(X, present, X[:1], zeros_epsilon=epsilon).gain for epsilon in (1e-3, 0.05, 1.0)]
    gpc = annotation.gpc_by_evidence(X, present, X[:1]).gain
    # nats in 300 images of ten words: next to nothing, a little, and close to what the classifiers find
    assert gains[0] < 5 < 10 < gains[1] < 40 < gains[2] < gpc


@needs_data
@pytest.mark.slow
def test_who_leads_on_the_images_is_as_the_documentation_says(tmp_path, monkeypatch):
    """Two of its ten splits; docs/paper.md, image annotation."""
    data = features.read(DATA / "corel5k_482.csv", "hsv")
    report = annotation.run(annotation.Settings(splits=2, choices=0), 0, Runner(progress=False), data)
    assert [row[0] for row in report.tables[0].rows] == list(annotation.METHODS)
    curves = {name: np.array(f) for name, *f in report.tables[0].rows}
    evidence, validated = (
        {m: curves[f"{m} ({how})"] for m in ("Dirichlet", "GPC")} for how in ("evidence", "cross-validated")
    )
    hard = curves["hard ranking"]
    # kernels by evidence: GPC leads, by 0.15, 0.22 and 0.25 in ten splits
    assert np.all(evidence["GPC"][:9] > evidence["Dirichlet"][:9])
    assert np.all(evidence["GPC"][:3] > evidence["Dirichlet"][:3] + 0.1)
    # kernels by cross-validation: level; a difference varies by 0.025 from split to split
    assert np.all(np.abs(validated["GPC"] - validated["Dirichlet"])[:3] < 0.05)
    for curve in (evidence["GPC"], *validated.values()):
        assert np.all(curve[:3] > hard[:3] + 0.1) and np.all(curve[:9] > hard[:9])
    assert np.all(np.delete(evidence["Dirichlet"][:9] > hard[:9], 2))  # everywhere but at k = 3
    assert evidence["Dirichlet"][2] == pytest.approx(hard[2], abs=0.02)
    # all ten words given: the ranking does not matter
    assert np.ptp([curve[9] for curve in curves.values()]) == 0
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.append(figure))
    report.draw(tmp_path / "curves.png")
    (ax,) = figures[0].axes
    for drawn, (name, curve) in zip(ax.containers, curves.items(), strict=True):
        assert drawn.get_label() == name
        np.testing.assert_allclose(drawn.lines[0].get_xydata().T, [np.arange(1, 11), curve])


def test_chi_square_features_have_chi_square_distances():
    h = np.random.default_rng(0).dirichlet(np.full(6, 2.0), 2)
    a, b = annotation.chi_square(h)
    exact = np.sum((h[0] - h[1]) ** 2 / (h[0] + h[1]))
    assert np.sum((a - b) ** 2) == pytest.approx(exact, rel=0.01)  # a sampled spectrum


# ---- command -----------------------------------------------------------------------------------------------------
def test_annotation_without_data_says_what_it_needs():
    result = click_runner().invoke(reproduce, ["annotation"])
    assert result.exit_code == 2
    for word in ("--data", "labels.csv", "cannot be redistributed", "docs/paper.md"):
        assert word in " ".join(result.stderr.split())


def test_faulty_annotation_data_is_an_error_message_not_a_traceback(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    result = click_runner().invoke(reproduce, ["annotation", "--data", str(tmp_path / "t.csv"), "--quiet"])
    assert result.exit_code == 1 and "hsv_*" in result.stderr and result.exception.__class__ is SystemExit


def test_labels_command_writes_and_shows(tmp_path, monkeypatch):
    monkeypatch.setattr(label_regression, "FAST", label_regression.Settings(folds=2, data=("iris",)))
    result = click_runner().invoke(reproduce, ["labels", "--fast", "--jobs", "1", "--quiet", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "labels" / "results.csv").is_file()
    assert "Label regression, 2-fold" in result.stdout and "100%" not in result.stderr


def test_all_runs_what_needs_no_data_and_says_what_it_left_out(tmp_path, monkeypatch):
    """As a user runs it: through ``ggpm``, with the progress bar."""
    monkeypatch.setattr(triangle, "FAST", triangle.Settings(sizes=(4,), trials=1, n_test=10))
    monkeypatch.setattr(triangle, "N_DRAWS", 100)
    monkeypatch.setattr(simplex, "FAST", SIMPLEX)
    monkeypatch.setattr(label_regression, "FAST", label_regression.Settings(folds=2, data=("iris",)))
    result = click_runner().invoke(main, ["reproduce", "all", "--fast", "--jobs", "1", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "annotation: left out, it needs --data (see docs/paper.md" in result.stdout
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    tables = {f"{name}/{file}.csv" for name in ("triangle", "simplex", "labels") for file in ("results", "summary")}
    assert written == tables | {"triangle/triangle.png", "simplex/simplex.png"}
    for name, count in (("triangle", 12), ("simplex", 4), ("labels", 2 * 4)):
        with (tmp_path / name / "results.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == count, name
        # the bar and the seconds are for the eyes alone; the tables can be piped
        assert re.search(rf"^{name} .*100%", result.stderr, re.MULTILINE), result.stderr
        assert re.search(rf"^{name}: \d+ s$", result.stderr, re.MULTILINE)
        assert "100%" not in result.stdout


def test_annotation_command_reads_the_histogram_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(annotation, "AMPLITUDES", (5.0,))
    monkeypatch.setattr(annotation, "LENGTHS", (1.0,))
    rng = np.random.default_rng(0)
    sea = rng.integers(0, 2, 40)
    luv = np.where(sea, rng.uniform(0.7, 1.0, 40), rng.uniform(0.0, 0.3, 40))  # tells sea from sky; hsv tells nothing
    lines = [f"{u},{1 - u},{h},{1 - h},{w},{1 - w}" for u, h, w in zip(luv, rng.uniform(size=40), sea)]
    table = tmp_path / "table.csv"
    table.write_text("luv_0,luv_1,hsv_0,hsv_1,top10_sea,top10_sky\n" + "\n".join(lines))
    scores = {}
    for space in ("luv", "hsv"):
        arguments = ["annotation", "--data", str(table), "--features", space, "--fast", "--jobs", "1"]
        result = click_runner().invoke(main, ["reproduce", *arguments, "--out", str(tmp_path / space)])
        assert result.exit_code == 0, result.output
        folder = tmp_path / space / "annotation"
        assert {path.name for path in folder.iterdir()} == {"results.csv", "summary.csv", "annotation.png"}
        with (folder / "results.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [(row["method"], row["k"]) for row in rows] == [(m, k) for m in annotation.METHODS for k in "12"]
        scores[space] = {row["method"]: float(row["f_score"]) for row in rows if row["k"] == "1"}
    for method in ("Dirichlet (evidence)", "GPC (evidence)"):
        assert scores["luv"][method] == 1.0 > scores["hsv"][method]


def test_full_size_is_the_papers():
    assert triangle.Settings().trials == 50 and triangle.Settings().n_test == 100
    assert min(triangle.Settings().sizes) == 3 and max(triangle.Settings().sizes) == 100
    assert triangle.Settings().noise == 0.1
    assert annotation.Settings().splits == 10
    assert simplex.Settings().trials == 10 and simplex.THRESHOLD == 0.2
    assert np.array_equal(wrap([np.pi]), [-np.pi])
