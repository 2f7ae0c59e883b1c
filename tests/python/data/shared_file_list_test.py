"""Iterators in threads and processes that share one list of files."""

import collections
import concurrent.futures
import functools
import socket
import subprocess
import sys
import threading
import time

import keras
import pytest
import tensorflow as tf
from processes import environment
from shared_file_readers import coordinate, read

from lodestar import data
from lodestar.data import (
    Column,
    FileListServer,
    Schema,
    SharedFileList,
    open_dataset,
)
from lodestar.paddle import InMemoryDataset
from lodestar.testing import local_cluster

SPEC = Schema([Column.label("n", binary=False), Column.sparse("C")])
EACH = 10  # samples per file

multislot = functools.partial(open_dataset, format="multislot")


@pytest.fixture
def files(tmp_path):
    paths = []
    for f in range(12):
        paths.append(tmp_path / f"part-{f}")
        lines = range(EACH * f, EACH * f + EACH)
        paths[-1].write_text("".join(f"1 {i} 1 {i}\n" for i in lines))
    return paths


@pytest.fixture
def server(files):
    with FileListServer(files) as server:
        yield server


def numbers(dataset):
    return [int(n) for _, y in dataset for n in y[:, 0].numpy()]


def whole(count=12):
    return list(range(EACH * count))


def test_one_iterator_gets_all_files_in_their_order(server, files):
    shared = SharedFileList(server.address)
    assert list(shared.paths()) == [str(path) for path in files]
    assert numbers(multislot(SharedFileList(server.address), SPEC, 4)) == []


@pytest.mark.parametrize("options", [{}, {"shuffle": 5}, {"prefetch": 0}])
def test_each_file_is_read_by_one_of_several_iterators(server, options):
    def read(_):
        # One list per thread: a second iterator of the same list starts an
        # epoch.
        shared = SharedFileList(server.address)
        return numbers(multislot(shared, SPEC, 4, **options))

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = list(pool.map(read, range(3)))
    assert sorted(sum(found, [])) == whole()


def test_every_iteration_is_the_next_epoch(server):
    def datasets(**options):
        return multislot(SharedFileList(server.address), SPEC, 7, **options)

    first = datasets()
    assert numbers(first) == whole()
    assert numbers(first) == whole()  # epoch 1
    second = datasets(repeat=4)
    # the rest of epochs 0 and 1; epochs 2 and 3
    assert numbers(second) == whole() * 2
    assert numbers(first) == []  # epoch 2
    third = datasets(repeat=6, shuffle=3)
    found = numbers(third)
    assert sorted(found) == sorted(whole() * 2)


def test_a_batch_holds_samples_of_one_file(server):
    dataset = multislot(SharedFileList(server.address), SPEC, 4)
    assert [len(y) for _, y in dataset] == [4, 4, 2] * 12
    dataset = multislot(
        SharedFileList(server.address), SPEC, 4, drop_remainder=True, repeat=2
    )
    assert [len(y) for _, y in dataset] == [4, 4] * 12
    assert dataset.element_spec[1].shape == [4, 1]


def test_a_slow_iterator_reads_fewer_files(server):
    counts = collections.Counter()
    begun, done = threading.Event(), threading.Event()

    def slow():
        for _ in SharedFileList(server.address).paths():
            counts["slow"] += 1
            begun.set()
            assert done.wait(240)

    def fast():
        assert begun.wait(240)
        for _ in SharedFileList(server.address).paths():
            counts["fast"] += 1
        done.set()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(slow), pool.submit(fast)]:
            future.result()
    assert sum(counts.values()) == 12
    # The file it has, and the one it may have requested ahead.
    assert 1 <= counts["slow"] <= 2


def test_files_are_reshuffled_in_each_epoch(files):
    def orders(seed):
        with FileListServer(files, shuffle_files=True, seed=seed) as server:
            shared = SharedFileList(server.address)
            return [list(shared.paths()) for _ in range(2)]

    found = orders(-1)
    for order in found:
        assert sorted(order) == sorted(map(str, files))
    assert found[0] != found[1] != sorted(map(str, files))
    assert orders(-1) == found
    assert orders(None) != found


def test_the_next_epoch_may_have_other_files(server, files):
    shared = SharedFileList(server.address)
    paths = shared.paths()
    assert next(paths) == str(files[0])
    server.set_files(files[:3])
    assert len(list(paths)) == 11  # this epoch continues
    assert list(shared.paths()) == [str(path) for path in files[:3]]
    with pytest.raises(ValueError, match="`files` must have at least"):
        server.set_files([])
    assert len(list(shared.paths())) == 3


def test_a_memory_dataset_loads_its_share(server):
    memories = [InMemoryDataset(SPEC, 50) for _ in range(2)]

    def load(memory):
        for path in SharedFileList(server.address).paths():
            memory.load(path)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(load, memories))
    found = [n for memory in memories for n in numbers(memory.dataset())]
    assert sorted(found) == whole()


def test_fit_reads_all_files_per_epoch(server):
    inputs = keras.Input([1], name="C", dtype="float32")
    model = keras.Model({"C": inputs}, keras.layers.Dense(1)(inputs))
    model.compile(loss="mse", optimizer="sgd")
    dataset = multislot(SharedFileList(server.address), SPEC, 5)
    seen = []

    def features(x, y):
        return {"C": tf.cast(x["C"].to_tensor(), tf.float32) * 1e-6}, y

    class Count(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            seen.append(0)

        def on_train_batch_end(self, batch, logs=None):
            seen[-1] += 1

    model.fit(dataset.map(features), epochs=3, verbose=0, callbacks=[Count()])
    assert seen == [24, 24, 24]


def test_inside_a_function_and_with_a_command(server):
    @tf.function(autograph=False)
    def read():
        dataset = multislot(
            SharedFileList(server.address),
            SPEC,
            4,
            open_command=["cat", "{path}"],
        )
        return dataset.reduce(
            0.0, lambda total, batch: total + tf.reduce_sum(batch[1])
        )

    assert read() == sum(whole())


def test_binary_files(tmp_path):
    spec = Schema(
        [Column.label("y"), Column.dense("d", [2]), Column.sparse("C")]
    )
    for format in ("instant", "norm", "raw"):
        name = f"a.{format}"
        with data.open_writer(tmp_path / name, spec, format) as writer:
            for i in range(6):
                writer.write({"y": i % 2, "d": [i, -i], "C": [i]})
        with FileListServer([tmp_path / name] * 2) as server:
            shared = SharedFileList(server.address)
            dataset = open_dataset(shared, spec, 4, format=format)
            found = [i for x, _ in dataset for i in x["C"].values.numpy()]
            assert found == [*range(6)] * 2


def test_an_error_of_a_file_names_it(files):
    files[3].write_text("oops\n")
    with FileListServer(files) as server:
        dataset = multislot(SharedFileList(server.address), SPEC, 4)
        with pytest.raises(tf.errors.InvalidArgumentError, match="part-3:1: "):
            numbers(dataset)


def test_an_iterator_cannot_be_saved(server, tmp_path):
    dataset = multislot(SharedFileList(server.address), SPEC, 4)
    iterator = iter(dataset)
    next(iterator)
    with pytest.raises(tf.errors.UnimplementedError):
        tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")


@pytest.mark.parametrize(
    "make, options, message",
    [
        (multislot, {"shard": (2, 0)}, "`shard` is not an option with a"),
        (multislot, {"shuffle_files": True}, "`shuffle_files` is not an op"),
        (multislot, {"mode": "in_memory"}, "got SharedFileList"),
        (open_dataset, {}, "A SharedFileList needs `schema` and `format`"),
        (
            open_dataset,
            {"format": "csv"},
            "A SharedFileList is not an option of csv",
        ),
    ],
)
def test_incompatible_options_are_refused(server, make, options, message):
    shared = SharedFileList(server.address)
    with pytest.raises(ValueError, match=message):
        make(shared, SPEC, 4, **options)
    assert len(list(shared.paths())) == 12  # no file is taken yet


@pytest.mark.parametrize("address", ["", "chief", "chief:", ":1", "a:b", 5050])
def test_invalid_addresses_are_refused(address):
    with pytest.raises(
        ValueError, match="`address` must be 'host:port', found"
    ):
        SharedFileList(address)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"files": []}, "`files` must have at least"),
        ({"seed": 0.5}, "`seed` must be an integer or None"),
        ({"port": -1}, "`port` must be"),
        ({"worker_port": -1}, "`worker_port` must be"),
        ({"port": 5, "worker_port": 5}, "must differ, got 5"),
        ({"shuffle_files": 1}, "`shuffle_files`=1 is not a Python bool"),
    ],
    ids=str,
)
def test_bad_arguments_of_a_server(arguments, message):
    with pytest.raises(ValueError, match=message):
        FileListServer(**{"files": ["a"], **arguments})


def test_ports_may_be_chosen(files):
    # Not an ephemeral port: the system could give it away while it is free.
    (held,) = local_cluster.hold_ports(1)
    port = held.getsockname()[1]
    held.close()
    with FileListServer(files, port=port):
        for name in ("port", "worker_port"):
            with pytest.raises(OSError, match=f"port {port} cannot be used: "):
                FileListServer(files, **{name: port})
    with pytest.raises(OSError, match="port 99999 cannot be used: "):
        FileListServer(files, port=99999)
    with FileListServer(files, port=port) as server:
        assert server.address == f"localhost:{port}"
        assert len(list(SharedFileList(server.address).paths())) == 12
    with FileListServer(files, worker_port=port) as server:
        socket.create_connection(("localhost", port)).close()
        assert len(list(SharedFileList(server.address).paths())) == 12


def test_a_server_stops_during_a_request(files):
    for _ in range(5):
        server = FileListServer(files)
        paths = SharedFileList(server.address).paths()
        next(paths)
        begin = time.monotonic()
        del paths
        server.stop()
        assert time.monotonic() - begin < 60


@pytest.fixture
def schema(tmp_path):
    SPEC.save(tmp_path / "schema.yaml")
    return str(tmp_path / "schema.yaml")


def test_processes_share_the_files_of_every_epoch(server, schema, fork):
    readers = [fork(read, server.address, schema) for _ in range(2)]
    found = [reader.read().split() for reader in readers]
    assert sorted(map(int, sum(found, []))) == sorted(whole() * 2)


def test_a_killed_process_loses_its_files_of_the_epoch(server, schema, fork):
    reader = fork(read, server.address, schema, stay=True)
    first = [int(n) for n in reader.stdout.readline().split()]
    assert first == list(range(5))
    reader.kill()
    dataset = multislot(SharedFileList(server.address), SPEC, 5)
    found = numbers(dataset)
    left = sorted({n // EACH for n in found})
    # The file that it read, and one or two that it requested ahead.
    assert 0 not in left and 12 - len(left) <= 3
    assert found == [n for n in whole() if n // EACH in left]
    assert numbers(dataset) == whole()  # the next epoch has all files


def test_workers_of_a_coordinator_share_the_files(schema, fork, files):
    paths = [str(path) for path in files]
    found = fork(coordinate, schema, paths, len(whole())).read()
    assert [int(n) for n in found.split()] == whole()


def test_a_process_ends_while_iterators_wait(schema, files):
    code = """
import sys
from lodestar.data import FileListServer, SharedFileList, open_dataset
server = FileListServer(sys.argv[2:])
shared = SharedFileList(server.address)
iterator = iter(
    open_dataset(shared, sys.argv[1], 4, format="multislot")
)
next(iterator)
raise KeyError("an error of the training")
"""
    process = subprocess.run(
        [sys.executable, "-c", code, schema, *files],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.returncode == 1
    assert "an error of the training" in process.stderr
