"""Keras's TensorBoard callback for models with tables."""

import os
from collections.abc import Mapping
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from lodestar import _bases
from lodestar._arguments import explained
from lodestar._checks import check_count
from lodestar._files import as_path
from lodestar._input_bytes import open_input
from lodestar._typing import StrPath
from lodestar.callbacks.table_stats import by_name
from lodestar.embedding.dense_view import (
    dense_view,
    expect_sample,
    sampled_rows,
)
from lodestar.embedding.embedding_variable import EmbeddingVariable

_CONFIG = "projector_config.pbtxt"
_EMBEDDING = """\
embeddings {{
  tensor_name: "{name}"
  tensor_path: "{stem}.tsv"
  metadata_path: "{stem}_metadata.tsv"
}}
"""


class TensorBoard(_bases.TensorBoard):
    """`keras.callbacks.TensorBoard` with tables in the embedding projector.

    Keras's own projector shows only `keras.layers.Embedding`. This callback
    also writes the rows of tables, with their ids as metadata, and a histogram of
    each table, of at most 2^20 numbers. (Keras writes the histograms of tables in
    layers itself, with a warning if it only sees a sample.)

    >>> board = lodestar.callbacks.TensorBoard(
    ...     "logs", histogram_freq=1, embeddings_freq=1
    ... )

    Pass it to `fit` in `callbacks`. Keras needs the package `tensorboard` for
    histograms, images and scalars.

    Args:
        log_dir: Directory of the event files and the projector's files.
        histogram_freq: See `keras.callbacks.TensorBoard`, also for the next ones.
        write_graph: Whether to write the graph.
        write_images: Whether to write weights as images.
        write_steps_per_second: Whether to write the speed.
        update_freq: `"epoch"`, `"batch"` or a number of batches.
        profile_batch: Batch or range of batches to profile.
        embeddings_freq: Number of epochs between writes of the projector's
            files. 0 writes none.
        embeddings_metadata: File with a label for each id, or a dict that maps
            names of tables and of `keras.layers.Embedding` layers to files. As
            in Keras, the first line is the label of id 0, the second of id 1. A
            file with tabs begins with a line of column names. Relative paths
            are relative to `log_dir`.
        embeddings_rows: Maximum number of rows per table in the projector. For
            a larger table, it shows rows evenly spaced over the ids.

    Raises:
        ValueError: If `embeddings_metadata` has a table that the model does not
            have.
    """

    @explained()
    def __init__(
        self,
        log_dir: StrPath = "logs",
        *,
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: Literal["epoch", "batch"] | int = "epoch",
        profile_batch: int | tuple[int, int] = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: StrPath | Mapping[str, StrPath] | None = None,
        embeddings_rows: int = 10_000,
    ):
        super().__init__(
            as_path(log_dir),
            histogram_freq=histogram_freq,
            write_graph=write_graph,
            write_images=write_images,
            write_steps_per_second=write_steps_per_second,
            update_freq=update_freq,
            profile_batch=profile_batch,
        )
        check_count("embeddings_freq", embeddings_freq, 0)
        check_count("embeddings_rows", embeddings_rows)
        # With Keras's attribute names, Keras would write its own files.
        self._projector_freq = embeddings_freq
        self._metadata = embeddings_metadata
        self._rows = embeddings_rows
        self._labels: dict[str, list[str]] = {}
        self._tables_writer: Any = None

    def set_model(self, model: keras.Model) -> None:
        """Sets the model and reads the metadata."""
        super().set_model(model)
        if self.histogram_freq:
            for table in _embeddings(model).values():
                if isinstance(table, EmbeddingVariable):
                    expect_sample(table)
        metadata = self._metadata
        if not self._projector_freq or metadata is None:
            return
        embeddings = _embeddings(model)
        if not isinstance(metadata, Mapping):
            metadata = dict.fromkeys(embeddings, metadata)
        for name, path in metadata.items():
            if name not in embeddings:
                raise ValueError(
                    f"`embeddings_metadata` has {name!r}, but the model has no "
                    f"such table or Embedding. It has {[*embeddings]}."
                )
            path = os.path.join(self.log_dir, as_path(path))
            with open_input(path) as file:
                text = file.read().decode(errors="replace")
            self._labels[name] = text.splitlines()

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Writes histograms, images and the projector's files if due."""
        super().on_epoch_end(epoch, logs)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self._write_histograms(epoch)
        if self._projector_freq and epoch % self._projector_freq == 0:
            self._write_projector()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_end(logs)
        if self._tables_writer is not None:
            self._tables_writer.close()
            self._tables_writer = None

    def _write_histograms(self, epoch: int) -> None:
        """Writes the tables outside of layers; Keras writes the others."""
        shown = {
            id(getattr(weight, "table", weight))
            for layer in self.model.layers
            for weight in layer.weights
        }
        own = {
            name: table
            for name, table in _embeddings(self.model).items()
            if isinstance(table, EmbeddingVariable) and id(table) not in shown
        }
        if not own:
            return
        if self._tables_writer is None:
            # TensorBoard reads only the newest file of a run such as "train".
            folder = os.path.join(self.log_dir, "tables")
            self._tables_writer = self.summary.create_file_writer(folder)
        with self._tables_writer.as_default():
            for name, table in own.items():
                rows = dense_view(table)
                self.summary.histogram(f"{name}/histogram", rows, step=epoch)
        self._tables_writer.flush()

    def _write_projector(self) -> None:
        config = ""
        for index, (name, found) in enumerate(_embeddings(self.model).items()):
            if isinstance(found, EmbeddingVariable):
                ids, rows, _ = sampled_rows(found, self._rows)
            else:
                rows = keras.ops.convert_to_numpy(found.embeddings)
                ids = np.arange(len(rows))
            if not len(ids):
                continue
            stem = f"projector_{index}"
            config += _EMBEDDING.format(name=_escaped(name), stem=stem)
            lines = [
                "\t".join(map(str, row)) for row in rows.astype(float).tolist()
            ]
            self._write(f"{stem}.tsv", lines)
            labels = self._labels.get(name)
            self._write(f"{stem}_metadata.tsv", _metadata(ids.tolist(), labels))
        self._write(_CONFIG, config.splitlines())

    def _write(self, name: str, lines: list[str]) -> None:
        tf.io.gfile.makedirs(self.log_dir)
        with tf.io.gfile.GFile(os.path.join(self.log_dir, name), "w") as file:
            file.write("".join(f"{line}\n" for line in lines))


def _embeddings(model: keras.Model) -> dict[str, Any]:
    """Returns the tables and Embedding layers of `model` by name."""
    kinds = (EmbeddingVariable, keras.layers.Embedding)
    children = tf.train.TrackableView(model).descendants()
    return by_name(child for child in children if isinstance(child, kinds))


def _metadata(ids: list[int], labels: list[str] | None) -> list[str]:
    """Returns the lines of a metadata file; one column needs no header."""
    if labels is None:
        return [str(i) for i in ids]
    columns = "label"
    if labels and "\t" in labels[0]:
        columns, *labels = labels
    none = "\t" * columns.count("\t")
    return [
        f"id\t{columns}",
        *(f"{i}\t{labels[i] if 0 <= i < len(labels) else none}" for i in ids),
    ]


def _escaped(text: str) -> str:
    """Escapes `text` for protobuf's text format."""
    return "".join(
        chr(byte)
        if 32 <= byte < 127 and chr(byte) not in '\\"'
        else f"\\{byte:03o}"
        for byte in text.encode()
    )
