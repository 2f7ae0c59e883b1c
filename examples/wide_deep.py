"""Trains, evaluates, exports and serves a wide-and-deep click model.

bazel run //examples:wide_deep                  on a generated click log
bazel run //examples:wide_deep -- FILES         on your own examples
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import ast
import pathlib

import click
import click_log
import numpy as np
import tensorflow as tf
from click_model import make_model

from lodestar.data import DataError, open_dataset
from lodestar.metrics import BatchAUC
from lodestar.snapshot import SnapshotError

DEEP_DIM = 32
SHUFFLED_ROWS = 1 << 16
# For two ways to run the same arithmetic.
TOLERANCE = 1e-5
PATH = click.Path(path_type=pathlib.Path)
NAMES = ("label", "categorical", "numeric", "ignore")


def named(context, parameter, texts):
    """Parses NAME=VALUE, where VALUE is a Python literal or else a string."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"Must be NAME=VALUE, got {text!r}.")
        try:
            found[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            found[name] = value
    return found


def commas(context, parameter, text):
    """Parses a list of names."""
    return text.split(",") if text else ()


@click.command(context_settings={"show_default": True})
@click.argument("files", nargs=-1, type=PATH, metavar="[FILE]...")
@click.option(
    "--schema",
    type=PATH,
    help="Schema of FILE. By default FILE.schema.yaml or schema.yaml in its "
    "folder, else inferred.",
)
@click.option(
    "--label",
    metavar="COLUMN[=POSITIVE]",
    help="Without a schema: the label; or 1 where COLUMN is POSITIVE and 0 "
    "elsewhere.",
)
@click.option(
    "--categorical", callback=commas, help="Without a schema: columns of ids."
)
@click.option(
    "--numeric", callback=commas, help="Without a schema: columns of numbers."
)
@click.option(
    "--ignore", callback=commas, help="Without a schema: columns to leave out."
)
@click.option(
    "--read",
    callback=named,
    metavar="NAME=VALUE",
    multiple=True,
    help="Another option of lodestar.data.open_dataset, e.g. key_type=int64; "
    "repeat for several.",
)
@click.option(
    "--eval-data",
    type=PATH,
    multiple=True,
    help="Evaluate on this file; repeat for several. By default, a fifth of the "
    "rows of FILE. MultiSlot, Norm and Raw files need it.",
)
@click.option(
    "--examples",
    type=click.IntRange(1000),
    default=360_000,
    help="Examples of the generated log.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    help="Epochs. By default 1 on the generated log, else 8.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=512,
    help="Examples per step.",
)
@click.option("--learning-rate", default=0.02, help="Learning rate of Adagrad.")
@click.option(
    "--checkpoint-steps",
    type=click.IntRange(1),
    default=200,
    help="Steps between two checkpoints.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),  # NumPy's maximum
    default=0,
    help="Seed of everything random.",
)
@click.option(
    "--output",
    type=PATH,
    default="wide_deep_output",
    help="Folder for checkpoints and the exported model.",
)
def main(**options):
    """Train a click model, evaluate, export and serve it.

    FILE is of any format that lodestar.data.open_dataset reads; a folder or a
    file list (.txt) stands for its files. Without FILE, the program generates a
    click log whose click probabilities are known. The same command with the same
    output folder resumes where the last one stopped.
    """
    # `bazel run` changes the working directory.
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    try:
        run(**options)
    except (ValueError, SnapshotError, OSError, tf.errors.OpError) as error:
        # TensorFlow's errors add the name of an op to the message.
        text = getattr(error, "message", str(error))
        raise click.ClickException(text) from error


def run(output, checkpoint_steps, epochs, learning_rate, seed, **options):
    """Runs all steps."""
    output.mkdir(parents=True, exist_ok=True)
    train, evaluation, best = open_data(output, seed=seed, **options)
    print(train.schema)
    epochs = epochs or (8 if options["files"] else 1)
    model = make_model(train.schema, DEEP_DIM, learning_rate, seed)

    # ## Training
    #
    # `fit` restores the newest snapshot, if there is one, and saves others.

    folder = output / "snapshots"
    settings = {
        "files": list(map(str, options["files"])),
        "batch_size": options["batch_size"],
        "learning_rate": learning_rate,
        "seed": seed,
    }
    if versions := lodestar.snapshot.versions(folder):
        found = {name: versions[-1].metadata.get(name) for name in settings}
        if found != settings:
            raise DataError(
                f"{folder}: training began with {found} and cannot resume with "
                f"{settings}. Choose another --output."
            )
        print(f"Resuming from the checkpoint of step {versions[-1].step}.")
    lodestar.train.fit(
        model,
        train,
        epochs=epochs,
        snapshots=lodestar.callbacks.Snapshot(
            folder, checkpoint_steps, keep=2, metadata=settings
        ),
        verbose=2,
    )

    # ## Evaluation

    batches = list(evaluation)
    labels = np.concatenate([label for _, label in batches])
    scores = np.concatenate(
        [model.predict_on_batch(features) for features, _ in batches]
    )
    results = {
        "steps": f"{int(model.optimizer.iterations):,}",
        "AUC, held-out data": f"{float(BatchAUC()(labels, scores)):.4f}",
    }
    if best is not None:
        results["  best possible"] = f"{best:.4f}"
    tables = model.get_layer("rows").tables if train.schema.sparse else ()
    for table in tables:
        stats = table.stats()
        size = stats["bytes"] / max(stats["rows"], 1)
        results[f"table {table.name!r}, dimension {table.output_dim}"] = (
            f"{stats['rows']:,} ids, {size:,.0f} bytes each"
        )

    # ## Export and serving
    #
    # The export does not need this program. A LiveModel serves it and follows the
    # snapshots of the training.

    exported = output / "saved_model"
    print(f"Exporting to {exported} and serving it ...")
    lodestar.export.save(model, exported)
    lodestar.export.verify(model, exported, batches[0][0], atol=TOLERANCE)
    with lodestar.serving.LiveModel(exported, folder) as live:
        answers = [live(features).values() for features, _ in batches]
    served = np.concatenate([scores for (scores,) in answers])
    difference = np.max(np.abs(served - scores))
    results[f"{len(served):,} served scores"] = (
        f"differ by at most {difference:.1e}"
    )
    width = max(map(len, results))
    print()
    for name, value in results.items():
        print(f"{name:<{width}}  {value}")
    if not difference < TOLERANCE:
        raise click.ClickException(
            f"The served scores differ by more than {TOLERANCE:.0e}."
        )


def open_data(output, files, eval_data, examples, batch_size, seed, **options):
    """Returns batches to train and to evaluate on, and the best possible AUC."""
    given = {name: options[name] for name in NAMES if options[name]}
    if not files:
        if given or options["read"] or options["schema"] or eval_data:
            raise click.UsageError("Options of the data need a FILE.")
        log = output / f"log_of_{examples}_seed_{seed}"
        parts = click_log.generate(log, examples, 12, seed)
        # The last ones in time are for evaluation.
        train, evaluation = parts[:-2], parts[-2:]
        opened = open_dataset(train, log / "schema.yaml", batch_size)
        held_out = open_dataset(evaluation, opened.schema, batch_size)
        return opened, held_out, click_log.best_auc(evaluation)
    read = {"batch_size": batch_size, **options["read"]}
    shuffled = {"shuffle": SHUFFLED_ROWS, "seed": seed, **given}
    files = list(files)
    if not eval_data:
        opened, held_out = open_dataset(
            files, options["schema"], split=0.2, **shuffled, **read
        )
        return opened, held_out, None
    opened = open_dataset(files, options["schema"], **shuffled, **read)
    return opened, open_dataset(list(eval_data), opened.schema, **read), None


if __name__ == "__main__":
    main()
