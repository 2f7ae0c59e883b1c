"""EmbeddingRows as tables of pandas and Arrow."""

import copy
import sys

import numpy as np
import pandas
import pyarrow as pa
import pytest
import tensorflow as tf

import lodestar


@pytest.fixture
def rows():
    table = lodestar.EmbeddingVariable(
        2, name="user", embeddings_initializer="ones"
    )
    table.lookup([5, -5, 0, 5], training=True)
    lodestar.optimizers.Adagrad().apply(
        [tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0], tf.int64))],
        [table],
    )
    return table.export()


def test_to_pandas(rows):
    frame = rows.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == [
        "id",
        "value",
        "frequency",
        "last_seen",
        "accumulator",
    ]
    assert frame["id"].tolist() == [-5, 0, 5]
    assert frame["frequency"].tolist() == rows.frequencies.numpy().tolist()
    for name, wanted in (
        ("value", rows.rows),
        ("accumulator", rows.optimizer_slots["accumulator"]),
    ):
        np.testing.assert_array_equal(np.stack(frame[name]), wanted)


def test_to_arrow(rows):
    table = rows.to_arrow()
    assert table.schema.field("value").type == pa.list_(pa.float32(), 2)
    assert table["value"].to_pylist() == rows.rows.numpy().tolist()
    assert table["id"].to_pylist() == [-5, 0, 5]
    assert table.column_names == list(rows.to_pandas().columns)


def test_of_an_empty_table():
    rows = lodestar.EmbeddingVariable(3, name="e").export()
    assert len(rows.to_pandas()) == 0
    assert rows.to_arrow().num_rows == 0


def test_of_rows_that_were_made_by_hand():
    rows = lodestar.EmbeddingRows([7, 8], [[1, 2], [3, 4]])
    assert list(rows.to_pandas().columns) == ["id", "value"]
    assert rows.to_arrow()["value"].to_pylist() == [[1, 2], [3, 4]]


def test_bfloat16_becomes_float32():
    table = lodestar.EmbeddingVariable(
        2, name="half", dtype="bfloat16", embeddings_initializer="ones"
    )
    table.lookup([1], training=True)
    rows = table.export()
    assert rows.to_arrow()["value"].to_pylist() == [[1.0, 1.0]]
    assert rows.to_pandas()["value"][0].dtype == np.float32


def test_errors_name_the_package_to_install(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="needs pandas: pip install"):
        rows.to_pandas()


@pytest.mark.parametrize("name", ["values", "slots", "embeddings"])
def test_an_unknown_attribute_lists_the_fields(name):
    table = lodestar.EmbeddingVariable(2)
    for found in (table.export(), table.inspect([1])):
        with pytest.raises(AttributeError, match="fields are ids, rows, opt"):
            getattr(found, name)
        assert not hasattr(found, name)
        assert copy.deepcopy(found)._fields == found._fields
