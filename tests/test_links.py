"""Links against mpmath: values and three derivatives, also where they lose digits if written naively."""

import mpmath as mp
import numpy as np
import pytest

from ggpm.families.links import LINKS

FUNCTIONS = {
    "identity": lambda t: t,
    "exp": mp.exp,
    "softplus": lambda t: mp.log(1 + mp.exp(t)),
    "log_softplus": lambda t: mp.log(mp.log(1 + mp.exp(t))),
}
POINTS = np.array([-50.0, -30.5, -29.5, -13.0, -12.0, -11.0, -3.0, -0.1, 0.0, 0.99, 1.0, 1.01, 2.0, 7.0, 30.0, 50.0])


@pytest.mark.parametrize("name", LINKS)
def test_value_and_derivatives(name):
    link, function = LINKS[name], FUNCTIONS[name]
    with mp.workdps(80):
        expected = [[mp.diff(function, mp.mpf(t), k) for t in POINTS] for k in range(4)]
        for ours, theirs in zip([link(POINTS), *link.derivatives(POINTS)], expected, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                # a derivative that is zero to 1e-20 of the value is compared absolutely
                assert abs(mp.mpf(a) - b) <= 1e-12 * abs(b) + mp.mpf(10) ** -22, (name, a, b)


@pytest.mark.parametrize("name", LINKS)
def test_inverse(name):
    link = LINKS[name]
    eta = np.array([-40.0, -5.0, 0.3, 20.0])
    np.testing.assert_allclose(link.inverse(link(eta)), eta, rtol=1e-9)
