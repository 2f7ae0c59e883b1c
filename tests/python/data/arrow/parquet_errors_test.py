"""lodestar.data.open_dataset on files that are not as they have to be."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from parquet_cases import SPEC, read, table, write, write_metadata

from lodestar._errors import describe_error
from lodestar.data import Column, DataError, SkippedRecords, open_dataset
from lodestar.data.arrow.parquet_file import ParquetFile, read_footers
from lodestar.data.parquet.parquet_rows import (
    Faults,
    decode_column,
    read_row_group,
)
from lodestar.data.parquet.parquet_schema import (
    Binding,
    bind_slots,
    check_same_columns,
    column_type,
)
from lodestar.data.sample_columns import cut, take


def first_error(path, schema=None, **options):
    """The one line that reading all of it ends with."""
    with pytest.raises((DataError, tf.errors.OpError)) as error:
        list(open_dataset(path, schema, 8, **options))
    text = describe_error(error.value)
    assert "\n" not in text and "Traceback" not in text
    return text


FLOATS = pa.list_(pa.float32())
IDS = pa.list_(pa.int64())
KEYS = "int32, uint32, int64, uint64 or a list of one of them"
BAD_ROWS = {
    "null label": (
        Column.label("x"),
        pa.array([1, 0, None], pa.float32()),
        "found null, wanted float",
    ),
    "label beyond binary": (
        Column.label("x", dtype="float"),
        pa.array([1, 0, 0.5], pa.float32()),
        "found 0.5, wanted 0 or 1",
    ),
    "label that is no number": (
        Column.label("x"),
        pa.array([1, 0, float("nan")], pa.float32()),
        "found nan, wanted 0 or 1",
    ),
    "integer label": (
        Column.label("x"),
        pa.array([1, 0, -1], pa.int64()),
        "found -1, wanted 0 or 1",
    ),
    "label that is not whole": (
        Column.label("x", binary=False),
        pa.array([1, 2, 2.5], pa.float32()),
        "found 2.5, wanted a whole number",
    ),
    "null in dense": (
        Column.dense("x", (2,)),
        pa.array([[1, 2], [1, 2], [1, None]], FLOATS),
        "found null in a list, wanted float",
    ),
    "null list": (
        Column.dense("x", (2,)),
        pa.array([[1, 2], [1, 2], None], FLOATS),
        "found null, wanted list<float>",
    ),
    "null fixed list": (
        Column.dense("x", (2,)),
        pa.array([[1, 2], [1, 2], None], pa.list_(pa.float32(), 2)),
        "found null, wanted list<float>[2]",
    ),
    "width": (
        Column.dense("x", (2,)),
        pa.array([[1, 2], [1, 2], [1, 2, 3]], FLOATS),
        "found 3 values, wanted 2",
    ),
    "free dim": (
        Column.dense("x", (-1, 2)),
        pa.array([[1, 2], [1, 2], [1, 2, 3]], FLOATS),
        "found 3 values, wanted a multiple of 2",
    ),
    "one-hot": (
        Column.one_hot("x", 5),
        pa.array([0, 4, 5], pa.int32()),
        "found 5, wanted a whole number from 0 to 4",
    ),
    "null id": (
        Column.sparse("x"),
        pa.array([[], [1, 2], [3, None]], IDS),
        "found null in a list, wanted int64",
    ),
    "null ids": (
        Column.sparse("x"),
        pa.array([[], [1, 2], None], IDS),
        "found null, wanted list<int64>",
    ),
}


@pytest.fixture(params=BAD_ROWS, ids=str)
def bad_row(request, tmp_path):
    """A file whose row 12, row 2 of its row group 2, is bad."""
    slot, bad, message = BAD_ROWS[request.param]
    good = pa.chunked_array([bad.slice(0, 2)] * 5)
    data = pa.table({"x": pa.chunked_array([*good.chunks, bad, *good.chunks])})
    path = write(tmp_path / "a.parquet", data, row_group_size=5)
    return path, slot, message


def test_a_bad_row_is_named(bad_row):
    path, slot, message = bad_row
    if "null" in message:
        message += (
            "; fill the nulls, or leave such rows out by `on_error='skip'`"
        )
    assert first_error(path, [slot]) == (
        f"{path}: row 12 (row group 2, its row 2): column 'x': {message}"
    )
    # Batches of the row groups before it come first.
    iterator = iter(open_dataset(path, [slot], 5))
    next(iterator), next(iterator)
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iterator)


def test_a_bad_row_is_skipped(bad_row):
    path, slot, message = bad_row
    for options in ({}, {"shuffle_rows": 7}):
        skipped = SkippedRecords()
        dataset = open_dataset(
            path, [slot], 1, on_error="skip", skipped=skipped, **options
        )
        assert sum(1 for _ in dataset) == 22
        assert skipped.count == 1
        assert skipped.messages == [
            f"{path}: row 12 (row group 2, its row 2): column 'x': {message}"
        ]


def test_skipped_rows_without_a_log(tmp_path):
    data = pa.table({"x": pa.array([1, None, 3])})
    path = write(tmp_path / "a.parquet", data)
    (features,) = open_dataset(path, batch_size=8, on_error="skip")
    assert features["x"].to_list() == [[1], [3]]


def test_weights_of_another_length(tmp_path):
    data = pa.table(
        {
            "C": pa.array([[1, 2], [3]], IDS),
            "w": pa.array([[0.5, 1], []], FLOATS),
        }
    )
    path = write(tmp_path / "a.parquet", data)
    assert first_error(path, weights={"C": "w"}) == (
        f"{path}: row 1 (row group 0, its row 1): column 'w': found 0 weights, "
        "wanted 1, one for each value of 'C'"
    )


@pytest.mark.parametrize("key", [10, -1, 2**62])
def test_keys_beyond_their_slot(tmp_path, key):
    data = pa.table(
        {
            "C1": pa.array([[9], [], [0, key, 11], [key]], IDS),
            "C2": pa.array([19, 0, 1, 2]),
        }
    )
    path = write(tmp_path / "a.parquet", data)
    message = f"column 'C1': found key {key}, wanted 0 to 9"
    text = first_error(path, slot_size_array=[10, 20])
    assert text == f"{path}: row 2 (row group 0, its row 2): {message}"
    skipped = SkippedRecords()
    (features,) = open_dataset(
        path,
        batch_size=8,
        slot_size_array=[10, 20],
        on_error="skip",
        skipped=skipped,
    )
    assert features["C2"].to_list() == [[29], [10]]
    assert skipped.count == 2


@pytest.mark.parametrize(
    "sizes, message",
    [
        ([10], "has 1 sizes, wanted one for each of the 2 slots of ids: C, D"),
        ([10, 0], "must hold positive integers"),
        ([2**62, 2**62], "beyond int64"),
    ],
)
def test_slot_sizes_are_checked(tmp_path, sizes, message):
    data = pa.table({"C": [1], "D": [2]})
    path = write(tmp_path / "a.parquet", data)
    with pytest.raises(ValueError, match=message):
        open_dataset(path, batch_size=8, slot_size_array=sizes)
    with pytest.raises(ValueError, match="'D' is a one-hot slot"):
        open_dataset(
            path,
            [Column.sparse("C"), Column.one_hot("D", 9)],
            8,
            slot_size_array=sizes,
        )


WRONG_TYPES = {
    "string": (pa.array(["a"]), "string"),
    "double": (pa.array([0.5]), "double"),
    "int8": (pa.array([1], pa.int8()), "int8"),
    "bool": (pa.array([True]), "bool"),
    "time": (pa.array([1], pa.timestamp("s")), "timestamp[ms]"),
    "strings": (pa.array([["a"]]), "list<element: string>"),
    "struct": (pa.array([{"a": 1}]), "struct<a: int64>"),
    "nested": (
        pa.array([[[1]]]),
        "list<element: list<element: int64>>",
    ),
    "dictionary": (
        pa.array(["a"]).dictionary_encode(),
        "dictionary<values=string, indices=int32, ordered=0>",
    ),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_types_that_no_slot_has(tmp_path, name):
    array, found = WRONG_TYPES[name]
    path = write(tmp_path / "a.parquet", pa.table({"x": array}))
    where = f"{path}: column 'x': found {found}, wanted"
    assert first_error(path).startswith(where)
    for slot in (Column.sparse("x"), Column.label("x"), Column.dense("x")):
        assert first_error(path, [slot]).startswith(where)


@pytest.mark.parametrize(
    "slot, array, message",
    [
        (Column.label("x", dtype="float"), [1], "found int64, wanted float"),
        (Column.dense("x"), [1], "found int64, wanted float"),
        (
            Column.dense("x", dtype="uint64"),
            pa.array([1.0], pa.float32()),
            KEYS,
        ),
        (Column.sparse("x"), pa.array([[1.0]], FLOATS), KEYS),
        (
            Column.sparse("x", dtype="float"),
            [[1]],
            "found list<element: int64>",
        ),
        (
            Column.dense("x", (3,)),
            pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
            "found list<float>[2], wanted 3 values a row for a dense slot",
        ),
        (
            Column.dense("x", (-1, 2)),
            pa.array([1.0], pa.float32()),
            "found float, wanted a multiple of 2 values a row for a dense slot",
        ),
        (
            Column.dense("y"),
            [1],
            "column 'y': found 0 of that name, wanted one",
        ),
    ],
    ids=str,
)
def test_types_that_a_slot_has_not(tmp_path, slot, array, message):
    path = write(tmp_path / "a.parquet", pa.table({"x": array}))
    assert message in first_error(path, [slot])


def test_files_of_different_schemas(tmp_path):
    first = write(tmp_path / "0.parquet", table(0, 5))
    types = write(
        tmp_path / "1.parquet",
        table(5, 9).set_column(4, "C2", pa.array([1, 2, 3, 4], pa.int64())),
    )
    lacking = write(tmp_path / "2.parquet", table(5, 9).drop_columns("w"))
    last = write(tmp_path / "3.parquet", table(5, 9))
    assert first_error([first, types], SPEC) == (
        f"{types}: column 'C2': found int64, wanted uint32 as {first} has it"
    )
    assert first_error([first, lacking], SPEC).startswith(
        f"{lacking}: column 'w': found 0 of that name, wanted one"
    )
    skipped = SkippedRecords()
    dataset = open_dataset(
        [first, types, lacking, last],
        SPEC,
        8,
        on_error="skip",
        skipped=skipped,
    )
    assert sum(read(dataset), []) == list(range(9))
    assert skipped.count == 8


def test_columns_in_other_places(tmp_path):
    data = pa.table({"C": [1], "D": [2]})
    write(tmp_path / "0.parquet", data)
    write(tmp_path / "1.parquet", data.select(["D", "C"]))
    stats = {"0.parquet": 1, "1.parquet": 1}
    write_metadata(tmp_path, stats, cats=[("C", 0)])
    assert first_error(tmp_path) == (
        f"{tmp_path}/1.parquet: column 0: found 'D', wanted 'C' as "
        f"{tmp_path}/0.parquet has it"
    )


def test_two_columns_of_one_name(tmp_path):
    data = pa.table([[1], [2]], names=["C", "C"])
    path = write(tmp_path / "a.parquet", data)
    assert "found 2 of that name, wanted one" in first_error(path)


def test_rows_of_no_fixed_width(tmp_path):
    data = pa.table({"x": pa.array([[1, 2], [3]], FLOATS)})
    write(tmp_path / "a.parquet", data)
    write_metadata(tmp_path, {"a.parquet": 2}, conts=[("x", 0)])
    assert first_error(tmp_path) == (
        f"{tmp_path}/a.parquet: column 'x': found 3 values in 2 rows, wanted as "
        "many in each row"
    )


METADATA = {
    "file_stats": [{"file_name": "a.parquet", "num_rows": 2}],
    "labels": [],
    "conts": [{"col_name": "x", "index": 0}],
    "cats": [{"col_name": "C", "index": 1}],
}
BAD_METADATA = {
    "no object": ([], "wanted an object with the keys file_stats, labels"),
    "a key is missing": (
        {k: v for k, v in METADATA.items() if k != "cats"},
        "key 'cats' is missing; wanted file_stats, labels, conts, cats",
    ),
    "no list": ({**METADATA, "cats": {}}, "key 'cats' must be a list"),
    "no entry": ({**METADATA, "cats": [1]}, "cats[0]: key 'col_name' is mis"),
    "no index": (
        {**METADATA, "cats": [{"col_name": "C"}]},
        "cats[0]: key 'index' is missing",
    ),
    "negative": (
        {**METADATA, "cats": [{"col_name": "C", "index": -1}]},
        "cats[0]: 'index' must be a whole number of at least 0, found -1",
    ),
    "no number": (
        {**METADATA, "cats": [{"col_name": "C", "index": True}]},
        "cats[0]: 'index' must be a whole number",
    ),
    "beyond the schema": (
        {**METADATA, "cats": [{"col_name": "C", "index": 7}]},
        "cats: 'C' has the index 7, but",
    ),
    "twice in a group": (
        {**METADATA, "cats": METADATA["cats"] * 2},
        "cats[1]: 'index' 1 occurs twice, first in 'cats'",
    ),
    "in two groups": (
        {**METADATA, "cats": METADATA["conts"]},
        "cats[0]: 'index' 0 occurs twice, first in 'conts'",
    ),
    "of another type": (
        {**METADATA, "cats": [], "conts": METADATA["cats"]},
        "column 'C': found int64, wanted float (32 bits)",
    ),
    "no name": (
        {**METADATA, "file_stats": [{"num_rows": 2}]},
        "file_stats[0]: key 'file_name' is missing",
    ),
    "file twice": (
        {**METADATA, "file_stats": METADATA["file_stats"] * 2},
        "file_stats[1]: the file 'a.parquet' occurs twice",
    ),
    "another file": (
        {**METADATA, "file_stats": [{"file_name": "b", "num_rows": 2}]},
        "a.parquet: is not in 'file_stats' of",
    ),
    "rows": (
        {**METADATA, "file_stats": [{"file_name": "a.parquet", "num_rows": 3}]},
        "a.parquet: found 2 rows, wanted 3 as",
    ),
    "no columns": (
        {**METADATA, "cats": [], "conts": []},
        "labels, conts and cats are all empty",
    ),
}


@pytest.fixture
def small(tmp_path):
    data = pa.table({"x": pa.array([1, 2], pa.float32()), "C": [1, 2]})
    return write(tmp_path / "a.parquet", data)


@pytest.mark.parametrize("name", BAD_METADATA)
def test_bad_metadata(small, name):
    content, message = BAD_METADATA[name]
    path = small.parent / "_metadata.json"
    path.write_text(json.dumps(content))
    text = first_error(small)
    assert message in text
    assert text.startswith(str(small.parent))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ('{"cats": [], "cats": []}', "not valid JSON: key 'cats' occurs"),
        ("[" * 3_000, "is nested too deep"),
        (b"\xff", "not valid JSON"),
    ],
    ids=["empty", "cut", "twice", "deep", "no text"],
)
def test_metadata_that_is_no_json(small, text, message):
    path = small.parent / "_metadata.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert first_error(small).startswith(f"{path}: {message}")


def test_files_that_are_not_there(small, tmp_path):
    missing = tmp_path / "missing.parquet"
    for on_error in ("raise", "skip"):
        with pytest.raises(tf.errors.NotFoundError) as error:
            open_dataset([small, missing], batch_size=8, on_error=on_error)
        assert describe_error(error.value) == (
            f"{missing}: No such file or directory"
        )
    with pytest.raises(tf.errors.NotFoundError):
        open_dataset("ram://nowhere/a.parquet", batch_size=8)
    (tmp_path / "empty").mkdir()
    assert "has neither _metadata.json nor" in first_error(tmp_path / "empty")
    with pytest.raises(ValueError, match="`files` is empty"):
        open_dataset([], batch_size=8)


@pytest.mark.parametrize("size", [0, 3, 8, 100, -1, -9])
def test_truncated_files(small, size):
    data = small.read_bytes()[:size]
    cut = small.parent / "cut.parquet"
    cut.write_bytes(data)
    assert first_error(cut).startswith(f"{cut}: not a whole Parquet file: ")
    assert "no file of 1 can be read" in first_error(cut, on_error="skip")
    skipped = SkippedRecords()
    (features,) = open_dataset(
        [cut, small], batch_size=8, on_error="skip", skipped=skipped
    )
    assert features["C"].to_list() == [[1], [2]]
    assert skipped.count == 1
    assert skipped.messages[0].startswith(f"{cut}: not a whole Parquet file: ")


def test_a_row_group_that_cannot_be_decoded(tmp_path):
    path = write(
        tmp_path / "a.parquet",
        table(0, 30),
        row_group_size=10,
        write_page_checksum=True,
        compression="none",
    )
    column = pq.ParquetFile(path).metadata.row_group(1).column(3)
    assert column.path_in_schema.startswith("C1")
    data = bytearray(path.read_bytes())
    data[column.dictionary_page_offset + 100] ^= 0xFF
    path.write_bytes(data)
    assert first_error(path, SPEC).startswith(
        f"{path}: row group 1: column 'C1': cannot be read: "
    )
    skipped = SkippedRecords()
    dataset = open_dataset(path, SPEC, 8, on_error="skip", skipped=skipped)
    assert sum(read(dataset), []) == [*range(10), *range(20, 30)]
    assert skipped.count == 10


def test_a_file_that_shrinks_after_a_checkpoint(tmp_path):
    path = write(tmp_path / "a.parquet", table(0, 30))
    iterator = iter(open_dataset(path, SPEC, 8, on_error="skip"))
    next(iterator), next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    write(path, table(0, 10))
    again = iter(open_dataset(path, SPEC, 8, on_error="skip"))
    tf.train.Checkpoint(iterator=again).restore(saved)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="had .* when the iterator was saved",
    ):
        list(again)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"batch_size": None}, "`batch_size` is missing"),
        ({"batch_size": 0}, "`batch_size` must be an integer"),
        ({"num_parallel_files": 0}, "`num_parallel_files` must be"),
        ({"shuffle_rows": -1}, "`shuffle_rows` must be"),
        ({"shard": (2, 2)}, "`shard` must have an index below 2"),
        ({"on_error": "ignore"}, "`on_error`='ignore' is not in"),
        ({"sparse": "coo"}, "`sparse`='coo' is not in"),
    ],
    ids=str,
)
def test_options_are_checked(small, options, message):
    with pytest.raises(ValueError, match=message):
        open_dataset(small, **{"batch_size": 8, **options})


def as_chunks(array):
    """The array behind offsets, in one chunk and in several."""
    padded = pa.concat_arrays([array, array, array])
    n = len(array)
    yield pa.chunked_array([array])
    yield pa.chunked_array([padded.slice(n, n)])
    half = n // 2
    yield pa.chunked_array(
        [padded.slice(n, half), padded.slice(n + half, n - half)]
    )
    yield pa.chunked_array([array.slice(0, 0), padded.slice(n, n)])


@pytest.mark.parametrize(
    "arrow_type",
    [
        IDS,
        pa.large_list(pa.int64()),
        pa.list_(pa.int64(), 2),
        pa.list_(pa.uint32()),
        pa.int64(),
    ],
    ids=str,
)
def test_slices_and_chunks(arrow_type):
    lists = [[1, 2], [3, 4], [5, 6], [7, 8]]
    flat = pa.types.is_integer(arrow_type)
    want = [1, 2, 3, 4] if flat else lists
    binding = Binding(Column.sparse("x"), "x", column_type(arrow_type), None)
    for array in as_chunks(pa.array(want, arrow_type)):
        faults = Faults(0, 0)
        column = decode_column(binding, array, faults)
        assert not faults.found
        if flat:
            assert column.tolist() == [[i] for i in want]
            continue
        (middle,) = cut({"x": column}, 1, 3).values()
        assert middle.values.tolist() == [3, 4, 5, 6]
        (taken,) = take({"x": column}, np.array([3, 0])).values()
        assert taken.values.tolist() == [7, 8, 1, 2]
    if not flat and column_type(arrow_type).width is None:
        dense = Binding(
            Column.dense("x", (2,), dtype="uint64"),
            "x",
            column_type(arrow_type),
            2,
        )
        for array in as_chunks(pa.array([[1, 2], [3], *want[2:]], arrow_type)):
            faults = Faults(0, 0)
            column = decode_column(dense, array, faults)
            assert list(faults.found) == [1]
            assert column[[0, 2, 3]].tolist() == [[1, 2], [5, 6], [7, 8]]
    nulls = [*want[:2], None, *want[3:]]
    for array in as_chunks(pa.array(nulls, arrow_type)):
        faults = Faults(0, 0)
        decode_column(binding, array, faults)
        assert list(faults.found) == [2]


@pytest.mark.parametrize("options", [{}, {"write_page_checksum": True}])
def test_mutated_files_raise_or_are_read(tmp_path, rng, options):
    """No crash, and with checksums no other numbers than those written."""
    data = table(0, 40)
    path = write(tmp_path / "a.parquet", data, row_group_size=15, **options)
    whole = path.read_bytes()
    paths = []
    for i in range(150):
        mutated = bytearray(whole)
        kind = i % 3
        if kind == 0:
            for _ in range(rng.integers(1, 4)):
                mutated[rng.integers(len(mutated))] = rng.integers(256)
        elif kind == 1:
            at = rng.integers(len(mutated))
            del mutated[at : at + rng.integers(1, 30)]
        else:
            at, to = rng.integers(len(mutated), size=2)
            mutated[at : at + 8] = mutated[to : to + 8]
        paths.append(tmp_path / f"{i}.parquet")
        paths[-1].write_bytes(mutated)
    good = read_footers([str(path)])[0]
    bindings = bind_slots(SPEC, good)
    refused = 0
    for found in read_footers([str(path) for path in paths]):
        assert isinstance(found, (ParquetFile, DataError))
        if isinstance(found, DataError):
            refused += 1
            continue
        try:
            check_same_columns(bindings, found, good)
            for group in range(len(found.row_groups)):
                rows = read_row_group(found, group, bindings)
                for column in rows.columns.values():
                    values = getattr(column, "values", column)
                    assert np.asarray(values).dtype in (np.float32, np.int64)
        except DataError as error:
            refused += 1
            assert str(error).startswith(found.path)
    assert refused > 50
