"""MultiSlot text files as a tf.data.Dataset."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Unpack, get_args

import tensorflow as tf

from lodestar._checks import check_choice
from lodestar._formats import MultiSlotMode
from lodestar._library import gen_ops
from lodestar._typing import StrPath, StrPaths
from lodestar.data.commands import command_words
from lodestar.data.record_dataset import (
    ReadArguments,
    options_of,
    record_dataset,
)
from lodestar.data.schema_layout import line_fields
from lodestar.data.shared_file_list import SharedFileList
from lodestar.paddle.in_memory_dataset import InMemoryDataset
from lodestar.schema import Schema, SchemaLike, as_schema


def MultiSlotDataset(
    files: SharedFileList | StrPaths,
    schema: SchemaLike,
    batch_size: int,
    *,
    mode: MultiSlotMode = "queue",
    weights: Mapping[str, str] | None = None,
    pipe_command: Sequence[StrPath] | None = None,
    ins_id: bool = False,
    parse_content: bool = False,
    parse_logkey: bool = False,
    **options: Unpack[ReadArguments],
) -> tf.data.Dataset:
    """Returns batches of `(features, label)` from MultiSlot text files.

    `open_dataset` describes the options, elements and errors. Batches span files:
    only the last one of an epoch may be smaller. C++ threads parse the lines ahead
    of training. With `deterministic=True`, samples are in the order of files and
    lines for any number of threads, and `tf.train.Checkpoint(iterator)` resumes at
    the next sample.

    Modes:

    - `"queue"` streams; samples before an invalid line are returned before its
      error.
    - `"file_instant"` reads a whole file before it returns its first sample, so an
      invalid file returns none. It needs memory for a file (with
      `deterministic=False`, for one file per thread).
    - `"in_memory"` loads all files in this call, as `InMemoryDataset`: sparse
      zeros are dropped, an empty sparse slot gets one 0, and epochs read memory.
      `shuffle` must be 0 or -1, which shuffles all samples. Not inside a
      `tf.function` or with a `SharedFileList`.

    A line that does not match the schema ("path:line: slot 'C3' at byte 17: ..."),
    and a file that is empty or ends without a newline, raise InvalidArgumentError. A
    file that changed during or since the reading that is resumed, and a failed
    `pipe_command` or `open_command` (with the end of its stderr), raise
    FailedPreconditionError for any `on_error`.
    """
    check_choice("mode", mode, get_args(MultiSlotMode))
    spec = as_schema(schema, weights)
    if mode == "in_memory":
        return _in_memory(
            files,
            spec,
            batch_size,
            options,
            pipe_command=pipe_command,
            ins_id=ins_id,
            parse_content=parse_content,
            parse_logkey=parse_logkey,
        )
    fields = line_fields(ins_id, parse_content, parse_logkey)
    op = functools.partial(
        gen_ops.lodestar_multi_slot_dataset,
        pipe_command=command_words("pipe_command", pipe_command),
        line_fields=fields,
        whole_files=mode == "file_instant",
    )
    read = options_of(MultiSlotDataset, batch_size, options)
    return record_dataset(op, files, spec, read, fields)


def _in_memory(
    files: Any,
    spec: Schema,
    batch_size: int,
    options: Mapping[str, Any],
    **lines: Any,
) -> tf.data.Dataset:
    if tf.inside_function():
        raise RuntimeError(
            "`mode`='in_memory' loads the files once and cannot be used inside a "
            "tf.function. Create the dataset outside."
        )
    options = dict(options)
    shuffle = options.pop("shuffle", 0)
    if shuffle not in (0, -1):
        raise ValueError(
            "`shuffle` must be 0 or -1 (shuffle all samples) with "
            f"`mode`='in_memory', got {shuffle!r}."
        )
    epochs = {
        "shuffle": shuffle == -1,
        "seed": options.pop("seed", None),
        "repeat": options.pop("repeat", 1),
    }
    memory = InMemoryDataset(spec, batch_size, **lines, **options)
    memory.load(files)
    return memory.dataset(**epochs)
