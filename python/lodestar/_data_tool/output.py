"""Writes samples atomically to a file or a folder of files."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from lodestar._errors import DataError, describe_error
from lodestar._files import AtomicFile, Temporary, as_path, list_folder
from lodestar._typing import StrPath
from lodestar.data.files.formats import Format, Options
from lodestar.data.files.schema_beside import FOLDER_SCHEMA, schema_path
from lodestar.data.sample_columns import cut, num_rows
from lodestar.data.sample_writer import SampleWriter
from lodestar.hugectr.file_list import FILE_LIST, write_file_list
from lodestar.schema import Schema


@dataclasses.dataclass(frozen=True)
class Target:
    """Where and how to write samples.

    `path` is the file, or the folder if `num_files` is set.
    """

    path: StrPath
    format: Format
    options: Options = dataclasses.field(default_factory=dict)
    num_files: int | None = None


class Output:
    """Context manager that writes samples and their schema file atomically.

    A single file gets `target + ".schema.yaml"`. Several files are
    `target/part-00000`, ... with `schema.yaml` and, in some formats,
    `file_list.txt`. All appear when the `with` block ends. If it raises, nothing
    is written and existing files are unchanged.
    """

    def __init__(
        self,
        target: Target,
        spec: Schema,
        *,
        inputs: Sequence[str] = (),
        rows: Sequence[int] = (),
    ):
        """Opens the output, which must not be one of `inputs`.

        `rows` are the numbers of samples in several files in a folder.
        """
        self._path = as_path(target.path).rstrip("/")
        self._target = target
        self._spec = spec.stored()
        self._rows = rows
        self._parts: list[str] = []
        self._writer: SampleWriter | None = None
        self._folder: Temporary | None = None
        self.num_samples = 0
        check_target(self._path, inputs, bool(rows))
        with self._named():
            if rows:
                self._folder = Temporary(self._path, is_folder=True)
            else:
                self._writer = self._make(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            with self._named():
                self._commit()
        except BaseException:
            self._discard()
            raise

    def write_batch(self, columns: Mapping[str, Any]) -> None:
        """Writes samples in the form of `SampleWriter.write_batch`."""
        rows = num_rows(columns)
        begin = 0
        with self._named():
            while begin < rows:
                writer = self._writer or self._next_part()
                end, left = rows, None
                if self._parts:
                    left = self._rows[len(self._parts) - 1] - writer.num_samples
                    end = min(rows, begin + left)
                writer.write_batch(cut(columns, begin, end))
                if end - begin == left:
                    writer.close()
                    self._writer = None
                begin = end
        self.num_samples += rows

    def _make(self, path: str) -> SampleWriter:
        return self._target.format.make(
            path, self._spec, **self._target.options
        )

    def _next_part(self) -> SampleWriter:
        suffix = self._target.format.suffixes[0]
        self._parts.append(f"part-{len(self._parts):05d}{suffix}")
        assert self._folder is not None
        self._writer = self._make(
            os.path.join(self._folder.path, self._parts[-1])
        )
        return self._writer

    def _commit(self) -> None:
        if self._folder is None:
            with AtomicFile(schema_path(self._path)) as file:
                file.write(self._spec.yaml().encode())
                assert self._writer is not None
                self._writer.close()
            return
        folder = self._folder.path
        self._spec.save(os.path.join(folder, FOLDER_SCHEMA))
        if self._target.format.listed:
            write_file_list(
                os.path.join(folder, FILE_LIST),
                [os.path.join(self._path, name) for name in self._parts],
            )
        if tf.io.gfile.exists(self._path):  # It is an empty folder.
            tf.io.gfile.rmtree(self._path)
        tf.io.gfile.rename(folder, self._path)
        self._folder.release()

    def _discard(self) -> None:
        with contextlib.suppress(OSError, tf.errors.OpError):
            if self._writer is not None:
                self._writer.discard()
            if self._folder is not None:
                self._folder.remove()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Makes errors name the target instead of temporary files."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            text = describe_error(error)
            if text.startswith(self._path):  # Also as part of a temporary name.
                text = text.partition(": ")[2]
            raise DataError(
                f"{self._path}: cannot be written: {text}"
            ) from error
        except ValueError as error:
            text = str(error)
            if self._folder is not None:
                text = text.replace(self._folder.path, self._path)
            raise DataError(text) from error


def check_target(target: str, inputs: Sequence[str], is_folder: bool) -> None:
    """Raises DataError if an `Output` cannot be created."""
    for path in inputs:
        if path == target or (
            "://" not in path + target
            and os.path.realpath(path) == os.path.realpath(target)
        ):
            raise DataError(f"{target}: is both input and output.")
    if not is_folder:
        for path in (target, schema_path(target)):
            if tf.io.gfile.isdir(path):
                raise DataError(f"{path}: cannot be written: it is a folder.")
    elif tf.io.gfile.exists(target) and not (
        tf.io.gfile.isdir(target) and not list_folder(target)
    ):
        raise DataError(
            f"{target}: cannot be written: it exists. Several files need a new or "
            "empty folder."
        )
