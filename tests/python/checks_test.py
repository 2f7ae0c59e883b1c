"""lodestar._checks: masked arrays, whose mask TensorFlow drops."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._checks import check_texts, check_unmasked
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
    "buckets": lambda _, ids: lodestar.lookup.IdTable(
        [1, 2, 3], num_oov_buckets=2
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
