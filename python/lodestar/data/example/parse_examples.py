"""tf.Examples as the flat tensors of slots."""

from collections.abc import Collection, Iterator
from typing import Any

import tensorflow as tf

from lodestar import string_ids
from lodestar._library import gen_ops
from lodestar.data.schema import Column, Schema
from lodestar.data.schema_layout import dtype_of, limit


def parse_examples(
    spec: Schema,
    texts: Collection[str],
    names: tf.Tensor,
    examples: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """The flat tensors of the used slots, as SchemaLayout has them.

    Args:
        spec: The slots; each is the feature of its name.
        texts: The sparse slots of ids whose features are bytes, to be hashed.
        names: string `[B]`, what errors call the examples.
        examples: string `[B]`, serialized tf.Examples.

    Raises:
        tf.errors.InvalidArgumentError: One is not a tf.Example, or a feature is
            missing, of another type, or has a wrong value or number of values.
    """
    examples = gen_ops.lodestar_check_examples(names=names, examples=examples)
    features = {slot.name: _feature(slot, texts) for slot in spec.used}
    parsed = tf.io.parse_example(examples, features, example_names=names)
    checks = list(_checks(spec, parsed, names))
    with tf.control_dependencies(checks):
        return tuple(
            tensor
            for slot in spec.used
            for tensor in _tensors(slot, parsed[slot.name], texts)
        )


def _feature(slot: Column, texts: Collection[str]) -> Any:
    dtype = tf.string if slot.name in texts else dtype_of(slot)
    if slot.num_values is None:
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    shape = [1] if slot.kind == "label" else slot.shape
    return tf.io.FixedLenFeature(shape, dtype)


def _tensors(
    slot: Column, found: Any, texts: Collection[str]
) -> Iterator[tf.Tensor]:
    if slot.kind == "sparse":
        values = found.values
        if slot.name in texts:
            values = string_ids.hash_ids(values, column=slot.name)
        # Of one that runs before the checks, as it needs nothing else, TensorFlow
        # would make no error.
        yield tf.identity(values)
        yield tf.identity(found.row_splits)
    elif slot.num_values is None:
        # All of one size, as has been checked.
        size = tf.reduce_max(tf.concat([found.row_lengths(), [0]], 0))
        shape = [size // slot.multiple if d == -1 else d for d in slot.shape]
        yield tf.reshape(found.values, [found.nrows(), *shape])
    else:
        yield tf.identity(found)


def _checks(
    spec: Schema, parsed: dict[str, Any], names: tf.Tensor
) -> Iterator[tf.Operation]:
    for slot in spec.used:
        found = parsed[slot.name]
        if slot.kind in ("label", "one_hot") and limit(slot):
            values = tf.reshape(found, [-1])
            bad = (values < 0) | (values >= limit(slot))
            if slot.kind == "label":
                bad = (values != 0) & (values != 1)
            wanted = f"0 to {limit(slot) - 1}"
            yield _check(slot, names, bad, values, wanted)
        if slot.kind == "dense" and slot.num_values is None:
            lengths = found.row_lengths()
            bad = (lengths % slot.multiple != 0) | (lengths != lengths[:1])
            wanted = (
                f"values a multiple of {slot.multiple}, as many in all samples "
                "of a batch"
            )
            yield _check(slot, names, bad, lengths, wanted)
        of = slot.weights_of
        if of is not None and of in spec and spec[of].used:
            lengths = found.row_lengths()
            bad = lengths != parsed[of].row_lengths()
            wanted = f"weights, one for each id of {of}"
            yield _check(slot, names, bad, lengths, wanted)


def _check(
    slot: Column,
    names: tf.Tensor,
    bad: tf.Tensor,
    found: tf.Tensor,
    wanted: str,
) -> tf.Operation:
    where = tf.argmax(tf.concat([bad, [True]], 0), output_type=tf.int64)
    place = tf.minimum(where, tf.size(bad, out_type=tf.int64) - 1)
    place = tf.maximum(place, 0)
    text = tf.strings.join(
        [
            tf.strings.reduce_join(names[place : place + 1]),
            f": slot {slot.name}: found ",
            tf.strings.reduce_join(tf.as_string(found[place : place + 1])),
            f", wanted {wanted}",
        ]
    )
    return tf.debugging.Assert(tf.logical_not(tf.reduce_any(bad)), [text])
