"""Datasets of records under tf.data's own transformations, and their errors."""

import gzip
import re

import hugectr_files as reference
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema, SkippedRecords
from lodestar.hugectr.norm_dataset import NormDataset
from lodestar.hugectr.raw_dataset import RawDataset
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema([Column.label("click"), Column.sparse("n")])


@pytest.fixture
def files(tmp_path):
    paths = []
    for f in range(4):
        path = tmp_path / str(f)
        lines = (f"1 {n % 2} 1 {n}\n" for n in range(10 * f, 10 * f + 10))
        path.write_text("".join(lines))
        paths.append(str(path))
    return paths


def numbers(dataset):
    return [n for x, _ in dataset for n in x["n"].values.numpy().tolist()]


def test_iterators_at_once_do_not_disturb_each_other(files):
    dataset = MultiSlotDataset(files, SPEC, 3)
    found = list(zip(dataset, dataset, strict=True))
    assert numbers(a for a, _ in found) == list(range(40))
    assert numbers(b for _, b in found) == list(range(40))
    # One dataset twice in one graph, and next to an equal one.
    beside = tf.data.Dataset.zip(
        dataset, dataset, MultiSlotDataset(files, SPEC, 3)
    )
    for part in range(3):
        assert numbers(batches[part] for batches in beside) == list(range(40))


def test_interleave(files):
    parts = [MultiSlotDataset(f, SPEC, 5) for f in files]
    mixed = tf.data.Dataset.choose_from_datasets(
        parts, tf.data.Dataset.range(4).repeat(2)
    )
    assert sorted(numbers(mixed)) == list(range(40))
    mixed = tf.data.Dataset.range(8).interleave(
        lambda _: MultiSlotDataset(files, SPEC, 7),
        cycle_length=4,
        num_parallel_calls=4,
        deterministic=False,
    )
    assert sorted(numbers(mixed)) == sorted(8 * list(range(40)))


def test_options_cache_and_saved_data(files, tmp_path):
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.experimental_optimization.apply_default_optimizations = True
    dataset = MultiSlotDataset(files, SPEC, 6).with_options(options)
    cached = dataset.cache()
    for _ in range(2):
        assert numbers(cached) == list(range(40))
    dataset.save(str(tmp_path / "kept"))
    assert numbers(tf.data.Dataset.load(str(tmp_path / "kept"))) == list(
        range(40)
    )


@pytest.mark.parametrize("shuffle", [0, 11])
def test_a_dataset_as_a_graph(files, shuffle):
    dataset = MultiSlotDataset(
        files,
        SPEC,
        6,
        shuffle=shuffle,
        seed=3,
        on_error="skip",
        drop_remainder=True,
        pipe_command=["cat"],
    )
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor)
    again = tf.data.experimental.from_variant(
        tf.raw_ops.DatasetFromGraph(graph_def=graph), dataset.element_spec
    )
    found = numbers(again)
    assert len(found) == 36
    assert set(found) <= set(range(40))
    if not shuffle:
        assert found == list(range(36))


def samples(count):
    """Returns samples whose records have different lengths."""
    return [([i % 2], [0.5], [[i] * (i % 4)]) for i in range(count)]


def norm_places(mixed, check):
    """Writes a file of these samples; returns the offset of each record."""
    at = 64 + (5 if check == "sum" else 0)
    places = []
    for sample in mixed:
        places.append(at)
        at += len(reference.norm_record(reference.norm_sample(sample), check))
    return places


@pytest.mark.parametrize(
    "check, suffix, shard",
    [("none", "", (2, 0)), ("sum", ".gz", (2, 1)), ("sum", "", None)],
)
def test_offsets_after_skipped_records(tmp_path, check, suffix, shard):
    """Offsets in errors are right in every piece of a large file."""
    mixed = samples(60_000)
    bad = [0, 1, 2, 700, 20_001, 20_064, 40_000, 59_998, 59_999]
    for number in bad:
        mixed[number] = ([7.0], *mixed[number][1:])
    data = reference.make_norm(mixed, check=check)
    assert len(data) > 2 * 512 * 1024
    path = tmp_path / f"file{suffix}"
    path.write_bytes(gzip.compress(data, 1) if suffix else data)
    spec = Schema(
        [Column.label("click"), Column.dense("x"), Column.sparse("n")]
    )
    skipped = SkippedRecords()
    dataset = NormDataset(
        path, spec, 4096, shard=shard, on_error="skip", skipped=skipped
    )
    num, index = shard or (1, 0)
    good = [
        sample[2][0]
        for i, sample in enumerate(mixed)
        if i not in bad and i % num == index
    ]
    assert [n for x, _ in dataset for n in x["n"].to_list()] == good
    places = norm_places(mixed, check)
    wanted = [
        f"{path}: record {i} at byte {places[i]}: slot 'click': "
        for i in bad
        if i % num == index
    ]
    assert skipped.count == len(wanted)
    found = sorted(
        skipped.messages, key=lambda m: int(re.search(r"record (\d+)", m)[1])
    )
    for message, start in zip(found, wanted, strict=True):
        assert message.startswith(start)


def test_the_rest_that_is_lost_is_counted(tmp_path):
    mixed = samples(1000)
    data = bytearray(reference.make_norm(mixed))
    at = norm_places(mixed, "none")[10] + 8
    data[at : at + 4] = b"\xff\xff\xff\xff"
    path = tmp_path / "file"
    path.write_bytes(data)
    spec = Schema(
        [Column.label("click"), Column.dense("x"), Column.sparse("n")]
    )
    for shard, good, lost in [(None, 10, 990), ((3, 1), 3, 330)]:
        skipped = SkippedRecords()
        dataset = NormDataset(
            [path, path] if shard is None else path,
            spec,
            64,
            shard=shard,
            on_error="skip",
            skipped=skipped,
        )
        files = 2 if shard is None else 1
        assert sum(len(label) for _, label in dataset) == files * good
        assert skipped.count == files * lost
        assert len(skipped.messages) == files


@pytest.mark.parametrize("threads", [1, 16])
def test_pieces_in_which_every_record_is_bad(tmp_path, threads):
    path = tmp_path / "file"
    good = ([1.0], [0.5], [[7]])
    bad = ([3.0], [0.5], [[7]])
    data = reference.make_raw(
        [good, *[bad] * 90_000, good, good], layout="float"
    )
    path.write_bytes(data)
    assert len(data) > 2 * 512 * 1024
    spec = Schema(
        [Column.label("click"), Column.dense("x"), Column.sparse("n")]
    )
    skipped = SkippedRecords()
    dataset = RawDataset(
        path,
        spec,
        2,
        num_parallel_files=threads,
        on_error="skip",
        skipped=skipped,
    )
    assert [len(label) for _, label in dataset] == [2, 1]
    assert skipped.count == 90_000
    assert len(skipped.messages) == 100
