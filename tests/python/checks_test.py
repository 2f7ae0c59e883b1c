"""lodestar._checks: masked arrays, whose mask TensorFlow drops."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._checks import (
    after,
    assert_true,
    check_texts,
    check_unmasked,
)
from lodestar.data import Column
from lodestar.paddle.multislot_writer import MultiSlotWriter

MASKED = np.ma.masked_array([1, 2, 3], [False, True, False])
WHOLE = np.ma.masked_array([1, 2, 3], False)


def _write(folder, ids):
    schema = [Column.label("y"), Column.sparse("ids")]
    with MultiSlotWriter(folder / "out.txt", schema) as writer:
        writer.write({"y": 1, "ids": ids})
        writer.write_batch({"y": [1], "ids": (ids, [0, 3])})


USES = {
    "table": lambda _, ids: lodestar.EmbeddingVariable(2).lookup(ids),
    "inspected": lambda _, ids: lodestar.EmbeddingVariable(2).inspect(ids),
    "removed": lambda _, ids: lodestar.EmbeddingVariable(2).remove(ids),
    "layer": lambda _, ids: lodestar.layers.DynamicEmbedding(2)(ids),
    "weights": lambda _, ids: lodestar.layers.DynamicEmbedding(
        2, combiner="sum"
    )(tf.constant([[1, 2, 3]]), weights=ids.astype("float32")[np.newaxis]),
    "collection": lambda _, ids: lodestar.layers.EmbeddingCollection({"a": 2})(
        {"a": ids}
    ),
    "hash": lambda _, ids: lodestar.hash_ids(ids.astype("S")),
    "id table": lambda _, ids: lodestar.lookup.IdTable([1, 2, 3]).lookup(ids),
    "keys": lambda _, ids: lodestar.lookup.IdTable(ids),
    "values": lambda _, ids: lodestar.lookup.IdTable([4, 5, 6], ids),
    "buckets": lambda _, ids: lodestar.lookup.index_table_from_tensor(
        [1, 2, 3], 2
    ).lookup(ids),
    "id lookup": lambda _, ids: lodestar.layers.IdLookup(
        [1, 2, 3], vocabulary_dtype="int64"
    )(ids),
    "adapt": lambda _, ids: lodestar.layers.IdLookup(
        vocabulary_dtype="int64"
    ).adapt(ids),
    "lod": lambda _, ids: lodestar.ragged.LoDTensor(ids, [[0, 3]]),
    "writer": _write,
}


@pytest.mark.parametrize("use", USES)
def test_masked_values_are_refused(tmp_path, use):
    USES[use](tmp_path, WHOLE)
    with pytest.raises(ValueError, match="masked array, and 1 of its 3 values"):
        USES[use](tmp_path, MASKED)


def test_masked_rows_of_a_list_are_refused():
    with pytest.raises(ValueError, match="^`x` is a masked array"):
        check_unmasked("x", [WHOLE, MASKED])


@pytest.mark.parametrize("texts", ["a", ["a", 1], 3, [None], iter("a")])
def test_lists_of_strings(texts):
    check_texts(names=["a"], others=("b",), none=None, some={"c"})
    with pytest.raises(ValueError, match="^`names` must be a list of strings"):
        check_texts(names=texts)


def refused(check):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        check()
    return caught.value.message


def test_an_eager_check_has_its_own_message():
    def check(*message):
        return refused(lambda: assert_true(tf.constant(False), message))

    assert check("`x` must be 1, got", tf.constant([2, 3])) == (
        "`x` must be 1, got 2, 3"
    )
    assert (
        check("got", tf.range(4), "in", tf.constant("é"))
        == "got 0, 1, 2, ... in é"
    )
    assert assert_true(tf.constant(True), ["no"]) is None


def test_a_check_in_a_graph_is_an_op():
    @tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
    def at_least_1(x):
        return after(assert_true(x > 0, ["`x` must be at least 1, got", x]), x)

    assert at_least_1(2) == 2
    message = refused(lambda: at_least_1(0))
    assert "[`x` must be at least 1, got] [0]" in message


CHECKS_OF_TENSORS = {
    "[0, 10), got 10": lambda: lodestar.layers.DynamicEmbedding(2, ids=(0, 10))(
        np.array([[3, 10]])
    ),
    "[0, 3), got 5": lambda: lodestar.ragged.csr_to_sparse([7], [5], [0, 1], 3),
    "a row has a column twice; rows and columns: 0, 1": lambda: (
        lodestar.ragged.csr_to_sparse([7, 8], [1, 1], [0, 2], 3)
    ),
    "out of its dense_shape": lambda: lodestar.EmbeddingVariable(2).lookup(
        tf.SparseTensor([[0, 3]], [1], [1, 2]), combiner="sum"
    ),
}


@pytest.mark.parametrize("message", CHECKS_OF_TENSORS)
def test_eager_errors_are_not_decorated(message):
    error = refused(CHECKS_OF_TENSORS[message])
    assert message in error and "Summarized data" not in error
