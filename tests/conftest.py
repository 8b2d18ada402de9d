"""Known limits: tests over all families that a family with one latent for each parameter does not pass yet, and why."""

import pytest

STALLS = "log p is not concave: with a dozen rows Newton's steps stall before the mode has all its digits"
NEEDLES = "learning by leave-one-out has fixed numbers of nodes, and a mixture over scales is a needle for some of them"
JITTER = "rows of precision 1e4 and more see the jitter of 1e-8 on K_uu: the difference is proportional to it"

STEEP = "log p falls like exp(-2 eta) in the log-scale: latents ten wide have averages that no rule here resolves"

LIMITS = (
    {
        ("test_a_new_field_gives_what_the_structured_one_does", "student_t-Laplace"): NEEDLES,
        ("test_all_rows_as_inducing_points_is_the_exact_solver", "gaussian_mean_scale-shared-laplace"): JITTER,
        ("test_all_rows_as_inducing_points_is_the_exact_solver", "gaussian_mean_scale-separate-laplace"): JITTER,
        (
            "test_all_rows_as_inducing_points_is_the_exact_solver",
            "von_mises_direction_concentration-shared-laplace",
        ): JITTER,
        ("test_with_all_rows_as_neighbours_it_is_a_refit", "student_t-variational"): STALLS,
        ("test_with_all_rows_as_neighbours_it_is_a_refit", "student_t-variational, factorised"): STALLS,
    }
    | {
        ("test_expectations_are_within_1e5_of_brute_force", name): STEEP
        for name in (
            "gaussian_mean_scale",
            "student_t",
            "gamma_mean_shape",
            "negative_binomial_mean_dispersion",
            "von_mises_direction_concentration",
        )
    }
    | {
        ("test_densities_are_those_of_the_predictive_distribution_at_the_cavity", name): NEEDLES
        for name in (
            "gaussian_mean_scale",
            "student_t",
            "gamma_mean_shape",
            "beta_mean_precision",
            "von_mises_direction_concentration",
        )
    }
)


STARTS = "a built-in family starts from the scale of y, a user's copy of it does not, and they end in different optima"
LIMITS |= {
    ("test_learning_with_a_hyperparameter_is_that_of_the_built_in", "laplace"): STARTS,
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
OWN_FILES = ("test_two_parameters", "test_check_family", "test_closed_forms", "test_packaging", "test_restarts")
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
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
