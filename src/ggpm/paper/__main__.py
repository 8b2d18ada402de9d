"""``python -m ggpm.paper``: the same as ``ggpm reproduce``."""

from ggpm.paper.command import reproduce

if __name__ == "__main__":
    reproduce(prog_name="ggpm reproduce")
