"""FileDataset: batches of a list of files that may change between passes."""

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

# With one of these, a dataset keeps something that each must have anew.
_INFERRING = ("label", "categorical", "numeric", "na_values")
_KEPT = {"mode", "shuffle_files", "shuffle_rows"}


class FileDataset:
    """Files of one format, read as one dataset or each as one of its own.

    It is what `lodestar.train.train_from_dataset` reads. Its datasets all have
    one element spec, so that a step compiled for one takes batches of all.

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
        """Opens nothing yet.

        Args:
            files: As those of `set_files`.
            schema: As those of `open_dataset`.
            batch_size: Samples a batch; the last one of a dataset is smaller.
            **options: `format`, and those of the format's own dataset function.

        Raises:
            ValueError: There are no files, or `open_command` comes without
                `schema` or `format`.
            DataError: As `set_files`.
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
        """The paths, in the order in which they are read."""
        return list(self._files)

    def set_files(self, files: StrPaths) -> None:
        """Reads other files from here on; what has been opened reads on.

        Args:
            files: One path or several; folders and file lists stand for the
                files in them, but not with `open_command`.

        Raises:
            ValueError: There is none. The files stay as they were.
            DataError: A folder or a file list cannot be read.
        """
        paths = as_paths(files)
        self._files = paths if self._by_command else expand_inputs(paths)

    def dataset(self, file: StrPath | None = None) -> tf.data.Dataset:
        """Batches of one file, or of all in their order.

        Raises:
            DataError, ValueError, tf.errors.OpError: As `open_dataset`.
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
            for name in _INFERRING:  # have said what the schema says
                options.pop(name, None)
        dataset = open_dataset(files, self._schema, self._batch_size, **options)
        # What the first files have shown holds for all that come later.
        self._schema = dataset.schema
        return dataset

    def _open_text(self, path: str) -> tf.data.Dataset:
        """Opens a file by a function of its path, which is traced once.

        The dataset's own functions would be traced for each file, which takes
        as long as several steps of training.
        """
        options = {k: v for k, v in self._options.items() if k != "format"}
        options["batch_size"] = self._batch_size
        with self._opening:
            schema = self._schema or schema_of([path])
            if schema is None:
                return self._opened(path)  # which says what is missing
            opener = self._opener
            if opener is None or opener.spec != schema:
                opener = self._opener = _TextOpener(schema, options)
        return opener.open(path)


class _TextOpener:
    """Opens MultiSlot text."""

    def __init__(self, spec: Any, options: dict[str, Any]):
        self.spec: Schema | None = spec

        @tf.function(
            input_signature=[tf.TensorSpec((), tf.string)], autograph=False
        )
        def variant(path: str) -> Any:
            dataset = MultiSlotDataset(path, spec, **options)
            self._element_spec = dataset.element_spec
            return tf.data.experimental.to_variant(dataset)

        # TensorFlow counts the traces of one line of code, and would warn of
        # retracing where each pass has a FileDataset of its own.
        self._variant = variant.get_concrete_function()

    def open(self, path: str) -> tf.data.Dataset:
        variant = self._variant(tf.constant(path))
        return tf.data.experimental.from_variant(variant, self._element_spec)
