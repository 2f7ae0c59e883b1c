"""lodestar.data.open_dataset: pandas, polars and Arrow tables as batches."""

import datetime
import decimal
import gc
import weakref

import keras
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from text_ids import hash_ids

import lodestar
from lodestar._errors import describe_error
from lodestar.data import (
    Column,
    DataError,
    Schema,
    SkippedRecords,
    open_dataset,
)
from lodestar.data.parquet.parquet_rows import one_array

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("age"),
        Column.sparse("user"),
        Column.sparse("city"),
        Column.sparse("tags"),
        Column.one_hot("day", 7),
    ]
)


def columns(rows):
    return {
        "click": [i % 2 for i in range(rows)],
        "age": [i / 2 for i in range(rows)],
        "user": list(range(rows)),
        "city": ["Oslo" if i % 3 else "Łódź" for i in range(rows)],
        "tags": [[f"t{k}" for k in range(i % 3)] for i in range(rows)],
        "day": [i % 7 for i in range(rows)],
    }


def tables(rows=20):
    data = columns(rows)
    arrow = pa.table(data)
    categories = pandas.DataFrame(data).astype({"city": "category"})
    polars_categories = polars.DataFrame(data).with_columns(
        polars.col("city").cast(polars.Categorical)
    )
    return {
        "pandas": pandas.DataFrame(data),
        "pandas-category": categories,
        "polars": polars.DataFrame(data),
        "polars-category": polars_categories,
        "arrow": arrow,
        "arrow-chunks": pa.concat_tables([arrow[:7], arrow[7:8], arrow[8:]]),
        "record-batch": arrow.combine_chunks().to_batches()[0],
    }


def lists(values):
    values = values.numpy()
    return values.tolist() if hasattr(values, "tolist") else values


@pytest.mark.parametrize("kind", tables(1))
def test_every_kind_of_table_gives_the_same_batches(kind):
    data = columns(20)
    batches = list(open_dataset(tables()[kind], SPEC, 8))
    assert [len(label) for _, label in batches] == [8, 8, 4]
    found = {
        name: sum((x[name].to_list() for x, _ in batches), [])
        for name in ("user", "city", "tags")
    }
    assert found["user"] == [[i] for i in range(20)]
    for name in ("city", "tags"):
        texts = [t if name == "tags" else [t] for t in data[name]]
        assert found[name] == [hash_ids(name, t).tolist() for t in texts]
    ages = np.concatenate([x["age"] for x, _ in batches])
    np.testing.assert_array_equal(ages[:, 0], data["age"])
    days = np.concatenate([x["day"] for x, _ in batches])
    np.testing.assert_array_equal(days.argmax(1), data["day"])
    labels = np.concatenate([label for _, label in batches])
    np.testing.assert_array_equal(labels[:, 0], data["click"])


def test_elements_are_those_of_parquet(tmp_path):
    data = columns(20)
    data["click"] = pa.array(data["click"], pa.float32())
    data["age"] = pa.array(data["age"], pa.float32())
    for name in ("city", "tags"):
        del data[name]
    spec = Schema(slot for slot in SPEC if slot.name in data)
    pa.parquet.write_table(pa.table(data), tmp_path / "0.parquet")
    options = {"shuffle_rows": 6, "seed": 3, "repeat": 2}
    wanted = open_dataset(tmp_path / "0.parquet", spec, 8, **options)
    found = open_dataset(pa.table(data), spec, 8, **options)
    assert found.element_spec == wanted.element_spec
    for a, b in zip(found, wanted, strict=True):
        tf.nest.map_structure(
            np.testing.assert_array_equal,
            tf.nest.flatten(a, expand_composites=True),
            tf.nest.flatten(b, expand_composites=True),
        )


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (pa.int8(), None),
        (pa.uint16(), None),
        (pa.uint64(), None),
        (pa.bool_(), None),
        (pa.dictionary(pa.int8(), pa.int64()), None),
        (pa.float64(), "found double"),
        (pa.date32(), "found date32"),
        (pa.struct([("a", pa.int64())]), "found struct"),
    ],
)
def test_types_of_ids(type_, text):
    if isinstance(type_, pa.StructType):
        values = pa.array([{"a": 1}, {"a": 0}], type_)
    elif type_ == pa.date32():
        values = pa.array([datetime.date(2020, 1, 1)] * 2)
    else:
        values = pa.array([1, 0], pa.int64())
        if isinstance(type_, pa.DictionaryType):
            values = values.dictionary_encode()
        else:
            values = values.cast(type_)
    table = pa.table({"c": values})
    if text:
        with pytest.raises(
            ValueError, match=f"column 'c': {text}.*, wanted int"
        ):
            open_dataset(table, [Column.sparse("c")], 2)
        return
    (features,) = open_dataset(table, [Column.sparse("c")], 2)
    assert features["c"].to_list() == [[1], [0]]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 0], pa.int8()),
        pa.array([True, False]),
        pa.array([1.0, 0.0], pa.float64()),
        pa.array([1.0, 0.0], pa.float16()),
        pa.array([decimal.Decimal("1"), decimal.Decimal("0")]),
    ],
)
def test_types_of_numbers(values):
    table = pa.table({"x": values, "label": values})
    ((features, label),) = open_dataset(
        table, [Column.label("label"), Column.dense("x")], 2
    )
    assert features["x"].dtype == tf.float32
    assert features["x"].numpy().tolist() == [[1.0], [0.0]]
    assert label.numpy().tolist() == [[1.0], [0.0]]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.string(), pa.large_string()),
        (pa.list_(pa.string()), pa.large_list(pa.large_string())),
        (pa.list_(pa.int64()), pa.large_list(pa.int64())),
        (pa.int64(), pa.int64()),
    ],
)
def test_chunks_are_joined_with_offsets_of_64_bits(narrow, wide):
    value = {pa.string(): "a", pa.int64(): 1}.get(narrow, [])
    column = pa.chunked_array([[value], [value, None]], narrow)
    array = one_array(column)
    assert array.type == wide
    assert array.to_pylist() == [value, value, None]


def test_lists_of_a_slice():
    whole = pa.table(
        {
            "f": pa.array([[1.0, 2.0]] * 5, pa.list_(pa.float64(), 2)),
            "s": pa.array([["a"], None, ["b", "c"], [], ["d"]]),
        }
    )
    schema = [Column.dense("f", (2,)), Column.sparse("s")]
    (features,) = open_dataset(whole[2:4], schema, 4)
    assert features["f"].shape == (2, 2)
    assert features["s"].to_list() == [hash_ids("s", ["b", "c"]).tolist(), []]


def test_slots_by_type():
    table = pa.table(
        {
            "label": [3, 1],
            "floats": [0.5, 1.5],
            "flag": [True, False],
            "vector": pa.array([[1.0], [2.0]], pa.list_(pa.float32(), 1)),
            "text": ["a", "b"],
            "list": [[1, 2], []],
            "weights": [[0.5, 1.5], []],
            "user_id": [5, 5],
            "age": [31, 42],
        }
    )
    with pytest.warns(
        UserWarning, match="pyarrow.Table: column user_id: whole"
    ):
        dataset = open_dataset(table, batch_size=2)
    features, _ = dataset.element_spec
    sparse = ["text", "list", "weights", "user_id"]
    assert list(features) == [
        "floats",
        "flag",
        "vector",
        *sparse[:3],
        "user_id",
        "age",
    ]
    for name, spec in features.items():
        assert isinstance(spec, tf.RaggedTensorSpec) == (name in sparse), name
    assert features["weights"].dtype == tf.float32
    ((_, label),) = dataset
    assert label.numpy().tolist() == [[3.0], [1.0]]


def test_options_that_say_what_columns_are():
    table = pa.table({"a": [1, 1], "user_id": [5, 5], "y": ["no", "yes."]})
    dataset = open_dataset(
        table,
        batch_size=2,
        label="y=yes",
        categorical=["a"],
        numeric=["user_id"],
    )
    ((features, label),) = dataset
    assert features["a"].to_list() == [[1], [1]]
    assert features["user_id"].numpy().tolist() == [[5.0], [5.0]]
    assert label.numpy().tolist() == [[0.0], [1.0]]


def test_missing_values():
    frame = pandas.DataFrame(
        {
            "x": [1.5, np.nan, 2.5],
            "c": ["a", None, "?"],
            "i": pandas.array([7, None, 8], "Int64"),
            "l": [["a"], None, ["?", "b"]],
        }
    )
    schema = [Column.dense("x"), *(Column.sparse(name) for name in "cil")]
    (features,) = open_dataset(frame, schema, 3, missing=["?"])
    assert features["x"].numpy().tolist() == [[1.5], [0.0], [2.5]]
    assert features["c"].to_list() == [hash_ids("c", ["a"]).tolist(), [], []]
    assert features["i"].to_list() == [[7], [], [8]]
    of_lists = [hash_ids("l", [text]).tolist() for text in "ab"]
    assert features["l"].to_list() == [of_lists[0], [], of_lists[1]]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_dataset(frame, schema, 3))
    assert describe_error(error.value) == (
        "pandas.DataFrame: row 1: column 'x': found null, wanted float; "
        "`missing=[]` reads a null, or a NaN of pandas, as 0, and "
        "`on_error='skip'` leaves such rows out"
    )


@pytest.mark.parametrize("run", ["eager", "function", "fit"])
def test_an_error_of_a_row_is_a_few_lines(run):
    frame = pandas.DataFrame(
        {"label": [0.0, 1.0], "i": pandas.array([7, None], "Int64")}
    )
    dataset = open_dataset(
        frame, [Column.label("label"), Column.sparse("i")], 2
    )

    @tf.function
    def read():
        for batch in dataset:
            tf.nest.map_structure(tf.print, batch)

    def fit():
        ids = keras.Input((None,), dtype="int64", ragged=True, name="i")
        rows = lodestar.layers.DynamicEmbedding(2, combiner="sum")(ids)
        model = keras.Model({"i": ids}, keras.layers.Dense(1)(rows))
        model.compile(
            lodestar.optimizers.DynamicEmbeddingOptimizer("sgd"), "mse"
        )
        model.fit(dataset, verbose=0)

    runs = {"eager": lambda: list(dataset), "function": read, "fit": fit}
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        runs[run]()
    text = str(error.value)
    assert "Traceback" not in text and len(text.splitlines()) < 10
    assert (
        "row 1: column 'i': found null, wanted int64; `missing=[]` reads a "
        "null, or a NaN of pandas, as no value"
    ) in text


def test_integers_that_pandas_made_floats():
    frame = pandas.DataFrame({"i": [7, None]})
    with pytest.raises(
        DataError, match=r"column 'i': found double.*astype\('Int64'\).*missing"
    ):
        open_dataset(frame, [Column.sparse("i")], 2)
    frame["i"] = frame["i"].astype("Int64")
    (features,) = open_dataset(frame, [Column.sparse("i")], 2, missing=[])
    assert features["i"].to_list() == [[7], []]


def test_columns_that_are_called_by_numbers():
    frame = pandas.DataFrame({0: [1.0, 0.0], 1: ["a", "b"]})
    ((features, label),) = open_dataset(frame, batch_size=2, label="0")
    assert list(features) == ["1"] and label.numpy().tolist() == [[1.0], [0.0]]
    with pytest.raises(
        DataError, match="the label must be a string.*name the column '0'"
    ):
        open_dataset(frame, batch_size=2, label=0)
    for name in ("categorical", "numeric"):
        with pytest.raises(
            ValueError, match=f"`{name}` must be a list of strings, found"
        ):
            open_dataset(frame, batch_size=2, **{name: [1]})
    for column in (frame[0], polars.Series("a", [1.0])):
        with pytest.raises(TypeError, match="Series, one column: `to_frame"):
            open_dataset(column, batch_size=2)


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.int64()), pa.list_(pa.int64(), 2)]
)
def test_missing_values_in_lists(type_):
    values = pa.array([[9, 9], [1, None], None, [2, 3]], type_)[1:]
    sparse = [Column.sparse("l")]
    (features,) = open_dataset(pa.table({"l": values}), sparse, 3, missing=[])
    assert features["l"].to_list() == [[1], [], [2, 3]]
    table = pa.table({"l": values.take([0, 2])})
    schema = [Column.dense("l", (2,))]
    (features,) = open_dataset(table, schema, 2, missing=[])
    assert features["l"].numpy().tolist() == [[1.0, 0.0], [2.0, 3.0]]
    dataset = open_dataset(pa.table({"l": values}), schema, 3, missing=[])
    with pytest.raises(tf.errors.InvalidArgumentError, match="row 1.*null"):
        list(dataset)


def test_what_a_null_list_hides_is_no_value():
    values = pa.ListArray.from_arrays(
        pa.array([0, 1, 3], pa.int32()),
        pa.array([1, 8, 9]),
        mask=pa.array([False, True]),
    )
    (features,) = open_dataset(
        pa.table({"l": values}), [Column.sparse("l")], 2, missing=[]
    )
    assert features["l"].to_list() == [[1], []]


def test_nulls_within_lists_are_errors():
    table = pa.table({"l": [["a"], [None, "b"]]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="null in a list"):
        list(open_dataset(table, [Column.sparse("l")], 3))


def test_a_null_label_is_an_error():
    table = pa.table({"y": ["yes", None], "x": [1.0, 2.0]})
    dataset = open_dataset(table, batch_size=2, label="y=yes", missing=[])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="row 1.*'y'.*null"
    ):
        list(dataset)


def test_bad_rows_are_left_out():
    table = pa.table({"day": list(range(9)), "label": [1.0] * 9})
    schema = [Column.label("label"), Column.one_hot("day", 7)]
    skipped = SkippedRecords()
    dataset = open_dataset(
        table, schema, 4, on_error="skip", skipped=skipped, shuffle_rows=3
    )
    assert sum(len(label) for _, label in dataset) == 7
    assert skipped.messages == [
        f"pyarrow.Table: row {row}: column 'day': found {row}, wanted a whole "
        "number from 0 to 6"
        for row in (7, 8)
    ]
    assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY


def test_weights_and_slot_size_array():
    table = pa.table({"c": [[1, 2], []], "w": [[0.5, 1.0], []], "d": [3, 4]})
    schema = [
        Column.sparse("c"),
        Column.sparse("w", dtype="float"),
        Column.sparse("d"),
    ]
    (features,) = open_dataset(
        table, schema, 2, weights={"c": "w"}, slot_size_array=[10, 5]
    )
    assert features["c"].to_list() == [[1, 2], []]
    assert features["d"].to_list() == [[13], [14]]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, 7),
        ({"drop_remainder": True}, 6),
        ({"repeat": 3}, 21),
        ({"shuffle_rows": 5}, 7),
        ({"shuffle_rows": 5, "repeat": 3, "drop_remainder": True}, 18),
        ({"shuffle_rows": 5, "repeat": None}, tf.data.INFINITE_CARDINALITY),
        ({"repeat": None}, tf.data.INFINITE_CARDINALITY),
        ({"shard": (2, 1)}, 4),
    ],
)
def test_cardinality_is_the_number_of_batches(options, wanted):
    dataset = open_dataset(tables(20)["arrow"], SPEC, 3, **options, prefetch=0)
    assert dataset.cardinality() == wanted
    if wanted > 0:
        assert sum(1 for _ in dataset) == wanted


def test_a_window_of_all_rows_shuffles_them_all():
    table = pa.table({"i": pa.array(range(300), pa.int64())})
    dataset = open_dataset(
        table, [Column.sparse("i")], 300, shuffle_rows=300, seed=1
    )
    orders = [
        tuple(x["i"].values.numpy().tolist()) for _ in range(2) for x in dataset
    ]
    assert len(set(orders)) == 2
    for order in orders:
        assert sorted(order) == list(range(300))
        # In two windows one of them would have the upper half alone.
        assert {i // 150 for i in order[:20]} == {0, 1}
        assert {i // 150 for i in order[-20:]} == {0, 1}


def test_a_saved_iterator_goes_on(tmp_path):
    def opened():
        return iter(
            open_dataset(tables(20)["polars"], SPEC, 3, shuffle_rows=7, seed=1)
        )

    iterator = opened()
    for _ in range(3):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "c"))
    rest = [x["user"].to_list() for x, _ in iterator]
    again = opened()
    tf.train.Checkpoint(iterator=again).restore(path)
    assert [x["user"].to_list() for x, _ in again] == rest
    assert len(rest) == 4


def test_no_rows():
    table = tables(1)["arrow"][:0]
    assert list(open_dataset(table, SPEC, 3, shuffle_rows=2)) == []
    endless = open_dataset(table, SPEC, 3, shuffle_rows=2, repeat=None)
    assert list(endless) == []


def test_a_table_is_freed_with_its_dataset():
    ids = np.arange(8)  # whose memory the table takes
    held = weakref.ref(ids)
    dataset = open_dataset(pa.table({"c": ids}), [Column.sparse("c")], 4)
    del ids
    gc.collect()
    assert held() is not None
    del dataset
    gc.collect()
    assert held() is None


def test_an_iterator_holds_the_table():
    table = pa.table({"c": np.arange(8)})
    iterator = iter(open_dataset(table, [Column.sparse("c")], 4, prefetch=0))
    gc.collect()
    assert [x["c"].to_list()[0] for x in iterator] == [[0], [4]]


def test_model_fit_knows_the_steps_of_an_epoch():
    frame = tables(20)["pandas"]
    inputs = SPEC.inputs()
    rows = [
        lodestar.layers.DynamicEmbedding(2, combiner="sum")(inputs[name])
        for name in ("user", "city", "tags")
    ]
    score = keras.layers.Dense(1, activation="sigmoid")(
        keras.layers.concatenate([*rows, inputs["age"], inputs["day"]])
    )
    model = keras.Model(inputs, score)
    model.compile(
        lodestar.optimizers.DynamicEmbeddingOptimizer("sgd"),
        "binary_crossentropy",
    )
    steps = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: seen.append(steps.params["steps"])
    )
    seen = []
    dataset = open_dataset(frame, SPEC, 8, shuffle_rows=20)
    history = model.fit(dataset, epochs=2, verbose=0, callbacks=[steps])
    assert seen == [3]
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize(
    ("table", "options", "error", "text"),
    [
        ({"a": [1]}, {}, TypeError, "must be a pandas or polars DataFrame"),
        (polars.LazyFrame({"a": [1]}), {}, TypeError, "collect\\(\\) it first"),
        (pa.table({}), {}, ValueError, "pyarrow.Table: has no columns"),
        (
            pa.table([[1], [2]], names=["a", "a"]),
            {},
            ValueError,
            "pyarrow.Table: 2 columns are called 'a'",
        ),
        (
            pa.table([["no"], ["yes"]], names=["y", "y"]),
            {"label": "y=yes", "slots": [Column.label("y")]},
            ValueError,
            "pyarrow.Table: 2 columns are called 'y'",
        ),
        (
            pa.table({"x": ["a", None]}),
            {"slots": [Column.dense("x")], "missing": []},
            ValueError,
            "column 'x': found .*string, wanted float",
        ),
        (
            pandas.DataFrame({"a": [1, "b", [2]]}),
            {},
            ValueError,
            "pandas.DataFrame: cannot be an Arrow table",
        ),
        (
            polars.DataFrame({"a": [1.0]}),
            {"label": "b"},
            ValueError,
            "polars.DataFrame: unknown column 'b'; the columns are a",
        ),
        (
            pa.table({"y": ["a", "b"], "x": [1.0, 2.0]}),
            {"label": "y"},
            ValueError,
            "found texts, wanted numbers, or `label`='y=POSITIVE'",
        ),
        (
            pa.table({"y": ["a", "b"], "x": [1.0, 2.0]}),
            {"label": "y=c"},
            ValueError,
            "no label is 'c'; found 'a', 'b'",
        ),
        (
            pa.table({"x": [1.0]}),
            {"numeric": ["x"], "categorical": ["x"]},
            ValueError,
            "'x' is both categorical and numeric",
        ),
        (
            pa.table({"x": [1.0], "y": [1.0]}),
            {"label": "y", "numeric": ["y"]},
            ValueError,
            "column 'y' is the label",
        ),
        (
            pa.table({"x": [1.0]}),
            {"slots": [Column.dense("x")], "numeric": ["x"]},
            ValueError,
            "`schema` says what each column is",
        ),
        (
            pa.table({"x": [1.0]}),
            {"slots": [Column.dense("x")], "label": "x"},
            ValueError,
            "`label`='x': is no label of `schema`",
        ),
        (
            pa.table({"x": [1.0]}),
            {"slots": [Column.dense("z")]},
            ValueError,
            "column 'z': found 0 of that name, wanted one",
        ),
        (
            pa.table({"x": [1.0, 1e300]}),
            {},
            ValueError,
            "column 'x': value 1: found 1e\\+300, wanted a float32",
        ),
        (
            pa.table({"x": [1.0]}),
            {"shuffle_files": True},
            ValueError,
            "`shuffle_files` is no option of a table",
        ),
        (
            pa.table({"x": [1.0]}),
            {"missing": "?"},
            ValueError,
            "`missing` must be a list of strings",
        ),
        (
            pa.table({"x": [1.0]}),
            {"batch_size": None},
            ValueError,
            "`batch_size` is missing",
        ),
    ],
)
def test_what_is_wrong_is_said(table, options, error, text):
    with pytest.raises(error, match=text):
        open_dataset(table, **{"batch_size": 2, **options})


def test_a_list_of_tables_is_none_of_paths():
    frames = [pandas.DataFrame({"secret": [1.0]})] * 2
    with pytest.raises(
        ValueError,
        match=r"a path or a list of paths, found a list with DataFrame\.$",
    ):
        open_dataset(frames, batch_size=1)


def test_a_format_is_none_of_a_table():
    with pytest.raises(ValueError, match="`format`='csv' is no option"):
        open_dataset(pa.table({"x": [1.0]}), batch_size=1, format="csv")
