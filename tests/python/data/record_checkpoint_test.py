"""Saved iterators over records: bad records ahead, other datasets, counts."""

import pytest
import tensorflow as tf

from lodestar.data import Column, Schema, SkippedRecords
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema([Column.label("click"), Column.sparse("n")])


def write(path, numbers, bad=()):
    path.write_text(
        "".join("oops\n" if n in bad else f"1 {n % 2} 1 {n}\n" for n in numbers)
    )
    return path


def numbers(batches):
    return [n for x, _ in batches for n in x["n"].values.numpy().tolist()]


def save(iterator, tmp_path):
    return tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))


def restored(dataset, saved):
    iterator = iter(dataset)
    tf.train.Checkpoint(iterator=iterator).restore(saved).assert_consumed()
    return iterator


@pytest.mark.parametrize("shard", [None, (3, 2)])
@pytest.mark.parametrize("shuffle", [0, 1])
def test_a_bad_record_ahead_is_still_an_error(tmp_path, shuffle, shard):
    files = [
        write(tmp_path / "bad", range(10), bad=[6]),
        write(tmp_path / "good", range(10)),
    ]
    dataset = MultiSlotDataset(
        files, SPEC, 2, prefetch=0, shuffle=shuffle, shard=shard
    )
    iterator = iter(dataset)
    before = 1 if shard else 3
    for _ in range(before):
        assert len(numbers([next(iterator)])) == 2
    again = restored(dataset, save(iterator, tmp_path))
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad:7: slot"):
        while True:
            next(again)


def test_earlier_skips_are_not_reported_again(tmp_path):
    path = write(tmp_path / "file", range(100), bad=[1, 2, 50, 60])
    skipped = SkippedRecords()
    options = {"on_error": "skip", "skipped": skipped, "prefetch": 0}
    dataset = MultiSlotDataset(path, SPEC, 49, **options)
    iterator = iter(dataset)
    # The numbers 0 to 51, all read when the piece was parsed.
    assert numbers([next(iterator)])[-1] == 51
    assert skipped.count == 4
    again = restored(dataset, save(iterator, tmp_path))
    wanted = [n for n in range(52, 100) if n != 60]
    assert numbers(again) == wanted
    assert skipped.count == 5
    assert skipped.messages[-1].startswith(f"{path}:61: ")


def test_a_free_order_cannot_resume_a_fixed_one(tmp_path):
    path = write(tmp_path / "file", range(100))
    iterator = iter(MultiSlotDataset(path, SPEC, 8))
    next(iterator)
    saved = save(iterator, tmp_path)
    free = MultiSlotDataset(path, SPEC, 8, deterministic=False)
    with pytest.raises(tf.errors.UnimplementedError, match="deterministic"):
        restored(free, saved)


def test_a_window_of_another_dataset_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("1 1 2 5 6\n" * 50)
    sparse = [Column.sparse("a"), Column.sparse("b")]
    options = {"shuffle": 20, "prefetch": 0}
    iterator = iter(MultiSlotDataset(path, Schema(sparse), 2, **options))
    next(iterator)
    saved = save(iterator, tmp_path)
    pairs = Schema(
        [Column.dense("a", (-1, 2), dtype="uint64"), Column.sparse("b")]
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="from another dataset: .* slot 'a' differs",
    ):
        next(restored(MultiSlotDataset(path, pairs, 2, **options), saved))


def test_a_window_without_a_weight_for_each_id_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("1 .5 2 5 6\n" * 50)

    def dataset(weights_of):
        weights = Column.sparse("w", dtype="float", weights_of=weights_of)
        spec = Schema([weights, Column.sparse("a")])
        return MultiSlotDataset(path, spec, 2, shuffle=20, prefetch=0)

    iterator = iter(dataset(None))
    next(iterator)
    saved = save(iterator, tmp_path)
    assert len(list(restored(dataset(None), saved))) == 24
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="from another dataset: .* slot 'w' differs",
    ):
        next(restored(dataset("a"), saved))


def test_a_removed_file(tmp_path):
    files = [write(tmp_path / str(f), range(10)) for f in range(3)]
    iterator = iter(MultiSlotDataset(files, SPEC, 25, prefetch=0))
    next(iterator)
    saved = save(iterator, tmp_path)
    fewer = MultiSlotDataset(files[:1], SPEC, 25, prefetch=0)
    message = "file 2 record 5, is out of range for a dataset of 1 files"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        restored(fewer, saved)
