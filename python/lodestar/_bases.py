"""Classes of TensorFlow and Keras that public classes derive from.

TensorFlow and Keras have no types, so for mypy a class that derives from one of
theirs would have every attribute and take every argument. `_bases.pyi` declares
what these classes have.
"""

import keras
import tensorflow as tf

Callback = keras.callbacks.Callback
Dataset = tf.data.Dataset
EarlyStopping = keras.callbacks.EarlyStopping
ExtensionType = tf.experimental.ExtensionType
Layer = keras.layers.Layer
LossScaleOptimizer = keras.optimizers.LossScaleOptimizer
Metric = keras.metrics.Metric
Optimizer = keras.optimizers.Optimizer
TensorBoard = keras.callbacks.TensorBoard
TrackableResource = tf.saved_model.experimental.TrackableResource
Variable = keras.Variable
