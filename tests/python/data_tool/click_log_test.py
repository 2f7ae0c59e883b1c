"""The generated click log: its shape, and that its probabilities are right."""

import filecmp

import numpy as np
import pytest

from lodestar._data_tool.click_log import (
    click_log_schema,
    generate_click_log,
)
from lodestar._files import AtomicFile
from lodestar.data import Schema
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SAMPLES = 40_000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return generate_click_log(
        tmp_path_factory.mktemp("log"), SAMPLES, 4, seed=5
    )


@pytest.fixture(scope="module")
def pairs(log):
    return np.concatenate([np.load(path) for path in log.probability_files])


@pytest.fixture(scope="module")
def batches(log):
    return list(MultiSlotDataset(log.files, log.schema_file, 10_000))


def test_shape(log, batches):
    spec = Schema.load(log.schema_file)
    assert spec == click_log_schema()
    assert len(spec.sparse) == 26
    assert sum(slot.num_values for slot in spec.dense) == 13
    assert [len(label) for _, label in batches] == [10_000] * 4
    several = empty = 0
    for features, _ in batches:
        for slot in spec.sparse:
            lengths = np.diff(features[slot.name].row_splits.numpy())
            several += lengths.max() > 1
            empty += lengths.min() == 0
    assert several and empty


def test_clicks_match_the_saved_probabilities(batches, pairs):
    labels = np.concatenate([label.numpy()[:, 0] for _, label in batches])
    assert pairs.shape == (SAMPLES, 2)
    np.testing.assert_array_equal(labels, pairs[:, 1])


def test_click_rate_and_best_auc(log, pairs):
    assert 0.2 < pairs[:, 1].mean() < 0.3
    assert 0.75 < log.best_auc() < 0.82
    assert log.best_auc(3) == pytest.approx(log.best_auc(), abs=0.02)


def test_probabilities_are_calibrated(pairs):
    # In each tenth, the number of clicks matches the probabilities.
    for tenth in np.array_split(pairs[np.argsort(pairs[:, 0])], 10):
        p = tenth[:, 0]
        deviation = np.sqrt((p * (1 - p)).sum())
        assert abs(tenth[:, 1].sum() - p.sum()) < 4.5 * deviation


def test_ids_are_skewed_and_new_ones_appear_with_time(batches):
    def ids(batch, name):
        return batch[0][name].values.numpy()

    first, last = batches[0], batches[-1]
    for name in ("C3", "C12"):
        _, counts = np.unique(ids(first, name), return_counts=True)
        assert np.sort(counts)[-20:].sum() > 0.3 * counts.sum()
        new = ~np.isin(ids(last, name), ids(first, name))
        assert 0.02 < new.mean() < 0.4
    # Different slots have no id in common.
    seen = [set(ids(first, f"C{s}")) for s in range(1, 27)]
    assert len(set().union(*seen)) == sum(map(len, seen))


def test_equal_seeds_give_equal_bytes(tmp_path):
    log, again, other = (
        generate_click_log(tmp_path / name, 4000, 2, seed=seed)
        for name, seed in (("a", 5), ("again", 5), ("other", 6))
    )
    for a, b in zip(log.files, again.files, strict=True):
        assert filecmp.cmp(a, b, shallow=False)
    for a, b in zip(
        log.probability_files, again.probability_files, strict=True
    ):
        assert filecmp.cmp(a, b, shallow=False)
    with open(log.files[0]) as a, open(other.files[0]) as b:
        assert a.readline() != b.readline()


def test_progress_counts_every_sample(tmp_path):
    counts = []
    generate_click_log(tmp_path, 20_001, 3, on_progress=counts.append)
    assert sum(counts) == 20_001


@pytest.mark.parametrize(
    "samples, files, seed, message",
    [
        (0, 1, 0, "got 1 and 0"),
        (3, 4, 0, "got 4 and 3"),
        (4, 0, 0, "got 0 and 4"),
        (100, 2, -1, "`seed` must be at least 0, got -1"),
    ],
)
def test_bad_arguments(tmp_path, samples, files, seed, message):
    with pytest.raises(ValueError, match=message):
        generate_click_log(tmp_path / "log", samples, files, seed=seed)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("exists", [True, False])
def test_an_interruption_leaves_nothing_and_older_files(tmp_path, exists):
    directory = tmp_path / "log"
    if exists:
        directory.mkdir()
        (directory / "part-00001.txt").write_text("older")
        (directory / "mine").write_text("")
    counts = []

    def interrupt(count):
        counts.append(count)
        if sum(counts) > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_click_log(directory, 200, 2, on_progress=interrupt)
    assert counts == [100, 100]
    assert directory.exists() == exists
    if exists:
        names = sorted(path.name for path in directory.iterdir())
        assert names == ["mine", "part-00001.txt"]
        assert (directory / "part-00001.txt").read_text() == "older"


def test_an_interrupt_removes_the_new_file(tmp_path):
    """An interrupt can arrive after the file is created, before its block begins."""
    made = []

    def interrupted(path, spec):
        made.append(AtomicFile(path))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_click_log(tmp_path / "log", 200, 2, writer=interrupted)
    assert list(tmp_path.iterdir()) == []
    made[0].discard()
