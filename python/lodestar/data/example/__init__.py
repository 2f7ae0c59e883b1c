"""TFRecord files of tf.Example."""
