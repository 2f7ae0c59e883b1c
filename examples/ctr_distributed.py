"""Trains a click model day by day, in one process or on parameter servers.

bazel run //examples:ctr_distributed                 one process, a generated log
bazel run //examples:ctr_distributed -- --loopback   compared with 2 + 2 processes

On a cluster, start `python -m lodestar.train server` for each parameter server
and worker, and this program with the same TF_CONFIG. Parameter servers store the
model. Workers read files and compute.
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import datetime
import pathlib
import shlex
import shutil
from collections.abc import Callable, Mapping

import click
import click_log
import keras
import numpy as np
import tensorflow as tf
from click_model import make_model

from lodestar.data import (
    DataError,
    FileListServer,
    Schema,
    SharedFileList,
    open_dataset,
)
from lodestar.metrics import BatchAUC
from lodestar.snapshot import SnapshotError

FIRST_DAY = datetime.date(2026, 1, 1)
FILES_A_DAY = 8
ENDLESS = 2**31  # steps
DATA = ("files", "schema", "first_day", "last_day")
PATH = click.Path(path_type=pathlib.Path)

# Trains one epoch on files; returns the metrics.
OnePass = Callable[[list[str]], Mapping[str, float]]


@click.command(context_settings={"show_default": True})
@click.option(
    "--files",
    metavar="PATTERN",
    help="MultiSlot files: a path with codes for the day, e.g. log/%Y%m%d/part-*.",
)
@click.option("--schema", type=PATH, help="Schema file of --files.")
@click.option("--first-day", metavar="DAY", help="First day, e.g. 2026-01-31.")
@click.option(
    "--last-day",
    metavar="DAY",
    help="The held-out day, after the training days.",
)
@click.option(
    "--pipe-command",
    type=shlex.split,
    metavar="COMMAND",
    help="Command that preprocesses each file, e.g. 'python clean.py'.",
)
@click.option(
    "--reader-threads",
    type=click.IntRange(1),
    default=2,
    help="Threads that read files in each process; a single process also trains "
    "with them.",
)
@click.option(
    "--days",
    type=click.IntRange(2),
    default=4,
    help="Days of the generated log.",
)
@click.option(
    "--examples",
    type=click.IntRange(1000),
    default=40_000,
    help="Examples of a generated day.",
)
@click.option(
    "--embedding-dim",
    type=click.IntRange(1),
    default=16,
    help="Embedding dimension.",
)
@click.option(
    "--padding-id", default=0, help="Id that means no id; negative: none."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=512,
    help="Examples per step.",
)
@click.option("--learning-rate", default=0.02, help="Learning rate of Adagrad.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),  # NumPy's maximum
    default=0,
    help="Seed of initial values.",
)
@click.option(
    "--print-period",
    type=click.IntRange(1),
    default=50,
    help="Steps between two progress lines.",
)
@click.option(
    "--save-every",
    type=click.IntRange(1),
    default=1,
    help="Days between two saved models; the last one is always saved.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    help="Name of this machine, at which workers reach the list of files.",
)
@click.option(
    "--output",
    type=PATH,
    default="ctr_distributed_output",
    help="Folder for models and the export, shared by all processes.",
)
@click.option(
    "--loopback",
    is_flag=True,
    help="Train on 2 parameter servers and 2 workers on this machine, then in "
    "this process alone, and compare them.",
)
def main(loopback, output, **options):
    """Train a click model, one pass over the files of each day.

    The same command resumes with the days after the latest model in the output
    folder. Without --files it generates a click log.
    """
    # `bazel run` changes the working directory.
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    # This program prints what matters.
    tf.get_logger().setLevel("ERROR")
    given = [name for name in DATA if options[name] is not None]
    if given and len(given) < len(DATA):
        flags = [f"--{name.replace('_', '-')}" for name in DATA]
        raise click.UsageError(f"Give all of {', '.join(flags)}, or none.")
    output = output.absolute()  # workers have other working directories
    try:
        if not given:
            options |= generate(output, **options)
        if loopback:
            compare(output, options)
            return
        strategy = None
        if os.environ.get("TF_CONFIG"):
            strategy = tf.distribute.ParameterServerStrategy(
                tf.distribute.cluster_resolver.TFConfigClusterResolver()
            )
        DailyTraining(output, strategy, **options).run()
    except (ValueError, SnapshotError, OSError, tf.errors.OpError) as error:
        text = getattr(error, "message", str(error))
        raise click.ClickException(text) from error


def generate(output, days, examples, seed, **others) -> dict:
    """Generates a click log once; returns the options that name it."""
    folder = output / f"log_{days}_days_of_{examples}_seed_{seed}"
    last = FIRST_DAY + datetime.timedelta(days - 1)
    parts = click_log.generate(
        folder, days * examples, days * FILES_A_DAY, seed
    )
    for number, file in enumerate(parts):
        day = FIRST_DAY + datetime.timedelta(number // FILES_A_DAY)
        for path in (file, file.with_suffix(".npy")):
            shutil.copy(path, folder / f"{day:%Y%m%d}-{path.name}")
    return {
        "files": str(folder / "%Y%m%d-part-*.txt"),
        "schema": folder / "schema.yaml",
        "first_day": str(FIRST_DAY),
        "last_day": str(last),
    }


def compare(output, options) -> None:
    """Trains on a local cluster and in one process; prints both results."""
    found = {}
    print("2 servers, 2 workers", flush=True)
    with lodestar.testing.LocalCluster(2, 2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.resolver)
        training = DailyTraining(output / "cluster", strategy, **options)
        found["2 servers, 2 workers"] = training.run()
    print("One process", flush=True)
    training = DailyTraining(output / "alone", None, **options)
    found["one process"] = training.run()
    if best := click_log.best_auc(training.held_out):
        found["the best possible"] = best
    print(f"\nAUC of {options['last_day']}, held out")
    for name, auc in found.items():
        print(f"  {name:<32}  {auc:.4f}")


class DailyTraining:
    """Training on the days of a log, whose last day is held out.

    Args:
        output: Folder for models and the export.
        strategy: A ParameterServerStrategy; None trains in this process.
        **options: The options of the command line.
    """

    def __init__(self, output, strategy, **options):
        self.output = output
        self.strategy = strategy
        self.options = options
        self.schema = Schema.load(options["schema"])
        *self.days, (self.last_day, self.held_out) = lodestar.data.files_by_day(
            options["files"], options["first_day"], options["last_day"]
        ).items()

    def new_model(self) -> keras.Model:
        """Returns a new model."""
        padding = self.options["padding_id"]
        return make_model(
            self.schema,
            self.options["embedding_dim"],
            self.options["learning_rate"],
            self.options["seed"],
            None if padding < 0 else padding,
        )

    def open(self, files, **options) -> tf.data.Dataset:
        """Opens files as batches."""
        return open_dataset(
            files,
            self.schema,
            self.options["batch_size"],
            format="multislot",
            pipe_command=self.options["pipe_command"],
            **options,
        )

    def run(self) -> float:
        """Trains and evaluates; returns the AUC of the held-out day."""
        if self.strategy is None:
            self.train(self.new_model(), self.threads)
        else:
            with self.strategy.scope():
                model = self.new_model()
            self.train(model, self.workers)
        return self.score()

    def threads(self, model: keras.Model, files: list[str]) -> Mapping:
        """Trains with threads, each of which draws files (Hogwild)."""
        return lodestar.paddle.train_from_dataset(
            model,
            self.open(files),
            threads=self.options["reader_threads"],
            print_period=self.options["print_period"],
            on_period=lambda steps, values: show(values),
        )

    def workers(self, model: keras.Model, files: list[str]) -> Mapping:
        """Trains with all workers, which draw files from a list here."""
        until_read = UntilAllIsRead()
        with FileListServer(files, host=self.options["host"]) as server:
            lodestar.train.fit(
                model,
                lambda context: self.shared_batches(server.address),
                steps_per_epoch=ENDLESS,
                steps_per_round=self.options["print_period"],
                callbacks=[until_read],
                verbose=0,
            )
        return until_read.values

    def shared_batches(self, address: str) -> tf.data.Dataset:
        """Reads the files that one of several workers draws, for one epoch.

        A worker without files waits for the others with blank examples of weight
        0, which train nothing. The first example is blank as well, so that a
        model can be built from it before a file is drawn.

        Args:
            address: Address of the FileListServer.

        Returns:
            An infinite dataset of batches `(features, label, weight)`.
        """
        batches = self.open(
            SharedFileList(address),
            num_parallel_files=self.options["reader_threads"],
        ).map(lambda x, y: (x, y, tf.ones_like(y[:, 0])))
        blank = tf.data.Dataset.from_tensors(
            tf.nest.map_structure(blank_example, batches.element_spec)
        )
        # Nothing is drawn before it is needed.
        as_asked = tf.data.Options()
        as_asked.experimental_optimization.inject_prefetch = False
        return (
            blank.concatenate(batches)
            .concatenate(blank.repeat())
            .with_options(as_asked)
        )

    def train(self, model: keras.Model, one_pass) -> None:
        """Trains on the days after the latest model, and saves models by day."""
        done = self.latest_model()
        if done is not None and done.name >= str(self.last_day):
            raise DataError(
                f"{done} was trained on the held-out day {self.last_day}. Choose "
                "another --output."
            )
        if not self.days:
            raise DataError(
                f"{self.options['files']}: needs another day to train on besides "
                "the held-out one."
            )
        if done is not None:
            lodestar.snapshot.restore(model, done)
            print(f"Resuming from the model of {done.name}.", flush=True)
        days = [
            (str(day), files)
            for day, files in self.days
            if done is None or str(day) > done.name
        ]
        for number, (day, files) in enumerate(days, 1):
            print(f"{day}: {len(files)} files", flush=True)
            values = one_pass(model, files)
            print(f"{day}: AUC {values['auc']:.4f} during training", flush=True)
            if number % self.options["save_every"] == 0 or number == len(days):
                lodestar.snapshot.save(model, self.output / "models" / day)

    def latest_model(self) -> pathlib.Path | None:
        """Returns the latest complete model, or None."""
        models = sorted((self.output / "models").glob("????-??-??"))
        return next(filter(lodestar.snapshot.versions, reversed(models)), None)

    def score(self) -> float:
        """Exports the latest model, and scores the held-out day."""
        # In this process, even if it was trained on a cluster.
        model = self.new_model()
        done = self.latest_model()
        lodestar.snapshot.restore(model, done)
        exported = self.output / "saved_model"
        lodestar.export.save(model, exported, from_rows=True)
        batches = self.open(self.held_out)
        features, _ = next(iter(batches))
        checked = lodestar.export.verify(model, exported, features)
        print(
            f"Exported the model of {done.name} to {exported}; features.json "
            f"describes its signatures ({', '.join(checked.signatures)})."
        )
        served = tf.saved_model.load(os.fspath(exported))
        labels = np.concatenate([label for _, label in batches])
        scores = [
            score
            for features, _ in batches
            for score in served.serve(features).values()
        ]
        auc = float(BatchAUC()(labels, np.concatenate(scores)))
        print(f"{self.last_day}, held out: AUC {auc:.4f}", flush=True)
        return auc


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


def blank_example(spec: tf.TypeSpec) -> tf.Tensor | tf.RaggedTensor:
    """Returns a batch of one example, without ids and with zeros."""
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensor.from_row_splits(
            tf.zeros([0], spec.dtype), tf.zeros([2], spec.row_splits_dtype)
        )
    return tf.zeros([1, *(size or 0 for size in spec.shape[1:])], spec.dtype)


def show(values: Mapping[str, float]) -> None:
    """Prints the progress of training."""
    print(
        f"  {values['examples']:>9,.0f} examples: loss {values['loss']:.4f}, "
        f"AUC {values['auc']:.4f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
