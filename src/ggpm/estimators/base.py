"""The estimator that all three are: settings, learning, the latent posterior, predictive distributions."""

from __future__ import annotations

import copy
import sys
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state

from ggpm.data import frames
from ggpm.data.checks import as_offset, check_jobs, check_positive, check_spreads, check_whole
from ggpm.data.columns import Columns
from ggpm.data.door import Target
from ggpm.data.kinds import is_streamed
from ggpm.data.rows import ArrayRows, pick
from ggpm.data.text import Hint, Message, did_you_mean, stacklevel
from ggpm.estimators import averaging
from ggpm.estimators.intake import inputs_of, offset_name, prepared, rows_to_fit, source_of, target_of
from ggpm.estimators.newcomers import with_newcomers
from ggpm.estimators.notes import notes_on_bounds
from ggpm.estimators.recalibrating import RECALIBRATION, can_be, recalibrated
from ggpm.estimators.updating import Updating
from ggpm.families.base import Family
from ggpm.families.weighted import Weighted
from ggpm.fields.base import Field
from ggpm.fields.dense import DenseField
from ggpm.fields.inducing.field import InducingField
from ggpm.fields.inducing.points import Inducing
from ggpm.fields.inducing.posterior import InducingPosterior
from ggpm.fields.neighbours import Neighbours
from ggpm.fields.neighbours.field import NeighboursField
from ggpm.kernels import resolve_kernel, shorter_starts, used_columns
from ggpm.kernels.threads import threads_for
from ggpm.learning import priors
from ggpm.learning.advice import advise
from ggpm.learning.choice import AUTO, choose, name_of
from ggpm.learning.contest import LAST_ROWS, Contest, choose_kernel
from ggpm.learning.fit import Fit, Newcomers, Search, SearchOutcome, learn, learn_in_samples
from ggpm.learning.journal import Journal
from ggpm.learning.objective import Evidence
from ggpm.sites import INFERENCES, Rule

Array = NDArray[np.float64]

SILENT = 2.0  # seconds of a contest before it is told what is being tried
SLOW_ROWS = 5000  # a fit of so many counts takes half a minute exactly, twelve seconds by neighbours
REARRANGED = 3  # most times that neighbours are found again because the learned kernels order distances otherwise


class GGP(Updating, BaseEstimator):
    """Base of the three estimators: learning, the latent posterior, predictive distributions."""

    listener: Callable[[str, int, int, float], None] | None = None
    """Called during the search with (what, run, evaluation, value); set by progress bars."""
    journal: Journal | None = None
    """Keeps the evaluations of the search, for one that is cut off; set by the command line."""

    def __init__(
        self,
        kernel: Any = None,
        *,
        inference: Any = "auto",
        objective: str = "evidence",
        optimizer: Any = "fmin_l_bfgs_b",
        n_restarts_optimizer: int = 0,
        inducing: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        priors: Any = "auto",
        neighbours: Any = None,
        averaging: str = "auto",
        recalibration: str = "auto",
        budget: float | None = None,
        n_jobs: int | None = None,
    ):
        self.kernel = kernel
        self.inference = inference
        self.objective = objective
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.inducing = inducing
        self.random_state = random_state
        self.verbose = verbose
        self.priors = priors
        self.neighbours = neighbours
        self.averaging = averaging
        self.recalibration = recalibration
        self.budget = budget
        self.n_jobs = n_jobs

    # ---- fitting -----------------------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None) -> Self:
        """Learn the hyperparameters and the posterior.

        Parameters
        ----------
        X : array or data frame (n, features)
            Numbers, booleans, categories (or text), times and durations; see `ggpm.kernels` for kernels on columns.
        y : outputs of the family's kind, n rows
            Rows in which all of y is missing are left out, with a warning.
        sample_weight : array (n,), optional
            How many times each row counts: 2 is the row twice, 0 leaves it out. Predictions are for a weight of one.
        offset : array (n,) or (n, D), optional
            Known part of the latent, added to it (for counts: the logarithm of the exposure).

        Returns
        -------
        self

        Examples
        --------
        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(8)).converged_
        True
        """
        # all work happens on a copy, so that a failed fit leaves this estimator as it was
        fit = copy.copy(self)._fit(X, y, sample_weight, offset)
        self._adopt(fit)
        for note in (*fit.notes, *([] if self.optimizer is None else notes_on_bounds(self.fit_, self.kernel is None))):
            warnings.warn(note, ConvergenceWarning, stacklevel=stacklevel())
        return self

    def _adopt(self, fit: Fit) -> None:
        """Set the public attributes from a fit, and nothing of an earlier one: the only place that does."""
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__.clear()
        self.__dict__.update(kept)
        self.fit_ = fit
        self.family_ = fit.family
        several = isinstance(self.kernel, list | tuple) or len(fit.kernels) > 1
        self.kernel_ = fit.kernels if several else fit.kernels[0]
        self.theta_ = fit.theta.copy()  # the fit's own is not for others to change
        self.inference_ = name_of(fit.rule, fit.family)
        self.curvature_ = fit.curvature
        self.posterior_ = fit.posterior
        self.log_marginal_likelihood_value_ = fit.log_evidence
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        self.target_names_ = fit.target.names
        self.n_features_in_ = fit.columns.count
        if fit.columns.names is not None:
            self.feature_names_in_ = np.array(fit.columns.names, dtype=object)
        if fit.target.classes is not None:
            self.classes_ = fit.target.classes
        if fit.search is not None:
            self.search_ = fit.search
        if isinstance(fit.posterior, InducingPosterior):
            self.inducing_inputs_ = fit.posterior.Z

    @classmethod
    def from_fit(cls, params: Mapping[str, Any], fit: Fit) -> Self:
        """An estimator with these parameters that is fitted already: what `ggpm.load` makes.

        >>> from ggpm import GGPRegressor
        >>> model = GGPRegressor("poisson").fit(np.arange(8.0)[:, None], np.arange(8))
        >>> GGPRegressor.from_fit(model.get_params(), model.fit_).converged_
        True
        """
        model = cls(**params)
        model._adopt(fit)
        return model

    def _fit(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Fit:
        check_whole(self.n_restarts_optimizer, "n_restarts_optimizer", 0)
        if self.budget is not None:
            check_positive(self.budget, "budget", " of seconds, or None")
        check_jobs(self.n_jobs)
        if self.averaging not in averaging.AVERAGING:
            known = ", ".join(map(repr, averaging.AVERAGING))
            raise ValueError(f"averaging must be one of {known}; got {self.averaging!r}.")
        if self.recalibration not in RECALIBRATION:
            known = ", ".join(map(repr, RECALIBRATION))
            raise ValueError(f"recalibration must be one of {known}; got {self.recalibration!r}.")
        if self.objective not in ("evidence", "loo"):
            raise ValueError(f"objective must be 'evidence' or 'loo'; got {self.objective!r}.")
        if not (self.optimizer is None or callable(self.optimizer) or self.optimizer == "fmin_l_bfgs_b"):
            raise ValueError(f"optimizer must be 'fmin_l_bfgs_b', a callable or None; got {self.optimizer!r}.")
        X, y, offset, weight = rows_to_fit(X, y, offset, sample_weight)
        if weight is not None and self.objective == "loo":
            raise ValueError("with sample_weight objective must be 'evidence'; got 'loo'.")
        if self.neighbours is not None:
            self._check_neighbours()
            if is_streamed(X):
                return self._fit_neighbours_of_chunks(X, y, offset, weight)
        elif self.inducing is not None or is_streamed(X):
            if self.objective != "evidence":
                raise ValueError(f"with inducing points objective must be 'evidence'; got {self.objective!r}.")
            return self._fit_inducing(X, y, offset, weight)
        return self._fit_in_memory(X, y, offset, weight)

    def _check_neighbours(self) -> None:
        if self.inducing is not None:
            raise ValueError(
                Message(
                    Hint("neighbours", "neighbours"),
                    " and ",
                    Hint("inducing", "inducing"),
                    " are two ways to fit many rows: give one of them. Neighbours suit rough functions of few "
                    f"features, inducing points smooth ones of many; got {self.neighbours!r} and {self.inducing!r}.",
                )
            )
        if self.objective != "evidence":
            raise ValueError(f"with neighbours objective must be 'evidence'; got {self.objective!r}.")

    def _fit_in_memory(self, X: Any, y: Any, offset: Any, weight: Array | None) -> Fit:
        X, columns = inputs_of(self, X)
        with threads_for(len(X)):
            return self._fit_rows(X, columns, y, offset, weight)

    def _fit_rows(self, X: Array, columns: Columns, y: Any, offset: Any, weight: Array | None) -> Fit:
        """The fit to all rows, on a dense field or on neighbours."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        family, encoded, classes = self.resolve_family(y, weight)
        check_consistent_length(X, encoded)
        if weight is not None:
            family, encoded = Weighted.join(family, encoded, weight)
        told = columns, target_of(y, classes), offset_name(offset)
        offset = as_offset(offset, len(X), family.latent_dim) + family.origin
        dense = DenseField(X, encoded, offset)
        chosen = self._chosen(family, dense, columns, weight)
        kernels = self._kernels(family, X, columns, weight) if chosen is None else chosen.winner.kernels
        if self.neighbours is not None:
            return self._averaged(
                self._learned_by_neighbours(family, kernels, X, encoded, offset, chosen).fit(*told), chosen
            )
        advice = advise(len(X), int(np.count_nonzero(np.ptp(X, axis=0) > 0)), kernels)
        if len(X) > SLOW_ROWS:
            text = Message("exact inference takes minutes to hours for so many rows. ", advice.text)
            warnings.warn(text, UserWarning, stacklevel=stacklevel())
        try:
            fit = self._learned(self._evidence(family, kernels, dense, chosen), chosen).fit(*told)
            fit = self._averaged(fit, chosen)
            if chosen is not None:
                fit = replace(fit, newcomers=tuple(self._newcomers(fit, chosen)))
            fit = self._recalibrated(fit, chosen)
        except MemoryError as error:
            if advice.field == "exact":
                raise
            raise MemoryError(Message(error, " ", advice.text)) from None
        dense.forget()
        if fit.found is not None:
            fit.found.process.forget()
        return fit

    def _fit_neighbours_of_chunks(self, X: Any, y: Any, offset: Any, weight: Any) -> Fit:
        """Rows are read, checked and encoded chunk by chunk, on a cluster where they lie, and then held here."""
        source = source_of(self, X, y, offset, weight, ArrayRows.chunk_rows)
        family, classes, _, rows, weight = prepared(self, source, y, np.arange(source.n_rows))
        chosen = self._chosen(family, DenseField(rows.X, rows.y, rows.offset), source.columns, weight)
        kernels = self._kernels(family, rows.X, source.columns, weight) if chosen is None else chosen.winner.kernels
        learned = self._learned_by_neighbours(family, kernels, rows.X, rows.y, rows.offset, chosen)
        target = Target(source.target_names, frames.kind_of(y), classes)
        return learned.fit(source.columns, target, _name_of_offset(X, offset))

    def _chosen(
        self, family: Family, rows: DenseField, columns: Columns, weight: Array | None,
        part: tuple[NDArray[np.intp], int] | None = None,
    ) -> Contest | None:  # fmt: skip
        """Kernels and where their search starts, chosen from rows of some weight; None where that is not asked for.

        ``part`` are the numbers of these rows and how many there are, where they are not all.
        """
        check_spreads(rows.X, columns.called)
        if self.kernel is not None or self.optimizer != "fmin_l_bfgs_b":
            return None
        state = check_random_state(0 if self.random_state is None else self.random_state)
        rule = self._resolve_inference(family, rows)
        if part is not None:
            rule = rule.checked(part[1], family.latent_dim).of_rows(part[0])
        pool = Evidence(family, [], rows, rule, self.objective)
        about = pool, columns, weight, self.priors
        how = {
            "seed": state.randint(2**31 - 1), "budget": self.budget, "n_jobs": self.n_jobs, "tell": self._progress(),
            "journal": self.journal,
            "opinions": averaging.hears(self.averaging, rows.n_rows, self.neighbours is None and part is None),
        }  # fmt: skip
        with threads_for(LAST_ROWS):
            found = choose_kernel(*about, **how)
            if found is None or self.averaging == "none":
                return found
            if self.neighbours is None and part is None:
                found = with_newcomers(found, *about, **how)
        return averaging.weighed(found) if how["opinions"] else found

    def _averaged(self, fit: Fit, chosen: Contest | None) -> Fit:
        """The fit, averaged with others as asked for."""
        by_itself = self.averaging == "auto" and chosen is not None and averaging.helps(fit)
        if by_itself or (self.averaging == "integrate" and self.optimizer is not None):
            fit = averaging.integrated(fit)
        return fit if chosen is None or len(chosen.weights) < 2 else averaging.stacked(fit, chosen)

    def _recalibrated(self, fit: Fit, chosen: Contest | None) -> Fit:
        """The fit with what rows that are left out correct in its predictions, as asked for."""
        asked = self.recalibration == "loo" or (self.recalibration == "auto" and chosen is not None)
        return recalibrated(fit) if asked and can_be(fit) else fit

    def _newcomers(self, fit: Fit, chosen: Contest) -> Iterator[Newcomers]:
        """Fits that do not look at a column, for rows whose label there is new; none where there is no posterior."""
        for without in chosen.without:
            try:
                learned = self._learned(without.contest.winner.on(fit.evidence), without.contest)
                other = self._averaged(
                    replace(learned.fit(fit.columns, fit.target, fit.offset), found=None), without.contest
                )  # fmt: skip
            except np.linalg.LinAlgError:
                continue
            yield Newcomers(without.column, without.weight, other)

    def _learned_by_neighbours(
        self, family: Family, kernels: list, X: Array, y: Array, offset: Array, chosen: Contest | None
    ) -> SearchOutcome:
        """Hyperparameters from all rows or some, with neighbours found again until they are near under them."""
        settings = self.neighbours if isinstance(self.neighbours, Neighbours) else Neighbours(self.neighbours)
        rows = NeighboursField(X, y, offset, settings, kernels)
        evidence = self._evidence(family, kernels, rows, chosen)
        part, most = evidence, rows.settings.learn_rows
        if most is not None and most < rows.n_rows:
            state = check_random_state(0 if self.random_state is None else self.random_state)
            rng = np.random.default_rng(state.randint(2**31 - 1))
            part = evidence.sample(pick(rows.n_rows, most, rng))
        learned = self._learned(part, chosen)
        for _ in range(REARRANGED):
            field, kernels = learned.evidence.field, learned.evidence.kernels
            assert isinstance(field, NeighboursField)
            if field.suits(kernels):
                break
            more = self._learned(learned.evidence.with_field(replace(field, kernels=kernels)), chosen)
            learned = replace(more, n_iter=learned.n_iter + more.n_iter)
        if part is not evidence:
            near = learned.evidence.field.kernels  # type: ignore[attr-defined]
            whole = evidence.at(learned.evidence.theta).with_field(replace(rows, kernels=near))
            learned = replace(learned, evidence=whole, start=None)
        return learned

    def _learned(self, evidence: Evidence, chosen: Contest | None = None) -> SearchOutcome:
        """Hyperparameters from rows in memory."""
        if self.optimizer is None or not evidence.theta.size:
            return SearchOutcome(evidence)
        seed = check_random_state(self.random_state).randint(2**31 - 1) if self.n_restarts_optimizer else 0
        how = self._search(np.random.default_rng(seed))
        if chosen is None:
            others = shorter_starts(evidence.kernels[0], evidence.theta) if self.kernel is None else []
            return learn(evidence, how, others)
        winner = chosen.winner
        learned = learn(evidence, how, rows=winner.rows, inverse_hessian=winner.inverse_hessian)
        return replace(learned, search=chosen.table)

    def _fit_inducing(self, X: Any, y: Any, offset: Any, weight: Array | None) -> Fit:
        if self.inducing is None:
            raise ValueError(
                Message(
                    f"X is a {type(X).__name__}, whose rows are read in chunks: exact inference needs all of them "
                    "at once. ",
                    Hint("Pass inducing=M", "inducing", ...),
                    ", the number of inducing points (for example 256).",
                )
            )
        settings = self.inducing if isinstance(self.inducing, Inducing) else Inducing(self.inducing)
        source = source_of(self, X, y, offset, weight, settings.chunk_rows)
        Z = settings.given(source.raw.n_features)
        if Z is None and int(settings.points) > source.n_rows:  # type: ignore[arg-type]
            raise ValueError(
                Message(
                    Hint("inducing", "inducing"),
                    f" must be at most the number of rows; got {settings.points!r} for {source.n_rows} row(s).",
                )
            )
        state = check_random_state(0 if self.random_state is None else self.random_state)
        rng = np.random.default_rng(state.randint(2**31 - 1))
        sample = settings.sample(source.n_rows, rng)
        family, classes, rows, picked, weight = prepared(self, source, y, sample)
        some = DenseField(picked.X, picked.y, picked.offset)
        chosen = self._chosen(family, some, source.columns, weight, (sample, source.n_rows))
        kernels = self._kernels(family, picked.X, source.columns, weight) if chosen is None else chosen.winner.kernels
        if Z is None:
            Z = settings.choose(picked.X, kernels, int(rng.integers(2**31 - 1)))
        evidence = self._evidence(family, kernels, InducingField(rows, Z, settings.jitter), chosen)
        learned = SearchOutcome(evidence)
        if self.optimizer is not None:
            learned = learn_in_samples(evidence, settings, sample, self._search(rng))
            learned = learned if chosen is None else replace(learned, search=chosen.table)
        target = Target(source.target_names, frames.kind_of(y), classes)
        return self._averaged(learned.fit(source.columns, target, _name_of_offset(X, offset)), chosen)

    def _kernels(self, family: Family, X: Array, columns: Columns, weight: Array | None = None) -> list:
        """The kernels to start from; X are the rows, of some weight, that the default one takes its scale from."""
        kernels = resolve_kernel(self.kernel, family.latent_dim, X, columns, weight, family.latent_variance)
        unused = [columns.called(int(j)) for j in np.flatnonzero(~used_columns(kernels, columns.count))]
        if unused and len(unused) < columns.count:  # a kernel that looks at nothing at all is meant so
            warnings.warn(
                f"no part of the kernel looks at {', '.join(unused)}: what it says of y is lost. Leave it out of X, or "
                "add a part, such as On(RBF(), column) from ggpm.kernels.",
                UserWarning,
                stacklevel=stacklevel(),
            )
        return kernels

    def _evidence(self, family: Family, kernels: list, field: Field, chosen: Contest | None) -> Evidence:
        """The evidence to maximise, from where a contest ended."""
        evidence = Evidence(family, kernels, field, self._resolve_inference(family, field), self.objective)
        if chosen is not None:
            return chosen.winner.on(evidence)
        evidence.priors = priors.resolve(self.priors, kernels, self.kernel is None, family, evidence.theta)
        return evidence

    def _search(self, rng: np.random.Generator) -> Search:
        return Search(self.optimizer, self.n_restarts_optimizer, rng, self._report, self.journal)

    def _report(self, what: str) -> Callable[[int, int, float], None] | None:
        """Function that the search calls after every evaluation with (run, evaluation, value), or None."""
        if self.listener is not None:
            return partial(self.listener, what)
        return partial(_print_progress, what) if self.verbose else None

    def _progress(self) -> Callable[[str, int, float], None] | None:
        """Function that a contest calls after every trial: it tells of those that end later than two seconds on."""
        began = time.perf_counter()

        def tell(name: str, trial: int, score: float) -> None:
            report = self._report(f"score of {name}")
            if report is not None and time.perf_counter() - began > SILENT:
                report(0, trial, score)

        return tell if self.listener is not None or self.verbose else None

    @abstractmethod
    def resolve_family(self, y: Any, weight: Array | None = None) -> tuple[Family, Array, NDArray | None]:
        """The family bound to the data, the encoded y, and the labels (classifiers)."""

    def _resolve_inference(self, family: Family, field: Field) -> Rule:
        if isinstance(self.inference, str):
            if self.inference == AUTO:
                return choose(family, field)
            if self.inference not in INFERENCES:
                known = ", ".join(repr(name) for name in (AUTO, *INFERENCES))
                raise ValueError(
                    f"inference must be one of {known} or an object; got {self.inference!r}."
                    f"{did_you_mean(self.inference, (AUTO, *INFERENCES))}"
                )
            return INFERENCES[self.inference]()
        if isinstance(self.inference, type):
            raise TypeError(f"inference must be an object, not its class. Try {self.inference.__name__}().")
        if not isinstance(self.inference, Rule):
            raise TypeError(f"inference must be a name or an object with settings; got {self.inference!r}.")
        return self.inference


def _name_of_offset(X: Any, offset: Any) -> str | None:
    """Name of the offset of rows that may know it themselves."""
    given = getattr(X, "offset", None) if is_streamed(X) and offset is None else offset
    return given if isinstance(given, str) else offset_name(given)


def _print_progress(what: str, run: int, calls: int, value: float) -> None:
    print(f"[ggpm] run {run}, evaluation {calls}: {what} {value:.6f}", file=sys.stderr)
