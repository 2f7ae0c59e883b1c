"""lodestar.data.arrow.json_source: exact values, errors, the format."""

import decimal
import gzip
import json
import re

import numpy as np
import pandas
import pyarrow as pa
import pytest
import tensorflow as tf
from arrow_cases import as_lists
from row_cases import SPEC, set_block_bytes, table, write
from text_ids import hash_ids

from lodestar._errors import describe_error
from lodestar.data import (
    Column,
    DataError,
    Schema,
    SkippedRecords,
    open_dataset,
)
from lodestar.data.arrow.json_source import JsonSource
from lodestar.data.arrow.row_source import read_rows
from lodestar.data.binding import bind
from lodestar.data.files.find_format import expand_inputs, find_format
from lodestar.schema.schema import NA_VALUES


@pytest.fixture(autouse=True)
def showing(monkeypatch):
    """Makes only the first line show the types to Arrow's parser."""
    module = "lodestar.data.arrow.json_source"
    monkeypatch.setattr(f"{module}._SHOWING_LINES", 1)


@pytest.fixture
def opened(tmp_path):
    """Returns a function that opens lines as a JsonSource."""

    def open_lines(lines, name="in.jsonl"):
        if not isinstance(lines, (bytes, str)):
            lines = "".join(f"{line}\n" for line in lines)
        data = lines.encode() if isinstance(lines, str) else lines
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return JsonSource(str(path))

    return open_lines


def rows_of(source, *columns, na_values=NA_VALUES):
    """Returns the good rows by column, and the errors of bad rows."""
    found = {column.name: [] for column in columns}
    bad = []
    for group, num_rows in enumerate(source.row_groups):
        if not num_rows:
            continue
        rows = read_rows(source, group, bind(columns), na_values)
        assert rows.num_rows == num_rows
        bad += [rows.bad[row].text for row in sorted(rows.bad)]
        good = rows.good(0, rows.num_rows)
        for i, column in enumerate(columns):
            found[column.name] += as_lists(good.columns[i])
    return found, bad


def ids_of(name, *texts):
    return [[i] for i in hash_ids(name, list(texts)).tolist()]


def refuse_arrow(monkeypatch):
    """Makes Python's parser read every block."""
    monkeypatch.setattr(JsonSource, "_by_arrow", lambda self, *of: None)


def refuse_python(monkeypatch):
    """Makes Arrow's parser read every block."""
    monkeypatch.delattr(JsonSource, "_by_python")


PARSERS = {"arrow": refuse_python, "python": refuse_arrow}
each_parser = pytest.mark.parametrize("parser", PARSERS)


@each_parser
@pytest.mark.parametrize(
    ("name", "end", "size"),
    [
        ("in.jsonl", "\n", 1),
        ("in.jsonl.gz", "\r\n", 500),
        ("in.jsonl", "\r\n", 1 << 20),
    ],
)
def test_rows_are_those_of_a_table(
    opened, monkeypatch, parser, name, end, size
):
    set_block_bytes(monkeypatch, size)
    PARSERS[parser](monkeypatch)
    data = table(0, 50)
    source = opened(
        "".join(json.dumps(row) + end for row in data.to_pylist()), name
    )
    assert source.num_rows == 50
    assert (len(source.row_groups) > 1) == (size < 1 << 20)
    source.check_names(SPEC.names())
    found, bad = rows_of(source, *SPEC)
    assert not bad
    wanted = {name: data[name].to_pylist() for name in SPEC.names()}
    for name in ("click", "I1", "C2", "day", "n"):
        wanted[name] = [[value] for value in wanted[name]]
    wanted["I2"] = np.float32(wanted["I2"]).tolist()
    assert found == wanted


@each_parser
def test_what_pandas_and_python_write(opened, monkeypatch, parser):
    PARSERS[parser](monkeypatch)
    frame = pandas.DataFrame(
        {
            "city": ["Łódź", 'a "b"\\/\n', "😀", None],
            "x/y": [0.5, np.nan, 1e-7, -3.0],
            "n": pandas.array([2**62 + 1, None, 0, -7], "Int64"),
            "is": [True, False, True, False],
        }
    )
    columns = [
        Column.sparse("city", encoding="hash"),
        Column.dense("x/y", fill_value=-1),
        Column.sparse("n"),
        Column.dense("is"),
    ]
    records = frame.to_dict("records")
    for row in records:
        row["city"] = row["city"] if isinstance(row["city"], str) else None
        row["n"] = None if pandas.isna(row["n"]) else int(row["n"])
        row["x/y"] = None if np.isnan(row["x/y"]) else row["x/y"]
    for text in (
        frame.to_json(orient="records", lines=True),
        frame.to_json(orient="records", lines=True, force_ascii=False),
        "".join(json.dumps(row) + "\n" for row in records),
        "\ufeff" + "\n".join(json.dumps(row) for row in records),
    ):
        source = opened(text)
        source.check_names([column.name for column in columns])
        found, bad = rows_of(source, *columns)
        assert not bad
        assert found == {
            "city": [*ids_of("city", "Łódź", 'a "b"\\/', "😀"), []],
            "x/y": [[0.5], [-1], [np.float32(1e-7)], [-3]],
            "n": [[2**62 + 1], [], [0], [-7]],
            "is": [[1], [0], [1], [0]],
        }


@each_parser
def test_integers_are_exact(opened, monkeypatch, parser):
    PARSERS[parser](monkeypatch)
    numbers = [2**53 + 1, 2**63 - 1, -(2**63), -(2**53) - 1, 0, 7]
    source = opened(f'{{"a": {n}, "b": [{n}, null]}}' for n in numbers)
    found, bad = rows_of(source, Column.sparse("a"), Column.sparse("b"))
    assert not bad
    assert found == {"a": [[n] for n in numbers], "b": [[n] for n in numbers]}
    # Unsigned integers keep their bits.
    numbers = [2**63, 2**53 + 1, 2**64 - 1, 7]
    source = opened(f'{{"a": {n}}}' for n in numbers)
    found, bad = rows_of(source, Column.sparse("a"))
    assert not bad
    assert found["a"] == [[np.uint64(n).astype(np.int64)] for n in numbers]
    column = Column.sparse("a", encoding="hash")
    assert rows_of(source, column)[0]["a"] == ids_of("a", *map(str, numbers))


def test_integers_of_any_size(opened):
    numbers = [-1, 2**64 - 1, 2**64, -(10**30), 10**40]
    source = opened(f'{{"a": {n}}}' for n in numbers)
    found, bad = rows_of(source, Column.sparse("a", encoding="hash"))
    assert found["a"] == ids_of("a", *map(str, numbers)) and not bad
    found, bad = rows_of(source, Column.sparse("a"))
    assert found["a"] == [[-1], [-1]]
    assert [text.partition(", ")[0] for text in bad] == [
        f"line {i}: column 'a': found '{n}'"
        for i, n in enumerate(numbers[2:], 3)
    ]
    for digits in (80, 5000):
        source = opened([f'{{"a": {"7" * digits}}}', '{"a": 7}'])
        found, bad = rows_of(source, Column.sparse("a", encoding="hash"))
        assert (found["a"], bad) == (ids_of("a", "7" * digits, "7"), [])
        found, bad = rows_of(source, Column.sparse("a"))
        assert found["a"] == [[7]] and "expected an integer of 64" in bad[0]


NUMBERS = [
    *(
        "7",
        "-7",
        "7.0",
        "-0.0",
        "7e2",
        "7E-2",
        "0.1",
        "16777217",
        "123456789.0",
    ),
    *("9007199254740991", "9007199254740993", "9007199254740993.0", "1e16"),
    *("18446744073709551615", "3.5e38", "1e300", "1e400", "-1e400", "1e-400"),
    *("340282346638528859811704183484516925440", "0.30000001192092896"),
]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_are_those_of_csv(tmp_path, number):
    def read(name, text):
        path = tmp_path / name
        path.write_text(text)
        skipped = SkippedRecords()
        dataset = open_dataset(
            path, [Column.dense("x")], 8, on_error="skip", skipped=skipped
        )
        found = [features["x"].numpy().tolist() for features in dataset]
        return found, skipped.count

    wanted = read("a.csv", f"row,x\n1,{number}\n")
    for text in (f'{{"x": {number}}}', f'{{"x":[{number}],"row":1}}'):
        assert read("a.jsonl", f"{text}\n") == wanted


@pytest.mark.parametrize("number", NUMBERS)
def test_ids_are_whole_numbers(opened, number):
    source = opened([f'{{"x": {number}, "y": "{number}"}}'])
    found, bad = rows_of(source, Column.sparse("x"))
    exact = decimal.Decimal(number)
    is_integer = number.removesuffix(".0").lstrip("-").isdigit()
    if is_integer and exact < 2**64:
        assert found["x"] == [[int(exact) - 2**64 * (exact >= 2**63)]]
    elif float(number).is_integer() and abs(exact) < 2**53:
        assert found["x"] == [[int(float(number))]]
    else:
        assert found["x"] == []
        assert bad[0].startswith("line 1: column 'x': found ")


ODD = [
    *("null", "true", "7", "-8", "7.0", "7.5", "1e300", "9007199254740993"),
    *("18446744073709551615", "123456789012345678901", '"7"', '"a"', '" 7 "'),
    *('"NA"', '""', r'"\u0041\n"', r'"\ud83d\ude00"', r'"\ud800"', "NaN"),
    *("[]", "[7]", "[7, 8.0]", '["a", null]', "[null]", '[7, "a"]', "[[7]]"),
    *("[[]]", "[[7], 7]", "{}", '{"b": 7}', '{"b": [7]}', '{"b": 1, "b": 2}'),
    *("[NaN]", "Infinity", "[{}]", "01", "7.", "'a'", "1 1", "}{", '"\t"'),
    *('7}, {"a": 8', '7} {"a": 8', "9007199254740993.5", "[1e20, 2]"),
]
PLAIN = ["7", "0.5", '"a"', "[7]", "[0.5]", "[[7]]", '{"b": 7}', "true"]
COLUMNS = [
    Column.label("a"),
    Column.label("a", dtype="float", binary=False),
    Column.dense("a", fill_value=-1),
    Column.dense("a", (2,)),
    Column.dense("a", (-1,), fill_value="error"),
    Column.dense("a", dtype="uint64"),
    Column.sparse("a"),
    Column.sparse("a", dtype="float"),
    Column.sparse("a", encoding="hash"),
    Column.sparse("a", encoding="hash", separator=" "),
    Column.sparse("a", encoding="hex", fill_value="error"),
    Column.sparse("a", depth=2),
    Column.one_hot("a", 9),
    Column.sparse("a.b"),
    Column.dense("a.b", (2,)),
]


@pytest.mark.parametrize("column", COLUMNS, ids=Column.describe)
def test_a_row_does_not_depend_on_others(opened, monkeypatch, rng, column):
    """A value means the same alone, among others, and for both parsers."""
    wanted = {}
    for value in (*PLAIN, *ODD):
        source = opened([f'{{"a": {value}}}'])
        wanted[value] = rows_of(source, column)
        found, bad = wanted[value]
        assert len(found[column.name]) + len(bad) == 1
        with monkeypatch.context() as of_python:
            refuse_arrow(of_python)
            again, bad_again = rows_of(source, column)
        np.testing.assert_equal(again, found)
        assert len(bad) == len(bad_again)
    samples = [["7", odd] for odd in ODD]
    samples += [[rng.choice(PLAIN), odd] for odd in ODD]
    samples += [rng.choice(ODD, 30).tolist() for _ in range(10)]
    for values in samples:
        source = opened(f'{{"x": 1, "a": {value}}}' for value in values)
        found, bad = rows_of(source, column)
        parts = [wanted[value] for value in values]
        np.testing.assert_equal(
            found[column.name], sum((f[column.name] for f, _ in parts), [])
        )
        lines = [i for i, (_, bad) in enumerate(parts, 1) if bad]
        assert [int(re.match(r"line (\d+):", b)[1]) for b in bad] == lines


def test_kinds_of_values_in_one_column(opened):
    lines = ['{"a": 7}', '{"a": "7"}', '{"a": 7.0}', '{"a": [7, 8]}', "{}"]
    found, bad = rows_of(opened(lines), Column.sparse("a"))
    assert (found["a"], bad) == ([[7], [7], [7], [7, 8], []], [])
    column = Column.sparse("a", encoding="hash")
    found, bad = rows_of(opened([*lines[:3], '{"a": "b"}']), column)
    assert found["a"] == ids_of("a", "7", "7", "b")
    assert bad == [
        "line 3: column 'a': found 7.0, expected a string or an integer"
    ]


@each_parser
@pytest.mark.parametrize(
    ("value", "columns"),
    [
        ("10", [Column.sparse("a", encoding="hex")]),
        ("7", [Column.sparse("a", encoding="hash", strings_only=True)]),
        ("true", [Column.sparse("a", encoding="hash", strings_only=True)]),
        ("[7]", [Column.sparse("a", encoding="hash", strings_only=True)]),
    ],
)
def test_numbers_are_no_strings(opened, parser, monkeypatch, value, columns):
    if parser == "python":
        refuse_arrow(monkeypatch)
    for lines in ([f'{{"a": {value}}}'], ['{"a": "f"}', f'{{"a": {value}}}']):
        found, bad = rows_of(opened(lines), *columns)
        number = value.strip("[]")
        assert len(found["a"]) == len(lines) - 1
        assert bad == [
            f"line {len(lines)}: column 'a': found {number}, expected a string"
        ]


@pytest.mark.parametrize("value", ["7.0", "0.5", "1e2", "7.00"])
def test_ids_of_numbers_with_a_fraction_are_not_hashed(opened, value):
    """Equal numbers have several spellings, which would be several ids."""
    column = Column.sparse("a", encoding="hash")
    for text in (value, f"[{value}]"):
        for lines in ([], ['{"a": "x"}'], ['{"a": 7}']):
            source = opened([*lines, f'{{"a": {text}}}'])
            found, bad = rows_of(source, column)
            assert len(found["a"]) == len(lines)
            assert f"found {value}, expected a string or an int" in bad[0]


def test_booleans_among_strings_are_those_of_a_table(opened):
    column = Column.sparse("a", encoding="hash")
    lines = ['{"a": true}', '{"a": false}', '{"a": "x"}']
    for count in (2, 3):
        found, bad = rows_of(opened(lines[:count]), column)
        assert found["a"] == ids_of("a", *["1", "0", "x"][:count]) and not bad


def test_numbers_among_strings_keep_their_meaning(opened, tmp_path):
    """As text, they would be missing or split."""
    lines = ['{"a": -1}', '{"a": 0.5}', '{"a": 8}']
    path = tmp_path / "a.jsonl"
    for more, numbers in ([], [-1, 0.5, 8]), (['{"a": "x"}'], [0.5, 8]):
        path.write_text("\n".join([*more, *lines]))
        schema = Schema([Column.dense("a", fill_value=3)], na_values=["-1"])
        skipped = SkippedRecords()
        (x,) = open_dataset(path, schema, 9, on_error="skip", skipped=skipped)
        assert x["a"].numpy().ravel().tolist() == numbers
        assert skipped.count == len(more) * 2
    assert "found -1 among other kinds of values" in skipped.messages[1]
    column = Column.sparse("a", dtype="float", separator=".")
    for more, numbers in (
        ([], [[-1], [0.5], [8]]),
        (['{"a": "3"}'], [[3], [-1], [8]]),
    ):
        found, bad = rows_of(opened([*more, *lines]), column)
        assert found["a"] == numbers and len(bad) == len(more)


def test_keys_with_escapes(opened):
    lines = [r'{"a\u002eb": 2, "a": {"b": 3}}', r'{"\u0061": {"b": 4}}']
    source = opened(lines)
    source.check_names(["a.b"])
    assert rows_of(source, Column.sparse("a.b")) == ({"a.b": [[2], [4]]}, [])


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_errors_name_the_line(opened, monkeypatch, size):
    set_block_bytes(monkeypatch, size)
    lines = [
        (b'{"a": 1}', None),
        (b"", None),
        (b'{"a": 1', "is not JSON: Expecting ',' delimiter at character 8"),
        (b'{"a": 1} {"a": 2}', "is not JSON: Extra data at character 10"),
        (
            b"{'a': 1}",
            "is not JSON: Expecting property name enclosed in double",
        ),
        (b"[1]", "found [1], expected a JSON object"),
        (b"   ", "is not JSON: Expecting value at character 4"),
        (b'"a"', 'found "a", expected a JSON object'),
        (b'{"a": 2, "b": "\xff"}', "found the byte 0xff, which is not utf-8"),
        (b'{"a": 1, "a": 2}', "column 'a': the key occurs twice"),
        (b'{"a": NaN}', "column 'a': found NaN, which is not JSON; write null"),
        (
            b'{"a": "x"}',
            "column 'a': found 'x', expected an integer of 64 bits",
        ),
        (b'{"a": {"b": 1}}', "column 'a': found {...}, expected an integer"),
        (b'{"a": [[7]]}', "column 'a': found [7], expected an integer of 64"),
        (b'{"a": [1, "x"]}', "column 'a': found 'x', expected an integer"),
        (b'{"a": [NaN]}', "column 'a': found NaN, which is not JSON"),
        (
            b'{"a": "\\ud800"}',
            "column 'a': found \"\\ud800\", expected Unicode",
        ),
        (b'{"a": ' + b"[" * 10**5, "is nested too deeply"),
        (b'{"b": NaN, "c": 1, "c": 2, "a": 3}', None),
    ]
    found, bad = rows_of(
        opened(b"\n".join(line for line, _ in lines)), Column.sparse("a")
    )
    assert found["a"] == [[1], [3]]
    wanted = [
        f"line {i}: {text}" for i, (_, text) in enumerate(lines, 1) if text
    ]
    assert len(bad) == len(wanted)
    for error, text in zip(bad, wanted):
        assert error.startswith(text)


@pytest.mark.parametrize("first", ["7", "null"])
def test_columns_that_python_need_not_parse(opened, monkeypatch, first):
    refuse_python(monkeypatch)
    lines = [f'{{"a": {first}}}', '{"a": 0.5}', '{"b": 3}']
    found, _ = rows_of(opened(lines), Column.dense("a", fill_value=7))
    assert found["a"] == [[7], [0.5], [7]]
    lines = ["{}", '{"i": 7, "c": "x", "w": [0.5, 1], "l": [[2], []]}']
    columns = [
        Column.sparse("i"),
        Column.sparse("c", encoding="hash"),
        Column.dense("w", (2,)),
        Column.sparse("l", depth=2),
    ]
    found, _ = rows_of(opened(lines), *columns)
    assert found == {
        "i": [[], [7]],
        "c": [[], *ids_of("c", "x")],
        "w": [[0, 0], [0.5, 1]],
        "l": [[], [[2], []]],
    }


def test_objects_that_do_not_match_the_lines(opened):
    """Arrow's parser would find as many objects as there are lines."""
    for lines in (
        ['{"a": 1} {"a": 2}', '{"a": 3', ', "b": 4}'],
        ['{"a": 3, "b": {"c": 1}', "}", '{"a": 3} {"a": 4}'],
        ['{"a": 3, "b": {"c": 1}', "}", '{"a": 3}', '{"a": 3}', "  "],
    ):
        found, bad = rows_of(
            opened(['{"a": 7}', *lines, '{"a": 5}']), Column.sparse("a")
        )
        good = [line for line in lines if line == '{"a": 3}']
        assert found["a"] == [[7], *([3] for _ in good), [5]]
        assert [text.partition(":")[0] for text in bad] == [
            f"line {i}" for i, line in enumerate(lines, 2) if line not in good
        ]


def test_only_bad_lines_are_skipped(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"".join(
            b'{"a": %d, "b": "%s"}\n' % (i, b"\xff" if i == 7 else b"x")
            for i in range(1000)
        )
    )
    skipped = SkippedRecords()
    dataset = open_dataset(
        path, [Column.sparse("a")], 1000, on_error="skip", skipped=skipped
    )
    (features,) = dataset
    assert features["a"].values.numpy().tolist() == [
        i for i in range(1000) if i != 7
    ]
    assert skipped.messages == [
        f"{path}: line 8: found the byte 0xff, which is not utf-8"
    ]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_dataset(path, [Column.sparse("a")], 1000))
    assert describe_error(error.value) == skipped.messages[0]


def test_dotted_names(opened, monkeypatch):
    lines = [
        '{"a": {"b": {"c": 1}, "d": "x"}}',
        '{"a": {"b": null}, "e": {}}',
        '{"a": null}',
        "{}",
    ]
    columns = [
        Column.sparse("a.b.c"),
        Column.sparse("a.d", encoding="hash"),
        Column.dense("e.f", (2,)),
    ]
    source = opened(lines)
    wanted = {
        "a.b.c": [[1], [], [], []],
        "a.d": [*ids_of("a.d", "x"), [], [], []],
        "e.f": [[0, 0]] * 4,
    }
    for parser in (refuse_python, refuse_arrow):
        with monkeypatch.context() as patch:
            parser(patch)
            assert rows_of(source, *columns) == (wanted, [])
    # A key with the dotted name takes precedence, also if it is null.
    lines += [
        '{"a.b.c": 2, "a": {"b": {"c": 3}}}',
        '{"a.b.c": null, "a": {"b": {"c": 3}}}',
        '{"a.b": {"c": 4}, "a": {"b": {"c": 3}}}',
    ]
    found, bad = rows_of(opened(lines), columns[0])
    assert found["a.b.c"][4:] == [[2], [], [4]] and not bad
    _, bad = rows_of(opened(['{"a": {"b": 5}}']), columns[0])
    assert bad == [
        "line 1: column 'a.b.c': found 5, expected an object with the key 'c'"
    ]


def test_a_key_takes_precedence_over_a_partition(opened):
    lines = ['{"a": 1}', '{"a": 2, "day": 9}']
    columns = [Column.sparse("a"), Column.sparse("day")]
    source = opened(lines, "day=7/in.jsonl")
    source.check_names(["a", "day"])
    found, _ = rows_of(source, *columns)
    assert found == {"a": [[1], [2]], "day": [[7], [9]]}
    source = opened(lines[:1], "day=7/in.jsonl")
    assert rows_of(source, columns[1])[0] == {"day": [[7]]}


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_column_is_in_some_line(opened, monkeypatch, size):
    set_block_bytes(monkeypatch, size)
    lines = ['{"a": "rare"}'] * 500
    lines[300] = '{"a": "x", "b": {"rare": 1}}'
    lines[400] = '{"rare": 7, "h\\u00e9": 1, "b.c": null}'
    source = opened(lines)
    source.check_names(["a", "rare", "hé", "b.rare", "b.c"])
    found, _ = rows_of(source, Column.sparse("rare"))
    assert found["rare"] == [[]] * 400 + [[7]] + [[]] * 99
    with pytest.raises(DataError) as error:
        opened(lines[:400]).check_names(["rare", "a"])
    assert str(error.value) == (
        f"{source.path}: has no column 'rare'; its columns are a, b.rare"
    )
    with pytest.raises(DataError, match="has no column 'a.rare', 'x'"):
        opened(lines).check_names(["a.rare", "x"])


def test_the_sample_has_the_types_of_values(opened):
    lines = [
        '{"i": 1, "u": 1, "big": 1, "f": 1, "s": 7, "l": [1], "n": null, "nan": 0.5}',
        '{"i": -5, "u": 18446744073709551615, "big": 1e20, "f": 0.5, "s": "b"}',
        '{"o": {"x": true, "y": [[1]]}, "l": [0.5, null], "m": 1, "v": [1]}',
        '{"o": null, "big": 123456789012345678901, "m": [1], "v": [{"a": 1}]}',
        '{"nan": NaN, "nan": "\\ud800", "o": {"x": NaN}}',
        "not JSON",
    ]
    source = opened(lines)
    types = {field.name: str(field.type) for field in source.schema}
    assert types.pop("v").startswith("list<item: struct")
    assert types == {
        "i": "int64",
        "u": "uint64",
        "big": "string",
        "f": "double",
        "s": "string",
        "l": "list<item: double>",
        "m": "list<item: int64>",
        "n": "null",
        "nan": "double",
        "o.x": "bool",
        "o.y": "list<item: list<item: int64>>",
    }
    head = source.head(["i", "s", "big", "m"], 4).to_pydict()
    assert head["m"] == [None, None, [1], [1]]
    assert head["s"] == ["7", "b", None, None]
    assert head["big"] == ["1", "1e20", None, "123456789012345678901"]
    assert decimal.Decimal(head["big"][1]) == 10**20
    assert source.head(["i"], 2).num_rows == 2


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ('{"a": [1]}\n{"a": [[1]]}\n', "list<item: struct<>>"),
        ('{"a": [{"b": 1}]}\n', "list<item: struct<>>"),
        ('{"a": 7}\n{"a": {"b": "c"}}\n', "list<item: struct<>>"),
    ],
)
def test_columns_of_unlike_values_are_left_out(tmp_path, capsys, lines, found):
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 0.5}\n' + lines)
    assert "a" not in open_dataset(path).schema
    assert f"Not read, for their types: 'a' ({found}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ('{"a": 1}\n{"a": 2}\n', "a", "jsonl"),
        ('\n\r\n {"overall": 1.0, "b": [1, 2]}', "a.txt", "jsonl"),
        ("\ufeff{}\n", "a", "jsonl"),
        ('{"a": "' + "x" * (1 << 17) + '"}', "a", "jsonl"),
        ('{"a": 1}\n', "a.csv", "jsonl"),
        ('{"a": 1}\n', "a.json", "jsonl"),
        ("a,b\n1,2\n", "a.jsonl", "jsonl"),
        ("\n\n", "a.ndjson", "jsonl"),
        ('"{""a"": 1}",b\n', "a", "csv"),
        ("{a},{b}\n1,2\n", "a", "csv"),
        ("[a],[b]\n1,2\n", "a", "csv"),
    ],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_the_format_is_found(tmp_path, text, name, found, end):
    path = tmp_path / f"{name}{end}"
    path.write_bytes(gzip.compress(text.encode()) if end else text.encode())
    assert find_format(str(path)) == found


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ('[{"a": 1}]', "a", "is a JSON array; write one object per line"),
        ('[\n {"a": 1}\n]', "a.txt", "is a JSON array; write one"),
        ("[1]", "a.json", "is a JSON array; write one object per line"),
        ('{\n "a": 1\n}\n', "a.json", "first line is not a JSON object"),
        ("", "a.jsonl", "the file is empty"),
    ],
)
def test_other_json_is_refused(tmp_path, text, name, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        find_format(str(path))


def test_a_file_without_lines_is_empty(opened):
    for text in ("", "\n\r\n\n", "\ufeff"):
        with pytest.raises(DataError, match="in.jsonl: the file is empty"):
            opened(text)


def test_folders_have_json_lines_but_no_json(tmp_path):
    write(tmp_path / "a.jsonl", pa.table({"x": [0.5]}))
    (tmp_path / "meta.json").write_text("{}")
    assert expand_inputs([tmp_path]) == [str(tmp_path / "a.jsonl")]
    (features,) = open_dataset(tmp_path, batch_size=1, verbose=False)
    assert features["x"].numpy().tolist() == [[0.5]]


@pytest.mark.parametrize("name", ["in.jsonl.gz", "in.csv.gz"])
def test_a_compressed_file_that_changes_or_is_damaged(tmp_path, name):
    path = tmp_path / name
    lines = [f'{{"n": {i}}}' for i in range(10_000)]
    if "csv" in name:
        lines = ["n", *map(str, range(10_000))]
    whole = gzip.compress("\n".join([*lines, ""]).encode())
    path.write_bytes(whole)
    dataset = open_dataset(path, [Column.sparse("n")], 100)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"{name}: changed while it was"
    ):
        list(dataset)
    with pytest.raises(DataError, match=name):
        open_dataset(path, [Column.sparse("n")], 100)
