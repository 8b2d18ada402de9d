"""Advice in messages: one text for Python, options for the command line, made from the same parts."""

import ast
import copy
import inspect
import pathlib
import pickle
import warnings

import click
import numpy as np
import pandas as pd
import pytest

import ggpm
from cases import click_runner
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families, plotting
from ggpm.cli import main
from ggpm.cli.terminal import FLAGS, in_flags
from ggpm.data.columns import Columns
from ggpm.data.door import Preparation
from ggpm.data.rows import Chunk
from ggpm.data.text import Hint, Message
from ggpm.learning.fit import _stopped_early
from ggpm.learning.search import STOPPED

PACKAGE = pathlib.Path(ggpm.__file__).parent
NO_FLAG = {"zeros_epsilon"}  # the command line cannot set it, and says what it is
PLAIN = "y is off. "


def calls_of_hint():
    """File, line and arguments of every Hint in the library; what is computed stands as None."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Hint":
                assert not node.keywords
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", [literal(argument) for argument in node.args]


def literal(node):
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


HINTS = dict(calls_of_hint())
COMMANDS = [main.get_command(None, name) for name in main.list_commands(None)]
OPTIONS = {flag: option for command in COMMANDS for option in command.params for flag in option.opts}


@pytest.mark.parametrize("place", HINTS)
def test_every_hint_can_be_said_in_python_and_in_the_shell(place):
    python, setting, value = (*HINTS[place], None, None)[:3]
    assert python is None or python.strip()
    if setting is None:
        assert len(HINTS[place]) == 1, f"{place}: the setting must be written out"
        return
    estimators = (GGPRegressor("poisson"), GGPClassifier(), GGPOrdinalClassifier())
    members = (*estimators, *(family() for family in families.FAMILIES.values()))
    known = {name for member in members for name in inspect.signature(type(member)).parameters}
    assert setting in {*known, "offset", "picture"}
    if setting in NO_FLAG:
        assert setting not in FLAGS and len(HINTS[place]) == 3  # its value is what the shell reads
        return
    option = OPTIONS[FLAGS[setting]]
    if setting == "picture" and python is not None:
        assert python in plotting.__all__
    if setting == "family":
        families.get(value)  # which knows its name
    elif setting != "offset" and value not in (None, True, False, ...):
        said = in_flags(ValueError(Message(Hint(python, setting, value))))
        flag, text = said.split(" ")
        assert flag == FLAGS[setting]
        context = click.Context(main)
        given = option.type.convert(text, option, context)
        assert option.callback is None or option.callback(context, option, given) is not None


def test_every_flag_exists_and_is_needed():
    assert set(FLAGS.values()) <= set(OPTIONS)
    assert {arguments[1] for arguments in HINTS.values() if len(arguments) > 1} == {*FLAGS, *NO_FLAG}


@pytest.mark.parametrize("hint, said", [
    (Hint("order", "order"), "--order"),
    (Hint("Pass order=[...]", "order", ...), "Give --order"),
    (Hint("inducing=None", "inducing", False), "leave out --inducing"),
    (Hint("Dirichlet(closure=True)", "closure", True), "--closure"),
    (Hint("n_restarts_optimizer=3", "n_restarts_optimizer", 3), "--restarts 3"),
    (Hint("units=(0, 365.25)", "units", (0, 365.25)), "--units 0,365.25"),
    (Hint("offset=log(exposure)", "offset", "log(exposure)"), "--offset, a column of log(exposure)"),
    (Hint("GGPClassifier", "family", "categorical"), "--family categorical"),
    (Hint("plot_class_map", "picture", "classes"), "--kind classes"),
    (Hint("zeros_epsilon", "zeros_epsilon", 0.001), "0.001"),
    (Hint(": y / np.linalg.norm(y)"), ""),
])  # fmt: skip
def test_a_hint_in_both_worlds(hint, said):
    message = Message(PLAIN, hint, ".")
    assert message == f"{PLAIN}{hint.python}." == str(ValueError(message))
    assert in_flags(ValueError(message)) == f"{PLAIN}{said}."


def test_messages_are_text_and_survive_copies_and_workers():
    error = ValueError(Message(PLAIN, Hint("order", "order"), "."))
    assert type(error) is ValueError and type(str(error)) is str and repr(error) == repr(ValueError(str(error)))
    copies = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for other in (*copies, copy.deepcopy(error)):
        assert str(other) == str(error) and in_flags(other) == f"{PLAIN}--order."
    assert in_flags(OSError(2, "No such file", "t.csv")) == "[Errno 2] No such file: 't.csv'"
    assert in_flags(ValueError()) == ""


def test_errors_that_are_passed_on_keep_their_hints():
    family = families.Dirichlet().resolve(np.full((2, 3), 1 / 3))
    with pytest.raises(ValueError, match=r"^in the chunk of rows 7 to 8 .*use Dirichlet\(closure=True\), ") as caught:
        Preparation(Columns(1), 2, family=family)(Chunk(np.zeros((2, 1)), np.full((2, 3), 33.0), None, 7))
    assert "use --closure, which divides every row by its sum" in in_flags(caught.value)


def test_warnings_keep_their_hints():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        families.VonMises().resolve(np.array([0.0, 350.0]))
    (told,) = caught
    assert told.category is UserWarning and str(told.message).endswith('for degrees try VonMises(units="degrees").')
    assert in_flags(told.message).endswith("for degrees try --units degrees.")


def test_rows_that_are_read_in_chunks_speak_flags_too(tmp_path):
    table = pd.DataFrame({"x": [0.0, 1.0, 2.0], "sand": 50.0, "clay": 50.0})
    table.to_parquet(tmp_path / "soil.parquet")
    arguments = ["fit", "soil.parquet", "--target", "sand,clay", "--family", "dirichlet", "--out", "m.ggpm"]
    arguments = [str(tmp_path / a) if a.endswith((".parquet", ".ggpm")) else a for a in arguments]
    result = click_runner().invoke(main, [*arguments, "--inducing", "2"])
    assert result.exit_code == 1 and "use --closure, which divides" in result.stderr.replace("\n", " ")
    result = click_runner().invoke(main, [*arguments, "--closure", "--inducing", "4"])
    assert result.exit_code == 1 and "--inducing must be at most" in result.stderr.replace("\n", " ")


def test_the_command_line_reads_no_messages():
    for path in (PACKAGE / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert "re" not in names and getattr(node, "module", None) != "re", path


@pytest.mark.parametrize(
    ("family", "y", "python", "command"),
    [
        ("gamma", [0.0, 1.0, 2.0], "'hurdle_gamma'", "--family hurdle_gamma;"),
        ("log_normal", [-1.0, 1.0, 2.0], "either sign are for 'gaussian'", "--family gaussian"),
        ("beta", [0.0, 0.5, 0.7], "use 'zero_one_inflated_beta'", "--family zero_one_inflated_beta"),
        ("beta", [50.0, 20.0, 70.0], "Divide percentages by 100", "Divide percentages by 100"),
        ("binomial", [1, 2, 3], r"an array (n, 2); got shape (3,). Give both: np.column_stack", "Give both, successes"),
    ],
)
def test_who_has_another_kind_of_numbers_is_told_the_family_for_them(family, y, python, command):
    with pytest.raises(ValueError) as caught:
        GGPRegressor(family).fit(np.arange(3.0)[:, None], y)
    assert python in str(caught.value) and command in in_flags(caught.value)


def test_who_stopped_a_search_gets_no_advice():
    told = _stopped_early(STOPPED)
    assert "stopped by the user: the model is the best" in told and "Scale" not in told
    assert "n_restarts_optimizer=3" in _stopped_early("too many steps")
