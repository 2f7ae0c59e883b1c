"""Tests of tables in a Keras variable store."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.embedding import table_store


def trained(count):
    t = lodestar.EmbeddingVariable(2, name="stored")
    ids = np.arange(count) * 3 - 5
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(t.lookup(ids, training=True) ** 2)
    lodestar.optimizers.Adam().apply([tape.gradient(loss, t)], [t])
    return t


@pytest.mark.parametrize("count", [0, 1, 7, 8])
@pytest.mark.parametrize("chunk_bytes", [1, 4 * 2 * 3 * 4, 1 << 20])
def test_round_trip(count, chunk_bytes, monkeypatch):
    monkeypatch.setattr(table_store, "_CHUNK_BYTES", chunk_bytes)
    a = trained(count)
    store = {}
    table_store.save_table(a, store, "p_")
    assert all(k.startswith("p_") for k in store)
    largest = max(v.nbytes for k, v in store.items() if k != "p_header")
    assert largest <= max(chunk_bytes, 256)
    b = lodestar.EmbeddingVariable(2, name="another")
    b.lookup([10**9], training=True)
    table_store.load_table(b, store, "p_")
    for name, want in a._export_all().items():
        np.testing.assert_array_equal(b._export_all()[name], want, name)


def test_another_dim_is_refused():
    store = {}
    table_store.save_table(trained(2), store)
    with pytest.raises(ValueError, match="saved table has dim 2"):
        table_store.load_table(lodestar.EmbeddingVariable(3, name="x"), store)


def test_a_store_has_all_tables_or_none():
    store = {}
    for count in (2, 3, 4):
        table_store.save_table(trained(count), store, f"{count}_")
    tables = [
        trained(1),
        trained(0),
        lodestar.EmbeddingVariable(
            2, name="small", eviction=lodestar.MaxRows(3)
        ),
    ]
    before = [table._export_all() for table in tables]
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="`max_rows` of the table is 3"
    ):
        table_store.load_tables(tables, store, ["2_", "3_", "4_"])
    for table, all_of_it in zip(tables, before, strict=True):
        for name, want in all_of_it.items():
            np.testing.assert_array_equal(table._export_all()[name], want, name)
    table_store.load_tables(tables[:2], store, ["2_", "3_"])
    assert [int(table.size()) for table in tables] == [2, 3, 0]


@pytest.mark.parametrize(
    "name, value",
    [
        ("ids_0", None),
        ("slot_inits_0", None),
        ("header", np.frombuffer(b'{"dim": 2, "dtype": "float32"}', np.uint8)),
    ],
)
def test_a_damaged_store(name, value):
    store = {}
    table_store.save_table(trained(3), store)
    del store[name]
    if value is not None:
        store[name] = value
    table = trained(1)
    with pytest.raises(ValueError, match="table for <.*'stored'.* is damaged"):
        table_store.load_table(table, store)
    assert table.size() == 1
