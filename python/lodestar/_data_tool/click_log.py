"""A click log shaped like Criteo's, with known click probabilities.

Each sample has 13 floats and 26 id slots, of one or several ids, some empty. It is
clicked with probability sigmoid(logit), where

    logit = bias + sum over floats of a_j x_j
                 + sum over id slots of the mean of w[slot][id] over its ids
                 + two interactions between the ids of two slots

and w is a fixed function of (seed, slot, id). Ids have a Zipf distribution, and the
vocabulary of a slot grows over time, so some ids occur only late in the log. The
known probabilities determine the best AUC of any model.
"""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from lodestar._files import AtomicFile, as_path, remove_unfinished
from lodestar._typing import StrPath
from lodestar.data.sample_writer import SampleWriter
from lodestar.metrics import BatchAUC
from lodestar.paddle.multislot_writer import MultiSlotWriter
from lodestar.schema import Column, Schema

NUM_FLOATS = 13
# Initial vocabulary size of each id slot.
_VOCABULARY = (
    1000, 500, 20000, 10000, 200, 50, 8000, 400, 50, 15000, 4000, 20000, 3000,
    60, 6000, 18000, 50, 3500, 1500, 80, 20000, 50, 100, 12000, 120, 9000,
)  # fmt: skip
# Slots of zero to four ids; the others have one id.
_SEVERAL = (6, 13, 19, 25)
# Slots that are empty in a fraction of the samples.
_OFTEN_EMPTY = {8: 0.05, 18: 0.3, 24: 0.2}
# The probability that an id of a large slot is one of its newest.
_NEW_SHARE = 0.05
_LARGE = 1000
# Pairs of interacting slots, each with exactly one id per sample.
_INTERACTIONS = ((4, 5), (15, 16))
_INTERACTION_SIZE = 8
# Ids of slot s are (s + 1) * _ID_STRIDE + number: unique across slots and readable.
_ID_STRIDE = 1_000_000
_TARGET_RATE = 0.25
_CHUNK_ROWS = 8192


def click_log_schema() -> Schema:
    """Returns a schema with a label, floats `I1`..`I13` and ids `C1`..`C26`."""
    return Schema(
        [Column.label("click")]
        + [Column.dense(f"I{j + 1}") for j in range(NUM_FLOATS)]
        + [Column.sparse(f"C{s + 1}") for s in range(len(_VOCABULARY))]
    )


@dataclasses.dataclass(frozen=True)
class ClickLog:
    """Files of a click log, in the order of time.

    For each MultiSlot file there is a `.npy` file with float32 `[samples, 2]`: the
    probability and the click.
    """

    files: list[str]
    probability_files: list[str]
    schema_file: str

    def best_auc(self, first: int = 0, last: int | None = None) -> float:
        """Returns the AUC of the true probabilities on files `[first, last)`."""
        pairs = [np.load(p) for p in self.probability_files[first:last]]
        found = np.concatenate(pairs)
        # All samples as one batch.
        return float(BatchAUC(dtype="float64")(found[:, 1], found[:, 0]))


def generate_click_log(
    directory: StrPath,
    num_samples: int = 300_000,
    num_files: int = 8,
    *,
    seed: int = 0,
    one_id: bool = False,
    writer: Callable[[str, Schema], SampleWriter] = MultiSlotWriter,
    suffix: str = ".txt",
    on_progress: Callable[[int], None] | None = None,
) -> ClickLog:
    """Writes a click log to `directory`, which is created if needed.

    The files are `part-00000.txt`, ... in the order of time, each with a
    `part-00000.npy`, and `schema.yaml`. Equal arguments write equal bytes. Memory
    use depends on the size of a file, not on `num_samples`. A failure leaves no
    files of the log.

    Every id slot has exactly one id per sample if `one_id`, as needed for Raw files.
    `writer` creates the writer of a file with this `suffix`. `on_progress` is called
    with the number of samples after each write. Raises ValueError if an argument is
    out of range or the format does not support such samples.
    """
    if num_files < 1 or num_samples < num_files:
        raise ValueError(
            "`num_files` must be at least 1 and `num_samples` at least "
            f"`num_files`, got {num_files} and {num_samples}."
        )
    if seed < 0:
        raise ValueError(f"`seed` must be at least 0, got {seed}.")
    directory = as_path(directory)
    is_new = not os.path.exists(directory)
    stems = [
        os.path.join(directory, f"part-{part:05d}") for part in range(num_files)
    ]
    log = ClickLog(
        [f"{stem}{suffix}" for stem in stems],
        [f"{stem}.npy" for stem in stems],
        os.path.join(directory, "schema.yaml"),
    )
    written: list[str] = []
    try:
        os.makedirs(directory, exist_ok=True)
        model = _Model(seed, one_id)
        _write(log, num_samples, seed, model, writer, on_progress, written)
    except BaseException:
        for path in (log.schema_file, *log.files, *log.probability_files):
            with contextlib.suppress(OSError):
                remove_unfinished(path)
        for path in written:
            with contextlib.suppress(OSError):
                os.remove(path)
        if is_new:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        raise
    return log


def _write(
    log: ClickLog,
    num_samples: int,
    seed: int,
    model: "_Model",
    make_writer: Callable[[str, Schema], SampleWriter],
    on_progress: Callable[[int], None] | None,
    written: list[str],
) -> None:
    """Writes the log; adds each file to `written` once it is there."""
    spec = click_log_schema()
    spec.save(log.schema_file)
    written.append(log.schema_file)
    num_files = len(log.files)
    bounds = np.linspace(0, num_samples, num_files + 1).astype(np.int64)
    for part, (begin, end) in enumerate(itertools.pairwise(bounds)):
        rng = np.random.default_rng([seed, 1, part])
        pairs = []
        with make_writer(log.files[part], spec) as writer:
            for first in range(begin, end, _CHUNK_ROWS):
                rows = min(_CHUNK_ROWS, end - first)
                time = (first + np.arange(rows)) / num_samples
                columns, probability = model.sample(rng, time)
                writer.write_batch(columns)
                pairs.append(np.stack([probability, columns["click"]], axis=1))
                if on_progress is not None:
                    on_progress(rows)
        written.append(log.files[part])
        with AtomicFile(log.probability_files[part]) as file:
            np.save(file, np.concatenate(pairs).astype(np.float32))
        written.append(log.probability_files[part])


class _Model:
    """The true probabilities, determined by the seed."""

    def __init__(self, seed: int, one_id: bool):
        self._one_id = one_id
        rng = np.random.default_rng([seed, 0])
        # Normalized, so that the best AUC hardly depends on the seed.
        weights = rng.normal(size=NUM_FLOATS)
        self._float_weights = weights / np.linalg.norm(weights)
        self._cumulative, self._weights, self._num_new = [], [], []
        for slot, size in enumerate(_VOCABULARY):
            exponent = 1.2 + 0.5 * rng.random()
            share = np.arange(1, size + 1) ** -exponent
            self._cumulative.append(np.cumsum(share) / share.sum())
            # Large slots gain a tenth of their ids over the whole log.
            num_new = size // 10 if size >= _LARGE else 0
            self._num_new.append(num_new)
            # Frequent ids have most of the signal, so that a few hundred
            # thousand samples suffice to learn nearly all of it.
            spread = 0.27 / (1 + np.arange(size + num_new) / 5.0)
            spread[size:] = 0.05
            slot_rng = np.random.default_rng([seed, 2, slot])
            self._weights.append(slot_rng.normal(size=size + num_new) * spread)
        self._tables = [
            rng.normal(0.0, 0.1, (_INTERACTION_SIZE, _INTERACTION_SIZE))
            for _ in _INTERACTIONS
        ]
        self._bias = 0.0
        logits = self._draw(np.random.default_rng([seed, 3]), _TIMES)[1]
        self._bias = _bias_for_rate(logits, _TARGET_RATE)

    def sample(
        self, rng: np.random.Generator, time: np.ndarray
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Returns columns for `SampleWriter.write_batch` and probabilities [N]."""
        columns, logits = self._draw(rng, time)
        probability = 1 / (1 + np.exp(-logits))
        clicks = rng.random(len(time)) < probability
        return {"click": clicks.astype(np.int64), **columns}, probability

    def _draw(
        self, rng: np.random.Generator, time: np.ndarray
    ) -> tuple[dict[str, Any], np.ndarray]:
        rows = len(time)
        columns: dict[str, Any] = {}
        logits = np.full(rows, self._bias)
        # Rounded as in the text, so that the logit belongs to the written value.
        floats = rng.normal(size=(rows, NUM_FLOATS)).round(4)
        logits += floats @ self._float_weights
        for j in range(NUM_FLOATS):
            columns[f"I{j + 1}"] = floats[:, j]
        only = {}
        for slot in range(len(_VOCABULARY)):
            counts = self._counts(rng, slot, rows)
            numbers = self._numbers(rng, slot, np.repeat(time, counts))
            splits = np.concatenate([[0], np.cumsum(counts)])
            # Prefix sums, because reduceat does not support empty segments.
            sums = np.concatenate(
                [[0], np.cumsum(self._weights[slot][numbers])]
            )
            logits += (sums[splits[1:]] - sums[splits[:-1]]) / np.maximum(
                counts, 1
            )
            if any(slot in pair for pair in _INTERACTIONS):
                only[slot] = numbers
            ids = numbers + (slot + 1) * _ID_STRIDE
            columns[f"C{slot + 1}"] = (ids, splits)
        for (a, b), table in zip(_INTERACTIONS, self._tables):
            logits += table[
                only[a] % _INTERACTION_SIZE, only[b] % _INTERACTION_SIZE
            ]
        return columns, logits

    def _counts(
        self, rng: np.random.Generator, slot: int, rows: int
    ) -> np.ndarray:
        if slot in _SEVERAL and not self._one_id:
            return rng.integers(0, 5, rows)
        if slot in _OFTEN_EMPTY and not self._one_id:
            return (rng.random(rows) >= _OFTEN_EMPTY[slot]).astype(np.int64)
        return np.ones(rows, np.int64)

    def _numbers(
        self, rng: np.random.Generator, slot: int, time: np.ndarray
    ) -> np.ndarray:
        """Draws ids within a slot: old ones by Zipf, sometimes a new one."""
        cumulative = self._cumulative[slot]
        numbers = np.searchsorted(cumulative, rng.random(len(time)))
        numbers = np.minimum(numbers, len(cumulative) - 1)
        num_new = self._num_new[slot]
        if num_new:
            newest = (time * num_new).astype(np.int64)
            age = rng.geometric(0.05, len(time)) - 1
            is_new = (rng.random(len(time)) < _NEW_SHARE) & (newest >= age)
            numbers = np.where(is_new, len(cumulative) + newest - age, numbers)
        return numbers


_TIMES = np.linspace(0, 1, 20_000, endpoint=False)


def _bias_for_rate(logits: np.ndarray, rate: float) -> float:
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        if np.mean(1 / (1 + np.exp(-(logits + middle)))) < rate:
            low = middle
        else:
            high = middle
    return middle
