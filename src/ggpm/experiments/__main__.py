"""``python -m ggpm.experiments``: the same as ``ggpm reproduce``."""

from ggpm.experiments.command import reproduce

if __name__ == "__main__":
    reproduce(prog_name="ggpm reproduce")
