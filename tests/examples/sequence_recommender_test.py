"""examples/sequence_recommender.py and the log and metrics that it uses."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import lodestar

# isort: split
import numpy as np
import pytest
import tensorflow as tf

FOLDER = pathlib.Path(os.path.abspath(__file__), "../../../examples").resolve()
SMALL = ["--users", 300, "--items", 200, "--batch-size", 128]


@pytest.fixture
def example(monkeypatch):
    """The example's module."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("LODESTAR_QUIET_START", "1")  # as the module leaves it
    import sequence_recommender

    return sequence_recommender


@pytest.fixture
def main(example):
    """Its entry; gives the exit code."""

    def run(*arguments):
        try:
            return example.main(list(map(str, arguments)))
        except SystemExit as error:
            return error.code

    return run


def numbers(text):
    """Line of the table -> hit rate, that of first items, MRR."""
    lines = re.findall(r"^(\S.*?) +((?: +0\.\d+){3})$", text, re.MULTILINE)
    return {name: [*map(float, found.split())] for name, found in lines}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_model_beats_counting(main, tmp_path, seed, capsys):
    assert main(*SMALL, "--seed", seed, "--output", tmp_path) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found = numbers(printed.out)
    assert len(found) == 4
    for popular, model in zip(found["popularity"], found["model"]):
        assert model > 1.5 * popular
    co_occurrence = found["co-occurrence with the last item"]
    assert found["model"][0] > 1.05 * co_occurrence[0]
    assert found["model"][0] < found["best that any model can be"][0]
    assert "differ by at most" in printed.out
    assert (tmp_path / "saved_model" / "saved_model.pb").exists()


def test_a_seed_decides_everything(main, tmp_path, capsys):
    command = [*SMALL, "--epochs", 1, "--output", tmp_path]
    tables = []
    for seed in (3, 3, 4):
        assert main(*command, "--seed", seed) == 0
        tables.append(numbers(capsys.readouterr().out))
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]


def test_histories_are_what_came_before(example):
    rng = np.random.default_rng(5)
    sessions_of_users = [1, 25, 0, 3]
    items_of_sessions = rng.integers(0, 4, sum(sessions_of_users))
    items = rng.integers(-(2**63), 2**63 - 1, items_of_sessions.sum())
    users = (
        lodestar.ragged.LoDTensor.from_lengths(
            items, [sessions_of_users, items_of_sessions]
        )
        .to_ragged()
        .to_list()
    )
    want = []
    for sessions in users:
        for s, session in enumerate(sessions):
            first = max(0, s - example.MAX_SESSIONS + 1)
            for i in range(len(session)):
                want.append([*sessions[first:s], session[:i]])
    histories = example.Histories(
        lodestar.ragged.LoDTensor.from_lengths(
            items, [sessions_of_users, items_of_sessions]
        )
    )
    order = rng.permutation(len(items))
    before = tf.function(histories.before)(tf.constant(order))
    assert before.to_list() == [want[event] for event in order]
    np.testing.assert_array_equal(histories.items(order), items[order])


def test_a_served_model_takes_users_and_items_it_has_not_seen(
    example, tmp_path
):
    scorer, model = example.build_models(seed=0)
    history = tf.ragged.constant([[[1, 2], [3]], [[2]]], dtype=tf.int64)
    features = {
        "history": history,
        "items": tf.constant([1, 2, 3], tf.int64),
        "log_in_batch": tf.zeros(3),
    }
    model(features, training=True)
    recommender = example.Recommender(scorer, np.array([1, 2, 3]), k=20)
    path = tmp_path / "saved_model"
    spec = tf.RaggedTensorSpec([None, None, None], tf.int64)
    lodestar.export.save(recommender, path, inputs={"history": spec})
    unseen = [[[9]], [[]], [], [[1], []], [[1, 2], [3]]]
    unseen = tf.ragged.constant(unseen, ragged_rank=2, dtype=tf.int64)
    want = recommender(unseen)
    served = tf.saved_model.load(path)
    got = served.serve({"history": unseen})
    assert got["items"].shape == got["scores"].shape == (5, 3)
    np.testing.assert_array_equal(got["items"], want["items"])
    np.testing.assert_allclose(got["scores"], want["scores"], atol=1e-6)
    nine, nothing, nobody, *_ = got["scores"].numpy()
    np.testing.assert_array_equal(nothing, nobody)
    assert not np.array_equal(nine, nothing)  # the row that 9 would start with
    table = model.get_layer("item").table
    assert table.export().ids.numpy().tolist() == [1, 2, 3]


def test_what_is_true_of_a_log_is_what_is_drawn(example):
    log = example.session_log.generate(1000, 150, seed=6)
    places = np.arange(0, len(log.items), 7)
    probabilities = log.probabilities(places)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    best = np.argsort(-probabilities, axis=1)[:, :10]
    expected = np.take_along_axis(probabilities, best, axis=1).sum(axis=1)
    hit = (log.catalogue.keys[best] == log.items[places, None]).any(axis=1)
    error = np.sqrt(np.sum(expected * (1 - expected))) / len(places)
    assert abs(hit.mean() - expected.mean()) < 4 * error
    # Nothing is seen before it is out.
    drawn = log.catalogue.keys == log.items[places, None]
    assert np.all(probabilities[drawn] > 0)


def test_the_theme_of_a_session_is_told_from_its_items(example):
    log = example.session_log.generate(100, 80, seed=7)
    themes = np.eye(example.session_log.THEMES)
    column = {key: i for i, key in enumerate(log.catalogue.keys.tolist())}
    for place in range(0, len(log.items), 97):
        session = log.session_of_item[place]
        day = np.full(len(themes), log.days[session])
        by_theme = log.catalogue.probabilities(themes, day)
        theme = log.tastes[log.user_of_session[session]].copy()
        before = place - 1
        while before >= 0 and log.session_of_item[before] == session:
            theme *= by_theme[:, column[log.items[before]]]
            before -= 1
        np.testing.assert_allclose(
            log.probabilities(np.array([place])),
            theme[None] @ by_theme / theme.sum(),
        )


def test_ranks_are_in_the_middle_of_equal_scores(example):
    ranking = example.ranking
    scores = np.array([[3.0, 1, 2], [1, 1, 0], [1, 1, 1], [0, 0, 1]])
    found = ranking.rank(
        lambda events: scores[events],
        np.arange(4),
        np.array([30, 20, 10, 25]),
        np.array([10, 20, 30]),
    )
    np.testing.assert_array_equal(found.ranks, [2, 1.5, 2, np.inf])
    assert found.hit_rate(1) == 0
    assert found.hit_rate(2) == 0.75
    assert found.hit_rate(2, np.array([True, False, False, True])) == 0.5
    assert found.mean_reciprocal_rank == pytest.approx((0.5 + 2 / 3 + 0.5) / 4)


def test_co_occurrence_counts_pairs_of_a_session(example):
    counted = example.ranking.CoOccurrence(
        np.array([10, 20, 30, 10, 20]),
        np.array([0, 0, 0, 1, 1]),
        np.array([10, 20, 30]),
    )
    scores = counted.scores(
        np.array([10, 30, 99, 10]), np.array([True, True, True, False])
    )
    popular = np.array([2, 2, 1]) / 6
    pairs = [[0, 2, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(scores, pairs + popular)


def test_an_output_that_cannot_be_used(main, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    for out in (file, file / "below"):
        assert main(*SMALL, "--output", out) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"sequence_recommender: {out}: cannot be made")
        assert error.count("\n") == 1
    other = tmp_path / "saved_model"
    other.mkdir()
    assert main(*SMALL, "--output", tmp_path) == 2
    assert capsys.readouterr().err == (
        f"sequence_recommender: {other}: is no SavedModel, and would be "
        "replaced\n"
    )


def test_a_rate_that_breaks_the_model_is_said(main, tmp_path, capsys):
    command = [*SMALL, "--learning-rate", 1e30, "--output", tmp_path]
    assert main(*command) == 2
    error = capsys.readouterr().err
    assert "is not finite" in error and error.count("\n") == 1


def test_ctrl_c_is_said_in_a_line(tmp_path):
    process = subprocess.Popen(
        [
            sys.executable,
            "-u",
            FOLDER / "sequence_recommender.py",
            *map(str, SMALL),
            *("--epochs", "1000", "--output", tmp_path),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        if line.startswith("Epoch 2"):
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.strip() == "Interrupted."


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--epochs", "0"], "'--epochs': 0 is not in the range 1<=x<=1000."),
        (["--users", "many"], "'--users': 'many' is not a valid integer"),
        (
            ["--seed", str(2**32)],
            "4294967296 is not in the range 0<=x<=4294967295.",
        ),
        (["--learning-rate", "nan"], "nan is not a positive number."),
        (["--output", ""], "The path is empty."),
        (["--colour", "red"], "No such option"),
    ],
)
def test_a_bad_command_line(main, arguments, message, capsys):
    assert main(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("sequence_recommender: ")
    assert error.count("\n") == 1
    assert message in error
