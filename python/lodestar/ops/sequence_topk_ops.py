"""The op that finds the largest numbers of rows of uneven matrices."""

import tensorflow as tf

from lodestar._library import gen_ops

sequence_topk = gen_ops.lodestar_sequence_topk

tf.no_gradient("Lodestar>SequenceTopk")
