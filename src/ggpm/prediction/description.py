"""Description of a fitted model for people: what it is, its hyperparameters and how sure they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ggpm.data import frames
from ggpm.data.text import see
from ggpm.fields.dense import DensePosterior
from ggpm.fields.inducing.posterior import InducingPosterior
from ggpm.kernels import summands
from ggpm.learning.fit import Fit, RowsNotStored
from ggpm.learning.information import known
from ggpm.learning.priors import names_of
from ggpm.prediction.terms import term_names, term_shares

__all__ = ["Description", "describe", "facts_of", "hyperparameter_names", "model_html", "readable_names"]

MOST_PHI = 6  # entries of phi in a line
WIDEST = 1e6  # ratio of the ends of an interval from which it says nothing: the evidence hardly bends there
UNKNOWN = "the data do not tell"
DIGITS = 4  # of numbers in tables for people; `to_frame` has all of them


def hyperparameter_names(model: Any) -> list[str]:
    """Names of the entries of ``theta_``, each once.

    >>> import ggpm
    >>> x = np.arange(6.0)
    >>> hyperparameter_names(ggpm.GGPRegressor("gamma", optimizer=None).fit(x[:, None], x + 1))
    ['k1__k1__constant_value', 'k1__k2__length_scale', 'k2__constant_value', 'gamma: phi']
    """
    fit = model.fit_
    plain = names_of(fit.kernels, fit.family)
    own = type(fit.family).__name__.lower()
    several = len(fit.kernels) > 1
    out, seen = [], dict.fromkeys(plain, 0)
    for name in plain:
        kernel, _, rest = name.partition("__") if several and name != "phi" else ("", "", name)
        told = f"{own}: phi" if name == "phi" else f"kernel {kernel}: {rest}" if several else name
        out.append(told if plain.count(name) == 1 else f"{told}[{seen[name]}]")
        seen[name] += 1
    return out


def readable_names(fit: Fit) -> list[str]:
    """Names of the kernels' hyperparameters by their terms, as the table of terms has them.

    None at all where one would stand for two of them.

    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> from ggpm import GGPRegressor
    >>> X = np.arange(8.0).reshape(4, 2)
    >>> readable_names(GGPRegressor("poisson", 2.0 * RBF() + WhiteKernel(), optimizer=None).fit(X, X[:, 0]).fit_)
    ['RBF: variance', 'RBF: length_scale', 'noise: variance']
    """
    plain, told = names_of(fit.kernels, fit.family), list[str]()
    for j, kernel in enumerate(fit.kernels):
        before = f"kernel {j}: " if len(fit.kernels) > 1 else ""
        for term, part in zip(term_names(kernel), summands(kernel)):
            kind, _, columns = term.partition("(")
            listed = columns[:-1].split(", ") if columns.find(")") == len(columns) - 1 else []  # of one factor
            for h in part.hyperparameters:
                name = h.name.rpartition("__")[2]
                name = "variance" if name in ("constant_value", "noise_level") else name
                if h.fixed:
                    continue
                if h.n_elements == 1:
                    told.append(f"{before}{term}: {name}")
                elif h.n_elements == len(listed):
                    told += [f"{before}{kind}({column}): {name}" for column in listed]
                else:
                    told += [f"{before}{term}: {name}[{k}]" for k in range(h.n_elements)]
    count = len(plain) - (fit.family.log_hyper.size if fit.family.learns_phi else 0)
    return told if len(told) == len(set(told)) == count else []


@dataclass(frozen=True)
class Description:
    """A fitted model in words and tables: `to_frame`, `to_markdown`, `to_latex`, and HTML in notebooks."""

    facts: Mapping[str, str]
    """What the model is and how the fit went, line by line."""
    tables: Mapping[str, Any]
    """Tables by title, pandas frames: "hyperparameters" first, then "terms", shares of what varies of the latent."""
    level: float
    names: Sequence[str] = ()
    """Names of the first hyperparameters for people; those of `to_frame` are for programs, and of priors."""

    def to_frame(self, table: str = "hyperparameters") -> Any:
        """One of the tables, with all digits, as a pandas frame."""
        if table not in self.tables:
            raise ValueError(f"there is no table {table!r}; there are {', '.join(self.tables)}.")
        return self.tables[table].copy()

    def to_markdown(self) -> str:
        """Facts and tables in Markdown."""
        blocks = ["\n".join(f"- **{name}**: {_plain_markdown(text)}" for name, text in self.facts.items())]
        for title, frame in self.tables.items():
            head, rows = self._cells(title, frame)
            lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
            text = "\n".join("| " + " | ".join(map(_plain_markdown, line)) + " |" for line in lines)
            blocks.append(f"{title}\n\n{text}")
        return "\n\n".join(blocks) + "\n"

    def to_latex(self) -> str:
        """The tables in LaTeX (package booktabs), the facts as comments before them."""
        out = ["% " + f"{name}: {text}".replace("\n", " ") for name, text in self.facts.items()]
        for title, frame in self.tables.items():
            head, rows = self._cells(title, frame)
            out += [f"% {title}", f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", "\\toprule"]
            out += [" & ".join(map(_plain_latex, head)) + " \\\\", "\\midrule"]
            out += [" & ".join(map(_plain_latex, row)) + " \\\\" for row in rows]
            out += ["\\bottomrule", "\\end{tabular}"]
        return "\n".join(out) + "\n"

    def _repr_html_(self) -> str:
        facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in self.facts.items())
        blocks = [f"<dl>{facts}</dl>"]
        for title, frame in self.tables.items():
            head, rows = self._cells(title, frame)
            top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
            body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
            blocks.append(f"<table><caption>{escape(title)}</caption><tr>{top}</tr>{body}</table>")
        blocks.append(f"<p>{see('inference', 'How hyperparameters are learned')}</p>")
        return "".join(blocks)

    def _cells(self, title: str, frame: Any) -> tuple[list[str], list[list[str]]]:
        """Head and rows of a table as text, with the names for people."""
        head, rows = _cells(frame)
        if title == "hyperparameters":
            for row, name in zip(rows, self.names):
                row[0] = name
        return head, rows

    def __str__(self) -> str:
        width = max(map(len, self.facts))
        blocks = ["\n".join(f"{name:<{width}}  {text}" for name, text in self.facts.items())]
        for title, frame in self.tables.items():
            head, rows = self._cells(title, frame)
            widths = [max(map(len, column)) for column in zip(head, *rows)]
            blocks.append(
                "\n".join(
                    "  ".join(f"{c:<{w}}" if j == 0 else f"{c:>{w}}" for j, (c, w) in enumerate(zip(line, widths)))
                    for line in (head, *rows)
                )
            )
        return "\n\n".join(blocks)

    __repr__ = __str__


def facts_of(model: Any) -> dict[str, str]:
    """What a fitted model is and how its fit went, line by line; nothing is computed.

    >>> from ggpm import GGPRegressor
    >>> facts_of(GGPRegressor("poisson", optimizer=None).fit([[0.0], [1.0]], [1, 2]))["family"]
    'Poisson'
    """
    fit: Fit = model.fit_
    stored = not isinstance(fit.evidence.field, RowsNotStored)
    notes = {f"note {number}": str(note) for number, note in enumerate(fit.notes, 1)}
    return (
        {
            "family": type(fit.family).__name__,
            "kernel": "; ".join(map(repr, fit.kernels)),
            "inference": type(fit.rule).__name__.lower() + (f", {fit.curvature} curvature" if fit.curvature else ""),
            "rows": str(fit.evidence.field.n_rows) if stored else "not in the file",
            "log evidence": f"{fit.log_evidence:.{DIGITS + 2}g}",
            "converged": "yes" if fit.converged else "no",
        }
        | ({"predictions": told} if (told := _of_predictions(fit)) else {})
        | notes
    )


def _of_predictions(fit: Fit) -> str:
    """What predictions are more than those of the kernel that is told, in a phrase, or nothing."""
    average = f"averages of {len(fit.members)} fits, of which the one told here weighs {fit.weight:.2f}"
    told = ([average] if fit.others else []) + (["recalibrated"] if fit.recalibration is not None else [])
    return ", ".join(told)


def model_html(model: Any) -> str:
    """A fitted model in few lines of HTML, for notebooks.

    >>> from ggpm import GGPRegressor
    >>> "Poisson" in model_html(GGPRegressor("poisson", optimizer=None).fit([[0.0], [1.0]], [1, 2]))
    True
    """
    estimator, facts = type(model).__name__, facts_of(model)
    name = facts.pop("family")
    built_in = type(model.family_).__module__.startswith("ggpm.")
    family = see(f"reference/ggpm.families.{name}", name) if built_in else escape(name)
    phi: Any = np.ravel(np.asarray(model.family_.phi, dtype=float)) if model.family_.learns_phi else []
    learned = {"φ": ", ".join(f"{v:.{DIGITS}g}" for v in phi[:MOST_PHI]) + (", ..." if len(phi) > MOST_PHI else "")}
    rows = {"family": family} | {k: escape(v) for k, v in ((facts | learned) if len(phi) else facts).items()}
    lines = "".join(f"<tr><th>{escape(k)}</th><td>{v}</td></tr>" for k, v in rows.items())
    more = (
        "<code>summary()</code> has intervals, <code>summary(X)</code> predictions, <code>ggpm.report</code> all of it"
    )
    title, warned = see(f"reference/ggpm.{estimator}", estimator), see("messages", "what warnings mean")
    return f"<p><strong>{title}</strong>, fitted; {more}; {warned}.</p><table>{lines}</table>"


def describe(model: Any, level: float = 0.9) -> Description:
    """Description of a fitted model, with intervals of its hyperparameters from the curvature of the evidence.

    >>> from ggpm import GGPRegressor
    >>> X = np.linspace(0, 5, 30)[:, None]
    >>> told = describe(GGPRegressor("poisson").fit(X, np.arange(30) % 5))
    >>> told.to_frame().columns.tolist()
    ['value', 'lower', 'upper', 'note']
    """
    fit: Fit = model.fit_
    facts = facts_of(model)
    notes = {name: facts.pop(name) for name in list(facts) if name.startswith("note ")}
    told, reason = _hyperparameters(model, level)
    drawn = f"{level:.0%}, from the curvature of the evidence" if told["lower"].notna().any() else ""
    if drawn or reason:
        facts["intervals"] = "; ".join(filter(None, (drawn, reason)))
    facts |= notes
    return Description(facts, {"hyperparameters": told, **_terms(fit)}, level, readable_names(fit))


def _terms(fit: Fit) -> dict[str, Any]:
    """Table of the terms' shares in what varies of the latent over the rows that the posterior knows."""
    if not isinstance(fit.posterior, DensePosterior | InducingPosterior):
        return {}
    shares = term_shares(fit.posterior, fit.posterior.inputs)
    frame = frames.require("pandas").DataFrame(shares).T
    frame.columns = ["share"] if len(frame.columns) == 1 else [f"share of latent {j}" for j in frame.columns]
    frame.index.name = "term"
    return {"terms": frame}


def _hyperparameters(model: Any, level: float) -> tuple[Any, str]:
    """Table of the hyperparameters, and why they have no intervals, or nothing."""
    fit: Fit = model.fit_
    names, p = hyperparameter_names(model), fit.theta.size
    own = fit.family.log_hyper.size if fit.family.learns_phi else 0
    phi = np.asarray(fit.family.phi if own else [], dtype=float)
    values, ends, held, reason = np.exp(fit.theta[: p - own]), np.full((p - own, 2), np.nan), np.zeros(p, bool), ""
    phi_ends = np.full((phi.size, 2), np.nan)
    if isinstance(fit.evidence.field, RowsNotStored):
        reason = "none: the training rows are not in the file"
    elif model.optimizer is None:
        reason = "none: hyperparameters were given, not learned"
    elif p:
        found = known(fit.evidence)
        ends, held, reason = found.value_interval(level)[: p - own], found.held, found.note
        phi_ends = found.phi_interval(fit.family, level) if own else phi_ends
    if own:  # phi may have other entries than coordinates: those of a matrix, cut points
        plain = names[-1].partition("[")[0]
        names = names[: p - own]
        places = [",".join(map(str, k)) for k in np.ndindex(phi.shape)]
        names += [plain] if phi.size == 1 else [f"{plain}[{place}]" for place in places]
        held = np.concatenate([held[: p - own], held[p - own :] if phi.size == own else np.zeros(phi.size, bool)])
        values, ends = np.concatenate([values, phi.ravel()]), np.concatenate([ends, phi_ends])
    frame = frames.require("pandas").DataFrame(
        {
            "value": values,
            "lower": ends[:, 0],
            "upper": ends[:, 1],
            "note": np.where(held, "at its bound", np.where(_says_nothing(ends), UNKNOWN, "")).astype(object),
        },
        index=names,
    )
    frame.index.name = "hyperparameter"
    return frame, reason


def _says_nothing(ends: Any) -> Any:
    """Mask of the intervals of positive numbers that span more than WIDEST."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (ends[:, 0] >= 0) & (ends[:, 1] > WIDEST * ends[:, 0])


def _cells(frame: Any) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a frame as text: numbers with few digits, missing ones empty, empty columns left out.

    Ends of intervals that say nothing are dashes.
    """
    kept = [name for name in frame.columns if not (frame[name].dtype == object and not any(frame[name]))]
    head = [str(frame.index.name or ""), *map(str, kept)]
    rows = []
    for label, (_, line) in zip(frame.index, frame.loc[:, kept].iterrows()):
        silent = ("lower", "upper") if line.get("note") == UNKNOWN else ()
        rows.append([str(label), *("–" if name in silent else _cell(value) for name, value in line.items())])
    return head, rows


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:.{DIGITS}g}"
    return str(value)


def _plain_markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _plain_latex(text: str) -> str:
    marks = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(marks.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
