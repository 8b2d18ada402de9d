"""Import paths of version 0.1: they give the modules that have moved, the same objects, and pickles that name them."""

import importlib
import pickle
import subprocess
import sys
from types import ModuleType

import pytest

import ggpm
from ggpm._moved import home_of

SCALAR = ("Bernoulli", "Beta", "Binomial", "Gamma", "InverseGaussian", "NegativeBinomial", "Ordinal", "Poisson")
VECTOR = ("Categorical", "Dirichlet", "Gaussian", "Multinomial", "MultivariateGaussian", "VonMises", "VonMisesFisher")

# Every public module of 0.1 and its names for users: its __all__, or, where it had none, what a user could want of it.
# Of parts inside (objective, posterior, the sparse passes) nothing is promised, so they are not listed.
PUBLIC = {
    "": "GGPClassifier GGPOrdinalClassifier GGPRegressor Inducing Laplace LoadError Predictive Taylor Variational "
    "calibration families load log_predictive_density_scorer save",
    "baselines": "AngleGPR AngleNearestNeighbor ConstrainedAngleGP ConstrainedSimplexGP CosSinGPR LabelFrequency "
    "OneVsRestGPC RotationNLS wrap",
    "calibration": "Calibration calibration",
    "cli": "main",
    "curvature": "Blocks Diagonal Kronecker RankOne",
    "estimators": "GGPClassifier GGPOrdinalClassifier GGPRegressor log_predictive_density_scorer",
    "evaluation": "evaluate kind_of_picture",
    "experiments": "",
    "experiments.annotation": "FAST Settings f_scores read run",
    "experiments.command": "reproduce",
    "experiments.features": "Annotated color_histogram read",
    "experiments.label_regression": "FAST Settings run",
    "experiments.runner": "MissingExtra Report Runner Table publish write_csv",
    "experiments.simplex": "FAST PAPER Settings run",
    "experiments.triangle": "FAST Settings run",
    "families": "FAMILIES ExponentialFamily Family ScalarFamily Wishart get " + " ".join(SCALAR + VECTOR),
    "families.base": "Family ScalarFamily",
    "families.bernoulli": "Bernoulli",
    "families.beta": "Beta",
    "families.binomial": "Binomial",
    "families.categorical": "Categorical",
    "families.dirichlet": "Dirichlet",
    "families.exponential": "ExponentialFamily",
    "families.gamma": "Gamma",
    "families.gaussian": "Gaussian",
    "families.inverse_gaussian": "InverseGaussian",
    "families.multinomial": "Multinomial",
    "families.multivariate_gaussian": "MultivariateGaussian",
    "families.negative_binomial": "NegativeBinomial",
    "families.ordinal": "Ordinal",
    "families.poisson": "Poisson",
    "families.support": "SPD Circle Codes CountVectors Counts Positive Real Simplex Sphere Support UnitInterval",
    "families.von_mises": "VonMises",
    "families.von_mises_fisher": "VonMisesFisher",
    "families.wishart": "Wishart",
    "inference": "INFERENCES Approximation InferenceError Laplace Problem Taylor Variational",
    "inference.base": "InferenceError",
    "inference.laplace": "Laplace",
    "inference.taylor": "Taylor",
    "inference.variational": "Variational",
    "kernels": "Distances KernelEvaluation diag diag_pullback evaluate log_bounds log_hyper median_distance "
    "resolve_kernel with_log_hyper",
    "links": "LINKS Exp Identity LogSoftplus Softplus mean_link",
    "loo": "LeaveOneOut",
    "persistence": "FORMAT LoadError load save",
    "plotting": "coverage_depth hyperparameter_names plot_angles plot_bands plot_calibration plot_class_map "
    "plot_evidence plot_ordinal plot_pit plot_polar plot_ternary plot_ternary_density",
    "plotting.angles": "plot_angles plot_polar",
    "plotting.checks": "hyperparameter_names plot_calibration plot_evidence plot_pit",
    "plotting.classes": "plot_class_map plot_ordinal",
    "plotting.compositions": "plot_ternary plot_ternary_density",
    "plotting.numbers": "plot_bands",
    "predictive": "Predictive",
    "priors": "HalfT LogNormal",
    "regions": "HighestDensityRegion highest_density",
    "solvers": "",
    "sparse": "ClusterError Inducing ParquetRows cluster_map predict_parquet",
    "sparse.cluster": "ClusterError cluster_map",
    "sparse.data": "",
    "sparse.inducing": "Inducing",
    "sparse.kinds": "is_dask is_streamed",
    "sparse.lazy": "LazyPredictive",
    "sparse.parquet": "ParquetRows predict_parquet",
    "sparse.rows": "ArrayRows Chunk Rows",
    "summaries": "summarise",
    "tables": "TableError beside column_as_numbers features_of kept_columns read_table split_columns target_of "
    "write_table",
    "testing": "FamilyReport check_family",
}


def full(path):
    return f"ggpm.{path}" if path else "ggpm"


def fresh(code):
    """What a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("path", PUBLIC)
def test_old_paths_offer_their_names(path):
    module = importlib.import_module(full(path))
    missing = [name for name in PUBLIC[path].split() if not hasattr(module, name)]
    assert not missing
    # there is one module, which has one name: classes from two copies of it would not know each other
    assert module.__name__ == (home_of(full(path)) or full(path))
    assert importlib.import_module(module.__name__) is module


def test_old_paths_work_first_and_in_any_order():
    names = [full(path) for path in PUBLIC]
    code = f"import importlib; print(len([importlib.import_module(n) for n in {names[::-1]}]))"
    assert fresh(code) == str(len(names))
    code = "from ggpm.inference.laplace import Laplace; import ggpm, sys; print(Laplace is ggpm.Laplace)"
    assert fresh(code) == "True"


@pytest.mark.parametrize("old, new, name", [
    ("priors", "learning.priors", "HalfT"), ("curvature", "families.curvature", "RankOne"),
    ("inference.variational", "sites.variational", "Variational"), ("sparse.rows", "data.rows", "ArrayRows"),
    ("experiments.triangle", "paper.triangle", "Settings"), ("sparse.inducing", "fields.inducing.points", "Inducing"),
])  # fmt: skip
def test_old_and_new_paths_give_the_same_objects(old, new, name):
    first, second = (importlib.import_module(full(path)) for path in (old, new))
    assert first is second and getattr(first, name) is getattr(second, name)
    attribute = ggpm
    for part in old.split("."):
        attribute = getattr(attribute, part)
    assert attribute is second


def test_calibration_stays_the_function():
    code = "{}; import ggpm; print(callable(ggpm.calibration), ggpm.calibration.__name__)"
    imports = ("import ggpm", "import ggpm.calibration", "from ggpm.calibration import Calibration",
               "import importlib; importlib.import_module('ggpm.calibration')",
               "from ggpm import calibration; import ggpm.calibration")  # fmt: skip
    for statement in imports:
        assert fresh(code.format(statement)) == "True calibration"
    before = ggpm.calibration
    from ggpm.calibration import Calibration

    assert ggpm.calibration is before and not isinstance(before, ModuleType)
    assert Calibration is sys.modules["ggpm.prediction.calibration"].Calibration


@pytest.mark.parametrize("module, name", [
    ("priors", "HalfT"), ("curvature", "RankOne"), ("predictive", "Predictive"), ("loo", "LeaveOneOut"),
    ("inference.laplace", "Laplace"), ("inference.taylor", "Taylor"), ("inference.variational", "Variational"),
    ("sparse.inducing", "Inducing"), ("sparse.rows", "ArrayRows"), ("estimators", "GGPRegressor"),
    ("families.von_mises", "VonMises"), ("links", "Softplus"), ("calibration", "Calibration"),
])  # fmt: skip
def test_pickles_that_name_an_old_path_load(module, name):
    found = pickle.loads(f"cggpm.{module}\n{name}\n.".encode())  # protocol 0: the class, by its module and name
    assert found.__name__ == name
    assert getattr(importlib.import_module(found.__module__), name) is found
    code = f"import pickle; print(pickle.loads({f'cggpm.{module}{chr(10)}{name}{chr(10)}.'.encode()!r}).__name__)"
    assert fresh(code) == name


def test_a_pickled_object_of_an_old_path_loads():
    new = pickle.dumps(ggpm.Laplace(max_iter=7), protocol=0)
    old = new.replace(ggpm.Laplace.__module__.encode(), b"ggpm.inference.laplace")
    assert old != new and pickle.loads(old) == ggpm.Laplace(max_iter=7)


def test_a_pickled_taylor_of_version_0_1_keeps_its_c():
    old = pickle.dumps(ggpm.Taylor(coupling=0), protocol=0).replace(b"coupling", b"c")
    assert pickle.loads(old) == ggpm.Taylor(coupling=0)


def test_an_unknown_path_is_not_found():
    for name in ("ggpm.nothing", "ggpm.sparse.nothing", "ggpm.priors.nothing"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ggpm.nothing  # noqa: B018


def test_the_old_path_can_be_run():
    command = [sys.executable, "-m", "ggpm.experiments", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Usage: ggpm reproduce" in told
