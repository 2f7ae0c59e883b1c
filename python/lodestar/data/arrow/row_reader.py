"""RowReader: stateless reading of batches of rows."""

import collections
import contextlib
import itertools
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from lodestar._errors import DataError
from lodestar._input_bytes import ChangedFileError
from lodestar.data.arrow.batch_packer import BatchPacker
from lodestar.data.arrow.decode import Rows
from lodestar.data.arrow.row_source import RowSource, read_rows, report_bad
from lodestar.data.binding import Binding
from lodestar.data.sample_columns import concat
from lodestar.ops.reader_threads import ReaderThreads

_MAX_CHUNKS = 4  # kept for iterators that stopped early
_PATIENCE = 10  # seconds to wait for a thread
_Cache = collections.OrderedDict[Any, Any]


class _Piece(NamedTuple):
    """Rows [begin, end) of a row group; `last` if no later piece reads it."""

    file: int
    group: int
    begin: int
    end: int
    last: bool = True


class _Plan:
    """The order of an epoch's rows, in chunks.

    Without a window, a chunk is a piece. With a window, it is that many consecutive
    rows, which are then shuffled. The first window has a random smaller size, so
    that different rows are shuffled together in each epoch. If one window holds all
    rows, it keeps its size.
    """

    def __init__(
        self, key: Hashable, pieces: list[_Piece], window: int, seed: int
    ):
        self.key = key
        self.pieces = pieces
        self._window = window
        self._seed = seed
        sizes = [piece.end - piece.begin for piece in pieces]
        self._ends = list(itertools.accumulate(sizes))
        total = self._ends[-1] if pieces else 0
        self._first = total
        self.num_chunks = len(pieces)
        if window:
            if window < total:
                first = _random(seed, 0, 1)[0] % np.uint64(window)
                self._first = 1 + int(first)
            later = max(total - self._first, 0)
            self.num_chunks = bool(total) + -(-later // window)
        self._total = total

    def chunk(self, number: int) -> Iterator[tuple[int, _Piece]]:
        """Yields the pieces of a chunk and their positions."""
        if not self._window:
            yield number, self.pieces[number]
            return
        begin = self._first + (number - 1) * self._window if number else 0
        end = min(self._first + number * self._window, self._total)
        at = int(np.searchsorted(self._ends, begin, side="right"))
        while begin < end:
            file, group, first, last, _ = self.pieces[at]
            offset = first - (self._ends[at] - (last - first))
            until = min(end, self._ends[at])
            yield (
                at,
                _Piece(
                    file,
                    group,
                    begin + offset,
                    until + offset,
                    until == self._ends[at],
                ),
            )
            begin, at = until, at + 1

    def begun(self, number: int, row: int) -> int | None:
        """Returns the file at a position, or None if this is the file's first row."""
        first = next((p for _, p in self.chunk(number)), None)
        if first is None or not (row or first.group or first.begin):
            return None
        return first.file

    def order(self, number: int, rows: int) -> np.ndarray | None:
        """Returns the order of a chunk's rows, or None to keep it."""
        if not self._window:
            return None
        return np.argsort(_random(self._seed, number + 1, rows), kind="stable")


class _Chunk(NamedTuple):
    rows: Rows
    skipped: list[tuple[str, int]]  # messages and row counts


class RowReader:
    """Reads batches; threads decode row groups ahead.

    Thread-safe. `next_batch` keeps no position, so a saved or shared iterator
    holds only a chunk number and a row.
    """

    def __init__(
        self,
        files: Sequence[RowSource],
        bindings: Sequence[Binding],
        *,
        batch_size: int,
        drop_remainder: bool,
        ahead: int,
        window: int,
        shard: tuple[int, int],
        skip: Callable[[str, int], None] | None,
        na_values: Collection[str],
    ):
        """Creates a reader of `files`; see `arrow_dataset`.

        `ahead` is the number of row groups to decode ahead, and of threads.
        `window` is the number of rows to shuffle together, or 0. `shard` is the
        number of readers and the index of this one. `skip` is called with a message
        and a row count for each bad row or row group; None raises an error.
        """
        self._na_values = na_values
        self._files = files
        self._bindings = bindings
        self._batch_size = batch_size
        self._drop_remainder = drop_remainder
        self._ahead = ahead
        self._window = window
        self._skip = skip
        self._pieces = _shard(files, *shard)
        self.packer = BatchPacker(
            bindings, batch_size if drop_remainder else None
        )
        self._threads = ReaderThreads(ahead)
        # Unlocked: under a lock, garbage collection could destroy an iterator that
        # waits for a batch. Two threads may compute the same value, which is harmless.
        self._plans: _Cache = collections.OrderedDict()
        self._groups: _Cache = collections.OrderedDict()
        self._chunks: _Cache = collections.OrderedDict()

    @property
    def num_batches(self) -> int:
        """Returns the number of batches per epoch if no row is skipped."""
        rows = sum(p.end - p.begin for pieces in self._pieces for p in pieces)
        if self._drop_remainder:
            return rows // self._batch_size
        return -(-rows // self._batch_size)

    def next_batch(
        self,
        order: np.ndarray,
        seed: np.ndarray,
        chunk: int,
        row: int,
        num_bytes: int,
    ) -> list[Any]:
        """Returns the batch at a position of an epoch.

        Args:
            order: Indices of the files, in the order of the epoch.
            seed: Shuffle seed of the epoch.
            chunk: Number of the chunk in which the batch starts.
            row: First row in the chunk.
            num_bytes: Size of the file at this position, or -1 if no row of the
                file has been read.

        Returns:
            The next chunk, row and size; the number of rows of the batch, 0 at the
            end; and the arrays of `BatchPacker.pack`.

        Raises:
            DataError: A row is bad and `skip` is None, or the file size changed.
        """
        plan = self._plan(order, int(seed))
        path, found_bytes = self._begun(plan, int(chunk), int(row))
        if -1 not in (num_bytes, found_bytes) and num_bytes != found_bytes:
            raise ChangedFileError(
                f"{path}: has {found_bytes} bytes, but had {num_bytes} when the "
                "iterator was saved, so reading cannot resume in it"
            )
        chunk, row, rows = int(chunk), int(row), 0
        parts = []
        while rows < self._batch_size and chunk < plan.num_chunks:
            found = self._chunk(plan, chunk)
            if row == 0:
                for skipped in found.skipped:
                    assert self._skip is not None
                    self._skip(*skipped)
            num_rows = found.rows.num_rows
            if row > num_rows:
                raise DataError(
                    f"the saved position, row {row} of part {chunk} of the data, "
                    f"is beyond its {num_rows} rows; the files have changed"
                )
            until = min(row + self._batch_size - rows, num_rows)
            if until > row:
                parts.append((found.rows, row, until))
            rows += until - row
            row = until
            if row == num_rows:
                self._chunks.pop((plan.key, chunk), None)
                chunk, row = chunk + 1, 0
        if rows < self._batch_size and self._drop_remainder:
            parts, rows = [], 0
        return [
            np.int64(chunk),
            np.int64(row),
            np.int64(self._begun(plan, chunk, row)[1]),
            np.int64(rows),
            *self.packer.pack(parts, rows),
        ]

    def _begun(self, plan: _Plan, chunk: int, row: int) -> tuple[str, int]:
        """Returns the path and size of the file being read; size -1 if none is."""
        number = plan.begun(chunk, row) if chunk < plan.num_chunks else None
        if number is None:
            return "", -1
        return self._files[number].path, self._files[number].num_bytes

    def _plan(self, order: np.ndarray, seed: int) -> _Plan:
        key = (order.tobytes(), seed)
        plan = self._plans.get(key)
        if plan is None:
            pieces = [
                piece
                for number in order.tolist()
                for piece in self._pieces[number]
            ]
            plan = _Plan(key, pieces, self._window, seed)
            _put(self._plans, key, plan, _MAX_CHUNKS)
        return plan

    def _chunk(self, plan: _Plan, number: int) -> _Chunk:
        key = (plan.key, number)
        chunk = self._chunks.get(key) or self._build(plan, number)
        _put(self._chunks, key, chunk, _MAX_CHUNKS)
        return chunk

    def _build(self, plan: _Plan, number: int) -> _Chunk:
        kept = []
        skipped: list[tuple[str, int]] = []

        def note(text: str, count: int) -> None:
            skipped.append((text, count))

        for at, piece in plan.chunk(number):
            path = self._files[piece.file].path
            try:
                rows = self._row_group(plan, at)
            except DataError as error:
                if self._skip is None or isinstance(error, ChangedFileError):
                    raise
                skipped.append((str(error), piece.end - piece.begin))
                continue
            report_bad(
                path,
                rows,
                piece.begin,
                piece.end,
                None if self._skip is None else note,
            )
            kept.append(rows.good(piece.begin, piece.end))
            if piece.last:
                self._groups.pop((piece.file, piece.group), None)
        if not kept:
            return _Chunk(Rows(0, {}), skipped)
        rows = Rows(
            sum(part.num_rows for part in kept),
            concat([part.columns for part in kept]),
        )
        order = plan.order(number, rows.num_rows)
        return _Chunk(rows if order is None else rows.take(order), skipped)

    def _row_group(self, plan: _Plan, at: int) -> Rows:
        """Returns the decoded row group of a piece, and starts the next ones."""
        first, *_ = [
            self._begin(piece)
            for piece in plan.pieces[at : at + 1 + self._ahead]
        ]
        piece = plan.pieces[at]
        try:
            with contextlib.suppress(TimeoutError):
                return first.result(_PATIENCE)
            if first.done():
                return first.result()
        except BaseException:
            # Remove it, so that it is retried.
            self._groups.pop((piece.file, piece.group), None)
            raise
        # The thread may never end: if it collects garbage with an iterator of this
        # reader, it waits until the iterator has its batch, which is this call.
        return self._read(piece)

    def _read(self, piece: _Piece) -> Rows:
        file = self._files[piece.file]
        return read_rows(file, piece.group, self._bindings, self._na_values)

    def _begin(self, piece: _Piece) -> Future[Rows]:
        key = (piece.file, piece.group)
        new: Future[Rows] = Future()
        future = self._groups.setdefault(key, new)
        if future is new:
            self._threads.run(new, self._read, piece)
        _put(self._groups, key, future, 2 * (1 + self._ahead))
        return future


def _shard(
    files: Sequence[RowSource], num: int, index: int
) -> list[list[_Piece]]:
    """Returns the pieces of each file for one of `num` equal shards."""
    total = sum(file.num_rows for file in files)
    first, last = total * index // num, total * (index + 1) // num
    pieces: list[list[_Piece]] = []
    at = 0
    for number, file in enumerate(files):
        pieces.append([])
        for group, rows in enumerate(file.row_groups):
            begin, end = max(first - at, 0), min(last - at, rows)
            if begin < end:
                pieces[-1].append(_Piece(number, group, begin, end))
            at += rows
    return pieces


def _random(seed: int, stream: int, count: int) -> np.ndarray:
    """Returns random uint64s that do not depend on the NumPy version."""
    key = np.array([seed % 2**64, stream], np.uint64)
    return np.random.Philox(key=key).random_raw(count)


def _put(cache: _Cache, key: Hashable, value: Any, size: int) -> None:
    """Adds a value to an LRU cache, and evicts the least recently used."""
    cache[key] = value
    # Another thread may have evicted it.
    with contextlib.suppress(KeyError):
        cache.move_to_end(key)
        while len(cache) > size:
            cache.popitem(last=False)
