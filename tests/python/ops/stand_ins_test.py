"""lodestar.ops.stand_ins: replaceable ops."""

import logging

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops.stand_ins import replaceable, stand_ins

VALUES, SPLITS = tf.constant([[1.0], [2.0]]), tf.constant([0, 2], tf.int64)


def test_a_traced_op_does_not_warn_about_missing_source(caplog):
    # A function of its own, because AutoGraph warns once per function.
    softmax = replaceable(gen_ops.lodestar_sequence_softmax)

    @tf.function
    def traced(values, splits):
        return softmax(values, splits)

    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.WARNING, logger.name):
            result = traced(VALUES, SPLITS)
    finally:
        logger.removeHandler(caplog.handler)
    assert result.numpy().shape == (2, 1)
    assert "AutoGraph could not transform" not in caplog.text


def test_a_replacement_is_called_inside_the_context():
    softmax = replaceable(gen_ops.lodestar_sequence_softmax)
    with stand_ins({softmax: lambda values, splits: values}):
        inside = softmax(VALUES, SPLITS)
    assert inside.numpy().tolist() == [[1], [2]]
    assert tf.reduce_max(softmax(VALUES, SPLITS)) < 1
