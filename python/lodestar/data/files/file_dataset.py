"""FileDataset: batches of a list of files that may change between epochs."""

import threading
from typing import Any

import tensorflow as tf

from lodestar._files import as_path
from lodestar._typing import StrPath, StrPaths
from lodestar.data.files.find_format import expand_inputs, find_format
from lodestar.data.files.schema_beside import schema_of
from lodestar.data.open_dataset import open_dataset
from lodestar.data.record_dataset import as_paths
from lodestar.data.schema import Schema, SchemaLike, as_schema
from lodestar.paddle.multislot_dataset import MultiSlotDataset

_INFERRING = ("label", "categorical", "numeric", "na_values")
# With one of these, a dataset has state that files cannot share.
_KEPT = {"mode", "shuffle_files", "shuffle_rows"}


class FileDataset:
    """Files of one format, read as one dataset or as one dataset per file.

    `lodestar.train.train_from_dataset` reads it. All its datasets have the same
    element spec, so one compiled training step handles batches from all of them.

    >>> data = FileDataset(files, "schema.yaml", 1024)
    >>> for day, files in files_by_day("log/%Y%m%d/*.txt", first, last).items():
    ...     data.set_files(files)
    ...     train_from_dataset(model, data)
    """

    def __init__(
        self,
        files: StrPaths,
        schema: SchemaLike | None = None,
        batch_size: int = 1024,
        **options: Any,
    ):
        """Creates the dataset without opening any file.

        Args:
            files: See `set_files`.
            schema: See `open_dataset`.
            batch_size: Number of examples per batch; a dataset's last batch may be
                smaller.
            **options: `format`, and the options of the format's dataset function.

        Raises:
            ValueError: `files` is empty, or `open_command` is given without `schema`
                or `format`.
            DataError: See `set_files`.
        """
        self._opener: _TextOpener | None = None
        self._opening = threading.Lock()  # training threads open files
        self._batch_size = batch_size
        self._options = options
        self._by_command = options.get("open_command") is not None
        if self._by_command and (
            schema is None or options.get("format") is None
        ):
            raise ValueError("`open_command` needs `schema` and `format`.")
        self._schema = None if schema is None else as_schema(schema)
        self.set_files(files)

    @property
    def files(self) -> list[str]:
        """The paths, in reading order."""
        return list(self._files)

    def set_files(self, files: StrPaths) -> None:
        """Replaces the files; datasets that are already open are not affected.

        Args:
            files: One path or several. Folders and file lists stand for the files in
                them, except with `open_command`.

        Raises:
            ValueError: `files` is empty. The files are not replaced.
            DataError: A folder or a file list cannot be read.
        """
        paths = as_paths(files)
        self._files = paths if self._by_command else expand_inputs(paths)

    def dataset(self, file: StrPath | None = None) -> tf.data.Dataset:
        """Returns batches of one file, or of all files in order.

        Raises:
            DataError, ValueError, tf.errors.OpError: See `open_dataset`.
        """
        if file is None:
            return self._opened(self._files)
        path = as_path(file)
        name = self._options.get("format") or find_format(path)
        if name != "multislot" or _KEPT.intersection(self._options):
            return self._opened(path)
        return self._open_text(path)

    def _opened(self, files: StrPaths) -> tf.data.Dataset:
        options = dict(self._options)
        if self._schema is not None:
            for name in _INFERRING:  # already reflected in the schema
                options.pop(name, None)
        dataset = open_dataset(files, self._schema, self._batch_size, **options)
        # The schema of the first files applies to all later ones.
        self._schema = dataset.schema
        return dataset

    def _open_text(self, path: str) -> tf.data.Dataset:
        """Opens a file with a function of the path that is traced once.

        The regular dataset functions would be retraced for each file, which takes as
        long as several training steps.
        """
        options = {k: v for k, v in self._options.items() if k != "format"}
        options["batch_size"] = self._batch_size
        with self._opening:
            schema = self._schema or schema_of([path])
            if schema is None:
                return self._opened(path)  # raises the error
            opener = self._opener
            if opener is None or opener.spec != schema:
                opener = self._opener = _TextOpener(schema, options)
        return opener.open(path)


class _TextOpener:
    """Opens MultiSlot files."""

    def __init__(self, spec: Any, options: dict[str, Any]):
        self.spec: Schema | None = spec

        @tf.function(
            input_signature=[tf.TensorSpec((), tf.string)], autograph=False
        )
        def variant(path: str) -> Any:
            dataset = MultiSlotDataset(path, spec, **options)
            self._element_spec = dataset.element_spec
            return tf.data.experimental.to_variant(dataset)

        # TensorFlow counts traces per line of code. Without this, creating a
        # FileDataset per epoch would cause a retracing warning.
        self._variant = variant.get_concrete_function()

    def open(self, path: str) -> tf.data.Dataset:
        variant = self._variant(tf.constant(path))
        return tf.data.experimental.from_variant(variant, self._element_spec)
