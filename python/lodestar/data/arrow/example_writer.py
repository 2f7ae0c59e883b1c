"""ExampleWriter: samples to TFRecord files of tf.Example."""

import itertools
import os

import numpy as np
import tensorflow as tf

from lodestar.data.sample_columns import ColumnValues
from lodestar.data.sample_writer import SampleWriter, as_int64
from lodestar.schema import Column

_NUMBERS = itertools.count()


class ExampleWriter(SampleWriter):
    """Writes TFRecord files of tf.Example.

    Each column is the feature of its name: a list of floats if its dtype is
    `"float"`, else of int64.

    >>> schema = Schema([Column.label("click"), Column.sparse("C1")])
    >>> with ExampleWriter("a.tfrecord", schema) as writer:
    ...     writer.write({"click": 1, "C1": [7, 8]})
    """

    def _check_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        if slot.dtype == "float":
            return self._narrow(slot, column)
        return column._replace(values=as_int64(column.values))

    def _put(self, columns: list[ColumnValues], begin: int, end: int) -> None:
        # TensorFlow writes framed records with their checksums only to files.
        path = f"ram://lodestar-{os.getpid()}-{next(_NUMBERS)}"
        with tf.io.TFRecordWriter(path) as writer:
            for row in range(begin, end):
                writer.write(self._example(columns, row))
        with tf.io.gfile.GFile(path, "rb") as file:
            data = file.read()
        tf.io.gfile.remove(path)
        self._file.write(data)

    def _example(self, columns: list[ColumnValues], row: int) -> bytes:
        example = tf.train.Example()
        for slot, (values, splits) in zip(self._spec, columns):
            found = np.asarray(values[splits[row] : splits[row + 1]]).tolist()
            feature = example.features.feature[slot.name]
            if slot.dtype == "float":
                feature.float_list.value.extend(found)
            else:
                feature.int64_list.value.extend(found)
        return example.SerializeToString(deterministic=True)
