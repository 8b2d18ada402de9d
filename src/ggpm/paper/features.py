"""Colour histograms of images, and the table that the annotation experiment reads."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ggpm.paper.runner import require

Array = NDArray[np.float64]

BINS = {"luv": (4, 6, 6), "hsv": (8, 4, 4)}
# L in [0, 100]; u and v of the sRGB gamut (D65), rounded outwards
RANGES = {"luv": ((0.0, 100.0), (-84.0, 176.0), (-135.0, 108.0)), "hsv": ((0.0, 1.0), (0.0, 1.0), (0.0, 1.0))}
PREFIX = "top10_"
LABELS = "labels.csv"


@dataclass(frozen=True)
class Annotated:
    """Features (n, p), presence of words (n, d), and the words."""

    X: Array
    present: NDArray[np.bool_]
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        empty = np.flatnonzero(~self.present.any(axis=1))
        if empty.size:
            raise ValueError(f"every image needs at least one word; row {empty[0] + 1} has none. Drop such rows.")


def color_histogram(image: NDArray, space: str = "luv") -> Array:
    """Joint histogram of an RGB image in another colour space, normalised to sum to one.

    Parameters
    ----------
    image : array (height, width, 3), uint8 or float in [0, 1]
    space : "luv" (4 x 6 x 6 bins) or "hsv" (8 x 4 x 4 bins)

    Returns
    -------
    array (number of bins,)

    Examples
    --------
    >>> red = np.zeros((2, 2, 3), dtype=np.uint8)
    >>> red[..., 0] = 255
    >>> h = color_histogram(red, "hsv")
    >>> h.shape, float(h.max())
    ((128,), 1.0)
    """
    color = require("skimage.color")
    if space not in BINS:
        raise ValueError(f"space must be 'luv' or 'hsv'; got {space!r}.")
    if image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"image must be an RGB array (height, width, 3); got shape {image.shape}.")
    convert = color.rgb2luv if space == "luv" else color.rgb2hsv
    pixels = convert(image).reshape(-1, 3)
    low, high = np.array(RANGES[space]).T
    pixels = np.clip(pixels, low, high)  # colours at the rim of the gamut belong to the outermost bin
    counts, _ = np.histogramdd(pixels, bins=BINS[space], range=RANGES[space])
    return counts.ravel() / len(pixels)


def read(path: Path, space: str = "luv") -> Annotated:
    """Annotated images from a feature table or from a folder of images.

    Parameters
    ----------
    path : Path
        A ``.csv`` with one row per image, columns ``luv_*`` and/or ``hsv_*`` (a histogram) and one column
        ``top10_<word>`` of 0/1 per word; or a folder with images and a table ``labels.csv`` whose column ``file``
        names an image and whose other columns are words, 0/1.
    space : "luv" or "hsv"
        Which histogram.
    """
    return _read_folder(path, space) if path.is_dir() else _read_table(path, space)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError(f"{path} has no rows.")
    return rows


def _present(rows: list[dict[str, str]], columns: list[str], path: Path) -> NDArray[np.bool_]:
    values = [[row[column] for column in columns] for row in rows]
    allowed = {"0", "1"}
    for number, row in enumerate(values):
        wrong = [value for value in row if value not in allowed]
        if wrong:
            raise ValueError(f"{path}: words must be marked with 0 or 1; row {number + 1} has {wrong[0]!r}.")
    return np.array(values) == "1"


def _read_table(path: Path, space: str) -> Annotated:
    rows = _rows(path)
    names = list(rows[0])
    features = [name for name in names if name.startswith(f"{space}_")]
    words = [name for name in names if name.startswith(PREFIX)]
    if not features or len(words) < 2:
        raise ValueError(
            f"{path} must have columns {space}_* (a histogram) and at least two columns {PREFIX}<word> of 0/1; got "
            f"{len(features)} and {len(words)}. See docs/paper.md."
        )
    try:
        X = np.array([[float(row[name]) for name in features] for row in rows])
    except ValueError as err:
        raise ValueError(f"{path}: the columns {space}_* must be numbers ({err}).") from None
    return Annotated(X, _present(rows, words, path), tuple(word.removeprefix(PREFIX) for word in words))


def _read_folder(path: Path, space: str) -> Annotated:
    table = path / LABELS
    if not table.is_file():
        raise ValueError(f"the folder {path} must hold a table {LABELS} (columns: file, then one per word, 0/1).")
    rows = _rows(table)
    if "file" not in rows[0] or len(rows[0]) < 3:
        raise ValueError(f"{table} must have a column 'file' and at least two words; got {list(rows[0])}.")
    words = [name for name in rows[0] if name != "file"]
    io, color = require("skimage.io"), require("skimage.color")
    features = []
    for row in rows:
        image = io.imread(path / row["file"])
        if image.ndim == 2:
            image = color.gray2rgb(image)
        features.append(color_histogram(image[..., :3], space))
    return Annotated(np.array(features), _present(rows, words, table), tuple(words))
