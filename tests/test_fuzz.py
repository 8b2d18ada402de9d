"""Broken inputs to every reader: documented errors only, memory and time bounded, nothing executed."""

import pytest

import fuzzing
from ggpm.kernels.text import KernelTextError


@pytest.mark.parametrize("reader", fuzzing.READERS)
def test_broken_inputs_have_documented_errors(reader):
    """A third of what ``make fuzz`` takes, with other seeds: half a minute of processor time for all readers."""
    found = fuzzing.run(reader, 8_000, seed=1)
    assert not found.faults, [(k, what) for k, _, what in found.faults[:5]]
    # inputs that are all refused at the door, or none, would test nothing
    assert found.told["refused"] > 1000 and found.told["read"] > 50, found.told


class Reader(fuzzing.KernelTexts):
    """Does something to every input."""

    def __init__(self, folder):
        self.corpus = []

    def make(self, rng):
        return b"x"


def runs(self, content):
    exec("1 + 1")


def raises(self, content):
    raise KeyError("a")


def refuses(self, content):
    raise KernelTextError("no")


@pytest.mark.parametrize("act, told", [(runs, "did ('exec'"), (raises, "KeyError"), (refuses, None)])
def test_readers_that_do_more_than_read_are_found_out(monkeypatch, act, told):
    monkeypatch.setattr(Reader, "read", act, raising=False)
    monkeypatch.setitem(fuzzing.READERS, "kernels", Reader)
    faults = fuzzing.run("kernels", 3).faults
    assert len(faults) == (0 if told is None else 3)
    assert all(what.startswith(told) for _, _, what in faults)


# ---- inputs that were faults once ------------------------------------------------------------------------------------
def test_whole_numbers_of_more_than_64_bits_are_numbers(tmp_path):
    from ggpm.data.tables import column_as_numbers, features_of, read_table

    path = tmp_path / "long.csv"
    path.write_text(f"y,x\n{'9' * 40},2\n1,{'8' * 50}\n")
    table = read_table(path)
    assert column_as_numbers(table, "y", path).tolist() == [1e40, 1.0]
    assert features_of(table, ["x"], exclude=[], path=path)["x"].tolist() == [2.0, float("8" * 50)]
