"""What the datasets of all record formats have in common."""

import dataclasses
import functools
import gzip
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, Schema, SkippedRecords
from lodestar.hugectr.norm_dataset import NormDataset
from lodestar.hugectr.norm_writer import NormWriter
from lodestar.hugectr.raw_dataset import RawDataset
from lodestar.hugectr.raw_writer import RawWriter
from lodestar.paddle.instant_dataset import InstantDataset
from lodestar.paddle.instant_writer import InstantWriter
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter

SPEC = Schema(
    [
        Column.sparse("C"),
        Column.label("click"),
        Column.dense("I", (2,)),
        Column.sparse("D"),
    ]
)
# The same files, of which a label may be any number.
ANY_LABEL = SPEC.replace(
    dataclasses.replace(slot, binary=False) if slot.kind == "label" else slot
    for slot in SPEC
)


@dataclasses.dataclass
class Format:
    """The writer and the reader of a format."""

    writer: Callable[..., Any]
    dataset: Callable[..., tf.data.Dataset]
    position: str = "record {}"  # of a record in errors
    first: int = 0

    def write(self, path, numbers, bad=()):
        """Writes samples with C = [n]; those of `bad` are not labels."""
        numbers = np.asarray(list(numbers))
        splits = np.arange(len(numbers) + 1)
        with self.writer(path, ANY_LABEL) as out:
            out.write_batch(
                {
                    "C": (numbers, splits),
                    "click": np.where(np.isin(numbers, bad), 7, numbers % 2),
                    "I": np.stack([numbers, -numbers / 4], 1),
                    "D": (2**32 - 1 - numbers, splits),
                }
            )
        return path

    def read(self, files, batch_size=4, **options):
        return self.dataset(files, SPEC, batch_size, **options)

    def numbers(self, files, batch_size=4, **options):
        return numbers(self.read(files, batch_size, **options))


FORMATS = {
    "multislot": Format(MultiSlotWriter, MultiSlotDataset, "{}", 1),
    "instant": Format(InstantWriter, InstantDataset),
    "norm": Format(NormWriter, NormDataset),
    "norm without checksums": Format(
        functools.partial(NormWriter, check="none"), NormDataset
    ),
    "raw": Format(RawWriter, RawDataset),
}


@pytest.fixture(params=FORMATS)
def form(request):
    return FORMATS[request.param]


@pytest.fixture
def files(form, tmp_path):
    """Writes five files of unequal size, one of a single sample."""
    bounds = [0, 7, 8, 30, 33, 50]
    return [
        form.write(tmp_path / str(begin), range(begin, end))
        for begin, end in itertools.pairwise(bounds)
    ]


def numbers(dataset):
    """Returns C of all samples, after checking the other columns."""
    found = []
    for features, label in dataset:
        n = features["C"].values.numpy()
        assert label.dtype == tf.float32
        np.testing.assert_array_equal(label[:, 0], n % 2)
        np.testing.assert_array_equal(
            features["I"], np.stack([n, -n / 4], 1).astype(np.float32)
        )
        for name in ("C", "D"):
            assert features[name].dtype == tf.int64
            assert features[name].row_lengths().numpy().tolist() == [1] * len(n)
        np.testing.assert_array_equal(features["D"].values, 2**32 - 1 - n)
        found += n.tolist()
    return found


@pytest.mark.parametrize(
    "batch_size, threads", [(1, 2), (4, 7), (49, 1), (50, 2), (51, 7)]
)
def test_batches_straddle_files_in_order(form, files, batch_size, threads):
    dataset = form.read(files, batch_size, num_parallel_files=threads)
    batches = list(dataset)
    sizes = [len(label) for _, label in batches]
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
    assert numbers(batches) == list(range(50))
    free = form.numbers(
        files, batch_size, num_parallel_files=threads, deterministic=False
    )
    assert sorted(free) == list(range(50))


def test_a_file_of_many_pieces(form, tmp_path):
    path = form.write(tmp_path / "big", range(60_000))
    assert path.stat().st_size > 2 * 512 * 1024
    found = form.numbers(path, 5000, num_parallel_files=4)
    assert found == list(range(60_000))
    for index in (0, 2):
        found = form.numbers(path, 5000, shard=(3, index))
        assert found == list(range(index, 60_000, 3))
    for deterministic in (True, False):  # an abandoned iterator ends
        next(iter(form.read([path] * 4, 16, deterministic=deterministic)))


def test_compressed_files_and_other_schemes(form, tmp_path):
    form.write(tmp_path / "plain", range(20))
    data = (tmp_path / "plain").read_bytes()
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(data))
    ram = f"ram:/{tmp_path}"
    tf.io.gfile.makedirs(ram)
    with tf.io.gfile.GFile(f"{ram}/file", "wb") as file:
        file.write(data)
    assert form.numbers([packed, f"{ram}/file"], 16) == 2 * list(range(20))
    form.write(f"{ram}/written.gz", range(20))
    with tf.io.gfile.GFile(f"{ram}/written.gz", "rb") as file:
        assert gzip.decompress(file.read()) == data


def test_the_last_batch_may_be_dropped(form, files):
    dataset = form.read(files, 8, drop_remainder=True)
    assert numbers(dataset) == list(range(48))
    features, label = dataset.element_spec
    assert label == tf.TensorSpec([8, 1], tf.float32)
    assert features["I"] == tf.TensorSpec([8, 2], tf.float32)
    assert features["C"].shape.as_list() == [8, None]
    _, label = form.read(files, 8).element_spec
    assert label == tf.TensorSpec([None, 1], tf.float32)


def test_shards_and_epochs(form, files):
    parts = [form.numbers(files, shard=(7, index)) for index in range(7)]
    assert all(parts) and sorted(sum(parts, [])) == list(range(50))
    assert form.numbers(files, 20, repeat=3) == list(range(50)) * 3
    endless = form.read(files, 50, repeat=None)
    assert numbers(endless.take(4)) == list(range(50)) * 4


def test_shuffled_rows_differ_between_epochs_and_follow_the_seed(form, files):
    def run(seed, **options):
        found = form.numbers(files, 50, seed=seed, repeat=2, **options)
        assert sorted(found[:50]) == sorted(found[50:]) == list(range(50))
        return found[:50], found[50:]

    first, second = run(1, shuffle=20)
    assert first != second and first != list(range(50))
    assert run(1, shuffle=20) == (first, second) != run(2, shuffle=20)
    assert run(3, shuffle_files=True)[0] != run(3, shuffle_files=True)[1]
    once = form.read(files, 50, shuffle=50, seed=1)
    assert numbers(once) != numbers(once)


@pytest.mark.parametrize("taken", [0, 3, 7, 12])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": 12, "shuffle_files": True, "repeat": 2},
        {"shard": (12, 5), "batch_size": 1},
        {"shuffle": 1000, "prefetch": 0},
    ],
    ids=str,
)
def test_a_saved_iterator_resumes_at_the_next_sample(
    form, files, tmp_path, taken, options
):
    dataset = form.read(files, **{"num_parallel_files": 3, **options})
    iterator = iter(dataset)
    for _ in itertools.islice(iterator, taken):
        pass
    saved = tf.train.Checkpoint(it=iterator).save(str(tmp_path / "saved"))
    again = iter(dataset)
    tf.train.Checkpoint(it=again).restore(saved).assert_consumed()
    rest = numbers(again)
    # Saving has not disturbed the first iterator.
    assert rest == numbers(iterator)
    if not options:
        assert rest == list(range(4 * taken, 50))


def test_inside_a_function(form, files):
    @tf.function
    def total(dataset=None):
        n = tf.constant(0, tf.int64)
        for features, _ in dataset or form.read(files, 8):
            n += tf.reduce_sum(features["C"].values)
        return n

    assert total() == total(form.read(files, 8)) == sum(range(50))


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_missing_file_is_named(form, files, deterministic):
    with pytest.raises(tf.errors.NotFoundError, match="absent"):
        form.numbers(
            [*files, files[0].parent / "absent"],
            deterministic=deterministic,
            on_error="skip",
        )


def test_a_bad_record_is_named(form, tmp_path):
    path = form.write(tmp_path / "bad", range(20), bad=[5])
    iterator = iter(form.read(path, 2, prefetch=0))
    assert numbers([next(iterator), next(iterator)]) == [0, 1, 2, 3]
    where = form.position.format(5 + form.first)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"{path}:\s?{where}.*: slot 'click'.* 1 of 1 is '?7'?, expected",
    ):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_bad_records_are_skipped_counted_and_named(form, tmp_path):
    bad = [0, 7, 8, 99]
    path = form.write(tmp_path / "file", range(100), bad)
    skipped = SkippedRecords()
    options = {"on_error": "skip", "skipped": skipped}
    wanted = [n for n in range(100) if n not in bad]
    assert form.numbers(path, **options) == wanted
    assert skipped.count == 4
    for n, message in zip(bad, skipped.messages, strict=True):
        where = form.position.format(n + form.first)
        assert message.removeprefix(f"{path}:").lstrip().startswith(where)
        assert "slot 'click'" in message
    # They do not shift the records of a shard, which notes only its own.
    for index in range(3):
        skipped = options["skipped"] = SkippedRecords()
        found = form.numbers(path, shard=(3, index), **options)
        assert found == [n for n in wanted if n % 3 == index]
        assert skipped.count == sum(n % 3 == index for n in bad)


def test_reading_goes_on_with_the_next_file(form, tmp_path):
    lost = form.write(tmp_path / "lost", range(40))
    lost.write_bytes(lost.read_bytes()[:-3])
    good = form.write(tmp_path / "good", range(40, 50))
    options = {"on_error": "skip", "skipped": SkippedRecords()}
    assert form.numbers([lost, good], **options) == [*range(39), *range(40, 50)]
    assert options["skipped"].count == 1


def test_sparse_slots_are_lod_tensors_if_wanted(form, files):
    dataset = form.read(files, 50, sparse="lod")
    kind = lodestar.ragged.LoDTensor
    assert dataset.element_spec[0]["C"].value_type is kind
    ((features, _),) = dataset
    assert isinstance(features["C"], kind)
    assert features["C"].to_list() == [[n] for n in range(50)]
