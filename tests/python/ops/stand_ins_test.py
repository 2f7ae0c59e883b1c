"""lodestar.ops.stand_ins: replaceable ops."""

import logging

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops.stand_ins import replaceable, stand_ins

VALUES, SPLITS = tf.constant([[1.0], [2.0]]), tf.constant([0, 2], tf.int64)


def test_a_traced_op_does_not_warn_about_missing_source(caplog):
    # A function of its own, because AutoGraph warns once per function.
    reverse = replaceable(gen_ops.lodestar_sequence_reverse)

    @tf.function
    def traced(values, splits):
        return reverse(values, splits)

    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.WARNING, logger.name):
            result = traced(VALUES, SPLITS)
    finally:
        logger.removeHandler(caplog.handler)
    assert result.numpy().tolist() == [[2], [1]]
    assert "AutoGraph could not transform" not in caplog.text


def test_a_replacement_is_called_inside_the_context():
    reverse = replaceable(gen_ops.lodestar_sequence_reverse)
    with stand_ins({reverse: lambda values, splits: values}):
        inside = reverse(VALUES, SPLITS)
    assert inside.numpy().tolist() == [[1], [2]]
    assert reverse(VALUES, SPLITS).numpy().tolist() == [[2], [1]]
