"""Detects the format of files by their first bytes, or by their names.

Damaged files have a format as well, so that reading them reports the damage.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf
from google.protobuf.message import DecodeError

from lodestar._errors import DataError, reading
from lodestar._files import as_path, list_folder
from lodestar._input_bytes import open_input
from lodestar.data.arrow import ipc_source
from lodestar.data.arrow.text_format import DELIMITERS, is_criteo_line
from lodestar.data.files.formats import FORMATS
from lodestar.hugectr.file_list import FILE_LIST, read_file_list
from lodestar.hugectr.norm_writer import norm_header
from lodestar.hugectr.parquet_metadata import METADATA_NAME, read_metadata
from lodestar.paddle.multislot_generator import parse_number

_NO_DATA = (".yaml", ".npy", ".json")
_HEAD_BYTES = 1 << 16
_RECORD_HEAD_BYTES = 12  # record length and checksum
_MAX_RECORD = 1 << 31
# The start of an array of objects.
_JSON_ARRAY = re.compile(rb"\[\s*(\{|$)")
_MAX_DIM = 1 << 24  # random bytes rarely decode to a smaller Norm header


def expand_inputs(paths: Iterable[str]) -> list[str]:
    """Replaces folders, file lists and patterns by the files in them.

    A folder stands for the files in its `_metadata.json` or `file_list.txt`. Without
    either, it stands for all files in it and its subfolders (e.g. Hive partitions),
    sorted by path, except hidden files (names that begin with "_" or "."), empty
    files, and files without data, e.g. schema files. If some names match a format or
    `part-*`, only those files are used.

    Raises:
        DataError: A file is missing, or a folder has no data files.
        ValueError: A file list is not valid.
    """
    found: list[str] = []
    for path in map(as_path, paths):
        if tf.io.gfile.isdir(path):
            found += _in_folder(path)
        elif any(c in path for c in "*?[") and not tf.io.gfile.exists(path):
            matches = sorted(tf.io.gfile.glob(path))
            if not matches:
                raise DataError(f"{path}: no file matches")
            found += matches
        elif path.endswith(".txt") and _is_file_list(path):
            found += read_file_list(path)
        else:
            found.append(path)
    return found


def find_format(path: str) -> str:
    """Returns the format of a file; raises DataError if it is unclear."""
    head, damage = _head(path)
    if not head and damage is None:
        raise DataError(f"{path}: the file is empty")
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((ipc_source.MAGIC, ipc_source.STREAM)):
        return "arrow"
    if _is_norm(head):
        return "norm"
    if _is_example(head):
        return "tfrecord"
    by_name = format_of_name(path)
    if by_name in ("raw", "instant"):  # These files have no signature.
        return by_name
    if _is_json(path, head, by_name):
        return "jsonl"
    found = _text_format(head)
    if found == "csv" and by_name == "tsv":
        return by_name
    # Text with a single column has no delimiter to detect.
    if found is None and (damage is not None or by_name in ("csv", "tsv")):
        found = by_name
    if found is None:
        raise damage or DataError(
            f"{path}: shows no format; say which it is of {', '.join(FORMATS)}"
        )
    return found


def one_format(paths: Sequence[str], *, has_text_options: bool = False) -> str:
    """Returns the common format of the files; raises DataError if they differ.

    With options of delimited text, a file is CSV if its format is unclear, or if it
    would be MultiSlot or Raw, which may look alike.
    """
    try:
        found = _common_format(paths)
    except DataError:
        if not has_text_options:
            raise
        return "csv"
    return (
        "csv" if has_text_options and found in ("multislot", "raw") else found
    )


def _common_format(paths: Sequence[str]) -> str:
    first = find_format(paths[0])
    for path in paths[1:]:
        found = find_format(path)
        if found != first:
            raise DataError(
                f"{path}: is {found}, but {paths[0]} is {first}. Pass files of one "
                "format."
            )
    return first


def format_of_name(path: str) -> str | None:
    """Returns the format for the suffix of a path, or None."""
    name = os.fspath(path).removesuffix(".gz").lower()
    for found in FORMATS.values():
        if name.endswith(found.suffixes):
            return found.name
    return None


def _in_folder(path: str) -> list[str]:
    names = list_folder(path)
    if METADATA_NAME in names:
        metadata = read_metadata(os.path.join(path, METADATA_NAME))
        assert metadata is not None
        return [os.path.join(path, name) for name in metadata.num_rows]
    if FILE_LIST in names:
        return read_file_list(os.path.join(path, FILE_LIST))
    found = sorted(_walk(path))
    named = [
        file
        for file in found
        if format_of_name(file) or os.path.basename(file).startswith("part-")
    ]
    if not (named or found):
        raise DataError(f"{path}: is a folder without files of data")
    return named or found


def _walk(path: str) -> Iterator[str]:
    """Yields the data files in a folder and its subfolders."""
    for name in list_folder(path):
        # Spark and Hadoop write such files, e.g. _SUCCESS and .part-0.crc.
        if name.startswith(("_", ".")) or name.endswith(_NO_DATA):
            continue
        inner = os.path.join(path, name)
        if tf.io.gfile.isdir(inner):
            yield from _walk(inner)
        elif tf.io.gfile.stat(inner).length:
            yield inner


def _is_file_list(path: str) -> bool:
    lines = _head(path)[0].split(b"\n")
    # A line of MultiSlot text is "0", or has at least a count and a value.
    return (
        len(lines) > 1
        and lines[0].strip().isdigit()
        and lines[0].strip() != b"0"
        and _text_format(lines[1] + b"\n") != "multislot"
    )


def _head(path: str) -> tuple[bytes, DataError | None]:
    """Returns a file's first bytes, and the error if it is damaged."""
    with reading(path):
        if tf.io.gfile.isdir(path):
            raise DataError(f"{path}: is a folder")
        head = b""
        with open_input(path) as file:
            try:
                piece = file.read1(_HEAD_BYTES)
                # AutoGraph cannot convert `:=` in a while loop.
                while piece:
                    head += piece
                    piece = file.read1(_HEAD_BYTES - len(head))
            except DataError as error:
                return head, error
        return head, None


def _is_norm(head: bytes) -> bool:
    header = norm_header(head)
    if header is None:
        return False
    _, count, *dims = header
    return (
        count >= 0
        and all(0 <= dim <= _MAX_DIM for dim in dims[:3])
        and dims[3:] == [0, 0, 0]
    )


def _is_example(head: bytes) -> bool:
    """Returns whether the first TFRecord is a tf.Example or SequenceExample."""
    length = int.from_bytes(head[:8], "little")
    record = head[_RECORD_HEAD_BYTES:][:length]
    if not 0 < length < _MAX_RECORD or record[:1] not in (
        b"\n",
        b"\x12",
    ):
        return False
    if len(record) < length:  # longer than the head
        return len(head) == _HEAD_BYTES
    try:
        # The features of a tf.Example are the context of a SequenceExample.
        tf.train.SequenceExample.FromString(record)
    except DecodeError:
        return False
    return True


def _is_json(path: str, head: bytes, by_name: str | None) -> bool:
    """Returns whether the first line is a JSON object, or shall be one.

    Raises DataError if the file is a JSON array.
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    is_json = by_name == "jsonl" or path.removesuffix(".gz").endswith(".json")
    if text.startswith(b"[") and (is_json or _JSON_ARRAY.match(text)):
        raise DataError(
            f"{path}: is a JSON array; write one object per line (JSON lines), "
            "e.g. with pandas' to_json(orient='records', lines=True)"
        )
    if not text.startswith(b"{"):
        return by_name == "jsonl"
    line, newline, _ = text.partition(b"\n")
    if by_name == "jsonl":
        return True
    if not newline and len(head) == _HEAD_BYTES:
        return text[1:].lstrip().startswith(b'"')
    try:
        return isinstance(json.loads(line.decode(errors="replace")), dict)
    except ValueError:
        if is_json:
            raise DataError(
                f"{path}: its first line is not a JSON object; write one object "
                "per line (JSON lines)"
            ) from None
        return False


def _text_format(head: bytes) -> str | None:
    if b"\0" in head:
        return None
    line = head.partition(b"\n")[0]
    try:
        text = line.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        # Opening the file reports the invalid byte and suggests `encoding`.
        text = line.decode("latin-1")
        if not text.rstrip().replace("\t", "").isprintable():
            return None
    if is_criteo_line(text):
        return "tsv"
    words = text.split()
    is_numbers = bool(words) and all(
        parse_number(word) is not None for word in words
    )
    if is_numbers and (_is_multislot(words) or not _is_delimited(text)):
        return "multislot" if words[0].isdigit() else None
    if _is_delimited(text):
        return "csv"
    return None


def _is_delimited(text: str) -> bool:
    return any(delimiter in text for delimiter in DELIMITERS)


def _is_multislot(words: Sequence[str]) -> bool:
    """Returns whether words are counts, each followed by that many values."""
    at = 0
    while at < len(words):
        if not words[at].isdigit():
            return False
        at += 1 + int(words[at])
    return at == len(words)
