"""Rows that a table stores in fewer bits for serving."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._library import gen_ops
from lodestar.embedding import saved_state, stored_rows

ROW_DTYPES = ("float32", "float16", "bfloat16")


def reference(rows, dtype):
    """Returns rows as read after they were stored as `dtype`, in float64."""
    if dtype != "int8":
        small = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
        return rows.astype(np.float32).astype(small).astype(np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    tiny = np.finfo(np.float32).tiny
    scales = np.maximum((largest / 127).astype(np.float32), tiny)
    scales = np.where(largest < tiny, 0, scales)
    numbers = np.rint(rows / np.where(scales == 0, 1, scales))
    return np.clip(numbers, -127, 127) * scales.astype(np.float64)


def random_rows(rng, shape):
    rows = rng.normal(size=shape).astype(np.float32)
    return rows * np.exp(rng.normal(size=(shape[0], 1)) * 3).astype(np.float32)


@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (70, 3), (9, 32), (5, 300)])
@pytest.mark.parametrize("dtype", stored_rows.DTYPES)
@pytest.mark.parametrize("in_graph", [False, True])
def test_decode_reverts_encode(shape, dtype, in_graph, rng):
    rows = random_rows(rng, shape)

    def both(rows):
        stored = stored_rows.encode(rows, dtype, "rows")
        return stored, stored_rows.decode(stored, rows.dtype)

    if in_graph:
        spec = tf.TensorSpec([None, None], tf.float32)
        both = tf.function(both, input_signature=[spec])
    stored, got = both(tf.constant(rows))
    assert stored.dtype == dtype
    assert stored.shape[1] == shape[1] + (4 if dtype == "int8" else 0)
    want = reference(rows, dtype)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("dtype", stored_rows.DTYPES)
def test_rows_are_encoded_in_pieces(dtype, rng, monkeypatch):
    rows = tf.constant(random_rows(rng, (10, 3)))
    want = stored_rows.encode(rows, dtype, "rows")
    for piece in (1, 3, 5, 10):
        monkeypatch.setattr(stored_rows, "_CHUNK", piece)
        np.testing.assert_array_equal(
            stored_rows.encode(rows, dtype, "rows"), want
        )
    bad = tf.concat([rows, [[np.inf, 0, 0]]], 0)
    monkeypatch.setattr(stored_rows, "_CHUNK", 3)
    if dtype == "int8":
        with pytest.raises(ValueError, match="not finite"):
            stored_rows.encode(bad, dtype, "rows")


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("float16", 1e5, "r has the number 100000.0, which float16 cannot"),
        ("float16", -1e5, "r has the number -100000.0, which float16 cannot"),
        ("bfloat16", 3.4e38, "r has the number .*, which bfloat16 cannot"),
        ("int8", np.inf, "r has a number that is not finite"),
        ("int8", np.nan, "r has a number that is not finite"),
        ("int8", 3.4028235e38, "r has a number that is .* too large for int8"),
    ],
)
def test_numbers_out_of_range(dtype, value, message):
    with pytest.raises(ValueError, match=message):
        stored_rows.encode(tf.constant([[1.0, value]]), dtype, "r")


TINY = 2.0**-126


@pytest.mark.parametrize(
    ("dtype", "row", "number"),
    [
        ("float16", [2e-8, -5e-8], "5e-08"),
        ("float16", [1e-40, 0], "9.99995e-41"),
        ("bfloat16", [1e-40, 0], "9.99995e-41"),
        ("int8", [-1e-40, 1e-45], "9.99995e-41"),
        ("int8", [TINY / 2, 0], "5.87747e-39"),
    ],
)
def test_a_row_that_would_read_as_zeros(dtype, row, number):
    rows = tf.constant([[0.0, 0.0], row, [1.0, 2.0]])
    with pytest.raises(
        ValueError,
        match=f"r has a row whose largest number is {number}, which {dtype} would "
        "read as 0. Use dtype=None",
    ):
        stored_rows.encode(rows, dtype, "r")
    # Beside a larger number it is rounded.
    rows = tf.constant([[*row, 1.0]])
    got = stored_rows.decode(stored_rows.encode(rows, dtype, "r"), tf.float32)
    np.testing.assert_allclose(got, rows, atol=1 / 254)


@pytest.mark.parametrize(
    "largest", [3.4e38, 1e-30, 2e-36, 1e-37, 1.5 * TINY, TINY]
)
@pytest.mark.parametrize("dtype", stored_rows.DTYPES)
def test_the_largest_and_smallest_rows(dtype, largest):
    if dtype == "float16" or (dtype == "bfloat16" and largest > 1):
        pytest.skip("not in its range")
    rows = tf.constant([[largest, -largest, largest / 3]])
    atol = max(largest / 127, TINY) / 2 * 1.0001
    ids = tf.constant([7], tf.int64)
    handle = table_stored_as(dtype, 3)
    gen_ops.lodestar_embedding_insert_or_assign(handle, ids, rows)
    exported = stored_rows.decode(
        stored_rows.encode(rows, dtype, "r"), tf.float32
    )
    for got in (exported, read(handle, ids, 3)):
        np.testing.assert_allclose(got, rows, rtol=0, atol=atol)
        assert np.all(got.numpy()[:, :2] != 0)


@pytest.mark.parametrize(
    ("row", "want"),
    [
        ([3.4028235e38, 1.0], [np.nan, np.nan]),
        ([1.0, np.inf], [np.nan, np.nan]),
        ([1e-40, -1e-39], [0, 0]),
    ],
)
def test_a_table_that_follows_snapshots_takes_any_row(row, want):
    ids = tf.constant([7], tf.int64)
    handle = table_stored_as("int8", 2)
    gen_ops.lodestar_embedding_insert_or_assign(handle, ids, [row])
    np.testing.assert_array_equal(read(handle, ids, 2), [want])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_that_are_not_finite_stay(dtype):
    rows = tf.constant([[np.inf, -np.inf, np.nan]])
    got = stored_rows.decode(stored_rows.encode(rows, dtype, "r"), tf.float32)
    np.testing.assert_array_equal(got, rows)


def table_stored_as(dtype, dim, row_dtype="float32"):
    """Returns the handle of an empty table."""
    return gen_ops.lodestar_embedding_variable(
        dim=dim, dtype=tf.as_dtype(row_dtype), stored_as=dtype
    )


def read(handle, ids, dim, row_dtype="float32"):
    rows, found = gen_ops.lodestar_embedding_find(
        handle, tf.zeros([0, dim], row_dtype), ids, tf.zeros([0], row_dtype)
    )
    assert tf.reduce_all(found)
    return rows


@pytest.mark.parametrize("dim", [1, 3, 32, 257])
@pytest.mark.parametrize(
    ("dtype", "row_dtype"),
    [
        (dtype, row_dtype)
        for dtype in stored_rows.DTYPES
        for row_dtype in ROW_DTYPES
        if stored_rows.is_smaller(dtype, tf.as_dtype(row_dtype))
    ],
)
def test_tables_store_rows_as_the_reference(dtype, row_dtype, dim, rng):
    rows = tf.cast(random_rows(rng, (40, dim)), row_dtype)
    ids = tf.range(40, dtype=tf.int64) * 2**55
    handle = table_stored_as(dtype, dim, row_dtype)
    gen_ops.lodestar_embedding_insert_or_assign(handle, ids, rows)
    got = read(handle, ids, dim, row_dtype)
    assert got.dtype == row_dtype
    want = tf.cast(
        reference(tf.cast(rows, tf.float64).numpy(), dtype), got.dtype
    )
    rtol = 0.01 if got.dtype.size == 2 else 1e-6
    np.testing.assert_allclose(
        tf.cast(got, tf.float64), tf.cast(want, tf.float64), rtol=rtol
    )
    # Stored again, they stay the same.
    again = table_stored_as(dtype, dim, row_dtype)
    gen_ops.lodestar_embedding_insert_or_assign(again, ids, got)
    np.testing.assert_allclose(
        tf.cast(read(again, ids, dim, row_dtype), tf.float64),
        tf.cast(got, tf.float64),
        rtol=rtol,
    )


def test_such_tables_cannot_be_trained():
    handle = table_stored_as("int8", 2)
    ids = tf.constant([1], tf.int64)
    gen_ops.lodestar_embedding_insert_or_assign(handle, ids, [[1.0, 2.0]])
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="stored as int8 for serving"
    ):
        gen_ops.lodestar_embedding_find_or_insert(
            handle, tf.zeros([0, 2]), ids, tf.zeros([0])
        )
    np.testing.assert_allclose(read(handle, ids, 2), [[1, 2]], atol=0.01)


def test_rows_that_are_no_larger_are_refused():
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="`stored_as` is 'bfloat16', but the rows are float16",
    ):
        table_stored_as("bfloat16", 2, "float16")


def test_only_serving_stores_fewer_bits():
    table = lodestar.EmbeddingVariable(2, name="t")
    assert saved_state.stored_dtype(table._row_dtype) is None
    with saved_state.for_serving("int8"):
        assert saved_state.stored_dtype(table._row_dtype) == "int8"
        assert saved_state.stored_dtype(tf.bfloat16) == "int8"
    with saved_state.for_serving("float16"):
        assert saved_state.stored_dtype(tf.bfloat16) is None
    assert saved_state.stored_dtype(table._row_dtype) is None
