"""lodestar.ragged.batch."""

import pytest
import tensorflow as tf

import lodestar
from lodestar import LoDTensor


def dataset(lists, num_levels=1):
    xs = [LoDTensor.from_nested_lists(x, tf.float32, num_levels) for x in lists]
    return tf.data.Dataset.from_generator(
        lambda: iter(xs),
        output_signature=LoDTensor.Spec([None], tf.float32, num_levels),
    )


ELEMENTS = [[[1.0], [2.0, 3.0]], [], [[]], [[4.0]], [[5.0], [], [6.0]]]


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_elements_become_units_of_a_new_level(drop_remainder):
    batches = dataset(ELEMENTS).apply(lodestar.ragged.batch(2, drop_remainder))
    assert isinstance(batches.element_spec, LoDTensor.Spec)
    got = [x.to_list() for x in batches]
    want = [ELEMENTS[:2], ELEMENTS[2:4], ELEMENTS[4:]]
    assert got == want[: 2 if drop_remainder else 3]


def test_two_levels():
    elements = [[[[1.0], []], []], [], [[[2.0, 3.0]]]]
    batches = dataset(elements, 2).apply(lodestar.ragged.batch(3))
    (x,) = batches
    assert (x.num_levels, x.to_list()) == (3, elements)


@pytest.mark.parametrize("kind", ["dict", "tuple"])
def test_other_parts_are_batched_as_ever(kind):
    labels = tf.data.Dataset.range(5)
    both = tf.data.Dataset.zip((dataset(ELEMENTS), labels))
    if kind == "dict":
        both = both.map(lambda x, y: {"x": x, "y": y})
    batches = both.apply(lodestar.ragged.batch(5))
    (batch,) = batches
    x, y = batch.values() if kind == "dict" else batch
    assert x.to_list() == ELEMENTS
    assert y.numpy().tolist() == [0, 1, 2, 3, 4]


def test_a_tensor_without_levels_is_refused():
    plain = tf.data.Dataset.from_tensors(LoDTensor([1.0], ()))
    with pytest.raises(ValueError, match="has no level; batch its values by"):
        plain.apply(lodestar.ragged.batch(2))
