"""Runs the programs of examples/models on small data, and tests their data."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow.parquet as pq
import pytest

FOLDER = pathlib.Path(
    os.path.abspath(__file__), "../../../examples/models"
).resolve()
DATA = {"clicks.py", "movielens.py"}
SERIES, EPISODES, USERS, LENGTH = 8, 12, 150, 24


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A file like the wheel with MovieLens-100k.

    Each user follows two series, one episode after another, and likes one of
    them, of the genre "Good" or "Bad" by the user's gender.
    """
    rng = np.random.default_rng(1)
    lines = {
        "inter": [
            "user_id:token\titem_id:token\trating:float\ttimestamp:float"
        ],
        "user": [
            "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token"
        ],
        "item": [
            "item_id:token\tmovie_title:token_seq\trelease_year:token"
            "\tclass:token_seq"
        ],
    }
    for series in range(SERIES):
        genre = ("Good", "Bad")[series % 2]
        for episode in range(EPISODES):
            item = 1 + series * EPISODES + episode
            title = f'{series}, "the" {episode}'
            lines["item"].append(f"{item}\t{title}\t19{series:02}\t{genre} Any")
    ratings = []
    for user in range(1, USERS + 1):
        gender = "FM"[user % 2]
        lines["user"].append(f"{user}\t30\t{gender}\tother\tV{user}")
        followed = rng.choice(SERIES // 2, 2, replace=False) * 2 + [0, 1]
        which = rng.permutation(np.repeat([0, 1], LENGTH // 2))
        seen = [0, 0]
        for time, n in enumerate(which):
            item = 1 + followed[n] * EPISODES + seen[n]
            seen[n] += 1
            likes = 5 if n == user % 2 else 2
            ratings.append(f"{user}\t{item}\t{likes}\t{1000 * time + user}")
    lines["inter"] += list(rng.permutation(ratings))
    path = tmp_path_factory.mktemp("data") / "small.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in lines.items():
            archive.writestr(
                f"recbole/dataset_example/ml-100k/ml-100k.{name}",
                "\n".join(text) + "\n",
            )
    return path


@pytest.fixture
def movielens(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import movielens

    return movielens


def run(name, *options):
    """Runs a program as a user does; returns its output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for variable in ("TF_CPP_MIN_LOG_LEVEL", "LODESTAR_QUIET_START"):
        environment.pop(variable, None)
    done = subprocess.run(
        [sys.executable, FOLDER / name, *map(str, options)],
        capture_output=True,
        env=environment,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def figures(name, printed):
    """Returns the figures of the line that begins with `name`."""
    (line,) = re.findall(rf"^{name} +([\d. ]+)$", printed, re.M)
    return [*map(float, line.split())]


def test_programs_are_short():
    programs = {path.name for path in FOLDER.glob("*.py")} - DATA
    assert programs == {
        "dcn.py",
        "din.py",
        "dlrm.py",
        "mmoe_esmm.py",
        "sasrec.py",
        "two_towers.py",
    }
    for name in programs:
        assert len((FOLDER / name).read_text().splitlines()) <= 120, name


@pytest.mark.parametrize("name", ["dcn.py", "dlrm.py"])
def test_click_models(name):
    printed = run(name, "--rows", 20_000)
    (auc,), (best,) = figures("AUC", printed), figures("Best AUC", printed)
    assert 0.6 < auc < best < 0.82
    assert "The first test impression is clicked with probability 0." in printed


def test_mmoe_esmm():
    printed = run("mmoe_esmm.py", "--rows", 60_000)
    for task, least in (("click", 0.6), ("conversion", 0.55), ("bought", 0.65)):
        auc, best = figures(task, printed)
        assert least < auc < best
    click, conversion, bought = map(
        float, re.findall(r"^p\(.* (0\.\d+)$", printed, re.M)
    )
    assert bought == pytest.approx(click * conversion, abs=2e-4)


@pytest.mark.parametrize(
    "program, name, epochs",
    [("two_towers.py", "two towers", 25), ("sasrec.py", "SASRec", 10)],
)
def test_next_item_models(program, name, epochs, small):
    printed = run(program, "--data", small, "--epochs", epochs)
    popular, recall = figures("most popular", printed), figures(name, printed)
    assert popular[0] < 0.5 < 0.8 < recall[0]
    assert popular[1] < recall[1]
    assert "After Star Wars and its sequel:  " in printed


def test_din(small):
    printed = run("din.py", "--data", small, "--epochs", 2)
    (auc,) = figures("AUC", printed)
    assert auc > 0.9
    assert "Indiana Jones and the Last Crusade 0." in printed


@pytest.mark.parametrize("split", ["last", "newest"])
def test_files_are_split_by_time(split, movielens, small, tmp_path):
    files = movielens.prepare(tmp_path, split, small)
    train, test = (pq.read_table(file).to_pylist() for file in files)
    assert len(train) + len(test) == USERS * LENGTH
    assert len(test) == USERS if split == "last" else len(test) == 360
    users = set() if split == "last" else {None}
    newest = max(row["timestamp"] for row in train)
    for row in test:
        assert split == "last" or row["timestamp"] >= newest
        assert row["user"] not in users
        if split == "last":
            users.add(row["user"])
            assert len(row["history"]) == LENGTH - 1
    past = {}
    for row in train + test:
        seen = past.setdefault(row["user"], [])
        assert row["history"] == [other["item"] for other in seen]
        assert row["history_genre"] == [other["genre"] for other in seen]
        assert row["history_rating"] == [other["rating"] for other in seen]
        assert row["genres"] == [row["genre"], "Any"]
        assert row["liked"] == (row["rating"] == 5)
        assert row["zip_code"] == f"V{row['user']}"
        seen.append(row)


def test_metrics_are_those_of_a_full_ranking(movielens, small, tmp_path):
    files = movielens.prepare(tmp_path, "last", small)
    train, test = (pq.read_table(file).to_pylist() for file in files)
    items = movielens.movies(files[0])["item"].to_pylist()
    assert items == sorted({row["item"] for row in train})
    scores = np.random.default_rng(1).integers(0, 40, (len(test), len(items)))
    hits, gains = [], []
    for row, of_row in zip(test, scores, strict=True):
        seen = {r["item"] for r in train if r["user"] == row["user"]}
        wanted = of_row[items.index(row["item"])]
        rank = sum(
            score >= wanted and item not in seen
            for item, score in zip(items, of_row, strict=True)
        )
        hits.append(rank <= 10)
        gains.append(1 / np.log2(1 + rank) if rank <= 10 else 0)
    found = movielens.recall_and_ndcg(scores, *files)
    np.testing.assert_allclose(found, [np.mean(hits), np.mean(gains)])


def test_an_unknown_wheel_is_refused(movielens, tmp_path, monkeypatch):
    monkeypatch.setattr(movielens, "CACHE", tmp_path)
    (tmp_path / movielens.WHEEL).write_bytes(b"other")
    with pytest.raises(SystemExit, match="the SHA-256 must be 9c99.*, got "):
        movielens.download()


def test_a_failed_download_names_the_option(movielens, tmp_path, monkeypatch):
    monkeypatch.setattr(movielens, "CACHE", tmp_path)
    monkeypatch.setattr(
        movielens.subprocess,
        "run",
        lambda command: subprocess.CompletedProcess(command, 1),
    )
    with pytest.raises(SystemExit, match="Download recbole.* `--data`"):
        movielens.download()
