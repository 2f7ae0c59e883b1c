"""lodestar.data.arrow.decode: lists, nulls and chunks as declared columns."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from arrow_cases import as_lists, decode, decode_table
from text_ids import hash_ids

from lodestar.data import Column, DataError
from lodestar.data.arrow.decode import decode_rows, wide
from lodestar.data.arrow.faults import Faults
from lodestar.data.binding import Binding
from lodestar.data.sample_columns import cut, take

FLOATS = pa.list_(pa.float32())
IDS = pa.list_(pa.int64())
LISTS = {
    "list": lambda element, size: pa.list_(element),
    "large_list": lambda element, size: pa.large_list(element),
    "fixed_size_list": pa.list_,
    "list_view": lambda element, size: pa.list_view(element),
    "large_list_view": lambda element, size: pa.large_list_view(element),
}


def as_chunks(array):
    """Yields the array with an offset, in one chunk and in several."""
    padded = pa.concat_arrays([array, array, array])
    n = len(array)
    yield pa.chunked_array([array])
    yield pa.chunked_array([padded.slice(n, n)])
    half = n // 2
    yield pa.chunked_array(
        [padded.slice(n, half), padded.slice(n + half, n - half)]
    )
    yield pa.chunked_array([array.slice(0, 0), padded.slice(n, n)])


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("element", [pa.int64(), pa.uint32(), pa.string()])
def test_lists_of_ids_in_slices_and_chunks(kind, element):
    rows = [[1, 2], [3, 4], [5, 6], [7, 8]]
    values = rows
    if element == pa.string():
        values = [[str(i) for i in row] for row in rows]
    array = pa.array(values, LISTS[kind](element, 2))
    for chunks in as_chunks(array):
        assert decode(Column.sparse("x"), chunks) == (rows, {})
        dense = Column.dense("x", (2,))
        assert decode(dense, chunks) == (rows, {})
    hashed = Column.sparse("x", encoding="hash")
    want = [hash_ids("x", map(str, row)).tolist() for row in rows]
    assert decode(hashed, array) == (want, {})


@pytest.mark.parametrize("kind", LISTS)
def test_nulls_of_lists(kind):
    array = pa.array([[1, 2], None, [3, None]], LISTS[kind](pa.int64(), 2))
    for chunks in as_chunks(array):
        found = decode(Column.sparse("x"), chunks)
        assert found == ([[1, 2], [], [3]], {})
        found = decode(Column.dense("x", (2,), fill_value=-1), chunks)
        assert found == ([[1, 2], [-1, -1], [3, -1]], {})
        found = decode(Column.dense("x", (2,)), chunks)
        assert found == ([[1, 2], [0, 0], [3, 0]], {})
        for column in (
            Column.sparse("x", fill_value="error"),
            Column.dense("x", (2,), fill_value="error"),
        ):
            _, bad = decode(column, chunks)
            assert bad == {
                1: "row 1: column 'x': found null, expected a list",
                2: "row 2: column 'x': found a missing value, which it must "
                "not have",
            }


@pytest.mark.parametrize("arrow_type", [pa.int64(), pa.float64(), pa.string()])
def test_nulls_of_single_values(arrow_type):
    array = pa.array([7, None, 8]).cast(arrow_type)
    assert decode(Column.sparse("x"), array) == ([[7], [], [8]], {})
    assert decode(Column.dense("x"), array) == ([[7], [0], [8]], {})
    missing = Column.dense("x", fill_value=0.5)
    assert decode(missing, array) == ([[7], [0.5], [8]], {})
    integers = Column.dense("x", dtype="uint64", fill_value=-1)
    assert decode(integers, array) == ([[7], [-1], [8]], {})
    for column in (
        Column.sparse("x", fill_value="error"),
        Column.dense("x", fill_value="error"),
        Column.label("x", binary=False),
        Column.one_hot("x", 9),
    ):
        rows, bad = decode(column, array)
        assert [rows[0], rows[2]] == [[7], [8]]
        text = (
            "row 1: column 'x': found a missing value, which it must not have"
        )
        if column.kind == "label":
            text += " unless the label is declared `optional=True`"
        assert bad == {1: text}
    label = Column.label("x", binary=False)
    _, bad = decode(label, pa.array([7, 2**24, 2**24 + 1, 2**63 - 1]))
    assert bad == {
        row: f"row {row}: column 'x': found {number}, expected an integer that "
        "float32 holds"
        for row, number in ((2, 2**24 + 1), (3, 2**63 - 1))
    }
    optional = Column.label("x", binary=False, optional=True)
    (first, missing, last), bad = decode(optional, array)
    assert (first, last, bad) == ([7], [8], {}) and np.isnan(missing[0])


def test_missing_strings_in_lists():
    array = pa.array([["a", "?"], ["?"], [None, "b"], None, []])
    column = Column.sparse("x", encoding="hash")
    a, b = hash_ids("x", "ab").tolist()
    assert decode(column, array, ["?"]) == ([[a], [], [b], [], []], {})


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_strings_with_a_separator(kind):
    rows = [["1|2", "3"], ["?", "?"], None, ["4", "5|?"]]
    array = pa.array(rows, LISTS[kind](pa.string(), 2))
    wanted = [[1, 2, 3], [], [], [4, 5]]
    for chunks in as_chunks(array):
        column = Column.sparse("x", separator="|")
        assert decode(column, chunks, ["?"]) == (wanted, {})
        column = Column.dense("x", (3,), separator="|", fill_value=-1)
        filled = [[1, 2, 3], [-1] * 3, [-1] * 3, [4, 5, -1]]
        assert decode(column, chunks, ["?"]) == (filled, {})


def test_values_under_a_null_list_are_ignored():
    values = pa.ListArray.from_arrays(
        pa.array([0, 1, 3], pa.int32()),
        pa.array([1, 8, 9]),
        mask=pa.array([False, True]),
    )
    assert decode(Column.sparse("x"), values) == ([[1], []], {})
    assert decode(Column.dense("x", (1,)), values) == ([[1], [0]], {})
    outer = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), values, mask=pa.array([False, True])
    )
    found = decode(Column.sparse("x", depth=2), outer)
    assert found[0][0] == [[1]] and sum(found[0][1], []) == []


NESTED = [[[1, 2], []], [], [[3]], [[4, 5, 6], [7]]]


@pytest.mark.parametrize("outer", ["list", "large_list", "list_view"])
@pytest.mark.parametrize("inner", ["list", "large_list", "list_view"])
def test_lists_of_lists(outer, inner):
    arrow_type = LISTS[outer](LISTS[inner](pa.int64(), None), None)
    column = Column.sparse("x", depth=2)
    for chunks in as_chunks(pa.array(NESTED, arrow_type)):
        assert decode(column, chunks) == (NESTED, {})
    floats = Column.sparse("x", depth=2, dtype="float")
    assert decode(floats, pa.array(NESTED, arrow_type)) == (NESTED, {})


def test_nulls_of_lists_of_lists():
    array = pa.array([[[1, None], None, []], None, [[None]], []])
    column = Column.sparse("x", depth=2)
    assert decode(column, array) == ([[[1], [], []], [], [[]], []], {})
    _, bad = decode(Column.sparse("x", depth=2, fill_value="error"), array)
    assert sorted(bad) == [0, 1, 2]
    assert bad[1] == "row 1: column 'x': found null, expected a list"


def test_rows_of_lists_of_lists_are_accepted():
    column = Binding(Column.sparse("x", depth=2), "x")
    table = pa.table({"x": pa.array(NESTED)})
    rows = decode_rows([column], table, (), Faults(str))
    (middle,) = cut(rows.columns, 1, 4).values()
    assert as_lists(middle) == NESTED[1:4]
    (taken,) = take(rows.columns, np.array([3, 0, 1])).values()
    assert as_lists(taken) == [NESTED[3], NESTED[0], NESTED[1]]


@pytest.mark.parametrize(
    ("array", "column", "text"),
    [
        ([[1]], Column.one_hot("x", 5), "expected one value per row"),
        ([[[1]]], Column.sparse("x"), "expected at most 1 level of lists"),
        ([[[[1]]]], Column.sparse("x", depth=2), "at most 2 levels of lists"),
        ([[1]], Column.sparse("x", depth=2), "expected lists of lists"),
        ([{"a": 1}], Column.dense("x"), "cannot be read as a float32"),
    ],
    ids=str,
)
def test_unsupported_types(array, column, text):
    array = pa.array(array)
    with pytest.raises(DataError) as error:
        decode(column, array)
    assert str(error.value).startswith(
        f"column 'x': found the type {array.type}"
    )
    assert text in str(error.value)


def test_each_chunk_has_its_own_dictionary():
    chunks = pa.chunked_array(
        [
            pa.array(["a", "b"]).dictionary_encode(),
            pa.array(["b", None, "c"]).dictionary_encode(),
            pa.array([], pa.string()).dictionary_encode(),
        ]
    )
    assert wide(chunks) == chunks.chunks
    hashed = Column.sparse("x", encoding="hash")
    a, b, c = hash_ids("x", "abc").tolist()
    assert decode(hashed, chunks) == ([[a], [b], [b], [], [c]], {})
    lists = pa.chunked_array(
        [
            pa.ListArray.from_arrays([0, 1, 3], part)
            for part in (
                pa.array(["a", "b", "a"]).dictionary_encode(),
                pa.array(["b", "c", "c"]).dictionary_encode(),
            )
        ]
    )
    assert decode(hashed, lists) == ([[a], [b, a], [b], [c, c]], {})
    codes = pa.chunked_array(
        [
            pa.array([7, 8]).dictionary_encode(),
            pa.array([9]).dictionary_encode(),
        ]
    )
    assert decode(Column.sparse("x"), codes) == ([[7], [8], [9]], {})


@pytest.mark.parametrize(
    ("narrow", "large"),
    [
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
        (pa.list_(pa.string()), pa.large_list(pa.large_string())),
        (pa.list_(pa.int64()), pa.large_list(pa.int64())),
        (pa.list_(IDS), pa.large_list(pa.large_list(pa.int64()))),
        (pa.int64(), pa.int64()),
    ],
    ids=str,
)
def test_chunks_are_joined_with_offsets_of_64_bits(narrow, large):
    value = {pa.string(): "a", pa.binary(): b"a", pa.int64(): 1}.get(narrow, [])
    column = pa.chunked_array([[value], [value, None]], narrow)
    (array,) = wide(column)
    assert array.type == large
    assert array.to_pylist() == [value, value, None]


def test_no_chunks():
    found = decode(Column.sparse("x"), pa.chunked_array([], pa.int64()))
    assert found == ([], {})
    found = decode(Column.dense("x", (2,)), pa.chunked_array([], FLOATS))
    assert found == ([], {})


@pytest.mark.parametrize(
    ("column", "array", "bad"),
    [
        (Column.dense("x", (2,)), pa.array([[1, 2], [1, 2, 3], []], FLOATS),
         {1: "found 3 values, expected 2", 2: "found 0 values, expected 2"}),
        (Column.dense("x", (2,)), pa.array([1.0, 2.0]),
         {0: "found 1 value, expected 2 per row",
          1: "found 1 value, expected 2 per row"}),
        (Column.dense("x", (-1, 2)), pa.array([[1, 2], [1, 2, 3]], FLOATS),
         {1: "found 3 values, expected a multiple of 2"}),
        (Column.label("x"), pa.array([[1], [1, 0]], FLOATS),
         {1: "found 2 values, expected 1"}),
        (Column.label("x"), pa.array([0, 1, 2, -1]),
         {2: "found 2, expected 0 or 1", 3: "found -1, expected 0 or 1"}),
        (Column.label("x", dtype="float"), pa.array([1.0, 0.5, float("nan")]),
         {1: "found 0.5, expected 0 or 1",
          2: "found a missing value, which it must not have unless the label is "
             "declared `optional=True`"}),
        (Column.label("x", binary=False), pa.array([2.0, 2.5]),
         {1: "found 2.5, expected an integer that float32 holds"}),
        (Column.label("x", binary=False, dtype="float"),
         pa.array([2.5, np.inf]), {1: "found inf, expected a finite number"}),
        (Column.one_hot("x", 5), pa.array([0, 4, 5, -1]),
         {2: "found 5, expected an integer in [0, 4]",
          3: "found -1, expected an integer in [0, 4]"}),
        (Column.one_hot("x", 5), pa.array([1.0, 1.5]),
         {1: "found 1.5, expected an integer in [0, 4]"}),
        (Column.one_hot("x", 5), pa.array(["1", "a"]),
         {1: "found 'a', expected an integer in [0, 4]"}),
        (Column.dense("x", dtype="uint64"), pa.array([1.0, 1.5]),
         {1: "found 1.5, expected an integer of 64 bits"}),
        (Column.sparse("x"), pa.array([[1.0], [2.0, 0.5]]),
         {1: "found 0.5, expected an integer of 64 bits"}),
    ],
    ids=str,
)  # fmt: skip
def test_bad_rows(column, array, bad):
    _, found = decode(column, array)
    assert found == {r: f"row {r}: column 'x': {t}" for r, t in bad.items()}


def test_rows_are_counted_over_chunks():
    parts = [["1"], ["2", "a"], ["b", "3"]]
    plain = pa.chunked_array(parts)
    words = pa.chunked_array([pa.array(p).dictionary_encode() for p in parts])
    for chunks in (plain, words):
        _, bad = decode(Column.sparse("x"), chunks)
        assert bad == {
            2: "row 2: column 'x': found 'a', expected an integer of 64 bits",
            3: "row 3: column 'x': found 'b', expected an integer of 64 bits",
        }


def test_a_free_dim():
    column = Column.dense("x", (-1, 2))
    array = pa.array([[1, 2], [], None, [1, 2, None, 4]], FLOATS)
    found = decode(column, array)
    assert found == ([[1, 2], [], [], [1, 2, 0, 4]], {})
    column = Column.dense("x", (-1,))
    assert decode(column, pa.array([1.5, None])) == ([[1.5], []], {})


TEXT = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize("arrow_type", TEXT, ids=str)
def test_separators(arrow_type):
    texts = ["a|b c", "", None, "b", " a |NULL| ", "?"]
    array = pa.array(texts).cast(arrow_type)
    column = Column.sparse("x", encoding="hash", separator="|")
    a, b, bc = hash_ids("x", ["a", "b", "b c"]).tolist()
    assert decode(column, array) == ([[a, bc], [], [], [b], [a], []], {})
    numbers = pa.array(["1|2", "3", None]).cast(arrow_type)
    column = Column.sparse("x", separator="|")
    assert decode(column, numbers) == ([[1, 2], [3], []], {})
    column = Column.dense("x", (2,), separator="|")
    _, bad = decode(column, numbers)
    assert bad == {1: "row 1: column 'x': found 1 values, expected 2"}


@pytest.mark.parametrize("arrow_type", TEXT, ids=str)
def test_without_a_separator_numbers_are_split_at_spaces(arrow_type):
    array = pa.array(["1 2", " 3 ", None, "4\t5  6", "?"]).cast(arrow_type)
    want = [[1, 2], [3], [], [4, 5, 6], []]
    assert decode(Column.sparse("x"), array) == (want, {})
    pairs = pa.array(["1 2", None]).cast(arrow_type)
    found = decode(Column.dense("x", (2,)), pairs)
    assert found == ([[1, 2], [0, 0]], {})
    # A name may contain spaces.
    hashed = Column.sparse("x", encoding="hash")
    found = decode(hashed, pairs)
    assert found == ([hash_ids("x", ["1 2"]).tolist(), []], {})
    _, bad = decode(Column.dense("x"), pairs)
    assert list(bad) == [0]


@pytest.mark.parametrize("arrow_type", TEXT, ids=str)
def test_json_lists(arrow_type):
    values = [[27, 9], [], None, [-1], ["7", None]]
    texts = [json.dumps(v) if v is not None else None for v in values]
    array = pa.array(texts).cast(arrow_type)
    column = Column.sparse("x", separator="json")
    want = [[27, 9], [], [], [-1], [7]]
    assert decode(column, array) == (want, {})
    numbers = Column.sparse("x", separator="json", dtype="float")
    floats = pa.array(["[0.5, 1e3]", "[true]"]).cast(arrow_type)
    assert decode(numbers, floats) == ([[0.5, 1000.0], [1.0]], {})
    hashed = Column.sparse("x", separator="json", encoding="hash")
    names = pa.array(['["a", "b c"]', "[7]"]).cast(arrow_type)
    want = [hash_ids("x", ["a", "b c"]).tolist(), hash_ids("x", ["7"]).tolist()]
    assert decode(hashed, names) == (want, {})
    wrong = ["[1", "x", "['a', 'b']", "5", '{"a": 1}', "[[1]]", "[NaN]"]
    for read in (column, numbers, hashed):
        _, bad = decode(read, pa.array(["[1]", *wrong]).cast(arrow_type))
        assert bad == {
            row: f"row {row}: column 'x': found {text!r}, expected a JSON list "
            "of values"
            for row, text in enumerate(wrong, 1)
        }
    strings = dataclasses.replace(hashed, strings_only=True)
    _, bad = decode(strings, pa.array(['["7"]', "[7]"]).cast(arrow_type))
    assert list(bad) == [1]


def test_json_lists_of_lists():
    array = pa.array(["[[1, 2], []]", "[]", None, "[[3], null]"])
    column = Column.sparse("x", separator="json", depth=2)
    want = [[[1, 2], []], [], [], [[3], []]]
    assert decode(column, array) == (want, {})
    # Also if no cell of a block shows the depth.
    assert decode(column, array[1:3]) == ([[], []], {})
    _, bad = decode(Column.sparse("x", separator="json"), array)
    assert list(bad) == [0, 3]


def test_weights():
    columns = [
        Column.sparse("C"),
        Column.sparse("w", dtype="float", weights_of="C"),
    ]
    table = pa.table(
        {
            "C": pa.array([[1, 2], [], [3]], IDS),
            "w": pa.array([[0.5, 1], [], [2]], FLOATS),
        }
    )
    found, bad = decode_table(columns, table)
    assert found["w"] == [[0.5, 1.0], [], [2.0]] and not bad
    other = pa.array([[0.5, 1], [3], []], FLOATS)
    _, bad = decode_table(columns, table.set_column(1, "w", other))
    assert bad == {
        row: f"row {row}: column 'w': found {n} weights, expected {ids}, one "
        "for each value of 'C'"
        for row, n, ids in ((1, 1, 0), (2, 0, 1))
    }


def test_limits_and_offsets_of_ids():
    binding = Binding(Column.sparse("C"), "C", offset=100, limit=10)
    array = pa.array([[9], [], [0, 10, 11], [-1], [2**62]], IDS)
    found, bad = decode_table([binding], pa.table({"C": array}))
    assert found["C"][:2] == [[109], []]
    assert bad == {
        row: f"row {row}: column 'C': found the id {key}, expected one in [0, 9]"
        for row, key in ((2, 10), (3, -1), (4, 2**62))
    }


def test_labels_of_one_column():
    column = pa.array([[1, 2], [3, 4], [5]], FLOATS)
    bindings = [
        Binding(Column.label(f"y_{i}", binary=False, dtype="float"), "y", i, 2)
        for i in range(2)
    ]
    found, bad = decode_table(bindings, pa.table({"y": column}))
    assert found["y_0"][:2] == [[1.0], [3.0]]
    assert found["y_1"][:2] == [[2.0], [4.0]]
    assert bad == {2: "row 2: column 'y': found 1 values, expected 2"}


def test_the_first_fault_of_a_row_is_kept():
    table = pa.table({"a": ["x", "1"], "b": ["y", "z"]})
    _, bad = decode_table([Column.sparse("a"), Column.sparse("b")], table)
    assert "column 'a': found 'x'" in bad[0]
    assert "column 'b': found 'z'" in bad[1]


def test_numbers_in_json_cells_keep_their_text():
    """Equal numbers have several spellings, and hexadecimal ones another value."""
    cells = ["[16777216.50]", "[1e400]", "[0.1, 7]", '["\\ud800"]', "[NaN]"]
    column = Column.sparse("x", dtype="float", separator="json")
    found, bad = decode(column, pa.chunked_array([cells]))
    assert found[2] == [np.float32(0.1), 7] and sorted(bad) == [0, 1, 3, 4]
    cells = ["[1e2]", "[7.0]", "[7]", '["7"]', "[" * 10**5]
    column = Column.sparse("x", encoding="hash", separator="json")
    found, bad = decode(column, pa.chunked_array([cells]))
    assert found[2] == found[3] and sorted(bad) == [0, 1, 4]
    cells = ["[10]", '["10"]']
    column = Column.sparse("x", encoding="hex", separator="json")
    found, bad = decode(column, pa.chunked_array([cells]))
    assert found[1] == [16] and list(bad) == [0]
