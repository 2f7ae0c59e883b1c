"""Times steps of the wide-and-deep example, fed by a reader or from memory.

Prints one JSON line per format: milliseconds of a step with one batch in
memory, with the reader at `prefetch=0` (a batch is made when the step asks for
it) and at `prefetch=1` (while the previous step runs), and of reading alone.
"""

import functools
import itertools
import statistics
import tempfile

import keras
import tensorflow as tf

import lodestar
from benchmarks import measure
from examples.wide_deep import model as wide_deep
from lodestar._data_tool.click_log import generate_click_log
from lodestar.data import Schema, open_dataset, open_writer

BATCH_SIZE = 1024
# Maximum time of a step with a reader, relative to a batch in memory.
WANTED = 1.05


# Raw has one id per slot, so its steps are shorter.
FORMATS = ("multislot", "norm", "raw", "parquet")


def training_step(schema):
    """Returns a step of the example's model on (features, label)."""
    numbers = sum(slot.num_values for slot in schema.dense)
    tables = wide_deep.dynamic_tables(seed=0)
    lookups = wide_deep.dynamic_lookups(schema, *tables)
    model = wide_deep.wide_and_deep(
        schema, *lookups, mean=[0.0] * numbers, variance=[1.0] * numbers
    )
    optimizer = lodestar.optimizers.Adagrad(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def step(features, label):
        with tf.GradientTape() as tape:
            click = model(features, training=True)
            loss = tf.reduce_mean(
                keras.losses.binary_crossentropy(label, click)
            )
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return step


def milliseconds(step, elements, steps):
    """Returns the time of each of `steps` steps, including the wait for its batch."""

    def run():
        for _ in range(steps):
            loss = step(*next(elements))
        loss.numpy()

    return measure.seconds_of(run) / steps * 1e3


def report(name, log, steps, runs):
    """Times the sides in turn, after one untimed round."""
    schema = Schema.load(log.schema_file)
    read = functools.partial(
        open_dataset, log.files, schema, BATCH_SIZE, format=name
    )
    options = {"drop_remainder": True, "repeat": None}
    ahead = read(prefetch=1, **options)
    kept = itertools.repeat(next(iter(ahead)))
    step = training_step(schema)
    sides = {
        "kept_batch": (step, kept),
        "prefetch_0": (step, iter(read(prefetch=0, **options))),
        "prefetch_1": (step, iter(ahead)),
        "reading_alone": (
            lambda features, label: label,
            iter(read(prefetch=0, **options)),
        ),
    }
    # Adds all rows first: new ids cost time on every side.
    for features, label in read(prefetch=1):
        step(features, label)
    times = {side: [] for side in sides}
    for run in range(runs + 1):
        for side, (function, elements) in sides.items():
            taken = milliseconds(function, elements, steps)
            if run:
                times[side].append(taken)
    medians = {side: statistics.median(taken) for side, taken in times.items()}
    measure.print_line(
        work=f"wide_deep step of {BATCH_SIZE}, {name}",
        **{f"{side}_ms": round(ms, 3) for side, ms in medians.items()},
        **{
            f"{side}_ratio": round(medians[side] / medians["kept_batch"], 3)
            for side in ("prefetch_0", "prefetch_1")
        },
        wanted=f"prefetch_1_ratio <= {WANTED}",
        runs=runs,
    )


def main():
    """Prints one JSON line per format."""
    options = measure.arguments(__doc__, works=list(FORMATS))
    samples, steps = (20_000, 8) if options.small else (200_000, 32)
    for name in options.works:
        with tempfile.TemporaryDirectory() as folder:
            log = generate_click_log(
                folder,
                samples,
                one_id=name == "raw",
                writer=functools.partial(open_writer, format=name),
                suffix=f".{name}",
            )
            report(name, log, steps, options.runs)


if __name__ == "__main__":
    main()
