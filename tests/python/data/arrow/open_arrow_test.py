"""lodestar.data.arrow.open_arrow: several files, options and chosen columns."""

import gzip
import warnings

import numpy as np
import pandas
import pyarrow as pa
import pytest
import tensorflow as tf
from row_cases import SPEC, read, set_block_bytes, table, write, write_metadata
from text_ids import hash_ids

from lodestar._errors import describe_error
from lodestar.data import (
    Column,
    DataError,
    Schema,
    SkippedRecords,
    open_dataset,
)

FLOATS = pa.list_(pa.float32())


def ids(data, name="C", **options):
    """Returns the rows of a column of ids."""
    dataset = open_dataset(data, [Column.sparse(name)], 8, **options)
    return sum((features[name].to_list() for features in dataset), [])


SAME = {
    "int32": pa.array([7, 8, None], pa.int32()),
    "int64": pa.array([7, 8, None]),
    "uint8": pa.array([7, 8, None], pa.uint8()),
    "double": pa.array([7.0, 8.0, np.nan]),
    "float": pa.array([7.0, 8.0, None], pa.float32()),
    "string": pa.array(["7", " 8.0", "NA"]),
    "dictionary": pa.array(["7", "8", None]).dictionary_encode(),
    "lists": pa.array([[7], [8], []]),
}


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_files_whose_types_differ_have_the_same_ids(tmp_path, suffix):
    paths = [
        write(tmp_path / f"{name}.{suffix}", pa.table({"C": array}), 2)
        for name, array in SAME.items()
    ]
    assert ids(paths) == [[7], [8], []] * 8
    shuffled = ids(paths, shuffle=5, num_parallel_files=3)
    assert sorted(shuffled) == [[]] * 8 + [[7]] * 8 + [[8]] * 8


def test_files_whose_types_contradict_the_schema(tmp_path):
    good = write(tmp_path / "0.parquet", pa.table({"C": [7], "w": [0.5]}))
    bad = write(tmp_path / "1.parquet", pa.table({"C": [{"a": 1}], "w": [1.0]}))
    lacking = write(tmp_path / "2.parquet", pa.table({"C": [8, 9]}))
    schema = [Column.sparse("C"), Column.dense("w")]
    with pytest.raises(DataError) as error:
        open_dataset([good, bad], schema, 8)
    assert str(error.value) == (
        f"{bad}: column 'C': found the type struct<a: int64>, which cannot be "
        "read as an integer of 64 bits"
    )
    with pytest.raises(DataError) as error:
        open_dataset([good, lacking], schema, 8)
    assert str(error.value) == (
        f"{lacking}: has no column 'w'; its columns are C"
    )
    skipped = SkippedRecords()
    dataset = open_dataset(
        [good, bad, lacking], schema, 8, on_error="skip", skipped=skipped
    )
    assert [f["C"].to_list() for f in dataset] == [[[7]]]
    assert skipped.count == 3
    with pytest.raises(DataError, match="no source has the schema's columns"):
        open_dataset([bad, lacking], schema, 8, on_error="skip")


def test_other_columns_are_ignored(tmp_path):
    data = table(0, 9).append_column("other", pa.array([{"a": 1}] * 9))
    data = data.select([*reversed(data.schema.names)])
    # A column of the schema that is not used may be missing.
    schema = [Column.sparse("nothing", used=False), *SPEC]
    for source in (data, write(tmp_path / "a.parquet", data)):
        assert sum(read(open_dataset(source, schema, 8)), []) == list(range(9))
    path = write(tmp_path / "a.csv", table(0, 9))
    lines = path.read_text().splitlines()
    lines = [lines[0] + ",other", *(line + ",?" for line in lines[1:])]
    path.write_text("\n".join(lines) + "\n")
    assert sum(read(open_dataset(path, SPEC, 8)), []) == list(range(9))


def test_a_source_without_labels_has_only_features(tmp_path):
    data = table(0, 4)
    for source in (
        data.drop_columns("click"),
        write(tmp_path / "a.parquet", data.drop_columns("click")),
        write(tmp_path / "a.csv", data.drop_columns("click")),
    ):
        (features,) = open_dataset(source, SPEC, 8)
        assert "click" not in features
        assert features["C2"].to_list() == [[7], [8], [9], [10]]
    # One of two labels is missing, which is an error.
    schema = [*SPEC, Column.label("other")]
    with pytest.raises(DataError, match="has no column 'other'"):
        open_dataset(data, schema, 8)
    # Data with features but no label are not taken for unlabeled data.
    with pytest.raises(DataError, match="has no column 'y'"):
        open_dataset(data, [Column.label("y")], 8)


def test_weights_and_slot_size_array():
    data = pa.table({"c": [[1, 2], []], "w": [[0.5, 1.0], []], "d": [3, 4]})
    schema = [
        Column.sparse("c"),
        Column.sparse("w", dtype="float"),
        Column.sparse("d"),
    ]
    (features,) = dataset = open_dataset(
        data, schema, 2, weights={"c": "w"}, slot_size_array=[10, 5]
    )
    assert features["c"].to_list() == [[1, 2], []]
    assert features["w"].to_list() == [[0.5, 1.0], []]
    assert features["d"].to_list() == [[13], [14]]
    assert dataset.schema.weights == {"c": "w"}
    data = data.set_column(1, "w", pa.array([[0.5, 1.0], [1.0]]))
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_dataset(data, schema, 2, weights={"c": "w"}))
    assert describe_error(error.value) == (
        "pyarrow.Table: row 1: column 'w': found 1 weights, expected 0, one for "
        "each value of 'c'"
    )


@pytest.mark.parametrize("key", [10, -1, 2**62])
def test_ids_beyond_their_slot(key):
    data = pa.table(
        {
            "C1": pa.array([[9], [], [0, key, 11], [key]]),
            "C2": pa.array([19, 0, 1, 2]),
        }
    )
    schema = [Column.sparse("C1"), Column.sparse("C2")]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_dataset(data, schema, 8, slot_size_array=[10, 20]))
    assert describe_error(error.value).startswith(
        f"pyarrow.Table: row 2: column 'C1': found the id {key}, expected one "
        "in [0, 9]"
    )
    skipped = SkippedRecords()
    (features,) = open_dataset(
        data,
        schema,
        8,
        slot_size_array=[10, 20],
        on_error="skip",
        skipped=skipped,
    )
    assert features["C2"].to_list() == [[29], [10]]
    assert skipped.count == 2


@pytest.mark.parametrize(
    "sizes, message",
    [
        ([10], "for each of the 2 slots of ids, C, D, got 1"),
        ([10, 0], "must have positive integers"),
        ([2**62, 2**62], "must be less than 2"),
    ],
)
def test_slot_sizes_are_checked(sizes, message):
    data = pa.table({"C": [1], "D": [2]})
    schema = [Column.sparse("C"), Column.sparse("D")]
    with pytest.raises(ValueError, match=message):
        open_dataset(data, schema, 8, slot_size_array=sizes)
    schema[1] = Column.one_hot("D", 9)
    with pytest.raises(ValueError, match="'D' is a one-hot slot"):
        open_dataset(data, schema, 8, slot_size_array=sizes)


def partitioned(folder, suffix):
    """Writes clicks partitioned by day and city, and the files that Spark adds."""
    for i, (day, city) in enumerate(
        [
            ("2026-01-30", "Oslo"),
            ("2026-01-30", "__HIVE_DEFAULT_PARTITION__"),
            ("2026-01-31", "%C3%98rsta"),
        ]
    ):
        inner = folder / f"day={day}" / f"city={city}"
        inner.mkdir(parents=True)
        data = pa.table({"label": [i % 2] * 2, "n": [2 * i, 2 * i + 1]})
        write(inner / f"part-0{suffix}", data)
        (inner / f".part-0{suffix}.crc").write_bytes(b"crc")
        (inner / "_committed_1").write_bytes(b"{}")
        (inner / f"part-1{suffix}").write_bytes(b"")
    (folder / "_SUCCESS").write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    "suffix", [".parquet", ".csv", ".jsonl", ".arrow", ".arrows"]
)
def test_hive_partitions(tmp_path, suffix):
    folder = partitioned(tmp_path / "clicks", suffix)
    schema = [
        Column.label("label"),
        Column.dense("n", (), dtype="uint64"),
        Column.sparse("day", encoding="hash"),
        Column.sparse("city", encoding="hash"),
    ]
    ((features, label),) = open_dataset(folder, schema, 8)
    assert label.numpy().ravel().tolist() == [0, 0, 1, 1, 0, 0]
    order = features["n"].numpy().tolist()
    first, second = hash_ids("day", ["2026-01-30", "2026-01-31"]).tolist()
    days = dict(zip(order, features["day"].to_list()))
    assert [days[i] for i in range(6)] == [[first]] * 4 + [[second]] * 2
    oslo, orsta = hash_ids("city", ["Oslo", "Ørsta"]).tolist()
    cities = dict(zip(order, features["city"].to_list()))
    assert [cities[i] for i in range(6)] == [
        *([oslo], [oslo]),
        *([], []),
        *([orsta], [orsta]),
    ]
    # Without a schema, a partition is a column of ids.
    dataset = open_dataset(folder, batch_size=8, numeric=["n"], verbose=False)
    for name in ("day", "city"):
        assert dataset.schema[name].encoding == "hash"
        assert dataset.schema[name].why.startswith("a partition column")
    ((inferred, _),) = dataset
    assert inferred["day"].to_list() == features["day"].to_list()
    assert inferred["city"].to_list() == features["city"].to_list()


def test_partitions_by_integers_are_integers(tmp_path):
    for day in ("7", "12"):
        (tmp_path / f"day={day}").mkdir()
        write(tmp_path / f"day={day}/0.parquet", pa.table({"x": [0.5]}))
    dataset = open_dataset(tmp_path, batch_size=8, verbose=False)
    assert dataset.schema["day"] == Column.sparse("day")
    (features,) = dataset
    assert sorted(features["day"].to_list()) == [[7], [12]]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", None])
def test_a_split(tmp_path, monkeypatch, suffix):
    set_block_bytes(monkeypatch, 300)
    data = table(0, 100)
    if suffix is not None:
        data = [
            write(tmp_path / f"{i}{suffix}", table(50 * i, 50 * i + 50), 15)
            for i in range(2)
        ]

    def split(**options):
        parts = open_dataset(data, SPEC, 8, split=0.2, **options)
        assert [part.schema for part in parts] == [SPEC, SPEC]
        assert parts[1].cardinality() == 3
        return [sum(read(part), []) for part in parts]

    rest, held = split()
    assert sorted(rest + held) == list(range(100)) and len(held) == 20
    assert rest == sorted(rest) and held == sorted(held)
    assert split(seed=0) == [rest, held]
    assert split(seed=1)[1] != held
    shuffled = split(shuffle=50, seed=0)
    assert [sorted(part) for part in shuffled] == [rest, held]
    assert shuffled != [rest, held]


def test_shards_of_a_split():
    data = table(0, 100)
    found = []
    for index in range(3):
        found += [
            sum(read(part), [])
            for part in open_dataset(data, SPEC, 8, split=0.3, shard=(3, index))
        ]
    assert sorted(sum(found, [])) == list(range(100))
    assert [len(part) for part in found] == [23, 10, 23, 10, 24, 10]


def test_options_of_a_split(tmp_path):
    for split in (0, 1, 1.5, -0.1, "a", True):
        with pytest.raises(ValueError, match=r"`split` must be in \(0, 1\)"):
            open_dataset(table(0, 9), SPEC, 8, split=split)


def test_a_possibly_truncated_file_causes_a_warning(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("C\n7\n8")
    with pytest.warns(
        UserWarning, match=f"{path}: the last line does not end in a newline"
    ) as warned:
        assert ids(path) == [[7], [8]]
    [told] = [w for w in warned if "the last line" in str(w.message)]
    assert told.filename == __file__
    path.write_text("C\n7\n8\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids(path) == [[7], [8]]


def criteo(rows):
    for i in range(rows):
        numbers = [str(i * k) if k % 3 else "" for k in range(13)]
        words = [f"{i % 5 * 1000 + k:08d}" if k else "" for k in range(26)]
        yield "\t".join([str(i % 2), *numbers, *words])


def test_criteo_logs(tmp_path):
    path = tmp_path / "day_0.gz"
    text = "\n".join(criteo(40)) + "\n"
    path.write_bytes(gzip.compress(text.encode()))
    dataset = open_dataset(path, batch_size=64, verbose=False)
    ((features, label),) = dataset
    np.testing.assert_array_equal(label[:, 0], np.arange(40) % 2)
    assert features["I3"].numpy().ravel().tolist() == [2 * i for i in range(40)]
    assert features["I1"].numpy().ravel().tolist() == [0.0] * 40
    want = [f"{i % 5 * 1000 + 1:08d}" for i in range(40)]
    ids_of_words = hash_ids("C2", want).tolist()
    assert features["C2"].values.numpy().tolist() == ids_of_words
    assert features["C1"].to_list() == [[]] * 40
    kinds = {c.kind for c in dataset.schema if c.name.startswith("I")}
    assert kinds == {"dense"}


def test_missing_strings(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("C,x\n7,1\n-,-\n")
    schema = Schema([Column.sparse("C"), Column.dense("x")], na_values=["-"])
    frame = pandas.read_csv(path, dtype=str)
    for source in (path, frame, pa.Table.from_pandas(frame)):
        (features,) = open_dataset(source, schema, 8)
        assert features["C"].to_list() == [[7], []]
        assert features["x"].numpy().tolist() == [[1.0], [0.0]]
        dataset = open_dataset(
            source,
            batch_size=8,
            na_values=["-"],
            categorical=["C"],
            numeric=["x"],
            verbose=False,
        )
        assert dataset.schema == schema
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="column 'C': found '-'"
        ):
            list(open_dataset(source, list(schema), 8))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl", None])
def test_fields_of_structs_are_columns(tmp_path, suffix):
    data = pa.table(
        {
            "user": pa.array(
                [{"id": 7, "home": {"city": "Oslo"}}, None, {"id": 8}]
            ),
            "a.b": [0.5, 1.5, 2.5],
            "a": [{"b": "shadowed", "c": True}] * 3,
        }
    )
    if suffix is not None:
        data = write(tmp_path / f"in{suffix}", data)
    dataset = open_dataset(
        data, batch_size=4, categorical=["user.id"], verbose=False
    )
    assert dataset.schema == Schema(
        [
            Column.sparse("user.id"),
            Column.sparse("user.home.city", encoding="hash", strings_only=True),
            Column.dense("a.b"),
            Column.dense("a.c"),
        ]
    )
    (features,) = dataset
    assert features["user.id"].to_list() == [[7], [], [8]]
    oslo = hash_ids("user.home.city", ["Oslo"]).tolist()
    assert features["user.home.city"].to_list() == [oslo, [], []]
    assert features["a.b"].numpy().ravel().tolist() == [0.5, 1.5, 2.5]
    assert features["a.c"].numpy().ravel().tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
def test_inference_looks_at_all_files(tmp_path, suffix):
    def file(number, values):
        data = pa.table({"n": pa.array(values, pa.float64()), "x": values})
        data = data.set_column(1, "x", pa.array([0.5] * len(values)))
        return write(tmp_path / f"{number}{suffix}", data)

    # The first file has no rows, and only the last one shows what `n` is.
    files = [file(0, []), file(1, [1, 2]), file(2, [3.5])]
    dataset = open_dataset(files, batch_size=4, verbose=False)
    assert dataset.schema["n"].kind == "dense"
    assert "(3 rows of" in dataset.schema["n"].why
    with pytest.raises(DataError, match="2 rows leave several .*\n  'n'"):
        open_dataset(files[:2], batch_size=4)


def test_files_may_be_a_folder_or_a_list(tmp_path, monkeypatch):
    for i in range(3):
        write(tmp_path / f"{i}.parquet", table(7 * i, 7 * i + 7))
    found = open_dataset(tmp_path, SPEC, 8)
    assert sum(read(found), []) == list(range(21))
    listed = tmp_path / "file_list.txt"
    names = [str(tmp_path / f"{i}.parquet") for i in (2, 0)]
    listed.write_text("\n".join(["2", *names, "behind"]) + "\n")
    order = [*range(14, 21), *range(7)]
    assert sum(read(open_dataset(listed, SPEC, 8)), []) == order
    listed.unlink()
    write_metadata(tmp_path, {"2.parquet": 7, "0.parquet": 7})
    assert sum(read(open_dataset(tmp_path, SPEC, 8)), []) == order
    monkeypatch.chdir(tmp_path)
    assert sum(read(open_dataset("0.parquet", SPEC, 8)), []) == [*range(7)]


def test_inference_ignores_partitions_above_the_path(tmp_path):
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    (folder / "a.csv").write_text("price\n7.5\n")
    for path in (folder, folder / "a.csv"):
        assert open_dataset(path, verbose=False).schema.names() == ["price"]
    assert "lr" in open_dataset(tmp_path, verbose=False).schema
    # A schema that declares the column reads it from any path.
    ((features),) = open_dataset(folder, [Column.dense("lr")], 1)
    assert features["lr"].numpy().tolist() == [[np.float32(0.1)]]


def test_the_names_of_criteo_do_not_make_a_click_log(tmp_path):
    names = [*(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    path = tmp_path / "in.csv"

    def open_words(word):
        row = ",".join([*["5"] * 13, *[word] * 26])
        path.write_text(f"{','.join(names)}\n{row}\n")
        return open_dataset(path, verbose=False)

    assert open_words("68fd1e64").schema["C1"].strings_only
    for word in ("12345678", "", "7"):
        with pytest.raises(DataError, match="leave several meanings"):
            open_words(word)
