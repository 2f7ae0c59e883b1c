"""Readers whose files come from `open_command` or go through `pipe_command`."""

import contextlib
import gzip
import os
import pathlib
import re
import signal
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


class Way:
    """One of the two options; both read the files of `folder`."""

    def __init__(self, option, folder):
        self.option, self.folder = option, folder

    def file(self, name, data):
        """Writes a file; returns the path that a reader gets."""
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        # An `open_command` gets paths that only it can resolve.
        return name if self.option == "open_command" else path

    def options(self, script):
        """Returns the option for a shell script, in which CAT prints the file."""
        if self.option == "open_command":
            return {
                "open_command": shell(
                    script.replace("CAT", f"cat '{self.folder}'/{{path}}")
                    + " # {path}"
                )
            }
        return {"pipe_command": shell(script.replace("CAT", "cat"))}

    def clicks(self, files, script="CAT", batch_size=7, **options):
        return clicks(files, batch_size, **self.options(script), **options)

    def failure(self, files, script, **options):
        return failure(files, **self.options(script), **options)


def clicks(files, batch_size=7, **options):
    dataset = MultiSlotDataset(files, SPEC, batch_size, **options)
    return [int(i) for _, label in dataset for i in label[:, 0].numpy()]


def failure(files, kind=tf.errors.FailedPreconditionError, **options):
    """Returns the error message that ends reading."""
    with nothing_left():
        with pytest.raises(kind) as error:
            clicks(files, **options)
        text = describe_error(error.value)
        del error
    assert "\n" not in text
    return text


@pytest.fixture(params=["open_command", "pipe_command"])
def way(request, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    return Way(request.param, folder)


@pytest.fixture
def files(way):
    return [way.file(f"part-{i}", lines(20 * i, 20 * i + 20)) for i in range(5)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "part-0"
    path.write_text(lines(0, 20))
    return path


def cat(folder):
    return ["cat", f"{folder}/{{path}}"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_parallel_files": 3, "mode": "file_instant"},
        {"num_parallel_files": 3, "mode": "in_memory"},
        {"deterministic": False},
    ],
    ids=str,
)
def test_each_file_has_its_own_process(way, files, options):
    wanted = []
    for i in range(5):
        wanted += [-1, *range(20 * i, 20 * i + 20)]
    with nothing_left():
        # Only one process per file can prepend a line to each.
        found = way.clicks(files, "echo 1 -1 1 7; CAT", **options)
    if "deterministic" in options:
        found, wanted = sorted(found), sorted(wanted)
    assert found == wanted


def test_the_processes_of_the_next_files_run_ahead(way, files, tmp_path):
    started = tmp_path / "started"
    options = way.options(f"echo $$ >> {started}; CAT")
    iterator = iter(
        MultiSlotDataset(
            files[:1] * 9,
            SPEC,
            20,
            num_parallel_files=3,
            prefetch=0,
            **options,
        )
    )
    next(iterator)
    deadline = time.monotonic() + 60
    while started.read_text().count("\n") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(list(iterator)) == 8
    assert started.read_text().count("\n") == 9


def test_a_compressed_file_is_decompressed(way):
    data = gzip.compress(lines(0, 9000).encode())
    more = gzip.compress(lines(9000, 9003).encode())
    path = way.file("a.gz", data + more)
    assert way.clicks(path, batch_size=1000) == [*range(9003)]
    path = way.file("b.gz", data[:-9])
    text = way.failure(path, "CAT", kind=tf.errors.InvalidArgumentError)
    assert text.startswith(f"{path}: the compressed file was truncated after ")
    path = way.file("c.gz", lines(0, 20))
    text = way.failure(path, "CAT", kind=tf.errors.OpError)
    assert text.startswith(f"{path}: ")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_command_that_fails_is_an_error(way, files, mode, on_error):
    script = "CAT; echo first >&2; echo '  second\ttab' >&2; exit 3"
    text = way.failure(files[0], script, mode=mode, on_error=on_error)
    assert text.startswith(f"{files[0]}: command ['sh', '-c', 'cat")
    assert text.endswith("] exited with 3: first | second tab")


@pytest.mark.parametrize(
    "script, message",
    [
        ("CAT; echo dying >&2; kill -9 $$", "by signal 9 (Killed): dying"),
        ("false", "exited with 1; it wrote nothing to stderr"),
        (
            r"printf 'a\377\001\303\251\n\n\303b' >&2; false",
            r"exited with 1: a\xff\x01é | \xc3b",
        ),
    ],
    ids=["signal", "silent", "not text"],
)
def test_the_end_of_a_command_is_in_its_error(way, files, script, message):
    assert way.failure(files[0], script).endswith(message)


def test_a_command_that_cannot_be_run(path):
    for command, reason in (
        (["no-such-command-here", "{path}"], "No such file or directory"),
        (["/dev/null", "{path}"], "Permission denied"),
        (["./", "{path}"], "Permission denied"),
    ):
        text = failure(path, open_command=command, on_error="skip")
        assert text == (
            f"{path}: command ['{command[0]}', '{path}'] cannot be run: {reason}"
        )
        text = failure(path, pipe_command=command)
        assert text == f"{path}: command {command} cannot be run: {reason}"


def test_samples_before_a_failure_are_returned(way):
    path = way.file("big", lines(0, 200_000))
    found = []
    with pytest.raises(tf.errors.FailedPreconditionError, match="exited with"):
        for _, label in MultiSlotDataset(
            path, SPEC, 10_000, **way.options("CAT; false")
        ):
            found += [int(label[0, 0]), int(label[-1, 0])]
    assert len(found) > 10
    assert found[:4] == [0, 9999, 10_000, 19_999]


def test_a_failed_command_leaves_no_complete_file(tmp_path):
    store = Way("open_command", tmp_path)
    names = [
        store.file(f"part-{i}", lines(20 * i, 20 * i + 20)) for i in (0, 1)
    ]
    command = shell(f"cat {tmp_path}/{{path}}; [ {{path}} != part-1 ]")
    memory = InMemoryDataset(SPEC, 7, open_command=command)
    memory.load(names[0])
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="exited with 1"
    ):
        memory.load(names)
    memory.preload(names)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="exited with 1"
    ):
        memory.wait_preload()
    assert memory.num_samples == 20
    found = []
    with pytest.raises(tf.errors.FailedPreconditionError, match="part-1"):
        for _, label in MultiSlotDataset(
            names, SPEC, 20, mode="file_instant", open_command=command
        ):
            found += label[:, 0].numpy().tolist()
    assert found == [*range(20)]


def test_a_missing_or_empty_file_is_an_error(tmp_path):
    text = failure("nowhere", open_command=cat(tmp_path))
    assert re.search(
        r"exited with 1: cat: .*nowhere.?: No such file or directory", text
    )
    text = failure(
        "a", tf.errors.InvalidArgumentError, open_command=["true", "{path}"]
    )
    assert text.startswith("a: ")
    with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
        clicks(tmp_path / "nowhere", pipe_command=["cat"])


def test_an_error_in_a_line_names_the_path(way):
    bad = way.file("bad", lines(0, 2) + "oops\n" + lines(3, 4))
    text = way.failure(bad, "CAT", kind=tf.errors.InvalidArgumentError)
    where = f"{bad}:3"
    if way.option == "pipe_command":
        where += " of the output of ['sh', '-c', 'cat']"
    assert text == (
        f"{where}: slot 'click' at byte 1: count is 'oops', expected an integer"
    )
    skipped = SkippedRecords()
    found = way.clicks(bad, on_error="skip", skipped=skipped)
    assert found == [0, 1, 3]
    assert skipped.count == 1
    assert skipped.messages[0].startswith(where)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("script", ["yes '1 5 1 7'", "yes '1 5 0' & wait"])
def test_an_abandoned_iterator_kills_its_processes(
    way, files, script, deterministic
):
    with nothing_left():
        for _ in range(2):
            dataset = MultiSlotDataset(
                files,
                SPEC,
                1000,
                num_parallel_files=3,
                deterministic=deterministic,
                **way.options(script),
            )
            assert len(list(dataset.take(1))) == 1
            iterator = iter(dataset)
            next(iterator)
            del iterator


def test_a_hanging_command_can_be_abandoned(way, files):
    options = way.options("yes '1 1 0' | head -n 200000; sleep 240")
    with nothing_left():
        iterator = iter(MultiSlotDataset(files[0], SPEC, 9, **options))
        next(iterator)
        begin = time.monotonic()
        del iterator
        assert time.monotonic() - begin < 120


def test_reading_resumes_where_it_was_saved(way, files, tmp_path):
    dataset = MultiSlotDataset(files[:2], SPEC, 6, **way.options("CAT"))
    iterator = iter(dataset)
    for _ in range(4):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert [int(i) for _, y in again for i in y[:, 0]] == [*range(24, 40)]


def test_a_command_with_less_output_than_before_is_an_error(tmp_path, path):
    command = ["cat", tmp_path / "output"]
    (tmp_path / "output").write_text(lines(0, 20))
    dataset = MultiSlotDataset(path, SPEC, 6, pipe_command=command)
    iterator = iter(dataset)
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    (tmp_path / "output").write_text(lines(0, 3))
    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).restore(saved)
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match=r"output of \['cat', .*\]: has 3 records",
    ):
        list(again)


def test_it_works_with_the_other_options(way, files):
    def read(**options):
        return way.clicks(files[:2], **options)

    assert sorted(read(shuffle=10, shuffle_files=True)) == [*range(40)]
    assert read(repeat=2) == [*range(40)] * 2
    assert read(shard=(2, 1)) == [*range(20, 40)]
    assert read(shard=(4, 1)) == [*range(1, 40, 4)]


@pytest.mark.parametrize(
    "command, message",
    [
        ("cat {path}", "must be a list of strings, as .*. No shell would"),
        (b"cat {path}", "must be a list of strings"),
        ({"cat {path}"}, "must be a list of strings"),
        (["cat", 1], r"must be a list of strings, .* got \['cat', 1\]"),
        ([], r"must have a command, got \[\]"),
        ([""], r"must have a command, got \[''\]"),
        (["cat", "{path}", "a\0b"], "must not have a NUL character"),
        (["cat", "part"], r"must have '\{path\}' in place of a file's path"),
    ],
    ids=str,
)
@pytest.mark.parametrize("option", ["open_command", "pipe_command"])
def test_invalid_commands_are_refused(option, command, message):
    readers = [
        (MultiSlotDataset, ["part-0", SPEC, 2]),
        (InMemoryDataset, [SPEC, 2]),
    ]
    if option == "open_command":
        readers += [
            (make, ["a", KEYS, 2]) for make in (NormDataset, RawDataset)
        ]
    elif command == ["cat", "part"]:
        return  # It reads stdin.
    for make, arguments in readers:
        with pytest.raises(ValueError, match=f"`{option}` {message}"):
            make(*arguments, **{option: command})


# Commands that open files.


def test_norm_and_raw_files_from_a_command(tmp_path):
    (tmp_path / "norm.txt").write_bytes(hugectr_files.NORM_SUM)
    ((features, _),) = NormDataset(
        "norm.txt", KEYS, 2, open_command=cat(tmp_path)
    )
    assert features["D"].to_list() == [[300, 301], []]
    # click, two dense values, one key in each of two slots
    (tmp_path / "raw").write_bytes(2 * (bytes(12) + b"\7\0\0\0\1\0\0\0"))
    ((features, _),) = RawDataset("raw", KEYS, 2, open_command=cat(tmp_path))
    assert features["C"].to_list() == [[7], [7]]
    (tmp_path / "cut").write_bytes(bytes(31))
    with pytest.raises(tf.errors.InvalidArgumentError, match="cut: .*31 bytes"):
        list(RawDataset("cut", KEYS, 2, open_command=cat(tmp_path)))


def test_open_dataset_does_not_expand_paths(path):
    command = shell(f"cat {path.parent}/$(basename {{path}})")
    dataset = open_dataset(
        "nowhere://part-0",
        SPEC,
        100,
        format="multislot",
        open_command=command,
    )
    assert [len(label) for _, label in dataset] == [20]
    for missing in ({"schema": SPEC}, {"format": "multislot"}, {}):
        with pytest.raises(ValueError, match="needs `schema` and `format`"):
            open_dataset("a.b", batch_size=2, open_command=command, **missing)
    for name in ("csv", "parquet", "arrow"):
        with pytest.raises(ValueError, match=f"not an option of {name} files"):
            open_dataset(path, SPEC, 2, format=name, open_command=command)


def test_only_placeholders_are_replaced_by_the_path():
    command = [*python("import sys; print(*sys.argv[1:])"), "1"]
    assert clicks("7", open_command=[*command, "{path}", "0"]) == [7]
    # A word is not split again, and a substituted path is not expanded again.
    code = "import sys; print(1, sum(map(len, sys.argv[1:])), 0)"
    words = ["{path}{path}", "a {path}", "$HOME", "{pat}", "{{path}}"]
    found = clicks("{path} *", open_command=[*python(code), *words])
    assert found == [16 + 10 + 5 + 5 + 10]


def test_a_path_that_looks_like_shell_is_a_word(tmp_path):
    name = "a b; exit 1 $(false) '\" é"
    (tmp_path / name).write_text(lines(0, 3))
    assert clicks(name, open_command=cat(tmp_path)) == [0, 1, 2]


def test_a_command_that_opens_has_no_stdin():
    assert clicks("7", open_command=shell("cat; echo 1 {path} 0")) == [7]


def test_a_path_is_not_cut_at_a_nul():
    with pytest.raises((ValueError, tf.errors.OpError)) as error:
        clicks("a\0b", open_command=["cat", "{path}"])
    assert describe_error(error.value) == r"a\0b: a path cannot hold a NUL"


def test_a_pipe_command_reads_the_output_of_open_command(tmp_path):
    store = Way("open_command", tmp_path)
    names = [
        store.file(f"part-{i}", lines(20 * i, 20 * i + 20)) for i in (0, 1)
    ]
    with nothing_left():
        found = clicks(
            names,
            open_command=cat(tmp_path),
            pipe_command=shell("echo 1 -1 0; cat"),
        )
    assert found == [-1, *range(20), -1, *range(20, 40)]
    store.file("a.gz", gzip.compress(lines(0, 3).encode()))
    found = clicks("a.gz", open_command=cat(tmp_path), pipe_command=["tac"])
    assert found == [2, 1, 0]
    # The command need not read to the end, and nothing waits for it.
    with nothing_left():
        endless = shell("while echo 1 {path} 0; do :; done")
        head = ["head", "-n", "3"]
        assert clicks("7", open_command=endless, pipe_command=head) == [7] * 3
    # A failure of the first is not hidden by the second.
    command = shell(f"head -n 3 {tmp_path}/{{path}}; echo gone >&2; exit 4")
    for pipe in (["cat"], shell("cat; echo worse >&2; exit 5")):
        text = failure("part-0", open_command=command, pipe_command=pipe)
        assert text.startswith("part-0: command ['sh', '-c', 'head")
        assert text.endswith("exited with 4: gone")


def test_a_command_that_is_slow_to_end_does_not_make_the_other_look_stuck():
    # A command has ten seconds to end after it closes its output. It may wait
    # for stdin longer.
    command = shell("head -c 262144 /dev/zero; sleep 11 # {path}")
    pipe = shell("echo 1 5 0; exec >&-; cat > /dev/null")
    assert clicks("1", open_command=command, pipe_command=pipe) == [5]


# Commands that files go through.


def test_an_in_memory_file_is_its_stdin():
    memory = "ram://commands_test/part-0"
    tf.io.gfile.makedirs("ram://commands_test")
    with tf.io.gfile.GFile(memory, "w") as file:
        file.write(lines(0, 10))
    assert clicks(memory, pipe_command=["cat"]) == [*range(10)]


def test_the_words_of_a_command_are_not_expanded(path):
    code = "import sys; print(1, len(sys.argv[1:]), 0)"
    words = ["a b", "$HOME", "; exit 1", "*", "", "'", "\\", "é"]
    assert clicks(path, pipe_command=python(code) + words) == [8]


def test_a_path_may_be_a_word(tmp_path, path):
    script = tmp_path / "gen.sh"
    script.write_text("#!/bin/sh\ncat $1\n")
    script.chmod(0o755)
    assert clicks(path, pipe_command=[script]) == [*range(20)]
    assert clicks(path, pipe_command=("sh", script)) == [*range(20)]
    assert clicks(path, open_command=[script, "{path}"]) == [*range(20)]
    assert clicks(
        "part-0", open_command=[pathlib.Path("cat"), tmp_path / "{path}"]
    ) == [*range(20)]


def test_much_more_than_pipes_hold_goes_through(tmp_path):
    path = tmp_path / "big"
    path.write_text(lines(0, 300_000))
    with nothing_left():
        found = clicks(path, 100_000, pipe_command=["cat", "-"])
    assert found == [*range(300_000)]


def test_only_the_end_of_a_long_stderr_is_kept(path):
    code = (
        "import sys\n"
        "for line in sys.stdin:\n"
        "    sys.stderr.write('begin' + 'x' * 100_000 + 'end')\n"
        "    sys.stdout.write(line)\n"
    )
    assert clicks(path, pipe_command=python(code)) == [*range(20)]
    text = failure(path, pipe_command=python(code + "sys.exit(9)"))
    assert "] exited with 9: ...xxx" in text
    assert text.endswith("xxxend")
    assert "beginx" not in text.rpartition("exited")[2]
    assert len(text) < 5000


def test_an_output_without_its_last_newline_is_refused(path):
    with pytest.raises(tf.errors.InvalidArgumentError, match=":1 of the outp"):
        clicks(path, pipe_command=["printf", "1 5 0"])


def test_an_output_may_be_empty(path):
    assert clicks([path, path], pipe_command=["true"]) == []
    assert clicks([path, path], pipe_command=shell("cat > /dev/null")) == []


@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_a_command_need_not_read_its_stdin(tmp_path, size):
    path = tmp_path / "raw"
    path.write_bytes(b"x" * size)
    # Python ignores SIGPIPE, which would end the process.
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        with nothing_left():
            for script in (
                "echo 1 5 0",
                "exec <&-; sleep .1; echo 1 5 0",
                "echo 1 5 0; exec >&-; sleep .2",
            ):
                assert clicks(path, pipe_command=shell(script)) == [5]
    finally:
        signal.signal(signal.SIGPIPE, before)


@pytest.mark.parametrize("own", [None, "0"])
def test_the_command_has_this_environment_and_is_to_start_quietly(
    path, monkeypatch, own
):
    monkeypatch.setenv("LODESTAR_TEST_WORD", "seen")
    monkeypatch.delenv("LODESTAR_QUIET_START", raising=False)
    if own:
        monkeypatch.setenv("LODESTAR_QUIET_START", own)
    script = 'echo "$LODESTAR_TEST_WORD $LODESTAR_QUIET_START" >&2; exit 1'
    text = failure(path, pipe_command=shell(script))
    assert text.endswith(f"exited with 1: seen {own or 1}")


def test_the_command_has_signals_and_files_as_a_fresh_one(path):
    # Python ignores SIGPIPE; `yes` must still be killed by it.
    text = failure(path, pipe_command=shell("yes 2>&1 | true; exit 5"))
    assert "exited with 5" in text
    extra = os.open(os.devnull, os.O_RDONLY)
    try:
        code = "import os; print(1, len(os.listdir('/proc/self/fd')), 0)"
        # Standard input, output and error, and the folder itself.
        assert clicks([path] * 3, pipe_command=python(code)) == [4] * 3
    finally:
        os.close(extra)


def test_output_after_the_process_is_waited_for(path):
    command = shell("(sleep .3; echo 1 5 0) & exit 0")
    assert clicks(path, pipe_command=command) == [5]


def test_an_output_held_open_by_a_child_is_an_error(path):
    text = failure(path, pipe_command=shell("sleep 100 & echo 1 5 0"))
    assert "has exited, but a process that it left behind still holds" in text


def test_children_of_a_failing_process_are_killed(tmp_path, path):
    number = tmp_path / "number"
    script = f"sleep 100 & echo $! > {number}; exit 1"
    failure(path, pipe_command=shell(script))
    deadline = time.monotonic() + 60
    # It may end between the two checks.
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        while time.monotonic() < deadline:
            os.kill(int(number.read_text()), 0)
            stat = pathlib.Path(f"/proc/{number.read_text().strip()}/stat")
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.01)
        pytest.fail("the process is still running")
