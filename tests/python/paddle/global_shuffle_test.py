"""InMemoryDataset.global_shuffle of the samples of several workers."""

import concurrent.futures
import os
import pathlib
import re
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from shuffle_worker import exchange

from lodestar._library import gen_ops
from lodestar.data import Column, DataError, Schema
from lodestar.paddle import InMemoryDataset, sample_exchange

SPEC = Schema(
    [
        Column.label("n", binary=False),
        Column.dense("d", [2]),
        Column.sparse("ids"),
        Column.sparse("w", dtype="float"),
    ]
).with_weights({"ids": "w"})


def line(i):
    ids = [i * 7 + k for k in range(1, i % 4 + 1)]
    weights = [i + 0.5 for _ in ids]
    words = [1, i, 2, i / 2, -i, len(ids), *ids, len(ids), *weights]
    return " ".join(map(str, words)) + "\n"


def loaded(folder, begin, end, spec=SPEC, **options):
    """Loads the samples `begin` to `end` as written, with empty slots."""
    memory = InMemoryDataset(spec, 500, drop_zeros=False, **options)
    if begin < end:
        path = folder / f"file-{begin}"
        path.write_text("".join(map(line, range(begin, end))))
        memory.load(path)
    return memory


def numbers(memory):
    return [int(n) for _, y in memory.dataset() for n in y[:, 0].numpy()]


def check_whole(memory):
    """Checks that every slot of a sample belongs to its number."""
    for features, label in memory.dataset():
        n = label[:, 0].numpy()
        np.testing.assert_array_equal(features["d"][:, 0], n / 2)
        assert features["ids"].to_list() == [
            [i * 7 + k for k in range(1, i % 4 + 1)] for i in n.astype(int)
        ]
        assert features["w"].to_list() == [[i + 0.5] * int(i % 4) for i in n]


def together(calls):
    """Makes the calls concurrently; returns their results and errors."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [f.exception() or f.result() for f in futures]


def shuffle(memories, folder, seed=1, timeout=60.0, **options):
    count = len(memories)
    return together(
        [
            lambda m=m, i=i: m.global_shuffle(
                seed,
                folder=folder,
                workers=(count, i),
                timeout=timeout,
                **options,
            )
            for i, m in enumerate(memories)
        ]
    )


@pytest.mark.parametrize(
    "sizes",
    [[10], [5000, 3000, 1], [1, 0, 0, 2], [0, 0], [1024, 2048]],
    ids=str,
)
def test_the_order_is_that_of_one_memory_with_all_samples(tmp_path, sizes):
    ends = np.cumsum([0, *sizes]).tolist()
    memories = [
        loaded(tmp_path, begin, end)
        for begin, end in zip(ends[:-1], ends[1:], strict=True)
    ]
    alone = loaded(tmp_path, 0, ends[-1])
    alone.global_shuffle(1)
    assert shuffle(memories, tmp_path / "meet") == [None] * len(sizes)
    found = [numbers(memory) for memory in memories]
    assert sum(found, []) == numbers(alone)
    parts = [v * ends[-1] // len(sizes) for v in range(len(sizes) + 1)]
    assert [len(f) for f in found] == np.diff(parts).tolist()
    for memory in memories:
        check_whole(memory)
    left = os.listdir(tmp_path / "meet")
    assert not [name for name in left if name.endswith(".samples")]


@pytest.mark.parametrize("size", [7, 1024])
def test_samples_go_in_pieces(tmp_path, monkeypatch, size):
    sizes = []
    encode = gen_ops.lodestar_record_memory_encode

    def counted(memory, samples):
        sizes.append(len(samples))
        return encode(memory=memory, samples=samples)

    monkeypatch.setattr(gen_ops, "lodestar_record_memory_encode", counted)
    count = min(9000, 300 * size)
    memories = [loaded(tmp_path, 0, count // 3)]
    memories.append(loaded(tmp_path, count // 3, count))
    alone = loaded(tmp_path, 0, count)
    alone.global_shuffle(1)
    found = shuffle(memories, tmp_path / "meet", send_batch_size=size)
    assert found == [None, None]
    assert sum(map(numbers, memories), []) == numbers(alone)
    assert sum(sizes) == count
    assert max(sizes) <= size
    assert len(sizes) <= count // size + 4


def test_the_order_depends_on_the_seed_alone(tmp_path):
    def run(seed, name):
        memories = [loaded(tmp_path, 0, 300), loaded(tmp_path, 300, 500)]
        assert shuffle(memories, tmp_path / name, seed) == [None] * 2
        return sum(map(numbers, memories), [])

    assert run(1, "a") == run(1, "b") != run(-2, "c")
    drawn = run(None, "d")
    assert sorted(drawn) == list(range(500))
    assert drawn != run(None, "e")


def test_the_shard_sets_the_worker_and_any_scheme_is_a_folder(tmp_path):
    memories = [loaded(tmp_path, 0, 40, shard=(2, index)) for index in range(2)]
    folder = "ram://global_shuffle_test/meet"
    calls = [lambda m=m: m.global_shuffle(3, folder=folder) for m in memories]
    assert together(calls) == [None, None]
    assert sorted(sum(map(numbers, memories), [])) == list(range(40))


def test_fields_of_lines_and_zeros_go_along(tmp_path):
    memories = []
    for worker in range(2):
        path = tmp_path / f"file-{worker}"
        path.write_text(
            "".join(f"1 id-{i} {line(i)}" for i in range(worker, 40, 2))
        )
        memories.append(InMemoryDataset(SPEC, 100, ins_id=True))
        memories[-1].load(path)
    assert shuffle(memories, tmp_path / "meet") == [None] * 2
    for memory in memories:
        ((features, label),) = memory.dataset()
        for i, key, ids in zip(
            label[:, 0].numpy().astype(int),
            features["ins_id"].numpy(),
            features["ids"],
            strict=True,
        ):
            assert key == f"id-{i}".encode()
            assert len(ids) == max(1, i % 4)
    assert memories[0].merge_by_ins_id().merged == 0


def test_an_iterator_continues_and_a_saved_one_checks_the_samples(tmp_path):
    def make(name):
        memories = [loaded(tmp_path, 0, 100), loaded(tmp_path, 100, 150)]
        under_way = iter(memories[0].dataset())
        assert shuffle(memories, tmp_path / name) == [None] * 2
        assert len(next(under_way)[1]) == 100
        return iter(memories[0].dataset())

    iterator = make("a")
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    again = make("b")
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert len(next(again)[1]) == 75
    other = iter(loaded(tmp_path, 0, 75).dataset())
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="differ from those"
    ):
        tf.train.Checkpoint(iterator=other).restore(saved)
        next(other)


def check_unchanged(memories, *ranges):
    for memory, (begin, end) in zip(memories, ranges, strict=True):
        assert numbers(memory) == list(range(begin, end))


def test_a_missing_worker_changes_nothing(tmp_path):
    memory = loaded(tmp_path, 0, 20)
    with pytest.raises(
        TimeoutError,
        match=r"meet: waited 0\.3 s for worker-1\.json\. No sample",
    ):
        memory.global_shuffle(
            1, folder=tmp_path / "meet", workers=(2, 0), timeout=0.3
        )
    check_unchanged([memory], (0, 20))
    # A late worker gets the error at once.
    late = loaded(tmp_path, 20, 30)
    with pytest.raises(
        RuntimeError, match="worker 0 has failed, and no .* waited"
    ):
        late.global_shuffle(1, folder=tmp_path / "meet", workers=(2, 1))
    check_unchanged([memory, late], (0, 20), (20, 30))
    # In a new folder the shuffle works.
    assert shuffle([memory, late], tmp_path / "again") == [None] * 2


def check_second_fails(memories, folder):
    """Checks that both report the second's lack of memory and keep their samples."""
    first, second = shuffle(memories, folder)
    assert isinstance(first, RuntimeError)
    assert (
        "worker 1 has failed, and no samples were exchanged: no memory"
        in str(first)
    )
    assert isinstance(second, tf.errors.ResourceExhaustedError)
    check_unchanged(memories, (0, 3000), (3000, 5000))


def test_a_worker_that_fails_half_way_changes_nothing(tmp_path, monkeypatch):
    memories = [loaded(tmp_path, 0, 3000), loaded(tmp_path, 3000, 5000)]
    arrange = gen_ops.lodestar_record_memory_arrange

    def broken(memory, order):
        if memory == memories[1]._memory.text:
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")
        return arrange(memory=memory, order=order)

    monkeypatch.setattr(gen_ops, "lodestar_record_memory_arrange", broken)
    check_second_fails(memories, tmp_path / "meet")
    left = os.listdir(tmp_path / "meet")
    assert not [name for name in left if name.endswith(".samples")]
    monkeypatch.undo()
    assert shuffle(memories, tmp_path / "again") == [None] * 2
    assert sorted(sum(map(numbers, memories), [])) == list(range(5000))


def test_readers_of_a_failing_worker_get_its_error(tmp_path, monkeypatch):
    memories = [loaded(tmp_path, 0, 3000), loaded(tmp_path, 3000, 5000)]
    read = sample_exchange.SampleExchange._read
    reads = threading.Event()

    def late(exchange, worker, count):
        if worker == 0:
            assert reads.wait(60)
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")
        reads.set()
        while list((tmp_path / "meet").glob("*1-to-0.samples")):
            time.sleep(0.01)
        read(exchange, worker, count)

    monkeypatch.setattr(sample_exchange.SampleExchange, "_read", late)
    check_second_fails(memories, tmp_path / "meet")


def first_piece(data):
    return data[: 8 + int.from_bytes(data[:8], "little")]


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda d: d[:99] + bytes([d[99] ^ 1]) + d[100:],
            "checksum of the sam",
        ),
        (
            lambda d: d[:-1],
            r"-0-to-1\.samples: the checksum of the samples diff",
        ),
        (
            lambda d: d[len(first_piece(d)) :],
            "1 pieces are missing for 1.* sam",
        ),
        (lambda d: first_piece(d) + d, "1 pieces are unexpected for"),
    ],
)
def test_samples_that_were_changed_on_their_way_are_refused(
    tmp_path, monkeypatch, change, message
):
    class Changed(sample_exchange.AtomicFile):
        def commit(self, header=b""):
            super().commit(header)
            if self._path.endswith("-0-to-1.samples"):
                path = pathlib.Path(self._path)
                path.write_bytes(change(path.read_bytes()))

    monkeypatch.setattr(sample_exchange, "AtomicFile", Changed)
    memories = [loaded(tmp_path, 0, 3000), loaded(tmp_path, 3000, 5000)]
    first, second = shuffle(memories, tmp_path / "meet")
    assert isinstance(first, RuntimeError)
    assert isinstance(second, DataError)
    assert str(second).startswith(str(tmp_path / "meet"))
    assert re.search(message, str(second)), second
    check_unchanged(memories, (0, 3000), (3000, 5000))


@pytest.mark.parametrize(
    "seeds, sizes, message",
    [
        ([0, 1], [1, 1], "worker 1 has seed 1, but worker 0 has 0"),
        ([1, 1], [1, 2], "worker 1 has send_batch_size 2, but worker 0 has 1"),
    ],
)
def test_workers_must_agree(tmp_path, seeds, sizes, message):
    memories = [loaded(tmp_path, 0, 20), loaded(tmp_path, 20, 40)]
    found = together(
        [
            lambda m=m, i=i: m.global_shuffle(
                seeds[i],
                folder=tmp_path / "meet",
                workers=(2, i),
                send_batch_size=sizes[i],
            )
            for i, m in enumerate(memories)
        ]
    )
    assert any(message in str(e) for e in found)
    check_unchanged(memories, (0, 20), (20, 40))


def test_workers_must_have_the_same_slots(tmp_path):
    memories = [loaded(tmp_path, 0, 20), InMemoryDataset([*SPEC][:2], 4)]
    (tmp_path / "short").write_text("1 7 2 1 1\n" * 30)
    memories[1].load(tmp_path / "short")
    found = shuffle(memories, tmp_path / "slots")
    assert any("the samples have other slots" in str(e) for e in found)
    assert {type(e) for e in found} <= {DataError, RuntimeError}
    check_unchanged(memories[:1], (0, 20))


def test_a_folder_is_used_once(tmp_path):
    memories = [loaded(tmp_path, 0, 20), loaded(tmp_path, 20, 40)]
    assert shuffle(memories, tmp_path / "meet") == [None] * 2
    before = numbers(memories[0])
    with pytest.raises(
        DataError, match="worker 0 has already exchanged samples"
    ):
        memories[0].global_shuffle(1, folder=tmp_path / "meet", workers=(2, 0))
    assert numbers(memories[0]) == before


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, r"`folder` needs `workers`=\(num, index\)"),
        ({"workers": 3}, r"`workers` must be a pair"),
        ({"workers": (2, 2)}, "`workers` must have an index less than 2"),
        ({"workers": (2, 0), "timeout": 0}, "`timeout` must be greater than 0"),
        ({"workers": (2, 0), "timeout": "1"}, "`timeout` must be greater"),
        (
            {"workers": (2, 0), "send_batch_size": 0},
            "`send_batch_size` must be an integer of at least 1, got 0",
        ),
        (
            {"workers": (2, 0), "send_batch_size": 65537},
            "`send_batch_size` must be at most 65536, got 65537",
        ),
    ],
    ids=str,
)
def test_bad_arguments(tmp_path, arguments, message):
    memory = loaded(tmp_path, 0, 2)
    with pytest.raises(ValueError, match=message):
        memory.global_shuffle(1, folder=tmp_path / "meet", **arguments)
    assert not (tmp_path / "meet").exists()


def test_calls_that_change_the_samples_wait(tmp_path):
    memories = [loaded(tmp_path, 0, 2000), loaded(tmp_path, 2000, 3000)]

    def load():
        while not (tmp_path / "meet" / "worker-0.json").exists():
            time.sleep(0.001)
        memories[0].load(tmp_path / "file-0")

    calls = [
        lambda m=m, i=i: m.global_shuffle(
            1, folder=tmp_path / "meet", workers=(2, i)
        )
        for i, m in enumerate(memories)
    ]
    assert together([*calls, load]) == [None] * 3
    assert memories[0].num_samples == 1500 + 2000
    assert sorted(sum(map(numbers, memories), [])) == sorted(
        [*range(3000), *range(2000)]
    )


@pytest.fixture
def schema(tmp_path):
    SPEC.save(tmp_path / "schema.yaml")
    return tmp_path / "schema.yaml"


def test_processes_exchange_samples(tmp_path, schema, fork):
    alone = loaded(tmp_path, 0, 7000)
    alone.global_shuffle(5)
    for begin, end in ((0, 4000), (4000, 4500), (4500, 7000)):
        loaded(tmp_path, begin, end)
    folder = tmp_path / "meet"
    workers = [
        fork(exchange, schema, tmp_path / f"file-{begin}", folder, (3, index))
        for index, begin in enumerate((0, 4000, 4500))
    ]
    found = [worker.read().split() for worker in workers]
    assert [f[0] for f in found] == ["False"] * 3
    assert [int(n) for f in found for n in f[1:]] == numbers(alone)


def test_a_process_that_is_killed_leaves_the_others_as_they_were(
    tmp_path, schema, fork
):
    loaded(tmp_path, 0, 2000)
    memory = loaded(tmp_path, 2000, 3000)
    folder = tmp_path / "meet"
    worker = fork(exchange, schema, tmp_path / "file-0", folder, (2, 0))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        deadline = time.monotonic() + 240
        while not (folder / "worker-0.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        worker.kill()
        future = pool.submit(
            memory.global_shuffle,
            5,
            folder=tmp_path / "meet",
            workers=(2, 1),
            timeout=1.0,
        )
        with pytest.raises(TimeoutError, match="-sent-0. No samples were exch"):
            future.result()
    check_unchanged([memory], (2000, 3000))


def test_a_timeout_of_the_commit_reports_the_unknown_state(
    tmp_path, monkeypatch
):
    memories = [loaded(tmp_path, 0, 20), loaded(tmp_path, 20, 40)]
    write = sample_exchange.SampleExchange._write

    def late(self, name, data=b""):
        if name.endswith("-ready-1"):
            self._timeout = 1.0  # from here on, for the commit
        if name.endswith("-commit"):
            while not (tmp_path / "meet" / "failed-1").exists():
                time.sleep(0.01)
            raise tf.errors.UnavailableError(None, None, "the folder is gone")
        write(self, name, data)

    monkeypatch.setattr(sample_exchange.SampleExchange, "_write", late)
    first, second = shuffle(memories, tmp_path / "meet")
    assert isinstance(first, tf.errors.UnavailableError)
    assert isinstance(second, TimeoutError)
    assert "samples of this worker are unchanged" in second.__notes__[0]
    check_unchanged(memories, (0, 20), (20, 40))
