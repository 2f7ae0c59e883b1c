"""Finds the files of ctr_distributed by day, and reads them."""

import datetime
import pathlib
import shutil
import types
from typing import Any

import numpy as np
import tensorflow as tf

import lodestar
from lodestar.data import Schema, SharedFileList, open_dataset
from lodestar.data.__main__ import main as data_tool
from lodestar.metrics import BatchAUC

_FIRST_DAY = datetime.date(2026, 1, 1)
_FILES_A_DAY = 8


def prepare(options: types.SimpleNamespace) -> None:
    """Without --files, generates a click log once, and sets the options to it."""
    if options.files is not None:
        return
    days, examples, seed = options.days, options.examples, options.seed
    folder = options.output / f"log_{days}_days_of_{examples}_seed_{seed}"
    last = _FIRST_DAY + datetime.timedelta(days - 1)
    options.files = str(folder / "%Y%m%d" / "part-*.txt")
    options.schema = folder / "schema.yaml"
    options.first_day, options.last_day = str(_FIRST_DAY), str(last)
    if folder.exists():
        return
    print(f"Generating a click log in {folder} ...", flush=True)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    failed = data_tool(
        [
            *("generate", str(partial), "--seed", str(seed)),
            *("--samples", str(days * examples)),
            *("--files", str(days * _FILES_A_DAY)),
        ]
    )
    if failed:
        raise OSError(f"{folder}: the click log could not be generated")
    for number, file in enumerate(sorted(partial.glob("part-*.txt"))):
        day = _FIRST_DAY + datetime.timedelta(number // _FILES_A_DAY)
        of_day = partial / day.strftime("%Y%m%d")
        of_day.mkdir(exist_ok=True)
        for path in (file, file.with_suffix(".npy")):
            shutil.move(path, of_day)
    partial.rename(folder)


def read_schema(options: types.SimpleNamespace) -> Schema:
    """Returns the schema of the used slots: one label, ids, and others."""
    schema = Schema.load(options.schema)
    used = Schema(schema.used)
    if len(used.labels) != 1 or not ids_of(used):
        raise lodestar.data.DataError(
            f"{options.schema}: must use one label and a sparse slot of ids."
        )
    return schema


def ids_of(schema: Schema) -> list[str]:
    """Returns the names of the slots to look up."""
    return [slot.name for slot in schema.sparse if slot.dtype == "uint64"]


def reader_options(options: types.SimpleNamespace) -> dict[str, Any]:
    """Returns the options of all readers."""
    return {
        "format": "multislot",
        "batch_size": options.batch_size,
        "pipe_command": options.pipe_command,
    }


def shared_batches(
    address: str, schema: Schema, options: types.SimpleNamespace
) -> tf.data.Dataset:
    """Reads the files that one of several workers draws, for one epoch.

    A worker without files waits for the others with blank examples of weight 0,
    which train nothing. The first example is blank as well, so that a model can
    be built from it before a file is drawn.

    Args:
        address: Address of the FileListServer.
        schema: Schema of the files.
        options: Options of the command line.

    Returns:
        An infinite dataset of batches `(features, label, weight)`.
    """
    batches = open_dataset(
        SharedFileList(address),
        schema,
        num_parallel_files=options.reader_threads,
        **reader_options(options),
    ).map(lambda x, y: (x, y, tf.ones_like(y[:, 0])))
    blank = tf.data.Dataset.from_tensors(
        tf.nest.map_structure(_blank, batches.element_spec)
    )
    # Nothing is drawn before it is needed.
    as_asked = tf.data.Options()
    as_asked.experimental_optimization.inject_prefetch = False
    return (
        blank.concatenate(batches)
        .concatenate(blank.repeat())
        .with_options(as_asked)
    )


def _blank(spec: tf.TypeSpec) -> tf.Tensor | tf.RaggedTensor:
    """Returns a batch of one example, without ids and with zeros."""
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensor.from_row_splits(
            tf.zeros([0], spec.dtype), tf.zeros([2], spec.row_splits_dtype)
        )
    return tf.zeros([1, *(size or 0 for size in spec.shape[1:])], spec.dtype)


def best_auc(files: list[str]) -> float | None:
    """Returns the AUC of the true probabilities, or None if they are unknown."""
    truths = [pathlib.Path(file).with_suffix(".npy") for file in files]
    if not all(truth.exists() for truth in truths):
        return None
    pairs = np.concatenate([np.load(truth) for truth in truths])
    return float(BatchAUC(dtype="float64")(pairs[:, 1], pairs[:, 0]))
