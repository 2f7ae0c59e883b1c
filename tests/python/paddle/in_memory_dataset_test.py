"""Compares lodestar.paddle.InMemoryDataset with samples in plain Python."""

import copy
import gc
import pickle
import threading

import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema, SkippedRecords
from lodestar.paddle import InMemoryDataset
from lodestar.paddle.in_memory_dataset import MergeCounts

SPEC = Schema(
    [
        Column.sparse("ids"),
        Column.sparse("w", dtype="float", weights_of="ids"),
        Column.sparse("f", dtype="float"),
        Column.dense("d", (2,)),
        Column.dense("n", (), dtype="uint64"),
        Column.label("click"),
    ]
)


def make(begin, end):
    """Returns samples with n = begin, ...; some values are 0, some slots empty."""
    samples = []
    for i in range(begin, end):
        count = i % 4
        samples.append(
            {
                "ids": [(i + k) % 5 for k in range(count)],
                "w": [k / 2 for k in range(count)],
                "f": [0.0, 1e-7, 2.5, -3.0][: i % 5],
                "d": [float(i % 3), 0.0],
                "n": i,
                "click": i % 2,
            }
        )
    return samples


def line(sample):
    parts = []
    for name in SPEC.names():
        values = sample[name]
        if not isinstance(values, list):
            values = [values]
        parts += [len(values), *values]
    return " ".join(map(str, parts)) + "\n"


def write(path, samples, ids=None):
    fields = [f"1 {i} " for i in ids] if ids else [""] * len(samples)
    path.write_text(
        "".join(f + line(s) for f, s in zip(fields, samples, strict=True))
    )
    return path


def dropped(sample):
    """Returns the sample without zeros, as in Paddle's in-memory feed."""
    pairs = [
        (i, w)
        for i, w in zip(sample["ids"], sample["w"], strict=True)
        if i != 0 and abs(w) >= 1e-6
    ] or [(0, 0.0)]
    return {
        **sample,
        "ids": [i for i, _ in pairs],
        "w": [w for _, w in pairs],
        "f": [f for f in sample["f"] if abs(f) >= 1e-6] or [0.0],
    }


def read(dataset):
    samples = []
    for features, label in dataset:
        ids, w, f = (features[name].to_list() for name in ("ids", "w", "f"))
        for row in range(len(label)):
            samples.append(
                {
                    "ids": ids[row],
                    "w": w[row],
                    "f": f[row],
                    "d": features["d"][row].numpy().tolist(),
                    "n": int(features["n"].numpy().ravel()[row]),
                    "click": int(label[row, 0]),
                }
            )
    return samples


def numbers(dataset):
    return [n for x, _ in dataset for n in x["n"].numpy().ravel().tolist()]


@pytest.fixture
def files(tmp_path):
    bounds = [0, 7, 8, 30, 33, 50]
    return [
        write(tmp_path / f"part-{k}", make(bounds[k], bounds[k + 1]))
        for k in range(5)
    ]


@pytest.fixture
def memory(files):
    memory = InMemoryDataset(SPEC, 8)
    memory.load(files)
    return memory


def test_worked_batch_of_the_format(tmp_path):
    path = tmp_path / "file"
    path.write_text("3 1926 8 17 1 1\n2 0 5 1 0\n")
    spec = Schema([Column.sparse("words"), Column.label("label")])
    memory = InMemoryDataset(spec, 8)
    memory.load(path)
    ((features, label),) = memory.dataset()
    assert features["words"].values.numpy().tolist() == [1926, 8, 17, 5]
    assert features["words"].row_splits.numpy().tolist() == [0, 3, 4]
    assert label.numpy().tolist() == [[1.0], [0.0]]
    memory.release()
    path.write_text("1 0 1 0\n0 1 0\n")
    memory.load(path)
    ((features, _),) = memory.dataset()
    assert features["words"].to_list() == [[0], [0]]


def test_zeros_are_dropped_with_their_weights_or_kept(files):
    memory = InMemoryDataset(SPEC, 8, num_parallel_files=3)
    memory.load(files)
    assert read(memory.dataset()) == [dropped(s) for s in make(0, 50)]
    memory = InMemoryDataset(SPEC, 8, drop_zeros=False)
    memory.load(files)
    wanted = make(0, 50)
    for sample in wanted:
        sample["f"] = np.float32(sample["f"]).tolist()
    assert read(memory.dataset()) == wanted


def test_loads_add_up_and_release_drops(files, memory):
    assert memory.num_samples == 50
    assert memory.memory_bytes > 50 * 100
    memory.load(files[1])
    assert numbers(memory.dataset()) == [*range(50), 7]
    memory.release()
    assert memory.num_samples == memory.memory_bytes == 0
    assert numbers(memory.dataset()) == []


def test_a_bad_file_adds_nothing(tmp_path, files, memory):
    bad = tmp_path / "bad"
    bad.write_text(line(make(0, 1)[0]) + "1 x\n")
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=f"{bad}:2: slot 'ids' at byte 3: value 1 of 1 is 'x'",
    ):
        memory.load([files[0], bad])
    with pytest.raises(FileNotFoundError, match="missing"):
        memory.load(tmp_path / "missing")
    memory.preload([files[0], bad])
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{bad}:2"):
        memory.wait_preload()
    assert numbers(memory.dataset()) == list(range(50))
    memory.preload(files[0])  # the failed preload has ended
    memory.wait_preload()
    assert memory.num_samples == 57


def test_preload_joins_when_it_is_waited_for(files, memory):
    memory.preload(files[:2])
    assert numbers(memory.dataset()) == list(range(50))
    with pytest.raises(tf.errors.FailedPreconditionError, match="wait_preload"):
        memory.preload(files)
    memory.release()  # not the pending preload
    memory.wait_preload()
    assert numbers(memory.dataset()) == list(range(8))
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="no preload to wait for"
    ):
        memory.wait_preload()


def test_a_preload_may_be_abandoned(files):
    memory = InMemoryDataset(SPEC, 8)
    memory.preload(list(files) * 200)
    del memory
    gc.collect()


def test_a_copy_has_the_same_samples_as_long_as_it_is_there(memory):
    copied = copy.copy(memory)
    want = numbers(memory.dataset())
    with pytest.raises(
        TypeError, match="InMemoryDataset cannot be deep-copied"
    ):
        copy.deepcopy(memory)
    with pytest.raises(TypeError, match="or pickled"):
        pickle.dumps(memory)
    memory._memory = None  # as on a machine without it; the fixture holds it
    gc.collect()
    assert numbers(copied.dataset()) == want


def test_a_copy_of_skipped_records_is_the_same():
    skipped = SkippedRecords()
    copies = [copy.copy(skipped), copy.deepcopy({"log": skipped})["log"]]
    skipped.add("line 1 is cut")
    del skipped
    gc.collect()
    assert [c.messages for c in copies] == [["line 1 is cut"]] * 2


def test_shuffled_epochs_differ_and_leave_the_samples(memory):
    @tf.function(autograph=False)
    def count():
        return memory.dataset().reduce(
            0, lambda count, batch: count + tf.shape(batch[1])[0]
        )

    assert count().numpy() == 50
    dataset = memory.dataset(shuffle=True, seed=3, repeat=2)
    got = numbers(dataset)
    assert sorted(got[:50]) == sorted(got[50:]) == list(range(50))
    assert got[:50] != got[50:]
    assert numbers(dataset) != got  # as with every shuffled dataset
    assert numbers(memory.dataset()) == list(range(50))


def test_queues_share_the_samples(files):
    memory = InMemoryDataset(SPEC, 4, num_queues=3)
    memory.load(files)
    memory.global_shuffle(1)
    order = numbers(memory.dataset())
    for queue in range(3):
        assert numbers(memory.dataset(queue)) == order[queue::3]
        shuffled = numbers(memory.dataset(queue, shuffle=True, seed=1))
        assert sorted(shuffled) == sorted(order[queue::3])


def test_slots_shuffle_moves_complete_values(memory):
    before = read(memory.dataset())
    memory.slots_shuffle(["w", "f"], seed=1)
    after = read(memory.dataset())
    moved = [(s["ids"], s["w"], s["f"]) for s in before]
    assert sorted(moved) == sorted((s["ids"], s["w"], s["f"]) for s in after)
    assert moved != [(s["ids"], s["w"], s["f"]) for s in after]
    for a, b in zip(before, after, strict=True):
        assert (a["d"], a["n"], a["click"]) == (b["d"], b["n"], b["click"])
    for name in ("d", "no"):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=f"'{name}' is not a used sparse",
        ):
            memory.slots_shuffle(name)


# tests/core/records/record_memory_test.cc compares merging with a model.
@pytest.mark.parametrize(
    "options, wanted, counts",
    [
        ({}, [[1, 2, 3], [4], [9]], MergeCounts(2, 0, 2)),
        (
            {"min_size": 3},
            [[1, 2, 3], [4], [9], [9], [5], [6]],
            MergeCounts(1, 0, 0),
        ),
        ({"keep_unmerged": False}, [[1, 2, 3], [9]], MergeCounts(2, 1, 2)),
        (
            {"erase_duplicates": False},
            [[1, 2, 2, 3, 1], [4], [9, 9], [5, 6]],
            MergeCounts(3, 0, 0),
        ),
    ],
    ids=str,
)
def test_merge_by_ins_id(tmp_path, options, wanted, counts):
    path = tmp_path / "file"
    path.write_text(
        "1 a 2 1 2 1 1\n1 b 1 4 1 1\n1 c 1 9 1 0\n1 d 1 5 1 1\n"
        "1 a 1 2 1 1\n1 d 1 6 1 2\n1 c 1 9 1 7\n1 a 2 3 1 1 0\n"
    )
    spec = [Column.sparse("ids"), Column.dense("n", (), dtype="uint64")]
    memory = InMemoryDataset(spec, 8, ins_id=True)
    memory.load(path)
    assert memory.merge_by_ins_id(**options) == counts
    (features,) = memory.dataset()
    assert features["ids"].to_list() == wanted
    assert len(features["ins_id"]) == memory.num_samples


def test_merging_needs_ins_ids(memory):
    with pytest.raises(tf.errors.FailedPreconditionError, match="ins_id=True"):
        memory.merge_by_ins_id()
    with pytest.raises(ValueError, match="`min_size` must be an integer of"):
        memory.merge_by_ins_id(min_size=1)


def test_content_and_logkey_are_of_the_first_merged_sample(tmp_path):
    spec = Schema([Column.sparse("ids")])
    path = tmp_path / "file"
    path.write_text(
        f"1 a 1 first 1 {'0' * 11}0ab0c{1:016x} 1 5\n"
        f"1 a 1 second 1 {'0' * 11}0ff0d{2:016x} 1 6\n"
    )
    memory = InMemoryDataset(
        spec, 8, ins_id=True, parse_content=True, parse_logkey=True
    )
    memory.load(path)
    memory.merge_by_ins_id()
    (features,) = memory.dataset()
    assert features["ids"].to_list() == [[5, 6]]
    assert features["ins_id"].numpy().tolist() == [b"a"]
    assert features["content"].numpy().tolist() == [b"first"]
    assert features["search_id"].numpy().tolist() == [1]
    assert features["cmatch"].numpy().tolist() == [0xAB]
    assert features["rank"].numpy().tolist() == [0xC]


def test_an_iterator_keeps_its_samples(files, memory):
    iterator = iter(memory.dataset(repeat=2))
    got = [next(iterator)]
    memory.release()
    memory.load(files[1])
    gc.collect()
    got += list(iterator)
    # The second epoch begins after the change.
    assert numbers(got) == [*range(50), 7]


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_dataset_keeps_the_samples_of_a_memory_that_is_gone(files, shuffle):
    memory = InMemoryDataset(SPEC, 8)
    memory.load(files)
    iterator = iter(memory.dataset(shuffle=shuffle, seed=1, repeat=3))
    del memory
    gc.collect()
    assert sorted(numbers(iterator)) == sorted(list(range(50)) * 3)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("taken", [0, 7])
def test_a_saved_iterator_resumes(tmp_path, files, taken, shuffle):
    def make_iterator():
        memory = InMemoryDataset(SPEC, 8)
        memory.load(files)
        memory.global_shuffle(5)
        return iter(memory.dataset(shuffle=shuffle, seed=2, repeat=2))

    iterator = make_iterator()
    for _ in range(taken):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    again = make_iterator()
    tf.train.Checkpoint(iterator=again).restore(saved)
    rest = numbers(again)
    assert rest == numbers(iterator)
    assert len(rest) == 100 - sum([8, 8, 8, 8, 8, 8, 2, 8, 8][:taken])


def test_a_saved_iterator_notices_other_samples(tmp_path, memory):
    iterator = iter(memory.dataset())
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    memory.global_shuffle(1)
    again = iter(memory.dataset())
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="differ from those when this"
    ):
        tf.train.Checkpoint(iterator=again).restore(saved)
        next(again)


def test_threads_read_while_others_change_the_samples(files):
    memory = InMemoryDataset(SPEC, 8, num_queues=2)
    memory.load(files)
    errors = []

    def epochs(queue):
        try:
            for _ in range(10):
                assert len(numbers(memory.dataset(queue))) % 25 == 0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=epochs, args=[q]) for q in (0, 1)]
    for thread in threads:
        thread.start()
    for seed in range(5):
        memory.preload(files)
        memory.global_shuffle(seed)
        memory.release()
        memory.wait_preload()
    for thread in threads:
        thread.join()
    assert not errors


def test_shards_and_other_options(files):
    def read(**options):
        memory = InMemoryDataset(SPEC, 8, **options)
        memory.load(files)
        return memory.dataset()

    shards = [numbers(read(shard=(7, index))) for index in range(7)]
    assert sorted(sum(shards, [])) == list(range(50))
    sizes = [len(label) for _, label in read(drop_remainder=True)]
    assert sizes == [8] * 6
    (features, _) = next(iter(read(sparse="lod", prefetch=0)))
    assert features["ids"].num_levels == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"repeat": 2}, "`repeat` is not supported: InMemoryDataset"),
        ({"shuffle": 2}, "`shuffle` is not supported"),
        ({"num_queues": 0}, "`num_queues` must be an integer of at least 1"),
        ({"batch_size": 0}, "`batch_size` must be"),
        ({"pipe_command": "cat"}, "`pipe_command` must be a list"),
    ],
    ids=str,
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        InMemoryDataset(SPEC, **{"batch_size": 8, **options})


def test_bad_queue(memory):
    with pytest.raises(
        ValueError, match="`queue` must be less than `num_queues`=1"
    ):
        memory.dataset(1)
    with pytest.raises(ValueError, match="`files` must have at least"):
        memory.load([])


def test_a_slot_may_not_be_called_as_a_field():
    spec = Schema([Column.sparse("ins_id")])
    InMemoryDataset(spec, 8)
    with pytest.raises(ValueError, match="'ins_id' has the name of a field"):
        InMemoryDataset(spec, 8, ins_id=True)
