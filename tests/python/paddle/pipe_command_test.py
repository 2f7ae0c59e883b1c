"""MultiSlotDataset with files that a command preprocesses."""

import contextlib
import gzip
import os
import pathlib
import signal
import sys
import time

import pytest
import tensorflow as tf
from children import nothing_left, python, shell

from lodestar._errors import describe_error
from lodestar.data import Column, Schema, SkippedRecords
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema([Column.label("click", binary=False), Column.sparse("C")])
CAT = ["cat"]


def lines(begin, end):
    return "".join(f"1 {i} 2 {i} {i + 1}\n" for i in range(begin, end))


def clicks(files, command, batch_size=7, **options):
    dataset = MultiSlotDataset(
        files, SPEC, batch_size, pipe_command=command, **options
    )
    return [int(i) for _, label in dataset for i in label[:, 0].numpy()]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "part-0"
    path.write_text(lines(0, 20))
    return path


def failure(files, command, **options):
    """Returns the error message that ends reading."""
    with nothing_left():
        with pytest.raises(tf.errors.FailedPreconditionError) as error:
            clicks(files, command, **options)
        text = describe_error(error.value)
        del error
    assert "\n" not in text
    return text


@pytest.mark.parametrize("deterministic", [True, False])
def test_each_file_goes_through_its_own_process(tmp_path, deterministic):
    files = []
    for i in range(5):
        files.append(tmp_path / f"part-{i}")
        files[-1].write_text(lines(20 * i, 20 * i + 20))
    # Only one process per file can prepend a line to each.
    command = shell("echo 1 -1 0; cat")
    with nothing_left():
        found = clicks(files, command, deterministic=deterministic)
    wanted = []
    for i in range(5):
        wanted += [-1, *range(20 * i, 20 * i + 20)]
    if deterministic:
        assert found == wanted
    else:
        assert sorted(found) == sorted(wanted)


def test_the_processes_of_the_next_files_run_ahead(tmp_path, path):
    started = tmp_path / "started"
    command = shell(f"echo $$ >> {started}; cat")
    iterator = iter(
        MultiSlotDataset(
            [path] * 9,
            SPEC,
            20,
            pipe_command=command,
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


def test_a_missing_file_is_an_error_when_it_is_reached(tmp_path, path):
    files = [path, tmp_path / "nowhere", path]
    found = []
    with nothing_left():
        with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
            for _, label in MultiSlotDataset(
                files, SPEC, 10, pipe_command=CAT, num_parallel_files=3
            ):
                found.append(len(label))
    assert found == [10, 10]


def test_an_in_memory_file_and_a_compressed_one_are_its_stdin(tmp_path):
    memory = "ram://pipe_command_test/part-0"
    tf.io.gfile.makedirs("ram://pipe_command_test")
    with tf.io.gfile.GFile(memory, "w") as file:
        file.write(lines(0, 10))
    packed = tmp_path / "part-1.gz"
    packed.write_bytes(gzip.compress(lines(10, 30).encode()))
    assert clicks([memory, packed], CAT) == [*range(30)]


def test_the_words_of_a_command_are_not_expanded(path):
    code = "import sys; print(1, len(sys.argv[1:]), 0)"
    words = ["a b", "$HOME", "; exit 1", "*", "", "'", "\\", "é"]
    assert clicks(path, python(code) + words) == [8]


def test_a_path_may_be_a_word(tmp_path, path):
    script = tmp_path / "gen.sh"
    script.write_text("#!/bin/sh\ncat\n")
    script.chmod(0o755)
    assert clicks(path, [script]) == [*range(20)]
    assert clicks(path, ("sh", script)) == [*range(20)]


def test_a_generator_script_makes_the_samples(tmp_path):
    source = tmp_path / "raw"
    source.write_text("3\n\n5\n")
    script = tmp_path / "gen.py"
    script.write_text(
        "from lodestar.paddle import MultiSlotGenerator\n"
        "class Squares(MultiSlotGenerator):\n"
        "    def generate_sample(self, line):\n"
        "        if line.strip():\n"
        "            i = int(line)\n"
        "            yield [('click', [i]), ('C', [i * i])]\n"
        "Squares().run_from_stdin()\n"
    )
    assert clicks(source, [sys.executable, script]) == [3, 5]


def test_much_more_than_pipes_hold_goes_through(tmp_path):
    path = tmp_path / "big"
    path.write_text(lines(0, 300_000))
    with nothing_left():
        found = clicks(path, ["cat", "-"], 100_000, num_parallel_files=3)
    assert found == [*range(300_000)]


def test_stderr_that_nobody_reads_does_not_stop_it(path):
    code = (
        "import sys\n"
        "for line in sys.stdin:\n"
        "    sys.stderr.write('x' * 100_000)\n"
        "    sys.stdout.write(line)\n"
    )
    assert clicks(path, python(code)) == [*range(20)]


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_command_that_fails_is_an_error(path, on_error, deterministic):
    text = failure(
        path,
        shell("cat; echo first >&2; echo '  second\ttab' >&2; exit 3"),
        on_error=on_error,
        deterministic=deterministic,
    )
    assert text.startswith(f"{path}: command ['sh', '-c', 'cat; echo first")
    assert text.endswith("] exited with 3: first | second tab")


def test_samples_before_a_failure_are_returned(tmp_path):
    path = tmp_path / "big"
    path.write_text(lines(0, 200_000))
    found = []
    with pytest.raises(tf.errors.FailedPreconditionError, match="exited with"):
        for _, label in MultiSlotDataset(
            path, SPEC, 10_000, pipe_command=shell("cat; false")
        ):
            found += [int(label[0, 0]), int(label[-1, 0])]
    assert len(found) > 10
    assert found[:4] == [0, 9999, 10_000, 19_999]


def test_a_command_that_is_silent_about_it(path):
    assert failure(path, ["false"]).endswith(
        "['false'] exited with 1; it wrote nothing to stderr"
    )


def test_the_end_of_a_long_stderr_is_in_the_error(path):
    code = (
        "import sys\n"
        "sys.stderr.write('begin' + 'x' * 1_000_000 + 'end')\n"
        "sys.exit(9)\n"
    )
    text = failure(path, python(code))
    assert "] exited with 9: ...xxx" in text
    assert text.endswith("xxxend")
    assert "beginx" not in text.rpartition("exited")[2]
    assert len(text) < 5000


def test_a_stderr_that_is_not_text_is_escaped(path):
    text = failure(
        path, shell(r"printf 'a\377\001\303\251\n\n\303b' >&2; false")
    )
    assert text.endswith(r"exited with 1: a\xff\x01é | \xc3b")


def test_a_command_killed_by_a_signal_is_an_error(path):
    text = failure(path, shell("echo dying >&2; kill -9 $$"))
    assert text.endswith("was killed by signal 9 (Killed): dying")


@pytest.mark.parametrize(
    "command, reason",
    [
        (["no-such-command-here", "x"], "No such file or directory"),
        (["/dev/null"], "Permission denied"),
        (["./"], "Permission denied"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_command_that_cannot_be_run(path, command, reason, on_error):
    text = failure(path, command, on_error=on_error)
    assert text == f"{path}: command {command} cannot be run: {reason}"


def test_a_missing_file_is_still_named(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
        clicks(tmp_path / "nowhere", CAT)


def test_a_cut_compressed_file_is_still_named(tmp_path):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(lines(0, 20).encode())[:-9])
    with nothing_left():
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            clicks(path, CAT)
        assert f"{path}: the compressed file was truncated" in str(error.value)
        del error


def test_an_error_names_the_line_of_the_output(path):
    with nothing_left():
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            clicks(path, shell("head -3; echo oops; cat"))
        text = describe_error(error.value)
        del error
    assert text == (
        f"{path}:4 of the output of ['sh', '-c', 'head -3; echo oops; cat']: "
        "slot 'click' at byte 1: count is 'oops', expected an integer"
    )


def test_bad_lines_of_the_output_are_skipped(path):
    skipped = SkippedRecords()
    command = shell("echo oops; cat; echo more")
    assert clicks(path, command, on_error="skip", skipped=skipped) == [
        *range(20)
    ]
    assert skipped.count == 2
    lines = [
        text.split(" of the output of ['sh'")[0] for text in skipped.messages
    ]
    assert sorted(lines) == [f"{path}:1", f"{path}:22"]


def test_an_output_without_its_last_newline_is_refused(path):
    with pytest.raises(tf.errors.InvalidArgumentError, match=":1 of the outp"):
        clicks(path, ["printf", "1 5 0"])


def test_an_output_may_be_empty(path):
    assert clicks([path, path], ["true"]) == []
    assert clicks([path, path], shell("cat > /dev/null")) == []


@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_a_command_need_not_read_its_stdin(tmp_path, size):
    path = tmp_path / "raw"
    path.write_bytes(b"x" * size)
    with nothing_left():
        assert clicks(path, ["echo", "1 5 0"]) == [5]
        assert clicks(path, shell("exec <&-; sleep .1; echo 1 5 0")) == [5]
        assert clicks(path, shell("echo 1 5 0; exec >&-; sleep .2")) == [5]


def test_a_closed_pipe_raises_no_signal(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(b"x" * 1_000_000)
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        assert clicks(path, ["echo", "1 5 0"]) == [5]
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
    text = failure(
        path,
        shell('echo "$LODESTAR_TEST_WORD $LODESTAR_QUIET_START" >&2; exit 1'),
    )
    assert text.endswith(f"exited with 1: seen {own or 1}")


def test_the_command_has_signals_and_files_as_a_fresh_one(path):
    # Python ignores SIGPIPE; `yes` must still be killed by it.
    text = failure(path, shell("yes 2>&1 | true; exit 5"))
    assert "exited with 5" in text
    extra = os.open(os.devnull, os.O_RDONLY)
    try:
        code = "import os; print(1, len(os.listdir('/proc/self/fd')), 0)"
        # Standard input, output and error, and the folder itself.
        assert clicks([path] * 3, python(code)) == [4] * 3
    finally:
        os.close(extra)


def test_output_after_the_process_is_waited_for(path):
    assert clicks(path, shell("(sleep .3; echo 1 5 0) & exit 0")) == [5]


def test_an_output_held_open_by_a_child_is_an_error(path):
    text = failure(path, shell("sleep 100 & echo 1 5 0"))
    assert "has exited, but a process that it left behind still holds" in text


def test_children_of_a_failing_process_are_killed(tmp_path, path):
    number = tmp_path / "number"
    failure(path, shell(f"sleep 100 & echo $! > {number}; exit 1"))
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


def test_a_slow_command_is_waited_for(path):
    code = (
        "import sys, time\n"
        "for line in sys.stdin:\n"
        "    time.sleep(.02)\n"
        "    print(line, end='', flush=True)\n"
    )
    assert clicks(path, python(code)) == [*range(20)]


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("take", [1, 3])
def test_an_abandoned_iterator_kills_its_processes(path, take, deterministic):
    # Without an end; the command needs no memory but the pipes'.
    code = "while True: print(1, 5, 1, 7)"
    with nothing_left():
        for _ in range(3):
            dataset = MultiSlotDataset(
                [path] * 4,
                SPEC,
                1000,
                pipe_command=python(code),
                num_parallel_files=3,
                deterministic=deterministic,
            )
            assert len(list(dataset.take(take))) == take
            iterator = iter(dataset)
            next(iterator)
            del iterator


def test_a_hanging_command_can_be_abandoned(path):
    command = shell("yes '1 5 0' | head -n 200000; sleep 240")
    with nothing_left():
        iterator = iter(MultiSlotDataset(path, SPEC, 9, pipe_command=command))
        next(iterator)
        begin = time.monotonic()
        del iterator
        assert time.monotonic() - begin < 120


def test_reading_resumes_where_it_was_saved(tmp_path, path):
    other = tmp_path / "part-1"
    other.write_text(lines(20, 40))
    dataset = MultiSlotDataset([path, other], SPEC, 6, pipe_command=CAT)
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


def test_it_works_with_the_other_options(tmp_path, path):
    assert sorted(clicks(path, CAT, shuffle=10, seed=1)) == [*range(20)]
    assert clicks(path, CAT, repeat=2) == [*range(20)] * 2
    assert clicks(path, CAT, shard=(2, 1)) == [*range(1, 20, 2)]


def test_a_graph_of_it_keeps_the_command(path):
    dataset = MultiSlotDataset(path, SPEC, 20, pipe_command=shell("tac"))

    @tf.function
    def last():
        result = tf.zeros([20, 1])
        for _, label in dataset:
            result = label
        return result

    assert int(last()[0, 0]) == 19


@pytest.mark.parametrize(
    "command, message",
    [
        ("cat", "must be a list of strings, as .* got 'cat'. No shell"),
        (b"cat", "must be a list of strings"),
        (["cat", 1], r"must be a list of strings, .* got \['cat', 1\]"),
        ({"cat"}, "must be a list of strings"),
        ([], r"must have a command, got \[\]"),
        ([""], r"must have a command, got \[''\]"),
        (["cat", "a\0b"], "must not have a NUL character"),
    ],
)
def test_invalid_commands_are_refused(path, command, message):
    with pytest.raises(ValueError, match=f"`pipe_command` {message}"):
        MultiSlotDataset(path, SPEC, 2, pipe_command=command)
