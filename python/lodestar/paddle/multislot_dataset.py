"""MultiSlotDataset: MultiSlot text files as a tf.data.Dataset."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar._checks import check_choice
from lodestar._library import gen_ops
from lodestar._typing import StrPath, StrPaths
from lodestar.data.commands import command_words
from lodestar.data.record_dataset import options_of, record_dataset
from lodestar.data.schema import Schema, SchemaLike, as_schema
from lodestar.data.schema_layout import line_fields
from lodestar.data.shared_file_list import SharedFileList
from lodestar.paddle.in_memory_dataset import InMemoryDataset

MODES = ("queue", "file_instant", "in_memory")


def MultiSlotDataset(
    files: SharedFileList | StrPaths,
    schema: SchemaLike,
    batch_size: int,
    *,
    mode: str = "queue",
    weights: Mapping[str, str] | None = None,
    pipe_command: Sequence[StrPath] | None = None,
    ins_id: bool = False,
    parse_content: bool = False,
    parse_logkey: bool = False,
    **options: Any,
) -> tf.data.Dataset:
    """Batches of `(features, label)` from MultiSlot text files.

    `features` maps each slot's name to

    - sparse: a `tf.RaggedTensor` `[B, None]`, int64 (float32 for a float slot);
    - dense: `[B, *shape]`, float32 (int64 for a uint64 slot);
    - one-hot: `[B, size]`, float32.

    `label` is float32 `[B, 1]`; with several label slots a dict of such; without
    one, the elements are `features` alone. Batches straddle files: only the last
    one of an epoch may be smaller.

    The lines are parsed in C++ by threads that run ahead of the training. With
    `deterministic=True`, samples come in the order of files and lines whatever
    the number of threads, and `tf.train.Checkpoint(iterator)` resumes at the
    next sample.

    Mode `"queue"` streams: samples before a bad line come out before its error.
    `"file_instant"` reads a whole file before its first sample comes out, so a
    bad file gives none; it takes the memory of a file (with
    `deterministic=False`, of one for each thread). `"in_memory"` loads all files
    in this call, as `InMemoryDataset`: sparse zeros are dropped, an empty sparse
    slot gets one 0, and epochs read memory; `shuffle_rows` is 0 or -1, which
    draws from all samples.

    >>> dataset = MultiSlotDataset(files, "schema.yaml", 1024)
    >>> model.fit(dataset)

    Args:
        files: One path or several, of any scheme that `tf.io.gfile` knows; a
            name that ends in `.gz` is decompressed. Or a `SharedFileList`, but
            not `"in_memory"`.
        schema: A `Schema`, the path of a schema file, or a list of `Column`s.
        batch_size: Samples a batch.
        mode: `"queue"`, `"file_instant"` or `"in_memory"`, as said above.
        weights: Id slot -> the float slot that holds one weight for each of its
            ids, as `Schema.with_weights`; both stay features of their own.
        pipe_command: A command and its arguments, as `["python", "gen.py"]`.
            Each file goes through a process of its own: the file's bytes,
            decompressed if its name ends in `.gz`, are its stdin, and its
            stdout is the text that is read. No shell sees it.
        ins_id: Whether each line begins with `1 <ins_id>`, a string without
            blanks: the feature `"ins_id"`, `tf.string` `[B]`.
        parse_content: Whether `1 <content>` follows: `"content"`, the same.
        parse_logkey: Whether `1 <logkey>` follows, of whose characters 11 to 13,
            14 to 15 and 16 to 31 are hexadecimal: `"cmatch"`, `"rank"` and
            `"search_id"`, int64 `[B]`.
        **options: Those of every dataset: `drop_remainder`, `shuffle_rows`,
            `repeat`, `shard`, ...; see `ReadOptions`.

    Raises:
        ValueError: An option is out of range, `files` is empty, or a schema file
            is not valid.
        tf.errors.InvalidArgumentError: While reading (`"in_memory"`: in this
            call): a line is not as declared
            ("path:line: slot 'C3' at byte 17: ..."), a file is empty or ends
            without a newline. Samples before that line have come first.
        tf.errors.NotFoundError: While reading: a file is missing.
        tf.errors.FailedPreconditionError: While reading, whatever `on_error`
            says: a file was written to meanwhile, or has another size than when
            the iterator was saved; `open_command` or `pipe_command` cannot be
            run, or does not end with exit code 0. The end of its stderr is in
            the error.
        RuntimeError: `"in_memory"` inside a `tf.function`.
    """
    check_choice("mode", mode, MODES)
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
    return record_dataset(
        op,
        files,
        spec,
        options_of(MultiSlotDataset, batch_size, options),
        fields,
    )


def _in_memory(
    files: Any,
    spec: Schema,
    batch_size: int,
    options: Mapping[str, Any],
    **lines: Any,
) -> tf.data.Dataset:
    if tf.inside_function():
        raise RuntimeError(
            "`mode`='in_memory' loads the files once, so it cannot be inside a "
            "tf.function: make the dataset outside."
        )
    options = dict(options)
    shuffle_rows = options.pop("shuffle_rows", 0)
    if shuffle_rows not in (0, -1):
        raise ValueError(
            "`shuffle_rows` must be 0 or, for all samples, -1 with "
            f"`mode`='in_memory', found {shuffle_rows!r}."
        )
    epochs = {
        "shuffle": shuffle_rows == -1,
        "seed": options.pop("seed", None),
        "repeat": options.pop("repeat", 1),
    }
    memory = InMemoryDataset(spec, batch_size, **lines, **options)
    memory.load(files)
    return memory.dataset(**epochs)
