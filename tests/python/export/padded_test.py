"""Tests of ragged inputs as padded dense tensors."""

import math

import export_models
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.export.padded import padded_parts

RAGGED = tf.RaggedTensorSpec([None, None], tf.int64)


def parts(spec, padding):
    return padded_parts("x", spec, padding)


def same(ragged, want):
    assert ragged.to_list() == want
    # The op library would refuse inconsistent parts.
    tf.debugging.assert_equal(
        ragged.nested_row_splits[-1][-1],
        tf.shape(ragged.flat_values, tf.int64)[0],
    )


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "dense, want",
    [
        ([[1, 2, 0], [0, 0, 0], [3, 4, 5]], [[1, 2], [], [3, 4, 5]]),
        # Before another value, 0 is an ordinary id.
        ([[0, 7, 0], [7, 0, 8]], [[0, 7], [7, 0, 8]]),
        (np.zeros((2, 0)), [[], []]),
        (np.zeros((0, 3)), []),
        (np.zeros((0, 0)), []),
    ],
)
def test_padding_at_the_end_is_removed(dense, want, graph):
    join = parts(RAGGED, 0).join
    if graph:
        join = tf.function(
            lambda p: parts(RAGGED, 0).join(p),
            input_signature=[[tf.TensorSpec([None, None], tf.int64)]],
        )
    same(join([tf.constant(dense, tf.int64)]), want)


def test_two_ragged_axes():
    spec = tf.RaggedTensorSpec([None, None, None], tf.int64, ragged_rank=2)
    dense = [
        [[1, 2], [3, 0], [0, 0]],
        # An empty row before a non-empty one is kept.
        [[0, 0], [4, 0], [0, 0]],
        [[0, 0], [0, 0], [0, 0]],
    ]
    same(
        parts(spec, 0).join([tf.constant(dense, tf.int64)]),
        [[[1, 2], [3]], [[], [4]], []],
    )
    for shape in ((0, 2, 2), (2, 0, 2), (2, 2, 0)):
        got = parts(spec, 0).join([tf.zeros(shape, tf.int64)])
        same(got, [[]] * shape[0])


def test_three_ragged_axes_round_trip(rng):
    spec = tf.RaggedTensorSpec([None] * 4, tf.int64, ragged_rank=3)
    rows = [
        [
            [
                rng.integers(1, 9, rng.integers(1, 4)).tolist()
                for _ in range(rng.integers(1, 4))
            ]
            for _ in range(rng.integers(1, 4))
        ]
        for _ in range(5)
    ]
    of_x = parts(spec, -1)
    ragged = tf.ragged.constant(rows, tf.int64, row_splits_dtype=tf.int64)
    same(of_x.join(of_x.split(ragged)), rows)


def test_an_axis_of_known_size_is_kept():
    spec = tf.RaggedTensorSpec([None, 2, None], tf.int64, ragged_rank=2)
    dense = tf.constant([[[1, 0], [0, 0]]], tf.int64)
    same(parts(spec, 0).join([dense]), [[[1], []]])
    assert parts(spec, 0).specs[""].shape.as_list() == [None, 2, None]


def test_vectors_are_padding_where_all_of_them_is():
    spec = tf.RaggedTensorSpec([None, None, 2], tf.float32, ragged_rank=1)
    dense = tf.constant([[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]])
    same(parts(spec, 0.0).join([dense]), [[[1.0, 0.0], [0.0, 2.0]]])


def test_text_and_nan():
    words = tf.RaggedTensorSpec([None, None], tf.string)
    same(
        parts(words, "-").join([tf.constant([["a", "-"], ["-", "b"]])]),
        [[b"a"], [b"-", b"b"]],
    )
    numbers = tf.RaggedTensorSpec([None, None], tf.float32)
    of_x = parts(numbers, math.nan)
    same(of_x.join([tf.constant([[1.0, math.nan]])]), [[1.0]])
    ragged = tf.ragged.constant(
        [[math.nan, 1.0], []], row_splits_dtype=tf.int64
    )
    same(of_x.join(of_x.split(ragged))[1:], [[]])


@pytest.mark.parametrize(
    "rows, spec, message",
    [
        (
            [[1], [2, 0]],
            RAGGED,
            r"Example 1 of the input 'x' cannot be padded: .* padding 0 or "
            r"in an empty row: \[2, 0\]",
        ),
        (
            [[[1], []]],
            tf.RaggedTensorSpec([None] * 3, tf.int64, ragged_rank=2),
            r"Example 0 of the input 'x' cannot be padded.* \[\[1\], \[\]\]",
        ),
    ],
)
def test_rows_without_a_padded_form(rows, spec, message):
    ragged = tf.ragged.constant(
        rows, tf.int64, ragged_rank=spec.ragged_rank, row_splits_dtype=tf.int64
    )
    with pytest.raises(ValueError, match=message):
        parts(spec, 0).split(ragged)


@pytest.mark.parametrize(
    "dtype, padding_id, message",
    [
        ("int64", None, r"`padding_id` must be the value .* inputs \['x'\]"),
        ("int64", {}, r"`padding_id` lacks the ragged input 'x'; it has \[\]"),
        (
            "int64",
            {"y": 0},
            "`padding_id` has 'y', which is not a ragged .*'x'",
        ),
        ("int64", "", "for the input 'x' of dtype int64 must be .* got ''"),
        ("int64", True, "'x' of dtype int64 must be an integer .* got True"),
        ("int64", 0.0, "'x' of dtype int64 must be an integer .* got 0.0"),
        ("int64", 2**63, r"9223372036854775807\], got 9223372036854775808"),
        ("string", 0, "'x' of dtype string must be a string, got 0"),
        ("float32", "", "for the input 'x' .* must be a number, got ''"),
    ],
)
def test_bad_padding_id(dtype, padding_id, message, tmp_path):
    x = keras.Input((None,), dtype=dtype, ragged=True, name="x")
    rows = lodestar.layers.DynamicEmbedding(2, combiner="sum")
    model = keras.Model(x, x if dtype == "float32" else rows(x))
    with pytest.raises(ValueError, match=message):
        lodestar.export.save(
            model, tmp_path / "s", "padded", padding_id=padding_id
        )
    with pytest.raises(ValueError, match="requires signature='padded'"):
        lodestar.export.save(model, tmp_path / "s", padding_id=0)
    assert not (tmp_path / "s").exists()


def test_padding_reads_as_no_id_when_served(tmp_path):
    m = export_models.ragged_model(embeddings_initializer="ones")
    m(tf.ragged.constant([[0, 1, 2]], tf.int64), training=True)
    lodestar.export.save(m, tmp_path / "s", "padded", padding_id=0)
    loaded = tf.saved_model.load(str(tmp_path / "s"))
    serve = loaded.signatures["serving_default"]
    got = serve(x=tf.constant([[1, 2, 0], [0, 1, 0], [0, 0, 0]], tf.int64))
    np.testing.assert_array_equal(got["output_0"], [[2, 2], [2, 2], [0, 0]])


def test_rows_of_one_length_but_no_rows():
    ragged = tf.RaggedTensor.from_tensor(tf.zeros([0, 3], tf.int64))
    form = parts(RAGGED, 0)
    (dense,) = form.split(ragged)
    assert dense.shape[0] == 0
    same(form.join([dense]), [])
