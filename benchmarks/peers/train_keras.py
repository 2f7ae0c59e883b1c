"""The side of `keras.layers.Embedding` in results.py.

Each column has an `Embedding` behind a `StringLookup` or `IntegerLookup`, which
`adapt` to the training file, or behind a `Hashing` layer.
"""

from pathlib import Path

import keras
import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf

from benchmarks.peers import training


class FirstStep(keras.callbacks.Callback):
    """Notes the end of the first step."""

    def __init__(self, clock: training.Clock):
        super().__init__()
        self._clock = clock

    def on_train_batch_end(self, batch, logs=None):
        """Notes the end of a step."""
        self._clock.step()


def dense_layers(task: training.Task, x):
    """Returns the score of the concatenated rows and numbers `x`."""
    for i, (kernel, bias) in enumerate(task.first_weights()):
        last = i == len(task.units)
        layer = keras.layers.Dense(
            len(bias), activation="sigmoid" if last else "relu"
        )
        x = layer(x)
        layer.set_weights([kernel, bias])
    return x


def exported_request(task: training.Task, folder: Path):
    """Returns a function of a row that calls the signature of a SavedModel."""
    served = tf.saved_model.load(str(folder))
    signature = served.signatures["serving_default"]
    inputs = signature.structured_input_signature[1]

    def value(row, name):
        if name == "numbers":
            return [[row[number] for number in task.numbers]]
        return [row[name]] if inputs[name].shape.rank == 1 else [[row[name]]]

    def request(row):
        fed = {
            name: tf.constant(value(row, name), spec.dtype)
            for name, spec in inputs.items()
        }
        (score,) = signature(**fed).values()
        return float(score[0, 0])

    request.served = served  # keeps its variables
    return request


def _column(task: training.Task, name: str):
    """Returns the input of a column, its rows, and the size of its table."""
    is_string = pq.read_schema(task.train).field(name).type == "string"
    x = keras.Input((), dtype="string" if is_string else "int64", name=name)
    layers = keras.layers
    if task.buckets:
        lookup, size = layers.Hashing(task.buckets), task.buckets
    else:
        lookup = layers.StringLookup() if is_string else layers.IntegerLookup()
        lookup.adapt(pq.read_table(task.train, columns=[name])[name].to_numpy())
        size = lookup.vocabulary_size()
    return x, layers.Embedding(size, task.dim)(lookup(x)), size


def _train(
    task: training.Task, clock: training.Clock, folder: Path, library: str
) -> training.Trained:
    keras.utils.set_random_seed(1)
    clock.open()
    inputs, rows, sizes = zip(*(_column(task, name) for name in task.ids))
    inputs, rows = list(inputs), list(rows)
    if task.numbers:
        inputs.append(keras.Input((len(task.numbers),), name="numbers"))
        rows.append(inputs[-1])
    score = dense_layers(task, keras.layers.Concatenate()(rows))
    model = keras.Model({x.name: x for x in inputs}, score)
    model.compile(
        keras.optimizers.Adagrad(
            task.learning_rate,
            training.INITIAL_ACCUMULATOR,
            epsilon=training.EPSILON,
        ),
        "binary_crossentropy",
    )
    features = {
        x.name: tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in inputs
    }
    label = tf.TensorSpec((None, 1), tf.float32)

    def data(path):
        return tf.data.Dataset.from_generator(
            lambda: task.arrays(path), output_signature=(features, label)
        ).prefetch(1)

    model.fit(
        data(task.train),
        epochs=task.epochs,
        shuffle=False,
        verbose=0,
        callbacks=[FirstStep(clock)],
    )
    clock.trained()
    scores = model.predict(data(task.test), verbose=0)[:, 0]
    model.export(folder, verbose=False)
    return training.Trained(
        version=f"Keras {keras.__version__} (TensorFlow {tf.__version__})",
        scores=np.asarray(scores),
        table_rows=sum(sizes),
        bytes_per_row=2 * 4 * task.dim,  # and its accumulator
        export=folder,
        request=exported_request(task, folder),
    )


if __name__ == "__main__":
    training.main(_train)
