"""Trains, evaluates, exports and serves a wide-and-deep click model.

bazel run //examples:wide_deep                  on a generated click log
bazel run //examples:wide_deep -- FILES         on your own examples
"""

import os

# Before TensorFlow is imported, so that its runtime does not log to users.
os.environ.setdefault("LODESTAR_QUIET_START", "1")

import lodestar  # noqa: E402

# isort: split
import pathlib  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import types  # noqa: E402

import keras  # noqa: E402
import model as models  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from dense_table import DenseTable, vocabulary  # noqa: E402
from options import parse  # noqa: E402
from prepared import PreparedData, prepare  # noqa: E402

from lodestar._command_line import INPUT_ERRORS  # noqa: E402
from lodestar.data import DataError  # noqa: E402
from lodestar.metrics import BatchAUC  # noqa: E402

# Changing one of these would change the training.
_SETTINGS = ("batch_size", "keep_order", "learning_rate")
_SHUFFLED_ROWS = 1 << 16
# For two ways to run the same arithmetic.
_TOLERANCE = 1e-5


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    # `bazel run` changes the working directory.
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    options = parse(arguments)

    return lodestar._command_line.run(
        "wide_deep",
        lambda: run(options),
        # Any other ValueError is a bug of the program.
        errors=(*INPUT_ERRORS, lodestar.snapshot.SnapshotError),
        interrupted="\nInterrupted. The same command resumes from the last "
        f"checkpoint in {options.output}, if there is one.",
    )


def run(options: types.SimpleNamespace) -> int:
    """Runs the steps that the options select; returns the exit code."""
    # As with TensorFlow's other log: this program logs what matters.
    tf.get_logger().setLevel("ERROR")
    keras.utils.set_random_seed(options.seed)
    data = data_of(options)
    schema = data.schema
    print(schema)
    ordered = options.keep_order or options.data is None
    batches = data.train_dataset(
        options.batch_size,
        shuffle=0 if ordered else _SHUFFLED_ROWS,
        seed=options.seed,
    )
    tables = models.dynamic_tables(options.seed)
    lookups = models.dynamic_lookups(schema, *tables)
    model = models.wide_and_deep(schema, *lookups, data.mean, data.variance)
    models.compile_model(model, options.learning_rate)
    speed = train(model, batches, data.train_examples, options)

    evaluation = data.eval_dataset()
    labels = np.concatenate([label for _, label in evaluation])
    scores = model.predict(evaluation, verbose=0)
    exported = options.output / "saved_model"
    print(f"Exporting to {exported}, serving it in a new process ...")
    lodestar.export.save(model, exported)
    features, _ = next(iter(evaluation))
    try:
        lodestar.export.verify(model, exported, features, atol=_TOLERANCE)
    except ValueError as error:
        print(f"The exported model differs from the model: {error}")
        return 1
    program = pathlib.Path(__file__).with_name("serve.py")
    served_scores = options.output / "served_scores.npy"
    subprocess.run(
        [sys.executable, program, options.output, served_scores],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    served = np.load(served_scores)
    difference = np.max(np.abs(served - scores))

    results = {"steps": f"{int(model.optimizer.iterations):,}"}
    if speed is not None:
        results["examples per second"] = f"{speed:,.0f}"
    results["AUC, held-out data"] = f"{float(BatchAUC()(labels, scores)):.4f}"
    if data.best_auc is not None:
        results["  best possible"] = f"{data.best_auc:.4f}"
    if options.baseline:
        dense = baseline(schema, data, batches, options)
        dense_scores = dense.predict(evaluation, verbose=0)
        area = float(BatchAUC()(labels, dense_scores))
        results["  with dense tables"] = f"{area:.4f}"
    good = (scores > 0.5) == (labels > 0.5)
    results["accuracy"] = f"{np.mean(good):.4f}"
    for table in tables:
        stats = table.stats()
        used = sum(v for k, v in stats.items() if k.endswith("_bytes"))
        results[f"table {table.name!r}, dimension {table.output_dim}"] = (
            f"{stats['rows']:,} ids, {used / max(stats['rows'], 1):,.0f} bytes each"
        )
    checkpoint = lodestar.snapshot.verify(options.output / "snapshots")
    results["checkpoint"] = f"{checkpoint.bytes / 1e6:,.1f} MB"
    size = sum(p.stat().st_size for p in exported.rglob("*") if p.is_file())
    results["SavedModel"] = f"{size / 1e6:,.1f} MB"
    results[f"{len(served):,} served scores"] = (
        f"differ by at most {difference:.1e}"
    )
    width = max(map(len, results))
    print()
    for name, value in results.items():
        print(f"{name:<{width}}  {value}")
    if not difference < _TOLERANCE:
        print(f"The served scores differ by more than {_TOLERANCE:.0e}.")
        return 1
    return 0


def data_of(options: types.SimpleNamespace) -> PreparedData:
    """Prepares the examples once: later runs find them in the output."""
    path = options.output / "data"
    if not path.exists():
        print(f"Preparing data in {path} ...", flush=True)
    return prepare(path, options, lambda x: models.squash(x, np))


def train(
    model: keras.Model,
    batches: tf.data.Dataset,
    examples: int,
    options: types.SimpleNamespace,
) -> float | None:
    """Trains or resumes; returns the examples per second."""
    path = options.output / "snapshots"
    settings = {name: getattr(options, name) for name in _SETTINGS}
    reader = lodestar.snapshot.ResumableDataset(batches)
    snapshots = lodestar.callbacks.Snapshot(
        path,
        options.checkpoint_steps,
        keep=2,
        iterator=reader,
        metadata=settings,
    )
    steps_per_epoch = int(batches.cardinality())
    steps = options.epochs * steps_per_epoch
    done = 0
    if versions := lodestar.snapshot.versions(path):
        found = {name: versions[-1].metadata.get(name) for name in settings}
        if found != settings:
            raise DataError(
                f"{path}: training began with {found} and cannot resume with "
                f"{settings}. Choose another --output."
            )
        done = snapshots.restore(model).step
    if done >= steps:
        print(f"Training is finished: {done} steps. Evaluating again.")
    elif done:
        print(f"Resuming from the checkpoint of step {done} of {steps}.")
    else:
        print(f"Training {steps} steps of {options.batch_size} examples.")
    # The first step, which includes tracing, is not timed.
    times: list[float] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: times.append(time.perf_counter())
    )
    lodestar.train.fit(
        model,
        reader,
        epochs=options.epochs,
        callbacks=[clock],
        snapshots=snapshots,
    )
    if len(times) < 2:
        return None

    def examples_until(step: int) -> int:
        # The last batch of an epoch may be smaller.
        passes, rest = divmod(step, steps_per_epoch)
        return passes * examples + rest * options.batch_size

    timed = examples_until(steps) - examples_until(done + 1)
    return timed / (times[-1] - times[0])


def baseline(schema, data, batches, options) -> keras.Model:
    """Trains the same model on tables with a known vocabulary."""
    print("Training the same model on keras.layers.Embedding.")
    keras.utils.set_random_seed(options.seed)
    ids = vocabulary(batches, schema.names("sparse"))
    wide_ids = {name: ids[name] for name in models.wide_names(schema)}
    model = models.wide_and_deep(
        schema,
        DenseTable(ids, models.DEEP_DIM, "mean"),
        DenseTable(wide_ids, 1, "sum", "zeros"),
        data.mean,
        data.variance,
    )
    models.compile_model(model, options.learning_rate)
    model.fit(batches, epochs=options.epochs, shuffle=False)
    return model


if __name__ == "__main__":
    sys.exit(main())
