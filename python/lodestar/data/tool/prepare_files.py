"""Files to train and evaluate on: held out, looked through and kept, once."""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import shutil
import stat
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import DataError, describe_error
from lodestar._typing import StrPath, StrPaths
from lodestar.data.open_dataset import open_dataset
from lodestar.data.record_dataset import as_paths
from lodestar.data.schema import Schema
from lodestar.data.source import Source
from lodestar.data.tool.find_format import expand_inputs, one_format
from lodestar.data.tool.output import FOLDER_SCHEMA
from lodestar.data.tool.split_samples import split_samples
from lodestar.paddle.multislot_writer import MultiSlotWriter

_ABOUT = "data.json"
_BATCH = 4096
# Their datasets go through Python, and their iterators cannot be saved.
_CONVERTED = ("csv", "tsv")
# A part of a file has neither its number of samples nor, as its keys have been
# shifted, its slot sizes.
_OF_WHOLE_FILES = ("num_samples", "slot_size_array")

Transform = Callable[[np.ndarray], np.ndarray]


class OtherFilesError(DataError):
    """A folder holds what was not made of these files in this way."""


@dataclasses.dataclass(frozen=True)
class PreparedFiles:
    """Files to train and to evaluate on, all of one format.

    Attributes:
        schema_file: Slot file of all of them.
        format: Of all of them.
        options: Of the format's dataset.
        train_files: What to train on.
        eval_files: What to evaluate on.
        train_examples: Number of examples in `train_files`.
        eval_examples: Number of examples in `eval_files`.
        mean: Of the dense values of `train_files`, one number a value of the
            used dense slots, one slot after another.
        variance: As `mean`.
        metadata: Whatever else is known of them.
    """

    schema_file: str
    format: str
    options: dict[str, Any]
    train_files: list[str]
    eval_files: list[str]
    train_examples: int
    eval_examples: int
    mean: list[float]
    variance: list[float]
    metadata: dict[str, Any]

    @classmethod
    def load(cls, path: StrPath) -> "PreparedFiles":
        """What `prepare_files` or `prepare_once` has made at `path`.

        Raises:
            OtherFilesError: `path` is no such folder.
        """
        found = _load(pathlib.Path(path))
        if found is None:
            raise OtherFilesError(f"{path}: holds no prepared files")
        return found[1]

    @property
    def schema(self) -> Schema:
        """What an example holds, unused slots included."""
        return Schema.load(self.schema_file)

    def train_dataset(
        self, batch_size: int, *, shuffle_rows: int = 0, seed: int | None = None
    ) -> tf.data.Dataset:
        """One pass over `train_files`, of known length; as `open_dataset`."""
        dataset = self._dataset(
            self.train_files, batch_size, shuffle_rows=shuffle_rows, seed=seed
        )
        return _of_length(dataset, self.train_examples, batch_size)

    def eval_dataset(self, batch_size: int = _BATCH) -> tf.data.Dataset:
        """One pass over `eval_files`, of known length, in order."""
        dataset = self._dataset(self.eval_files, batch_size)
        return _of_length(dataset, self.eval_examples, batch_size)

    def describe_slots(self) -> str:
        """Lines that say what each slot is taken for."""
        schema = self.schema
        used = Schema(schema.used)
        lines = []
        for title, names in (
            ("Label", used.names("label")),
            ("Numbers", used.names("dense")),
            ("Ids", used.names("sparse")),
            ("One-hot", used.names("one_hot")),
            ("Not used", [slot.name for slot in schema if not slot.used]),
        ):
            if names:
                lines += textwrap.wrap(
                    f"{title + ':':<10}{', '.join(names)}",
                    79,
                    subsequent_indent=" " * 10,
                    break_on_hyphens=False,
                    break_long_words=False,
                )
        return "\n".join(lines)

    def _dataset(
        self, files: Sequence[str], batch_size: int, **options: Any
    ) -> tf.data.Dataset:
        return open_dataset(
            files,
            self.schema_file,
            batch_size,
            format=self.format,
            **self.options,
            **options,
        )


def _of_length(
    dataset: tf.data.Dataset, examples: int, batch_size: int
) -> tf.data.Dataset:
    # So that Keras, and a snapshot, know where a pass ends before its end.
    return dataset.apply(
        tf.data.experimental.assert_cardinality(-(-examples // batch_size))
    )


def prepare_files(
    path: StrPath,
    files: StrPaths,
    *,
    eval_files: StrPaths | None = None,
    fraction: float = 0.2,
    seed: int = 0,
    schema: StrPath | None = None,
    format: str | None = None,
    transform: Transform | None = None,
    **options: Any,
) -> PreparedFiles:
    """Makes files of whichever format ready to train a model of clicks on.

    Reads all of them, so that what is wrong shows before training begins. Where
    nothing else is given to evaluate on, a random part of each file is held out:
    both parts are copied to the folder `path`. CSV becomes MultiSlot text there,
    which is read faster and whose iterators can be saved. Other files stay where
    they are. Called again, it finds the folder and reads nothing; called by
    several processes at once, one makes it and the others wait.

    >>> data = prepare_files("prepared", "clicks.parquet")
    >>> model.fit(data.train_dataset(512))

    Args:
        path: The folder to make; it appears whole or not at all.
        files: To train on, local ones, as for `open_source`.
        eval_files: To evaluate on, of the same format; None holds a part of
            `files` out.
        fraction: Of the examples to hold out, between 0 and 1.
        seed: Of which ones these are.
        schema: Slot file, as for `open_source`. Slots that are used must be one
            label of 0 and 1, id slots, dense slots of a fixed shape and one-hot
            slots.
        format: As for `open_source`.
        transform: What is done to dense values, float64 `[N, V]`, before their
            mean and variance are taken; default: nothing. Not compared with
            that of an earlier call.
        **options: Those of the format's reader.

    Returns:
        What was made, now or before.

    Raises:
        OtherFilesError: `path` exists and was not made of these files, as they
            are now, with these arguments.
        DataError: A file or the folder cannot be used; names it, and the example
            and slot. Nothing is left behind.

    Warns:
        UserWarning: As `open_source`.
    """
    with _data_errors():
        train = _expanded(files)
        evaluation = _expanded(eval_files) if eval_files else []
        found = format or one_format([*train, *evaluation])
        source = {
            "data": list(map(_stamp, train)),
            "eval_data": list(map(_stamp, evaluation)),
            "format": found,
            "options": options,
            "slots": schema and _stamp(schema),
            "eval_fraction": fraction,
            "seed": seed,
        }

    def make(folder: pathlib.Path) -> PreparedFiles:
        opened = open_source(
            [*train, *evaluation], schema, format=found, **options
        )
        _check_slots(opened.spec.used, schema or train[0])
        opened.spec.save(folder / FOLDER_SCHEMA)
        own: dict[str, str] = {}  # file in the folder -> that of the caller
        try:
            return _made(
                opened, folder, own, found, options, len(train), fraction, seed,
                transform,
            )  # fmt: skip
        except DataError as error:
            text = str(error)
            for name in own:
                # The copy is gone, so its lines are counted as examples.
                text = re.sub(
                    rf"{re.escape(name)}:(\d+)", rf"{name}: example \1", text
                )
                text = text.replace(name, own[name])
            raise DataError(text) from error

    return prepare_once(path, source, make)


def prepare_once(
    path: StrPath,
    source: Mapping[str, Any],
    make: Callable[[pathlib.Path], PreparedFiles],
) -> PreparedFiles:
    """As `prepare_files`, of files that a function of the caller makes.

    Args:
        path: The folder to make; it appears whole or not at all.
        source: What they depend on, as JSON holds it; kept in the folder.
        make: Called, if there is no such folder, with the path of one to fill;
            returns what `read_files` says of the files.

    Returns:
        What `make` returned, now or before.

    Raises:
        OtherFilesError: `path` exists and was not made of an equal `source`.
        DataError: The folder cannot be made, or `make` raised DataError,
            ValueError, OSError or tf.errors.OpError. Nothing is left behind.
    """
    path = pathlib.Path(path)
    with _data_errors():
        try:
            source = json.loads(json.dumps(source))  # tuples are lists
        except TypeError as error:
            raise DataError(f"{path}: `source` is no JSON: {error}") from error
        loaded = _load(path)
        if loaded is None and not path.exists():
            with _new_folder(path) as folder:
                if folder is not None:
                    data = _moved(dataclasses.asdict(make(folder)), folder)
                    content = {"source": source, "data": data}
                    (folder / _ABOUT).write_text(json.dumps(content, indent=2))
            loaded = _load(path)
        if loaded is None:
            raise OtherFilesError(
                f"{path}: there is such a folder, but it holds no data of this "
                "program"
            )
        if loaded[0] != source:
            raise OtherFilesError(
                f"{path}: was made of other data or with other options"
            )
    return loaded[1]


def read_files(
    train_files: StrPaths,
    eval_files: StrPaths,
    schema_file: StrPath,
    *,
    format: str = "multislot",
    transform: Transform | None = None,
    metadata: Mapping[str, Any] | None = None,
    **options: Any,
) -> PreparedFiles:
    """Reads files once: are they sound, and what do they hold?

    Args:
        train_files: To train on.
        eval_files: To evaluate on; must have labels of 0 and of 1.
        schema_file: Slot file of all of them.
        format: Of all of them.
        transform: As for `prepare_files`.
        metadata: What the result has, too, as JSON holds it.
        **options: Those of the format's dataset.

    Raises:
        DataError: A dense value is not finite, a label not 0 or 1, or all
            labels to evaluate on are the same; names file, example and slot.
        tf.errors.OpError: A file is not of this format or these slots.
    """
    spec = Schema.load(schema_file)
    train, evaluation = as_paths(train_files), as_paths(eval_files)
    examples, _, mean, variance = _summary(
        train, spec, format, options, transform
    )
    evaluated, positives, _, _ = _summary(
        evaluation, spec, format, options, transform
    )
    if positives in (0, evaluated):
        raise DataError(
            f"{', '.join(evaluation)}: all {evaluated} labels to evaluate on "
            f"are {min(positives, 1)}, wanted both 0 and 1"
        )
    return PreparedFiles(
        schema_file=os.fspath(schema_file),
        format=format,
        options=options,
        train_files=train,
        eval_files=evaluation,
        train_examples=examples,
        eval_examples=evaluated,
        mean=mean,
        variance=variance,
        metadata=dict(metadata or {}),
    )


def _made(
    opened: Source,
    folder: pathlib.Path,
    own: dict[str, str],
    format: str,
    options: Mapping[str, Any],
    num_train: int,
    fraction: float,
    seed: int,
    transform: Transform | None,
) -> PreparedFiles:
    """Converts, checks and splits; notes in `own` which files it makes."""
    files = opened.paths
    if format in _CONVERTED:
        format, options = "multislot", {}
        files = []
        for index, original in enumerate(opened.paths):
            files.append(str(folder / f"examples-{index}.multislot"))
            own[files[-1]] = original
            with MultiSlotWriter(files[-1], opened.spec) as writer:
                for columns in opened.batches(original):
                    writer.write_batch(columns)
    elif num_train == len(files):
        # Now, so that errors name samples of these and not of parts of them.
        _summary(files, opened.spec, format, options, transform)
    train, evaluation = files[:num_train], files[num_train:]
    if not evaluation:
        for index, file in enumerate(files):
            parts = [
                str(folder / f"{part}-{index}.{format}")
                for part in ("train", "eval")
            ]
            original = own.get(file, file)
            own.update(dict.fromkeys(parts, original))
            split_samples(
                file,
                *parts,
                fraction=fraction,
                seed=seed + index,
                format=format,
                schema=opened.spec,
                **options,
            )
            train[index] = parts[0]
            evaluation.append(parts[1])
            if file != original:  # converted for this only
                os.remove(file)
        options = {
            name: value
            for name, value in options.items()
            if name not in _OF_WHOLE_FILES
        }
    return read_files(
        train,
        evaluation,
        folder / FOLDER_SCHEMA,
        format=format,
        transform=transform,
        **options,
    )


def _summary(
    files: Sequence[str],
    spec: Schema,
    format: str,
    options: Mapping[str, Any],
    transform: Transform | None,
) -> tuple[int, int, list[float], list[float]]:
    """Examples, those of label 1, mean and variance of the dense values."""
    used = Schema(spec.used)
    names = [
        slot.name for slot in used.dense for _ in range(slot.num_values or 0)
    ]
    examples, positives = 0, 0
    sums, squares = np.zeros(len(names)), np.zeros(len(names))

    def check(values: Any, good: Any, names: Any, wanted: str) -> None:
        for row, column in np.argwhere(~good)[:1]:
            raise DataError(
                f"{_place(file, done + row, format)}: slot {names[column]!r}: "
                f"a value is {values[row, column]}, wanted {wanted}"
            )

    for file in files:
        done = 0
        dataset = open_dataset(file, spec, _BATCH, format=format, **options)
        for features, label in dataset:
            clicks = label.numpy()
            good = (clicks == 0) | (clicks == 1)
            check(clicks, good, used.names("label"), "0 or 1")
            positives += int(clicks.sum())
            if names:
                values = np.concatenate(
                    [
                        features[slot.name].numpy().reshape(len(clicks), -1)
                        for slot in used.dense
                    ],
                    axis=1,
                ).astype(np.float64)
                check(values, np.isfinite(values), names, "a finite number")
                if transform is not None:
                    values = transform(values)
                sums += values.sum(axis=0)
                squares += (values**2).sum(axis=0)
            done += len(clicks)
        examples += done
    mean = sums / examples
    # Rounding may leave a constant slot a variance just below zero.
    variance = np.maximum(squares / examples - mean**2, 0.0)
    return examples, positives, mean.tolist(), variance.tolist()


def _place(file: str, index: int, format: str) -> str:
    """Where an example is, counted from 0, as the errors of datasets say."""
    if format == "multislot":
        return f"{file}:{index + 1}"
    return f"{file}: {'row' if format == 'parquet' else 'record'} {index}"


def _check_slots(schema: Sequence[Any], where: Any) -> None:
    labels = [slot.name for slot in schema if slot.kind == "label"]
    if len(labels) != 1:
        raise DataError(
            f"{where}: wanted one label slot of 0 and 1, found {labels}"
        )
    for slot in schema:
        if slot.kind == "sparse" and slot.dtype != "uint64":
            raise DataError(
                f"{where}: sparse slot {slot.name!r} is of float, wanted ids"
            )
        if slot.kind == "dense" and slot.num_values is None:
            raise DataError(
                f"{where}: dense slot {slot.name!r} has the shape "
                f"{list(slot.shape)}, wanted a fixed one"
            )
    if len(schema) == 1:
        raise DataError(f"{where}: no feature slot beside the label")


def _expanded(paths: StrPaths) -> list[str]:
    return [os.path.abspath(p) for p in expand_inputs(as_paths(paths))]


def _stamp(path: StrPath) -> list[Any]:
    """What changes when a file does."""
    status = os.stat(path)
    return [os.path.abspath(path), status.st_size, status.st_mtime_ns]


def _moved(
    content: dict[str, Any], old: pathlib.Path, new: pathlib.Path | None = None
) -> dict[str, Any]:
    """The content with paths in `old` relative, or those relative in `new`."""

    def move(path: str) -> str:
        if new is not None:
            # A file outside the folder has an absolute path, which stays.
            return str(new / path)
        path = os.path.abspath(path)
        inside = pathlib.Path(path).is_relative_to(os.path.abspath(old))
        return os.path.relpath(path, old) if inside else path

    return {
        **content,
        "schema_file": move(content["schema_file"]),
        "train_files": list(map(move, content["train_files"])),
        "eval_files": list(map(move, content["eval_files"])),
    }


def _load(path: pathlib.Path) -> tuple[Any, PreparedFiles] | None:
    """The source and the files of a folder; None without one."""
    about = path / _ABOUT
    try:
        found = json.loads(about.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f"{about}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{about}: is no JSON: {error}") from error
    try:
        content = _moved(found["data"], path, path)
        return found["source"], PreparedFiles(**content)
    except (KeyError, TypeError) as error:
        raise OtherFilesError(
            f"{about}: was not written by this program"
        ) from error


@contextlib.contextmanager
def _new_folder(path: pathlib.Path) -> Iterator[pathlib.Path | None]:
    """Gives a folder to fill, which becomes `path` when the block ends.

    If the block raises, nothing of it is left, nor are folders above `path`
    that were made for it. None: another process has made `path` meanwhile.
    """
    made = [p for p in path.parents if not p.exists()]
    with contextlib.ExitStack() as held:
        try:
            try:
                partial = path.with_name(path.name + ".partial")
                held.enter_context(_held(partial))
                folder = partial / path.name
                # Of a process that was killed.
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
            except OSError as error:
                raise DataError(
                    f"{path.parent}: cannot be written: {error.strerror}"
                ) from error
            if path.exists():
                yield None
            else:
                yield folder
                os.replace(folder, path)
        except BaseException:
            held.close()
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise


@contextlib.contextmanager
def _held(folder: pathlib.Path) -> Iterator[None]:
    """Makes a folder for the block, when no other process has it any more.

    The system says so when a process has died, too.
    """
    while True:
        # It may be removed at any time by the one who had it.
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR(os.lstat(folder).st_mode):
                    raise
            continue
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            with contextlib.suppress(OSError):  # some systems lock no folders
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # It may have been removed, and made anew, before it was free.
            if _inode(folder) == os.fstat(descriptor).st_ino:
                try:
                    yield
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                return
        finally:
            os.close(descriptor)


def _inode(folder: pathlib.Path) -> int | None:
    try:
        return folder.stat().st_ino
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _data_errors() -> Iterator[None]:
    """Makes one error of all that files and folders can raise."""
    try:
        yield
    except DataError:
        raise
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise DataError(describe_error(error)) from error
