"""Options, epochs and prefetching, shared by the datasets of all formats."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, get_args

import tensorflow as tf

from lodestar._checks import check_choice, check_count, did_you_mean, is_integer
from lodestar._files import as_path
from lodestar._formats import OnError, SparseForm
from lodestar._typing import StrPath, StrPaths
from lodestar.data.commands import check_open_command, command_words
from lodestar.data.schema_layout import SchemaLayout
from lodestar.data.shared_file_list import SharedFileList
from lodestar.data.skipped_records import SkippedRecords
from lodestar.ops.ragged_encoder import map_ragged
from lodestar.schema import Schema

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """Options of the datasets of all formats.

    `open_dataset` describes them.

    Raises:
        ValueError: An option is out of range.
    """

    batch_size: int
    drop_remainder: bool = False
    num_parallel_files: int = 2
    deterministic: bool = True
    shuffle_files: bool = False
    shuffle: int = 0
    seed: int | None = None
    repeat: int | None = 1
    shard: tuple[int, int] | None = None
    prefetch: int = 1
    sparse: SparseForm = "ragged"
    on_error: OnError = "raise"
    skipped: SkippedRecords | None = None
    as_columns: bool = False
    open_command: Sequence[StrPath] | None = None

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size, 1)
        check_count("num_parallel_files", self.num_parallel_files, 1)
        if isinstance(self.shuffle, bool):
            raise ValueError(
                "`shuffle` must be the number of examples to draw from, such as "
                f"shuffle=10_000, or 0 for the order of the files, got {self.shuffle}."
            )
        check_count("shuffle", self.shuffle, 0)
        check_count("prefetch", self.prefetch, 0)
        if self.repeat is not None:
            check_count("repeat", self.repeat, 1)
        if self.shard is not None:
            check_shard("shard", self.shard)
        check_choice("on_error", self.on_error, get_args(OnError))
        if self.seed is not None and not is_integer(self.seed):
            raise ValueError(
                f"`seed` must be an integer or None, got {self.seed!r}."
            )
        check_open_command(self.open_command)
        if self.skipped is not None:
            if not isinstance(self.skipped, SkippedRecords):
                raise ValueError(
                    f"`skipped` must be a SkippedRecords, got {self.skipped!r}."
                )
            if self.on_error != "skip":
                raise ValueError("`skipped` needs `on_error`='skip'.")

    @property
    def skip(self) -> Callable[[str, int], None] | None:
        """Is called with a message and a count; None if errors are raised."""
        if self.on_error == "raise":
            return None
        if self.skipped is not None:
            return self.skipped.add
        return lambda message, count: tf.get_logger().warning(
            "skipped %d rows: %s", count, message
        )

    def shard_of(self, files: list[_T]) -> tuple[list[_T], int, int]:
        """Returns the files of this shard, and the shard for the op."""
        num, index = self.shard or (1, 0)
        if len(files) >= num:
            return files[index::num], 1, 0
        return files, num, index

    def layout(self, spec: Schema, fields: Iterable[str] = ()) -> SchemaLayout:
        """Returns the layout of the batches; see SchemaLayout for `fields`."""
        rows = self.batch_size if self.drop_remainder else None
        return SchemaLayout(
            spec,
            sparse=self.sparse,
            rows=rows,
            as_columns=self.as_columns,
            fields=fields,
        )

    def op_arguments(
        self,
        layout: SchemaLayout,
        files: tf.Tensor,
        seed: tf.Tensor | int,
        num_shards: int,
        shard_index: int,
    ) -> dict[str, Any]:
        """Returns the arguments of a format's dataset op."""
        return {
            "batch_size": tf.constant(self.batch_size, tf.int64),
            "shuffle_rows": tf.constant(self.shuffle, tf.int64),
            "seed": tf.cast(seed, tf.int64),
            "drop_remainder": self.drop_remainder,
            "deterministic": self.deterministic,
            **self.file_arguments(files, num_shards, shard_index),
            **layout.op_attributes(),
        }

    def file_arguments(
        self, files: tf.Tensor, num_shards: int, shard_index: int
    ) -> dict[str, Any]:
        """Returns the arguments of an op that reads files."""
        return {
            "filenames": files,
            "num_parallel_files": tf.constant(
                self.num_parallel_files, tf.int64
            ),
            "num_shards": tf.constant(num_shards, tf.int64),
            "shard_index": tf.constant(shard_index, tf.int64),
            "open_command": command_words("open_command", self.open_command),
            "skip_errors": self.on_error == "skip",
            "skip_log": self.skipped.name if self.skipped else "",
        }


class ReadArguments(TypedDict, total=False):
    """The attributes of `ReadOptions` as arguments of a function."""

    drop_remainder: bool
    num_parallel_files: int
    deterministic: bool
    shuffle_files: bool
    shuffle: int
    seed: int | None
    repeat: int | None
    shard: tuple[int, int] | None
    prefetch: int
    sparse: SparseForm
    on_error: OnError
    skipped: SkippedRecords | None
    as_columns: bool
    open_command: Sequence[StrPath] | None


# Default values of the options besides `batch_size`.
READ_OPTIONS = {
    field.name: field.default
    for field in dataclasses.fields(ReadOptions)
    if field.name != "batch_size"
}


def given_options(**options: Any) -> dict[str, Any]:
    """Returns options of any kind without those that have their default value.

    The default of an option of a format is None or False.
    """

    def is_given(name: str, value: Any) -> bool:
        if name in READ_OPTIONS:
            return bool(value != READ_OPTIONS[name])
        return value is not None and value is not False

    return {name: x for name, x in options.items() if is_given(name, x)}


def options_of(
    reader: Callable[..., Any], batch_size: int, options: Mapping[str, Any]
) -> ReadOptions:
    """Returns the reading options in `options`, which `reader` does not have.

    Raises:
        TypeError: There is no such option.
        ValueError: An option is out of range.
    """
    own = [
        name
        for name, parameter in inspect.signature(reader).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    known = dict.fromkeys([*own, *READ_OPTIONS])
    for name in options:
        if name not in READ_OPTIONS:
            raise TypeError(
                f"There is no option `{name}`.{did_you_mean(name, known)} The "
                f"options are {', '.join(known)}."
            )
    return ReadOptions(batch_size, **options)


def are_known(files: Any, options: ReadOptions) -> bool:
    """Returns whether files can be inspected before they are read."""
    return not (
        isinstance(files, SharedFileList)
        or tf.is_symbolic_tensor(files)
        or options.open_command
    )


def record_dataset(
    op: Callable[..., tf.Tensor],
    files: SharedFileList | StrPaths,
    spec: Schema,
    options: ReadOptions,
    fields: Iterable[str] = (),
) -> tf.data.Dataset:
    """Returns the dataset of a format whose op reads files of records.

    The op is called with `ReadOptions.op_arguments`. `fields` are the leading fields
    of records; see SchemaLayout. Raises ValueError if `files` is empty, or an option
    does not apply to a `SharedFileList`.
    """
    layout = options.layout(spec, fields)
    num_shards, shard_index = 1, 0
    given: SharedFileList | list[str]
    if isinstance(files, SharedFileList):
        _check_shared(options)
        given = files
    else:
        given, num_shards, shard_index = options.shard_of(as_paths(files))

    def epoch(files: tf.Tensor, seed: tf.Tensor | int) -> tf.data.Dataset:
        variant = op(
            **options.op_arguments(layout, files, seed, num_shards, shard_index)
        )
        return tf.data.experimental.from_variant(variant, layout.tensor_specs)

    return epochs(given, epoch, layout.features_and_label, options)


def epochs(
    files: SharedFileList | Iterable[str | int],
    epoch: Callable[[tf.Tensor, tf.Tensor | int], tf.data.Dataset],
    finish: Callable[..., Any] | None,
    options: ReadOptions,
    num_batches: int | None = None,
) -> tf.data.Dataset:
    """Repeats and prefetches epochs of `(features, label)`.

    Args:
        files: At least one path or file index; or a `SharedFileList`.
        epoch: Maps a tensor of files in order (one file at a time for a
            `SharedFileList`), and a seed for shuffling rows, to a dataset for
            `finish`.
        finish: Maps the tensors of a batch to the element to yield. None: `epoch`
            yields the elements.
        options: The options.
        num_batches: Number of batches per epoch, if known.
    """
    shared = paths = None
    if isinstance(files, SharedFileList):
        shared = files.dataset()
    else:
        paths = tf.convert_to_tensor(list(files))
    # AutoGraph has nothing to convert in these, and is slow.
    as_is = tf.autograph.experimental.do_not_convert

    def one_epoch(seed: tf.Tensor | int) -> tf.data.Dataset:
        if shared is not None:
            return shared.flat_map(as_is(lambda path: epoch(path[None], seed)))
        if not options.shuffle_files:
            return epoch(paths, seed)
        order = tf.random.experimental.stateless_shuffle(
            paths, seed=tf.stack([tf.cast(seed, tf.int64), 0])
        )
        return epoch(order, seed)

    # Endlessly repeated empty epochs would draw seeds forever.
    shuffles = bool(options.shuffle_files or options.shuffle)
    if shuffles and num_batches != 0:
        # One random number per epoch; new numbers on each call of fit().
        seeds = tf.data.Dataset.random(
            seed=options.seed, rerandomize_each_iteration=True
        )
        if options.repeat is not None:
            seeds = seeds.take(options.repeat)
        dataset = seeds.flat_map(as_is(one_epoch))
        if num_batches is not None:
            dataset = _with_cardinality(dataset, num_batches, options.repeat)
    else:
        dataset = one_epoch(0)
        if options.repeat != 1:
            dataset = dataset.repeat(options.repeat)
    if finish is not None:
        dataset = map_ragged(dataset, finish)
    if options.prefetch:
        return dataset.prefetch(options.prefetch)
    # By default, tf.data appends a prefetch to a dataset without one.
    synchronous = tf.data.Options()
    synchronous.experimental_optimization.inject_prefetch = False
    return dataset.with_options(synchronous)


def _with_cardinality(
    dataset: tf.data.Dataset, num_batches: int, repeat: int | None
) -> tf.data.Dataset:
    if repeat is None:
        cardinality = tf.data.INFINITE_CARDINALITY
    else:
        cardinality = num_batches * repeat
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))


def as_paths(files: Any) -> list[str]:
    """Returns the paths as strings; raises ValueError if the list is empty."""
    if tf.is_symbolic_tensor(files):  # the path argument of a tf.function
        return [files]
    if isinstance(files, (str, bytes, os.PathLike)):
        files = [files]
    paths = []
    found = type(files)  # name only the type, since the value may be large
    try:
        if isinstance(files, Mapping):
            raise TypeError("would be its keys")
        for path in files:
            found = type(path)
            paths.append(as_path(path))
    except TypeError as error:
        raise ValueError(
            "`files` must be a path or a list of paths, got "
            f"{'' if found is type(files) else 'a list with '}{found.__name__}."
        ) from error
    if not paths:
        raise ValueError("`files` must have at least one path.")
    return paths


def _check_shared(options: ReadOptions) -> None:
    for name in ("shuffle_files", "shard"):
        if getattr(options, name):
            raise ValueError(
                f"`{name}` is not an option with a SharedFileList, whose server "
                "assigns the files in its own order."
            )


def check_shard(name: str, shard: Any) -> None:
    """Raises ValueError unless this is `(num, index)` with index below num."""
    if not isinstance(shard, (tuple, list)) or len(shard) != 2:
        raise ValueError(
            f"`{name}` must be a pair (num, index), got {shard!r}."
        )
    num, index = shard
    check_count(f"{name}[0]", num, 1)
    check_count(f"{name}[1]", index, 0)
    if index >= num:
        raise ValueError(
            f"`{name}` must have an index less than {num}, got {index}."
        )
