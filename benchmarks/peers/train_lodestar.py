"""Lodestar's side in results.py."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import lodestar
from benchmarks.peers import train_keras, training


def _train(
    task: training.Task, clock: training.Clock, folder: Path, library: str
) -> training.Trained:
    keras.utils.set_random_seed(1)
    clock.open()
    data = lodestar.data.open_dataset(
        task.train,
        batch_size=task.batch_size,
        label=task.label,
        categorical=task.ids,
        numeric=task.numbers,
        verbose=False,
    )
    inputs = data.schema.inputs()
    embed = lodestar.layers.EmbeddingCollection(
        {name: lodestar.Feature(task.dim, combiner="sum") for name in task.ids}
    )
    rows = embed({name: inputs[name] for name in task.ids})
    parts = [*rows.values(), *(inputs[name] for name in task.numbers)]
    score = train_keras.dense_layers(task, keras.layers.Concatenate()(parts))
    model = keras.Model(inputs, score)
    model.compile(
        lodestar.optimizers.Adagrad(
            task.learning_rate,
            training.INITIAL_ACCUMULATOR,
            epsilon=training.EPSILON,
        ),
        "binary_crossentropy",
    )
    model.fit(
        data,
        epochs=task.epochs,
        shuffle=False,
        verbose=0,
        callbacks=[train_keras.FirstStep(clock)],
    )
    clock.trained()
    test = lodestar.data.open_dataset(task.test, data.schema, task.batch_size)
    scores = model.predict(test, verbose=0)[:, 0]
    lodestar.export.save(model, folder, "padded", padding_id=-1)
    stats = [feature.table.stats() for feature in embed.features.values()]
    num_rows = sum(table["rows"] for table in stats)
    return training.Trained(
        version=f"Lodestar (TensorFlow {tf.__version__})",
        scores=np.asarray(scores),
        table_rows=int(num_rows),
        bytes_per_row=float(sum(table["bytes"] for table in stats) / num_rows),
        export=folder,
        request=train_keras.exported_request(task, folder),
    )


if __name__ == "__main__":
    training.main(_train)
