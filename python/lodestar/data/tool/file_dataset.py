"""FileDataset: batches of a list of files that may change between passes."""

import os
from collections.abc import Iterable

import tensorflow as tf

from lodestar.data.record_dataset import as_paths
from lodestar.data.tool.find_format import expand_inputs
from lodestar.data.tool.open_files import Slots, open_dataset


class FileDataset:
    """Files of one format, read as one dataset or each as one of its own.

    It is what `lodestar.train.train_from_dataset` reads. Its datasets all have
    one element spec, so that a step compiled for one takes batches of all.

    >>> data = FileDataset(files, "slots.yaml", 1024)  # doctest: +SKIP
    >>> for day, files in files_by_day("log/%Y%m%d/*", first, last).items():
    ...     data.set_files(files)  # doctest: +SKIP
    ...     train_from_dataset(model, data)  # doctest: +SKIP
    """

    def __init__(
        self,
        files: str | os.PathLike | Iterable[str | os.PathLike],
        slots: Slots | None = None,
        batch_size: int | None = None,
        **options,
    ):
        """Opens nothing yet.

        Args:
            files: As those of `set_files`.
            slots: As those of `open_dataset`.
            batch_size: Samples a batch; the last one of a dataset is smaller.
            **options: `format`, and those of the format's own dataset function.
        """
        self._open = {"slots": slots, "batch_size": batch_size, **options}
        self.set_files(files)

    @property
    def files(self) -> list[str]:
        """The paths, in the order in which they are read."""
        return list(self._files)

    def set_files(
        self, files: str | os.PathLike | Iterable[str | os.PathLike]
    ) -> None:
        """Reads other files from here on; what has been opened reads on.

        Args:
            files: One path or several; folders and file lists stand for the
                files in them, but not with `open_command`.

        Raises:
            ValueError: There is none. The files stay as they were.
            DataError: A folder or a file list cannot be read.
        """
        paths = as_paths(files)
        as_they_are = self._open.get("open_command") is not None
        self._files = paths if as_they_are else expand_inputs(paths)

    def dataset(self, file: str | os.PathLike | None = None) -> tf.data.Dataset:
        """Batches of one file, or of all in their order.

        Raises:
            DataError, ValueError, tf.errors.OpError: As `open_dataset`.
        """
        return open_dataset(self._files if file is None else file, **self._open)
