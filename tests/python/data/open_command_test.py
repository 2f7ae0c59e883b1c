"""Readers whose files are the output of a command."""

import gzip
import pathlib
import re
import sys
import time

import hugectr_files
import pytest
import tensorflow as tf
from children import nothing_left, python, shell

from lodestar._errors import describe_error
from lodestar.data import Column, Schema, SkippedRecords, open_dataset
from lodestar.hugectr.norm_dataset import NormDataset
from lodestar.hugectr.raw_dataset import RawDataset
from lodestar.paddle import InMemoryDataset
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema([Column.label("click", binary=False), Column.sparse("C")])
KEYS = Schema(
    [
        Column.label("click"),
        Column.dense("I", [2]),
        Column.sparse("C"),
        Column.sparse("D"),
    ]
)
MODES = ["queue", "file_instant", "in_memory"]


def lines(begin, end):
    return "".join(f"1 {i} 2 {i} {i + 1}\n" for i in range(begin, end))


@pytest.fixture
def store(tmp_path):
    """A folder whose files no path in a test names."""
    folder = tmp_path / "store"
    folder.mkdir()
    for i in range(5):
        (folder / f"part-{i}").write_text(lines(20 * i, 20 * i + 20))
    return folder


def cat(store):
    return ["cat", f"{store}/{{path}}"]


def names(count=5):
    return [f"part-{i}" for i in range(count)]


def clicks(files, command, batch_size=7, **options):
    dataset = MultiSlotDataset(
        files, SPEC, batch_size, open_command=command, **options
    )
    return [int(i) for _, label in dataset for i in label[:, 0].numpy()]


def failure(files, command, kind=tf.errors.FailedPreconditionError, **options):
    """Returns the error message that ends reading."""
    with nothing_left():
        with pytest.raises(kind) as error:
            clicks(files, command, **options)
        text = describe_error(error.value)
        del error
    assert "\n" not in text
    return text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_file_is_the_output_of_its_command(store, mode, threads):
    with nothing_left():
        found = clicks(
            names(), cat(store), mode=mode, num_parallel_files=threads
        )
    assert found == [*range(100)]


def test_files_come_in_any_order_if_allowed(store):
    with nothing_left():
        found = clicks(names(), cat(store), deterministic=False)
    assert sorted(found) == [*range(100)]


def test_norm_and_raw_files_from_a_command(store):
    (store / "norm.txt").write_bytes(hugectr_files.NORM_SUM)
    batch = next(
        iter(NormDataset("norm.txt", KEYS, 2, open_command=cat(store)))
    )
    assert batch[0]["D"].to_list() == [[300, 301], []]
    # click, two dense values, one key in each of two slots
    (store / "raw").write_bytes(2 * (bytes(12) + b"\7\0\0\0\1\0\0\0"))
    ((features, _),) = RawDataset("raw", KEYS, 2, open_command=cat(store))
    assert features["C"].to_list() == [[7], [7]]
    (store / "cut").write_bytes(bytes(31))
    with pytest.raises(tf.errors.InvalidArgumentError, match="cut: .*31 bytes"):
        list(RawDataset("cut", KEYS, 2, open_command=cat(store)))


def test_open_dataset_does_not_expand_paths(store):
    for name, wanted in [("part-0", 20), ("part-1", 20)]:
        dataset = open_dataset(
            f"nowhere://{name}",
            SPEC,
            100,
            format="multislot",
            open_command=shell(f"cat {store}/$(basename {{path}})"),
        )
        assert [len(label) for _, label in dataset] == [wanted]
    for missing in ({"schema": SPEC}, {"format": "multislot"}):
        with pytest.raises(ValueError, match="needs `schema` and `format`"):
            open_dataset(
                "part-0", batch_size=2, open_command=cat(store), **missing
            )


def test_only_placeholders_are_replaced_by_the_path():
    command = [*python("import sys; print(*sys.argv[1:])"), "1"]
    assert clicks("7", [*command, "{path}", "0"]) == [7]
    # A word is not split again, and a substituted path is not expanded again.
    code = "import sys; print(1, sum(map(len, sys.argv[1:])), 0)"
    words = ["{path}{path}", "a {path}", "$HOME", "{pat}", "{{path}}"]
    assert clicks("{path} *", [*python(code), *words]) == [16 + 10 + 5 + 5 + 10]


def test_a_path_that_looks_like_shell_is_a_word(store):
    name = "a b; exit 1 $(false) '\" é"
    (store / name).write_text(lines(0, 3))
    assert clicks(name, cat(store)) == [0, 1, 2]


def test_the_command_has_no_stdin():
    assert clicks("7", shell("cat; echo 1 {path} 0")) == [7]


def test_a_compressed_file_is_decompressed(store):
    (store / "a.gz").write_bytes(
        gzip.compress(lines(0, 9000).encode())
        + gzip.compress(lines(9000, 9003).encode())
    )
    assert clicks("a.gz", cat(store), 1000) == [*range(9003)]
    (store / "b.gz").write_bytes(gzip.compress(lines(0, 20).encode())[:-5])
    text = failure("b.gz", cat(store), tf.errors.InvalidArgumentError)
    assert text.startswith("b.gz: the compressed file was truncated after ")
    (store / "c.gz").write_text(lines(0, 20))
    text = failure("c.gz", cat(store), tf.errors.OpError)
    assert text.startswith("c.gz: ")


def test_a_pipe_command_reads_the_output_of_open_command(store):
    with nothing_left():
        found = clicks(
            names(), cat(store), pipe_command=shell("echo 1 -1 0; cat")
        )
    assert found == [
        n for i in range(5) for n in [-1, *range(20 * i, 20 * i + 20)]
    ]
    (store / "a.gz").write_bytes(gzip.compress(lines(0, 3).encode()))
    assert clicks("a.gz", cat(store), pipe_command=["tac"]) == [2, 1, 0]
    # The command need not read to the end, and nothing waits for it.
    with nothing_left():
        endless = shell("while echo 1 {path} 0; do :; done")
        assert clicks("7", endless, pipe_command=["head", "-n", "3"]) == [7] * 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_command_that_fails_is_an_error(store, mode, on_error):
    command = shell(f"cat {store}/{{path}}; echo 'no {{path}}' >&2; exit 3")
    text = failure("part-0", command, mode=mode, on_error=on_error)
    assert text.startswith("part-0: command ['sh', '-c', 'cat ")
    assert text.endswith(">&2; exit 3'] exited with 3: no part-0")


def test_a_failed_command_leaves_no_complete_file(store):
    command = shell(f"cat {store}/{{path}}; [ {{path}} != part-1 ]")
    memory = InMemoryDataset(SPEC, 7, open_command=command)
    memory.load("part-0")
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="exited with 1"
    ):
        memory.load(names())
    assert memory.num_samples == 20
    memory.preload(names())
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="exited with 1"
    ):
        memory.wait_preload()
    assert memory.num_samples == 20
    found = []
    with pytest.raises(tf.errors.FailedPreconditionError, match="part-1"):
        for _, label in MultiSlotDataset(
            names(), SPEC, 20, mode="file_instant", open_command=command
        ):
            found += label[:, 0].numpy().tolist()
    assert found == [*range(20)]


def test_a_failure_is_not_hidden_by_the_pipe_command(store):
    command = shell(f"head -n 3 {store}/{{path}}; echo gone >&2; exit 4")
    for pipe in (["cat"], shell("cat; echo worse >&2; exit 5")):
        text = failure("part-0", command, pipe_command=pipe)
        assert text.startswith("part-0: command ['sh', '-c', 'head")
        assert text.endswith("exited with 4: gone")


def test_a_command_that_is_killed_is_an_error(store):
    text = failure("part-0", shell(f"cat {store}/{{path}}; kill -9 $$"))
    assert text.endswith(
        "was killed by signal 9 (Killed); it wrote nothing to stderr"
    )


def test_a_command_that_is_missing_is_an_error():
    text = failure("a", ["no-such-command-here", "{path}"])
    assert text == (
        "a: command ['no-such-command-here', 'a'] cannot be run: "
        "No such file or directory"
    )


def test_a_file_that_is_missing_or_empty_is_an_error(store):
    text = failure("nowhere", cat(store))
    assert re.search(
        r"exited with 1: cat: .*nowhere.?: No such file or directory", text
    )
    text = failure("a", ["true", "{path}"], tf.errors.InvalidArgumentError)
    assert text.startswith("a: ")


def test_an_error_in_a_line_names_the_path(store):
    (store / "bad").write_text(lines(0, 2) + "oops\n" + lines(3, 4))
    text = failure("bad", cat(store), tf.errors.InvalidArgumentError)
    assert text == (
        "bad:3: slot 'click' at byte 1: count is 'oops', expected an integer"
    )
    skipped = SkippedRecords()
    found = clicks("bad", cat(store), on_error="skip", skipped=skipped)
    assert found == [0, 1, 3]
    assert skipped.messages[0].startswith("bad:3: ")


def test_the_commands_of_the_next_files_run_ahead(store, tmp_path):
    started = tmp_path / "started"
    command = shell(f"echo $$ >> {started}; cat {store}/{{path}}")
    iterator = iter(
        MultiSlotDataset(
            ["part-0"] * 9,
            SPEC,
            20,
            open_command=command,
            num_parallel_files=3,
            prefetch=0,
        )
    )
    next(iterator)
    deadline = time.monotonic() + 60
    while started.read_text().count("\n") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(list(iterator)) == 8
    assert started.read_text().count("\n") == 9


@pytest.mark.parametrize("pipe", [None, ["cat"]])
@pytest.mark.parametrize("deterministic", [True, False])
def test_an_abandoned_iterator_kills_its_commands(pipe, deterministic):
    with nothing_left():
        for _ in range(3):
            dataset = MultiSlotDataset(
                ["1", "2", "3", "4"],
                SPEC,
                1000,
                open_command=shell("yes '1 {path} 0'"),
                pipe_command=pipe,
                num_parallel_files=3,
                deterministic=deterministic,
            )
            assert len(list(dataset.take(1))) == 1
            iterator = iter(dataset)
            next(iterator)
            del iterator


def test_a_hanging_command_can_be_abandoned():
    command = shell("yes '1 {path} 0' | head -n 200000; sleep 240")
    for pipe in (None, ["cat"]):
        with nothing_left():
            iterator = iter(
                MultiSlotDataset(
                    "1", SPEC, 9, open_command=command, pipe_command=pipe
                )
            )
            next(iterator)
            begin = time.monotonic()
            del iterator
            assert time.monotonic() - begin < 120


def test_a_command_that_is_slow_to_end_does_not_make_the_other_look_stuck():
    # A command has ten seconds to end after it closes its output. It may wait
    # for stdin longer.
    command = shell("head -c 262144 /dev/zero; sleep 11 # {path}")
    pipe = shell("echo 1 5 0; exec >&-; cat > /dev/null")
    assert clicks("1", command, pipe_command=pipe) == [5]


def test_reading_resumes_where_it_was_saved(store, tmp_path):
    dataset = MultiSlotDataset(names(2), SPEC, 6, open_command=cat(store))
    iterator = iter(dataset)
    for _ in range(4):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert [int(i) for _, y in again for i in y[:, 0]] == [*range(24, 40)]


def test_it_works_with_the_other_options(store):
    def read(**options):
        return clicks(names(2), cat(store), **options)

    assert sorted(read(shuffle=10, shuffle_files=True)) == [*range(40)]
    assert read(repeat=2) == [*range(40)] * 2
    assert read(shard=(2, 1)) == [*range(20, 40)]
    assert read(shard=(4, 1)) == [*range(1, 40, 4)]


def test_a_graph_of_it_keeps_the_command(store):
    dataset = MultiSlotDataset("part-1", SPEC, 20, open_command=cat(store))

    @tf.function
    def first():
        result = tf.zeros([20, 1])
        for _, label in dataset:
            result = label
        return result

    assert int(first()[0, 0]) == 20


def test_a_word_may_be_a_path(store):
    script = store / "open.sh"
    script.write_text(f"#!/bin/sh\ncat {store}/$1\n")
    script.chmod(0o755)
    assert clicks("part-0", [script, "{path}"]) == [*range(20)]
    assert clicks("part-0", [pathlib.Path("cat"), store / "{path}"]) == [
        *range(20)
    ]


@pytest.mark.parametrize(
    "command, message",
    [
        ("cat {path}", "must be a list of strings, as .*. No shell would"),
        (["cat", 1], "must be a list of strings"),
        ([], r"must have a command, got \[\]"),
        (["cat", "{path}", "a\0b"], "must not have a NUL character"),
        (["cat", "part"], r"must have '\{path\}' in place of a file's path"),
    ],
    ids=str,
)
def test_invalid_commands_are_refused(command, message):
    for make in (MultiSlotDataset, NormDataset, RawDataset):
        with pytest.raises(ValueError, match=f"`open_command` {message}"):
            make("part-0", SPEC, 2, open_command=command)
    with pytest.raises(ValueError, match=f"`open_command` {message}"):
        InMemoryDataset(SPEC, 2, open_command=command)


def test_readers_that_open_files_otherwise_refuse_it(tmp_path):
    command = ["cat", "{path}"]
    with pytest.raises(ValueError, match="needs `schema` and `format`"):
        open_dataset("a.parquet", batch_size=2, open_command=command)
    (tmp_path / "a.csv").write_text("click,C\n1,2\n")
    for name in ("csv", "parquet", "arrow"):
        with pytest.raises(ValueError, match=f"not an option of {name} files"):
            open_dataset(
                tmp_path / "a.csv", SPEC, 2, format=name, open_command=command
            )


def test_a_path_is_not_cut_at_a_nul():
    with pytest.raises((ValueError, tf.errors.OpError)) as error:
        clicks("a\0b", ["cat", "{path}"])
    assert describe_error(error.value) == r"a\0b: a path cannot hold a NUL"


def test_a_python_program_as_a_file_system(tmp_path):
    script = tmp_path / "store.py"
    script.write_text(
        "import sys\n"
        "begin, end = map(int, sys.argv[1].split('..'))\n"
        "for i in range(begin, end):\n"
        "    print(1, i, 1, i * i)\n"
    )
    command = [sys.executable, "-S", script, "{path}"]
    assert clicks(["3..5", "8..9"], command) == [3, 4, 8]
