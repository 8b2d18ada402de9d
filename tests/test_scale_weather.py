"""20,000 hours of weather: sparse against exact on a part of the rows, and against regression on (cos, sin)."""

import numpy as np
import pytest
from scipy.special import log_ndtr
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cases import DATA, needs_data
from ggpm import GGPRegressor, Inducing

# The wind turns within a day, and a year has 365: fewer points cannot follow it (docs/scaling.md, "How to choose M")
M = 800


def weather():
    """Time of year and of day, temperature, dew point, pressure and wind speed; the direction of the wind."""
    pd = pytest.importorskip("pandas")
    table = pd.read_csv(DATA / "nyc_airport_weather_2013.csv.gz")
    table = table.dropna(subset=["temp", "dewp", "pressure", "wind_speed", "theta_rad"])
    table = table[table["wind_speed"] < 200]  # one value of 1048 mph is an error of the source
    day = pd.to_datetime(table["time_hour"]).dt.day_of_year.to_numpy(dtype=float)
    hour = 2 * np.pi * table["hour"].to_numpy() / 24
    measured = table[["temp", "dewp", "pressure", "wind_speed"]].to_numpy()
    X = np.column_stack([day, np.cos(hour), np.sin(hour), measured])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, table["theta_rad"].to_numpy()


def projected_normal(mean, cov, theta):
    """Log density of the angle of a vector N(mean, cov), row by row."""
    u = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    precision = np.linalg.inv(cov)
    a = np.einsum("ni,nij,nj->n", u, precision, u)
    b = np.einsum("ni,nij,nj->n", u, precision, mean) / np.sqrt(a)
    c = np.einsum("ni,nij,nj->n", mean, precision, mean)
    # 1 + b Phi(b)/phi(b), by its logarithm where b is positive
    log_mills = log_ndtr(b) + 0.5 * b**2 + 0.5 * np.log(2 * np.pi)
    bracket = np.where(b > 0, np.logaddexp(0.0, np.log(np.maximum(b, 1e-300)) + log_mills), 0.0)
    small = b <= 0
    bracket[small] = np.log1p(b[small] * np.exp(log_mills[small]))
    return -0.5 * c - np.log(2 * np.pi * a) - 0.5 * np.linalg.slogdet(cov)[1] + bracket


def test_projected_normal_is_a_density():
    grid = np.linspace(-np.pi, np.pi, 2001)[:-1]
    for mean in ([0.3, -0.2], [3.0, 1.0], [0.0, 0.0]):
        cov = np.array([[0.5, 0.2], [0.2, 0.8]])
        density = np.exp(projected_normal(np.tile(mean, (2000, 1)), np.tile(cov, (2000, 1, 1)), grid))
        np.testing.assert_allclose(density.sum() * (grid[1] - grid[0]), 1.0, rtol=1e-10)


@needs_data
@pytest.mark.slow
def test_20000_rows_beat_an_exact_fit_to_2000_and_regression_on_cos_and_sin():
    X, y = weather()
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:20_000], order[20_000:]
    assert len(test) > 1000
    # day of the year (four days to begin with, in units of its spread), hour (cos and sin), measurements
    smooth = RBF([0.04, 20.0, 15.0, 2.0, 2.0, 2.0, 6.0])
    # the search ends when two nats or less are left to gain; the 1,800 held-out rows are to show a hundred
    settings = Inducing(M, choice="variance", ftol=1e-4)
    sparse = GGPRegressor("von_mises", ConstantKernel(40.0) * smooth + ConstantKernel(1.0), inducing=settings)
    sparse.fit(X[train], y[train])
    plain_kernel = ConstantKernel(4.0) * RBF(np.full(X.shape[1], 2.0)) + ConstantKernel(1.0)
    exact = GGPRegressor("von_mises", plain_kernel).fit(X[train[:2000]], y[train[:2000]])
    vectors = np.stack([np.cos(y), np.sin(y)], axis=1)
    plain = GGPRegressor("gaussian", ConstantKernel(0.5) * smooth + ConstantKernel(0.1))
    plain.set_params(inducing=Inducing(sparse.inducing_inputs_, ftol=1e-4)).fit(X[train], vectors[train])
    mean, cov = plain.predict_latent(X[test])
    cov = cov + float(plain.family_.phi) * np.eye(2)
    densities = {
        "sparse, 20,000 rows": sparse.log_predictive_density(X[test], y[test]),
        "exact, 2,000 rows": exact.log_predictive_density(X[test], y[test]),
        "Gaussian on (cos, sin), same points": projected_normal(mean, cov, y[test]),
    }
    means = {name: float(np.mean(value)) for name, value in densities.items()}
    print(means)
    ours, *others = densities.values()
    for other in others:
        difference = ours - other
        # better by more than two standard errors of the mean difference
        assert difference.mean() > 2 * difference.std() / np.sqrt(len(test)), means
