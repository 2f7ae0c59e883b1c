"""Compares Hogwild threads with `model.fit` on epochs of the click log.

Prints one JSON line per model with the examples per second of one thread, of
two, and of `model.fit`, reading included. It also prints the time per example
of all cores together, and how many cores were in use: if one thread leaves less
than half a core idle, two cannot be 1.5 times as fast. One model has 26 tables
of dimension 32 and sums their bags, the other a dense tower over small tables.
A further line has the AUC on a held-out file after an epoch of two threads and
of one thread.
"""

import functools
import statistics
import tempfile
import time

import keras
import numpy as np

import lodestar
from benchmarks import measure
from lodestar._data_tool.click_log import generate_click_log
from lodestar.data import open_dataset
from lodestar.paddle import train_from_dataset

BATCH_SIZE = 1024
TRAINED = 8  # number of files; one more is for the AUC


def make_model(schema, dim, tower):
    """Returns a model of tables of `dim` and dense layers of `tower` units."""
    keras.utils.set_random_seed(1)
    inputs = schema.inputs()
    features = {
        slot.name: lodestar.Feature(
            lodestar.EmbeddingVariable(dim, name=slot.name),
            combiner="sum",
        )
        for slot in schema.sparse
    }
    rows = lodestar.layers.EmbeddingCollection(features)(
        {name: inputs[name] for name in features}
    )
    numbers = [inputs[slot.name] for slot in schema.dense]
    if tower:
        x = keras.layers.Concatenate()([*rows.values(), *numbers])
        for units in tower:
            x = keras.layers.Dense(units, activation="relu")(x)
        logit = keras.layers.Dense(1)(x)
    else:
        x = keras.layers.Add()(list(rows.values()))
        logit = keras.layers.Dense(1)(x)
        logit += keras.layers.Dense(1)(keras.layers.Concatenate()(numbers))
    click = keras.layers.Activation("sigmoid")(logit)
    model = keras.Model(inputs, click)
    model.compile(
        lodestar.optimizers.Adagrad(0.05, initial_accumulator_value=1e-6),
        "binary_crossentropy",
    )
    return model


def report(work, model, data, examples, runs, wanted):
    """Times the sides in turn, after one untimed epoch of each."""

    def train(threads):
        train_from_dataset(model, data, threads, print_period=10**9)

    sides = {
        "one_thread": functools.partial(train, 1),
        "two_threads": functools.partial(train, 2),
        "fit": lambda: model.fit(data, verbose=0),
    }
    times = {side: [] for side in sides}
    for run in range(runs + 1):
        for side, one_pass in sides.items():
            of_cores = time.process_time()
            seconds = measure.seconds_of(one_pass)
            of_cores = time.process_time() - of_cores
            if run:
                times[side].append((seconds, of_cores))
    fields, median = {}, {}
    for side, taken in times.items():
        seconds, of_cores = map(statistics.median, zip(*taken, strict=True))
        median[side] = seconds
        fields |= {
            f"{side}_examples_per_second": round(examples / seconds),
            f"{side}_us_of_cores_per_example": round(
                1e6 * of_cores / examples, 2
            ),
            f"{side}_cores": round(of_cores / seconds, 2),
        }
    measure.print_line(
        work=work,
        **fields,
        ratio_to_one_thread=round(
            median["one_thread"] / median["two_threads"], 2
        ),
        ratio_to_fit=round(median["fit"] / median["two_threads"], 2),
        wanted=wanted,
        runs=runs,
    )


def report_auc(schema, data, test):
    """Compares the AUC after an epoch of two threads and of one."""
    labels = np.concatenate([label for _, label in test])
    found = {}
    for threads in (1, 2):
        model = make_model(schema, 8, (64, 32))
        train_from_dataset(model, data, threads, print_period=10**9)
        clicks = model.predict(test, verbose=0)
        auc = lodestar.metrics.BatchAUC(dtype="float64")
        found[threads] = float(auc(labels, clicks))
    measure.print_line(
        work="AUC after one pass of the click log",
        one_thread=round(found[1], 4),
        two_threads=round(found[2], 4),
        wanted="within 0.002",
    )


def main():
    """Prints one JSON line per model, and one of the AUC."""
    options = measure.arguments(__doc__)
    batches = 10 if options.small else 100  # per file
    samples = batches * BATCH_SIZE
    with tempfile.TemporaryDirectory() as folder:
        log = generate_click_log(folder, (TRAINED + 1) * samples, TRAINED + 1)
        schema = lodestar.data.Schema.load(log.schema_file)
        data = open_dataset(log.files[:TRAINED], schema, BATCH_SIZE)
        for work, num_files, dim, tower, wanted in (
            (
                "a pass where tables are the work",
                *(TRAINED, 32, ()),
                "1.5 of one thread, 1 of fit",
            ),
            (
                "a pass where the dense tower is the work",
                *(2, 8, (1024, 512, 256)),
                "1 of fit",
            ),
        ):
            model = make_model(schema, dim, tower)
            some = open_dataset(log.files[:num_files], schema, BATCH_SIZE)
            examples = num_files * samples
            report(work, model, some, examples, options.runs, wanted)
        test = open_dataset(log.files[TRAINED:], schema, 4096)
        report_auc(schema, data, test)


if __name__ == "__main__":
    main()
