"""``python -m ggpm.cli``: the command ``ggpm``."""

from ggpm.cli import main

if __name__ == "__main__":
    main()
