"""MultiSlotGenerator: samples as text, errors, scripts and files."""

import gzip
import io
import itertools
import os
import subprocess
import sys

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from lodestar.data import Column, DataError, Schema
from lodestar.paddle import MultiSlotGenerator
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("I", (2,)),
        Column.dense("P", (-1, 2)),
        Column.sparse("C"),
        Column.sparse("w", dtype="float", weights_of="C"),
        Column.one_hot("day", 7),
    ]
)
GOOD = {
    "click": [1],
    "I": [0.5, 3],
    "P": [],
    "C": [-1, 2**64 - 1],
    "w": [1, 0.25],
    "day": [6],
}


class Given(MultiSlotGenerator):
    """Yields the lines as samples."""

    def generate_sample(self, line):
        yield line


class Words(MultiSlotGenerator):
    """Yields ids, then a given value of one more slot."""

    def generate_sample(self, line):
        ids = [int(word) for word in line.split()]
        yield [("words", ids), ("label", [len(ids) % 2])]


class Padded(Words):
    """Pads batches to their longest sample."""

    def generate_batch(self, samples):
        longest = max(len(words) for (_, words), _ in samples)
        for (name, words), label in samples:
            yield [(name, words + [0] * (longest - len(words))), label]


def text_of(*samples, **options):
    return "".join(Given(**options).lines(samples))


def sample(**changes):
    return list({**GOOD, **changes}.items())


@pytest.mark.parametrize(
    "given, wanted",
    [
        ([("words", [1926, 8, 17]), ("label", [1])], "3 1926 8 17 1 1\n"),
        ([("d", [0.5, 2.0]), ("label", [1])], "2 0.5 2.0 1 1\n"),
        ((("d", (1,)), ["e", []]), "1 1 0\n"),
        (zip(["d", "e"], [[1], [2]]), "1 1 1 2\n"),
        ([("d", [-1, 2**64 - 1, True])], "3 -1 18446744073709551615 1\n"),
        (
            [("d", [float("inf"), float("nan"), -0.0, 1e-7, 2.0**127])],
            "5 inf nan -0.0 1e-07 170141183460469231731687303715884105728\n",
        ),
        (
            [("d", np.array([3, 2**63], np.uint64)), ("e", np.array([0.5]))],
            "2 3 9223372036854775808 1 0.5\n",
        ),
        (
            [("d", np.array([0.1, 3], np.float32)), ("e", [np.float16(0.1)])],
            "2 0.1 3.0 1 0.0999755859375\n",
        ),
    ],
)
def test_a_sample_as_text(given, wanted):
    assert text_of(given) == wanted


@hypothesis.settings(max_examples=30, deadline=None, database=None)
@hypothesis.given(
    st.lists(st.integers(-(2**63), 2**64 - 1)),
    st.lists(
        st.floats(width=32)
        | st.integers(-(2**24), 2**24)
        | st.integers(-(2**24), 2**24).map(lambda i: i << 24)
    ),
    st.lists(st.floats(width=32)),
)
def test_numbers_are_read_back_as_they_were(
    tmp_path_factory, ids, floats, singles
):
    path = tmp_path_factory.getbasetemp() / "numbers.txt"
    single = np.array(singles, np.float32)
    spec = Schema(
        [
            Column.sparse("ids"),
            Column.sparse("floats", dtype="float"),
            Column.sparse("single", dtype="float"),
        ]
    )
    given = [("ids", ids), ("floats", floats), ("single", single)]
    path.write_text(text_of(given, schema=spec))
    (read,) = MultiSlotDataset(path, spec, 1)
    words = [value % 2**64 for value in ids]
    np.testing.assert_array_equal(
        read["ids"].values.numpy().view(np.uint64), np.array(words, np.uint64)
    )
    for name, values in ("floats", floats), ("single", single):
        got = read[name].values.numpy()
        np.testing.assert_array_equal(got, np.array(values, np.float32))


@pytest.mark.parametrize(
    "results",
    [
        [[("a", [1])], None, [("a", [2])]],
        ([("a", [i])] for i in (1, 2)),
        lambda: iter([None, [("a", [1])], [("a", [2])]]),
        None,
    ],
    ids=["iterable", "generator", "callable", "none"],
)
def test_results_of_generate_sample(results):
    class Some(MultiSlotGenerator):
        def generate_sample(self, line):
            return results

    wanted = "" if results is None else "1 1\n1 2\n"
    assert "".join(Some().lines([0])) == wanted


@pytest.mark.parametrize("one", ["1 2", b"1 2"])
def test_a_single_line_is_not_split(one):
    with pytest.raises(TypeError, match="`lines` must be an iterable"):
        Words().lines(one)


def test_lines_are_generated_lazily():
    lines = Words().lines(map(str, itertools.count()))
    assert list(itertools.islice(lines, 2)) == ["1 0 1 1\n", "1 1 1 1\n"]


@pytest.mark.parametrize(
    "size, wanted",
    [
        (None, ["3 1 0 0", "3 2 3 0", "3 4 5 6"]),
        (2, ["2 1 0", "2 2 3", "3 4 5 6"]),
        (1, ["1 1", "2 2 3", "3 4 5 6"]),
    ],
)
def test_generate_batch_gets_batches_and_the_rest(size, wanted):
    padded = Padded()
    if size:
        padded.set_batch(size)
    lines = list(padded.lines(["1", "2 3", "4 5 6"]))
    assert [line.rsplit(" ", 2)[0] for line in lines] == wanted


def test_generate_batch_may_return_a_callable_and_be_set_on_the_object():
    given = Given()
    given.generate_batch = lambda samples: lambda: iter([None, samples[-1]])
    given.set_batch(2)
    lines = given.lines([[("a", [i])] for i in range(3)])
    assert list(lines) == ["1 1\n", "1 2\n"]


@pytest.mark.parametrize("size", [0, 1.5, True])
def test_a_bad_batch_size_is_refused(size):
    with pytest.raises(ValueError, match="`batch_size` must be an integer of"):
        Words().set_batch(size)


def test_a_type_is_float_once_there_was_one():
    given = Given()
    assert given.slot_types == {}
    samples = [[("a", [1]), ("b", [1])], [("a", [2, 0.5]), ("b", [2])]] * 2
    lines = given.lines(samples)
    next(lines)
    assert given.slot_types == {"a": "uint64", "b": "uint64"}
    for _ in lines:
        assert given.slot_types == {"a": "float", "b": "uint64"}
    assert list(given.slot_types) == ["a", "b"]
    assert Given(schema=SPEC).slot_types == {s.name: s.dtype for s in SPEC}


def test_samples_match_the_slot_file(tmp_path):
    path = tmp_path / "schema.yaml"
    SPEC.save(path)
    for schema in SPEC, path, list(SPEC):
        text = text_of(sample(), sample(P=[1, 2, 3, 4]), schema=schema)
        assert text == (
            "1 1 2 0.5 3 0 2 -1 18446744073709551615 2 1 0.25 1 6\n"
            "1 1 2 0.5 3 4 1 2 3 4 2 -1 18446744073709551615 2 1 0.25 1 6\n"
        )


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"click": [2]}, "'click': value 1 of 1 must be 0 or 1, got 2"),
        ({"click": [1.0]}, "'click': value 1 of 1 must be an integer, got 1.0"),
        ({"click": []}, "'click' must be 1, got 0"),
        ({"click": [1, 0]}, "'click' must be 1, got 2"),
        ({"I": [1]}, "'I' must be 2, got 1"),
        ({"I": [1, 1e39]}, r"'I': value 2 of 2 must be a float32, got 1e\+39"),
        ({"I": [1, 20200715]}, "a number that float32 holds exactly from 2"),
        ({"I": [1, 1e20]}, r"'I': value 2 of 2 must be a number .* got 1e\+20"),
        ({"I": [1, "1"]}, "'I': value 2 of 2 must be a number, got '1'"),
        ({"P": [1]}, "'P' must be a multiple of 2, got 1"),
        ({"C": [1]}, "'w' must have 1 values, one per id of slot 'C', got 2"),
        ({"C": [1, 0.5]}, "'C': value 2 of 2 must be an integer, got 0.5"),
        ({"C": [1, 2**64]}, "an integer of 64 bits, got 18446744073709551616"),
        ({"day": [7]}, "'day': value 1 of 1 must be a whole number .* 7"),
        ({"day": [-1]}, "'day': value 1 of 1 must be a whole .* -1"),
        ({"x": [1]}, "must have 6 slots, as in the schema file, got 7"),
    ],
)
def test_samples_that_contradict_the_slot_file(changes, message):
    with pytest.raises(DataError, match=f"line 2: .*{message}"):
        text_of(sample(), sample(**changes), schema=SPEC)


A = [("a", [1])]


@pytest.mark.parametrize(
    "options, samples, message",
    [
        ({}, [A, "abc"], "a sample must be a list of .* 'abc'"),
        ({}, [A, {"a": [1]}], "a sample must be a list of .* {'a':"),
        (
            {},
            [A, [("a", [1], 2)]],
            r"a slot must be \(name, .* \('a', \[1\], 2\)",
        ),
        ({}, [A, ["ab"]], "a slot must be .*, got 'ab'"),
        ({}, [A, [(1, [1])]], r"a slot must be .*, got \(1, \[1\]\)"),
        (
            {},
            [[("a", 1)]],
            "slot 'a' must be a list of integers and floats, got",
        ),
        ({}, [[("a", "12")]], "slot 'a' must be a list of .*, got '12'"),
        ({}, [[("a", np.ones((1, 1)))]], "slot 'a' must be a list of .* array"),
        (
            {},
            [[("a", ["1"])]],
            "value 1 of 1 must be an integer or a float, got",
        ),
        ({}, [[("a", [1, None])]], "value 2 of 2 must be .*, got None"),
        ({}, [[("a", [2**64])]], "must be an integer of 64 bits"),
        ({}, [[("a", [-(2**63) - 1])]], "must be an integer of 64 bits"),
        ({}, [[("a", [2.0**128])]], "must be a float32"),
        (
            {},
            [A, [*A, ("b", [1])]],
            "must have 1 slots, as in the first sample, ",
        ),
        ({}, [A, [("b", [1])]], "slot 'b' is in the position of 'a'"),
        ({}, [A, []], "must have 1 slots, .* got 0"),
        ({}, [[("a", [0] * 99 + ["x" * 99])]], "got 'x{56}..."),
        ({}, [[]], "the sample has no slots"),
        ({}, [A * 2], "slot 'a' is repeated"),
        (
            {"strings": True},
            [[("a", "1")]],
            "must be a list of strings, got '1'",
        ),
        (
            {"allow_empty": False},
            [[("a", [])]],
            "'a' must be at least one, got 0",
        ),
        (
            {"allow_empty": False, "schema": SPEC},
            [sample(P=[1, 2], C=[], w=[])],
            "'C' must be at least one, got 0",
        ),
        (
            {"schema": SPEC},
            [[sample()[i] for i in (1, 0, 2, 3, 4, 5)]],
            "slot 'I' is in the position of 'click",
        ),
    ],
)
def test_invalid_samples(options, samples, message):
    where = f"^line {len(samples)}: .*{message}"
    with pytest.raises(DataError, match=where) as error:
        text_of(*samples, **options)
    assert "\n" not in str(error.value)


def test_generate_sample_must_be_there():
    with pytest.raises(DataError, match="MultiSlotGenerator must override"):
        list(MultiSlotGenerator().lines(["1"]))


def test_an_error_in_generate_sample_names_line_and_place():
    with pytest.raises(
        DataError,
        match=r"^line 3: generate_sample\(\) raised ValueError at "
        r".*multislot_generator_test\.py:\d+: invalid literal .*'x'$",
    ) as error:
        list(Words().lines(["1", "2", "x"]))
    assert isinstance(error.value.__cause__, ValueError)


def test_an_error_of_a_batch_names_its_lines():
    class Broken(Padded):
        def generate_batch(self, samples):
            raise KeyError("oh")

    broken = Broken()
    broken.set_batch(2)
    with pytest.raises(DataError, match=r"^line 1-2: generate_batch\(\) raise"):
        list(broken.lines(["1", "2", "3"]))


STRINGS = [
    ("7", None),
    ("-007", None),
    ("1e3", "float"),
    (".5", "float"),
    ("0x1P-3", "float"),
    ("Inf", "float"),
    ("", "no"),
    ("1 2", "no"),
    (" 1", "no"),
    ("1_0", "no"),
    ("٣", "no"),
    ("--1", "no"),
    ("x", "no"),
    ("1e999", "no"),
    ("0x1p9999", "no"),
    ("9" * 30, "no"),
    (1, "no"),
]


@pytest.mark.parametrize("value, kind", STRINGS, ids=lambda x: repr(x))
def test_strings_are_written_as_they_are(value, kind, tmp_path):
    strings = Given(strings=True)
    lines = strings.lines([[("a", ["5", value]), ("b", [])]])
    if kind == "no":
        with pytest.raises(
            DataError, match="'a': value 2 of 2 must be .*, got"
        ):
            next(lines)
        return
    assert next(lines) == f"2 5 {value} 0\n"
    assert strings.slot_types["a"] == kind or "uint64"
    path = tmp_path / "strings.txt"
    path.write_text(f"2 5 {value}\n")
    spec = Schema([Column.sparse("a", dtype=strings.slot_types["a"])])
    assert len(list(MultiSlotDataset(path, spec, 1))) == 1


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_of_a_file(tmp_path, suffix):
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    data = b"1 2\r\n\n3"
    source.write_bytes(gzip.compress(data) if suffix else data)
    assert Words().write(source, target) == 3
    data = target.read_bytes()
    data = gzip.decompress(data) if suffix else data
    assert data == b"2 1 2 1 0\n0 1 0\n1 3 1 1\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        source.name,
        target.name,
    ]


@pytest.mark.parametrize(
    "name, data, message",
    [
        ("in", b"1\n2\nx\n", r"in:3: generate_sample\(\) raised ValueError"),
        ("in", b"1\n2 \xff\n", r"in:2: byte 3 is not UTF-8"),
        ("in", b"", r"in: the generator returned no samples"),
        ("in.gz", b"1\n", r"in\.gz: Not a gzipped file"),
        (
            "in.gz",
            gzip.compress(b"1\n2\n")[:-9],
            r"in\.gz: Compressed file ended",
        ),
    ],
)
def test_a_bad_file_leaves_the_output_as_it_was(tmp_path, name, data, message):
    source, target = tmp_path / name, tmp_path / "out"
    source.write_bytes(data)
    target.write_text("old")
    with pytest.raises(DataError, match=message):
        Words().write(source, target)
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Words().write(tmp_path / "nowhere", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_from_memory(capsysbinary):
    class Memory(MultiSlotGenerator):
        def generate_sample(self, line):
            assert line is None
            print("hello")
            yield [("a", [1])]
            yield [("b", [1])]

    with pytest.raises(SystemExit) as error:
        Memory().run_from_memory()
    assert error.value.code == 2
    out, err = capsysbinary.readouterr()
    assert out == b"1 1\n"
    assert err == (
        b"hello\nsample 2: slot 'b' is in the position of 'a'; slots must be in "
        b"the order of the first sample.\n"
    )


def test_from_stdin(capsysbinary, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"1 2\n\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    Padded().run_from_stdin()
    assert capsysbinary.readouterr() == (b"2 1 2 1 0\n2 0 0 1 0\n", b"")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "square.py"
    path.write_text(
        "from lodestar.paddle import MultiSlotGenerator\n"
        "class Square(MultiSlotGenerator):\n"
        "    def generate_sample(self, line):\n"
        "        yield [('a', [int(line) ** 2])]\n"
        "Square().run_from_stdin()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["LODESTAR_QUIET_START"] = "1"

    def start():
        return subprocess.Popen(
            [sys.executable, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    return start


def test_a_script_with_a_bad_line_ends_with_one_line_on_stderr(script):
    process = script()
    out, err = process.communicate(b"2\n3\nfour\n")
    assert out == b"1 4\n1 9\n"
    assert process.returncode == 2
    assert err.startswith(b"stdin:3: generate_sample() raised ValueError at /")
    assert b"square.py:4: " in err and err.count(b"\n") == 1


def test_a_script_that_nobody_reads_ends_quietly(script):
    process = script()
    process.stdout.close()
    with pytest.raises(BrokenPipeError):
        while True:
            process.stdin.write(b"2\n" * 100_000)
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.stderr.close()
