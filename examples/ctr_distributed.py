"""Trains a click model day by day, in one process or on parameter servers.

bazel run //examples:ctr_distributed                 one process, a generated log
bazel run //examples:ctr_distributed -- --loopback   compared with 2 + 2 processes

Each process of a cluster runs this program, with --role PSERVER or TRAINER, or
with TF_CONFIG. Parameter servers store the model. Trainers, TensorFlow's
workers, read files and compute. Trainer 0 also coordinates: it runs the code
below, and the other processes end with it.
"""

import os

# Before TensorFlow is imported, so that its runtime does not log to users.
os.environ.setdefault("LODESTAR_QUIET_START", "1")

import lodestar  # noqa: E402

# isort: split
import copy  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import pathlib  # noqa: E402
import sys  # noqa: E402
import types  # noqa: E402
from collections.abc import Callable, Mapping  # noqa: E402

import ctr_cluster  # noqa: E402
import ctr_data  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from ctr_model import make_model  # noqa: E402
from ctr_options import parse  # noqa: E402

from lodestar.data import FileListServer, open_dataset  # noqa: E402
from lodestar.metrics import BatchAUC  # noqa: E402

_LOOPBACK = (2, 2)  # parameter servers, trainers
_ENDLESS = 2**31  # steps

# Trains one epoch on files; returns the metrics.
OnePass = Callable[[list[str]], Mapping[str, float]]


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    # `bazel run` changes the working directory.
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    # This program logs what matters, except that a worker is lost.
    tf.get_logger().setLevel("ERROR")
    tf.get_logger().propagate = False
    tf.get_logger().addFilter(of_lost_worker)

    def command() -> int:
        if options.loopback:
            return compare(options, arguments)
        return run(options)

    return lodestar._command_line.run(
        "ctr_distributed",
        command,
        errors=(
            *lodestar._command_line.ERRORS,
            lodestar.snapshot.SnapshotError,
        ),
    )


def run(options: types.SimpleNamespace) -> int:
    """Runs the process's role in a cluster, or trains alone."""
    task = options.task
    if task is None:
        ctr_data.prepare(options)
        train_alone(options)
        score(options)
    elif task.coordinates:
        # First of all, because it forks.
        with ctr_cluster.connected(task, options.output) as strategy:
            ctr_data.prepare(options)
            train_on_cluster(options, strategy)
            score(options)
    else:
        return ctr_cluster.serve(task, options.output)
    return 0


def train_alone(options: types.SimpleNamespace) -> None:
    """Trains with threads of this process, each of which draws files (Hogwild)."""
    schema = ctr_data.read_schema(options)
    model = new_model(options)

    def one_pass(files: list[str]) -> Mapping[str, float]:
        data = lodestar.data.open_dataset(
            files,
            schema,
            **ctr_data.reader_options(options),
        )
        return lodestar.paddle.train_from_dataset(
            model,
            data,
            threads=options.reader_threads,
            print_period=options.print_period,
            on_period=lambda steps, values: show(values),
        )

    train(model, options, one_pass)


def train_on_cluster(
    options: types.SimpleNamespace, strategy: tf.distribute.Strategy
) -> None:
    """Trains with all workers, which draw files from a list in this process."""
    schema = ctr_data.read_schema(options)
    workers = len(options.task.cluster["worker"])
    with strategy.scope():
        model = new_model(options)

    def one_pass(files: list[str]) -> Mapping[str, float]:
        until_read = UntilAllIsRead()
        with FileListServer(files, host=options.task.host) as server:
            lodestar.train.fit(
                model,
                lambda context: ctr_data.shared_batches(
                    server.address, schema, options
                ),
                steps_per_epoch=_ENDLESS,
                # Enough that each worker gets some.
                steps_per_round=max(options.print_period, 10 * workers),
                callbacks=[until_read],
                verbose=0,
            )
        return until_read.values

    train(model, options, one_pass)


class UntilAllIsRead(keras.callbacks.Callback):
    """Ends an epoch at the first round of steps without an example.

    Attributes:
        values: The metrics.
    """

    def __init__(self):
        super().__init__()
        self.values: Mapping[str, float] = {"examples": 0.0}

    def on_train_batch_end(self, batch, logs=None):
        if logs["examples"] == self.values["examples"]:
            self.model.stop_training = True
            return
        self.values = dict(logs)
        show(logs)


def train(
    model: keras.Model, options: types.SimpleNamespace, one_pass: OnePass
) -> None:
    """Trains on the days after the latest model, and saves models by day."""
    folder = options.output / "models"
    done = latest_model(folder)
    *days, (held_out, _) = days_of(options).items()
    if done is not None and done.name >= str(held_out):
        raise lodestar.data.DataError(
            f"{done} was trained on the held-out day {held_out}. Choose "
            "another --output."
        )
    days = [
        (str(day), files)
        for day, files in days
        if done is None or str(day) > done.name
    ]
    if done is None and not days:
        raise lodestar.data.DataError(
            f"{options.files}: needs another day to train on besides the "
            "held-out one."
        )
    if done is not None:
        lodestar.snapshot.restore(model, done)
        print(f"Resuming from the model of {done.name}.", flush=True)
    interval = lodestar.snapshot.SaveInterval()
    for number, (day, files) in enumerate(days, 1):
        print(f"{day}: {len(files)} files", flush=True)
        values = one_pass(files)
        print(f"{day}: AUC {values['auc']:.4f} during training", flush=True)
        is_due = (
            number % options.save_every == 0
            if options.save_every
            else interval.due()
        )
        if is_due or number == len(days):
            info = lodestar.snapshot.save(model, folder / day)
            interval.saved(info.seconds)


def score(options: types.SimpleNamespace) -> None:
    """Exports the latest model, and scores the held-out day."""
    done = latest_model(options.output / "models")
    exported = options.output / "saved_model"
    # In this process, even if it was trained on a cluster.
    model = new_model(options)
    lodestar.snapshot.restore(model, done)
    lodestar.export.save(model, exported, from_rows=True)
    *_, (day, files) = days_of(options).items()
    batches = open_dataset(
        files, ctr_data.read_schema(options), **ctr_data.reader_options(options)
    )
    features, _ = next(iter(batches))
    checked = lodestar.export.verify(model, exported, features)

    served = tf.saved_model.load(os.fspath(exported))
    labels, scores = [], []
    for features, label in batches:
        labels.append(label)
        scores += served.serve(features).values()
    results = {
        "model": done.name,
        "day": str(day),
        "auc": float(
            BatchAUC()(np.concatenate(labels), np.concatenate(scores))
        ),
        "best_auc": ctr_data.best_auc(files),
    }
    print(
        f"Exported the model of {done.name} to {exported}; features.json "
        f"describes its signatures ({', '.join(checked.signatures)})."
    )
    print(f"{day}, held out: AUC {results['auc']:.4f}", flush=True)
    (options.output / "results.json").write_text(json.dumps(results) + "\n")


def compare(options: types.SimpleNamespace, arguments: list[str]) -> int:
    """Trains on a local cluster and in one process; prints both results."""
    ctr_data.prepare(options)
    servers, trainers = _LOOPBACK
    names = {
        "one process": "alone",
        f"{servers} servers, {trainers} trainers": "cluster",
    }
    folders = {name: options.output / end for name, end in names.items()}
    alone, cluster = folders.values()
    code = ctr_cluster.run_on_loopback(
        [
            *(sys.executable, os.path.abspath(__file__)),
            *(*arguments, "--no-loopback"),
            *("--files", options.files, "--schema", str(options.schema)),
            *("--first-day", options.first_day),
            *("--last-day", options.last_day, "--output", str(cluster)),
        ],
        *_LOOPBACK,
    )
    if code:
        return code
    print("One process", flush=True)
    options = copy.copy(options)
    options.output = alone
    run(options)
    found = {
        name: json.loads((folder / "results.json").read_text())
        for name, folder in folders.items()
    }
    rows = {name: results["auc"] for name, results in found.items()}
    if best := found["one process"]["best_auc"]:
        rows["the best possible"] = best
    print(f"\nAUC of {found['one process']['day']}, held out")
    for name, auc in rows.items():
        print(f"  {name:<32}  {auc:.4f}")
    return 0


def new_model(options: types.SimpleNamespace) -> keras.Model:
    """Returns a new model with the given options."""
    return make_model(
        ctr_data.read_schema(options),
        options.embedding_dim,
        options.padding_id,
        options.learning_rate,
        options.seed,
    )


def latest_model(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the latest complete model, or None."""
    models = sorted(folder.glob("????-??-??"))
    return next(filter(lodestar.snapshot.versions, reversed(models)), None)


def days_of(options: types.SimpleNamespace) -> dict:
    """Returns the files of each day; the last day is held out."""
    return lodestar.data.files_by_day(
        options.files, options.first_day, options.last_day
    )


def of_lost_worker(record: logging.LogRecord) -> bool:
    """Shortens the log of a lost worker to its first line, and drops the rest."""
    record.msg, record.args = record.getMessage().partition("\n")[0], ()
    return record.msg.startswith("Worker ")


def show(values: Mapping[str, float]) -> None:
    """Prints the progress of training."""
    print(
        f"  {values['examples']:>9,.0f} examples: loss {values['loss']:.4f}, "
        f"AUC {values['auc']:.4f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
