"""The op that drops tokens of sequences."""

import tensorflow as tf

from lodestar._library import gen_ops

sequence_erase = gen_ops.lodestar_sequence_erase

tf.no_gradient("Lodestar>SequenceErase")
