"""The op that says where numbers of sequences go in a matrix."""

import tensorflow as tf

from lodestar._library import gen_ops

sequence_scatter_places = gen_ops.lodestar_sequence_scatter_places

tf.no_gradient("Lodestar>SequenceScatterPlaces")
