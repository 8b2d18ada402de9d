"""What tests and examples in docstrings share."""

import sys

import pytest


@pytest.fixture(autouse=True)
def figures_are_closed():
    """Pictures do not pile up over many examples: pyplot keeps each until it is closed."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
