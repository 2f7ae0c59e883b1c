"""Writes and opens TFRecord files of tf.Examples for tests."""

import tensorflow as tf

from lodestar.data import open_dataset


def open_examples(files, schema, batch_size=4, **options):
    """Opens TFRecord files, also those whose first record is empty."""
    return open_dataset(files, schema, batch_size, format="tfrecord", **options)


def feature(values):
    """Returns a feature of bytes, floats or integers, depending on the values."""
    values = values if isinstance(values, list) else [values]
    if not values:
        return tf.train.Feature()
    if any(isinstance(v, (bytes, str)) for v in values):
        values = [v.encode() if isinstance(v, str) else v for v in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if any(isinstance(v, float) for v in values):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def sequence(context, **lists):
    """Returns a tf.SequenceExample; each feature list is a list of steps."""
    features = {name: feature(value) for name, value in context.items()}
    steps = {
        name: tf.train.FeatureList(feature=map(feature, values))
        for name, values in lists.items()
    }
    return tf.train.SequenceExample(
        context=tf.train.Features(feature=features),
        feature_lists=tf.train.FeatureLists(feature_list=steps),
    ).SerializeToString()


def records(path, *examples):
    """Writes records, given as dicts of features or as bytes; returns the path."""
    with tf.io.TFRecordWriter(str(path)) as out:
        for example in examples:
            if not isinstance(example, bytes):
                features = {k: feature(v) for k, v in example.items()}
                example = tf.train.Example(
                    features=tf.train.Features(feature=features)
                ).SerializeToString()
            out.write(example)
    return path
