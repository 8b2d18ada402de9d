"""Known limits: tests over all families that a family with one latent for each parameter does not pass yet, and why."""

import pytest

# Densities from which `objective="loo"` learns are sums over nodes of the posterior, whose derivatives are taken too.
# With Laplace's sites of a dozen rows they are off by up to 0.5 nats (Gaussian; gamma 0.005, beta 3e-5) where a scale
# has a latent of its own: the likelihood over its site rises along the scale, away from all nodes. Reported densities
# (`loo`) have as many nodes as each row needs.
NEEDLES = "learning by leave-one-out has fixed numbers of nodes, and a mixture over scales is a needle for some of them"
IMPROPER = "log p is not concave: Laplace's sites of a dozen rows leave a cavity without proper posterior, and say so"

LIMITS = {("test_a_new_field_gives_what_the_structured_one_does", "student_t-Laplace"): IMPROPER} | {
    ("test_densities_are_those_of_the_predictive_distribution_at_the_cavity", name): reason
    for name, reason in (
        ("gaussian_mean_scale", NEEDLES),
        ("student_t", IMPROPER),
        ("gamma_mean_shape", NEEDLES),
        ("beta_mean_precision", NEEDLES),
        ("von_mises_direction_concentration", NEEDLES),
    )
}

# Families whose tests take long, because their log p is not concave: outside of their own files they run with the slow
# tests, and so do variational sites of several latents to the last digit.
SEVERAL_PARAMETERS = (
    "gaussian_mean_scale",
    "student_t",
    "gamma_mean_shape",
    "beta_mean_precision",
    "negative_binomial_mean_dispersion",
    "von_mises_direction_concentration",
)
OWN_FILES = (
    "test_two_parameters", "test_check_family", "test_closed_forms", "test_extremes", "test_packaging", "test_restarts",
)  # fmt: skip
COUPLED = ("dirichlet", "wishart", "multinomial", "categorical", "von_mises_fisher", "gaussian", "logistic_normal")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        name, _, case = item.name.partition("[")
        case = case.rstrip("]")
        own = any(file in item.nodeid for file in OWN_FILES)
        several = not own and any(family in case for family in SEVERAL_PARAMETERS)
        to_the_last_digit = name == "test_a_row_of_weight_two_is_the_row_twice" and case.endswith("variational")
        if several or (to_the_last_digit and case.startswith(COUPLED)):
            item.add_marker(pytest.mark.slow)
        reason = LIMITS.get((name, case))
        if reason is not None and "test_evidence" not in item.nodeid:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
