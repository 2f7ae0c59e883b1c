"""Synthetic logs of ads with known probabilities, for programs of this folder.

The true probabilities give the best AUC that any model can reach.
"""

import argparse
import dataclasses
import pathlib
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lodestar.metrics import BatchAUC


def arguments(rows: int, epochs: int = 1) -> argparse.Namespace:
    """Parses the options that all programs on these logs share."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--rows", type=int, default=rows, help="rows to generate"
    )
    parser.add_argument(
        "--epochs", type=int, default=epochs, help="epochs of training"
    )
    return parser.parse_args()


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Returns the exact area under the ROC curve: all rows are one batch."""
    return float(BatchAUC(dtype="float64")(labels, scores))


@dataclasses.dataclass(frozen=True)
class Log:
    """A log in the order of time. The last tenth is for the test."""

    train: list[str]
    test: list[str]
    truth: dict[str, np.ndarray]  # probabilities of the test rows, and outcomes


def criteo_like(folder: str | pathlib.Path, rows: int) -> Log:
    """Writes a log with the columns of Criteo's: 13 numbers and 26 ids.

    The `truth` has the "probability" of each test row and its "click".
    """
    command = [sys.executable, "-m", "lodestar", "data", "generate", "--one-id"]
    size = ["--format=parquet", f"--samples={rows}", "--files=10"]
    subprocess.run([*command, *size, folder], check=True, capture_output=True)
    files = sorted(map(str, pathlib.Path(folder).glob("part-*.parquet")))
    pairs = np.load(pathlib.Path(files[-1]).with_suffix(".npy"))
    truth = {"probability": pairs[:, 0], "click": pairs[:, 1]}
    return Log(files[:-1], files[-1:], truth)


USERS, ADS, CITIES, CATEGORIES = 2000, 500, 20, 20


def conversions(folder: str | pathlib.Path, rows: int) -> Log:
    """Writes impressions of ads, with clicks and what followed them.

    The columns are the ids `user`, `city`, `ad` and `category`, and the labels
    `click` and `conversion`, which is missing where nobody clicked. Who clicks
    tends to buy, so clicks are no random sample of the impressions. The `truth`
    has the probabilities "p_click" and "p_conversion" of each test row, and the
    outcomes "click" and "conversion", the latter of all impressions.
    """
    rng = np.random.default_rng(1)
    city, category = (
        rng.integers(CITIES, size=USERS),
        rng.integers(CATEGORIES, size=ADS),
    )
    zipf = 1 / np.arange(1, ADS + 1) ** 0.8
    user = rng.integers(USERS, size=rows)
    ad = rng.choice(ADS, size=rows, p=zipf / zipf.sum())

    def tastes(rng):
        """Logits by user, by ad, and by city and category."""
        return [
            rng.normal(0, s, n)
            for s, n in ((0.5, USERS), (0.5, ADS), (1.0, (CITIES, CATEGORIES)))
        ]

    def logits(tastes):
        by_user, by_ad, by_pair = tastes
        return by_user[user] + by_ad[ad] + by_pair[city[user], category[ad]]

    clicks = tastes(rng)
    buys = [0.7 * a + 0.7 * b for a, b in zip(clicks, tastes(rng))]
    truth = {
        "p_click": 1 / (1 + np.exp(3.0 - logits(clicks))),
        "p_conversion": 1 / (1 + np.exp(2.5 - logits(buys))),
    }
    for name in ("click", "conversion"):
        truth[name] = (rng.random(rows) < truth[f"p_{name}"]).astype(int)
    table = pa.table(
        {
            "user": user,
            "city": city[user],
            "ad": ad,
            "category": category[ad],
            "click": truth["click"],
            "conversion": pa.array(
                truth["conversion"], mask=truth["click"] == 0
            ),
        }
    )
    first = rows - rows // 10
    paths = [
        str(pathlib.Path(folder, n)) for n in ("train.parquet", "test.parquet")
    ]
    pq.write_table(table[:first], paths[0])
    pq.write_table(table[first:], paths[1])
    return Log(
        paths[:1], paths[1:], {name: v[first:] for name, v in truth.items()}
    )
