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

# The cases that take longest of tests whose other cases ask the same of an ordinary run: a seventh of its time.
LONG = {
    "test_bounds_with_three_latents_agree_with_fine": (
        "dirichlet_exp-variational-exact-shared", "dirichlet-variational-exact-shared",
    ),
    "test_the_numbers_of_version_0_1": (
        "dirichlet_exp-variational-exact-separate", "dirichlet_exp-variational-inducing-separate",
    ),
    "test_every_page_runs": (
        "outputs/compositions.md", "coming_from.md", "limits_and_survival.md", "many_zeros.md",
    ),
    "test_series_are_those_of_a_dense_grid": ("1-4e-07", "2-2e-08"),
    "test_gradient_equals_central_differences": (
        "dirichlet, exp-variational, blocks", "dirichlet, exp-variational, factorised", "wishart-variational, blocks",
        "wishart-variational, factorised", "dirichlet_multinomial-variational, blocks",
        "dirichlet_multinomial-variational, factorised", "dirichlet, exp-blocks", "dirichlet, exp-factorised",
        "wishart-blocks",
    ),
    "test_densities_are_those_of_the_predictive_distribution_at_the_cavity": ("dirichlet, exp",),
    "test_intervals_hold_their_level": ("dirichlet, exp",),
    "test_intervals_of_coordinates_of_wide_latents_are_those_of_the_densities": ("25.0-0.8", "10000.0-0.8"),
    "test_units_and_origins_of_columns_do_not_matter": ("dirichlet",),
    "test_a_power_of_ten_changes_nothing": ("wishart-laplace", "multivariate_gaussian-laplace"),
    "test_close_to_refits": ("wishart-variational",),
    "test_a_users_copy_is_the_built_in": (
        "multinomial-Multinomial-variational-True", "multinomial-Multinomial-laplace-True",
    ),
    "test_autodiff_of_the_density_equals_the_closed_forms": ("logistic_normal", "beta_binomial"),
    "test_wrong_parameter_functions_fail_with_the_right_words": ("WrongBaseMeasure-str",),
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        name, _, case = item.name.partition("[")
        case = case.rstrip("]")
        own = any(file in item.nodeid for file in OWN_FILES)
        several = not own and any(family in case for family in SEVERAL_PARAMETERS)
        to_the_last_digit = name == "test_a_row_of_weight_two_is_the_row_twice" and case.endswith("variational")
        if several or case in LONG.get(name, ()) or (to_the_last_digit and case.startswith(COUPLED)):
            item.add_marker(pytest.mark.slow)
        reason = LIMITS.get((name, case))
        if reason is not None and "test_evidence" not in item.nodeid:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
