"""Exchange of samples, by which workers shuffle all their samples together.

Workers write files to a shared folder, in this order. N is a worker's number and
K a digest of all worker-N.json:

    worker-N.json      number of samples, seed and batch size of the worker
    K-N-to-M.samples   samples for worker M: pieces, each after its 8-byte length
    K-sent-N           all of these are written
    K-ready-N          the worker has read and checked all samples for it
    K-commit           written by worker 0 when all are ready: memories change now
    failed-N           error message, instead of any of them

No memory changes before K-commit, so a missing or failed worker leaves all
memories unchanged.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import DataError, describe_error, reading
from lodestar._files import AtomicFile, as_path, list_folder
from lodestar._library import gen_ops
from lodestar._typing import StrPath

# Bounds the memory for a piece, which is encoded and received at once.
MAX_SEND_BATCH_SIZE = 65536
_LENGTH_BYTES = 8
_RECEIVED_BYTES = 16 << 20  # Bytes per call.
_FIRST_WAIT = 0.01
_LONGEST_WAIT = 1.0


class SampleExchange:
    """One worker's part in one exchange; `workers` is `(num, index)`."""

    def __init__(
        self,
        memory: str,
        folder: StrPath,
        workers: tuple[int, int],
        timeout: float,
        send_batch_size: int,
    ):
        self._memory = memory
        self._folder = as_path(folder)
        self._num, self._index = workers
        self._timeout = timeout
        self._send_batch_size = send_batch_size
        self._digest = ""

    def run(self, num_samples: int, seed: int | None) -> None:
        """Replaces the samples in memory by this worker's part of all samples.

        Requires that the samples do not change. `seed` and `send_batch_size` must be
        equal for all workers.
        See `InMemoryDataset.global_shuffle` for the errors.
        """
        self._announce(num_samples, seed)
        try:
            self._exchange()
        except BaseException as error:
            with contextlib.suppress(OSError, tf.errors.OpError):
                self._write(
                    f"failed-{self._index}", describe_error(error).encode()
                )
            self._clean(range(self._num), [self._index])
            raise
        finally:
            gen_ops.lodestar_record_memory_discard(memory=self._memory)
        self._clean([self._index], range(self._num))

    def _announce(self, num_samples: int, seed: int | None) -> None:
        tf.io.gfile.makedirs(self._folder)
        name = f"worker-{self._index}.json"
        if tf.io.gfile.exists(self._path(name)):
            raise DataError(
                f"{self._path(name)}: worker {self._index} has already exchanged "
                "samples in this folder. Each exchange needs a new folder."
            )
        text = json.dumps(
            {
                "workers": self._num,
                "samples": num_samples,
                "seed": seed,
                "send_batch_size": self._send_batch_size,
                "drawn": int(np.random.default_rng().integers(2**63)),
            }
        )
        self._write(name, text.encode())

    def _exchange(self) -> None:
        sizes, seed = self._meet()
        bases = np.cumsum([0, *sizes])
        ends = [v * int(bases[-1]) // self._num for v in range(self._num + 1)]
        own = self._send(sizes, bases, ends, seed)
        self._write(f"{self._digest}-sent-{self._index}")
        order, counts = self._order(bases, ends, seed)
        self._wait("sent")
        for worker in range(self._num):
            if worker == self._index:
                for piece in self._pieces(own):
                    self._receive([piece])
            else:
                try:
                    self._read(worker, int(counts[worker]))
                except (DataError, tf.errors.OpError):
                    # A worker that fails removes the samples it has sent.
                    self._check_failed(self._there())
                    raise
        gen_ops.lodestar_record_memory_arrange(memory=self._memory, order=order)
        self._write(f"{self._digest}-ready-{self._index}")
        if self._index == 0:
            self._wait("ready")
            self._write(f"{self._digest}-commit")
        else:
            self._wait_for_commit()
        gen_ops.lodestar_record_memory_commit(memory=self._memory)

    def _meet(self) -> tuple[list[int], int]:
        """Waits for all workers; returns their sizes and the seed."""
        names = [f"worker-{worker}.json" for worker in range(self._num)]
        self._wait_for(names)
        texts = [self._load(name) for name in names]
        said: list[dict[str, Any]] = [json.loads(text) for text in texts]
        for what in ("workers", "seed", "send_batch_size"):
            for worker, one in enumerate(said):
                if one[what] != said[0][what]:
                    raise DataError(
                        f"{self._folder}: worker {worker} has {what} "
                        f"{one[what]}, but worker 0 has {said[0][what]}."
                    )
        self._digest = hashlib.sha256(b"\n".join(texts)).hexdigest()[:16]
        seed = said[0]["drawn" if said[0]["seed"] is None else "seed"]
        return [one["samples"] for one in said], seed

    def _send(
        self, sizes: list[int], bases: np.ndarray, ends: list[int], seed: int
    ) -> np.ndarray:
        """Writes the samples for others; returns the own ones."""
        base = int(bases[self._index])
        own = np.zeros(0, np.int64)
        for worker in range(self._num):
            numbers = _shuffled(bases, seed, ends[worker], ends[worker + 1])
            samples = numbers - base
            samples = samples[(samples >= 0) & (samples < sizes[self._index])]
            if worker == self._index:
                own = samples
                continue
            path = self._path(self._samples_of(self._index, worker))
            with AtomicFile(path) as file:
                for piece in self._pieces(samples):
                    file.write(len(piece).to_bytes(_LENGTH_BYTES, "little"))
                    file.write(piece)
        return own

    def _pieces(self, samples: np.ndarray) -> Iterator[bytes]:
        size = self._send_batch_size
        for i in range(0, len(samples), size):
            piece = gen_ops.lodestar_record_memory_encode(
                memory=self._memory, samples=samples[i : i + size]
            )
            yield piece.numpy()

    def _order(
        self, bases: np.ndarray, ends: list[int], seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the source of each sample that this worker receives.

        Returns the index of each sample among those received, worker by worker, and
        the number of samples from each worker.
        """
        numbers = _shuffled(
            bases, seed, ends[self._index], ends[self._index + 1]
        )
        owners = np.searchsorted(bases, numbers, side="right") - 1
        by_owner = np.argsort(owners, kind="stable")
        order = np.empty(len(owners), np.int64)
        order[by_owner] = np.arange(len(owners))
        return order, np.bincount(owners, minlength=self._num)

    def _read(self, worker: int, count: int) -> None:
        """Receives the samples from a worker."""
        path = self._path(self._samples_of(worker, self._index))
        left = -(-count // self._send_batch_size)
        pieces: list[bytes] = []
        with reading(path), tf.io.gfile.GFile(path, "rb") as file:
            while head := file.read(_LENGTH_BYTES):
                pieces.append(file.read(int.from_bytes(head, "little")))
                if sum(map(len, pieces)) >= _RECEIVED_BYTES:
                    left -= len(pieces)
                    self._receive(pieces)
                    pieces = []
            left -= len(pieces)
            self._receive(pieces)
        if left:
            difference = "missing" if left > 0 else "unexpected"
            raise DataError(
                f"{path}: {abs(left)} pieces are {difference} for {count} samples."
            )

    def _receive(self, pieces: list[bytes]) -> None:
        gen_ops.lodestar_record_memory_receive(
            memory=self._memory, pieces=tf.constant(pieces, tf.string)
        )

    def _wait(self, what: str) -> None:
        self._wait_for([f"{self._digest}-{what}-{w}" for w in range(self._num)])

    def _wait_for_commit(self) -> None:
        try:
            self._wait_for([f"{self._digest}-commit"])
        except BaseException as error:
            error.add_note(
                "The samples of this worker are unchanged. If worker 0 has "
                f"written {self._path(f'{self._digest}-commit')}, other workers "
                "have exchanged theirs: reload the samples on all workers then."
            )
            raise

    def _wait_for(self, names: list[str]) -> None:
        """Waits until the files, one per worker or the commit, exist."""
        wait = _FIRST_WAIT
        deadline = time.monotonic() + self._timeout
        while True:
            late = time.monotonic() > deadline
            there = self._there()
            missing = [name for name in names if name not in there]
            decided = names == [f"{self._digest}-commit"] and not missing
            if not decided:
                self._check_failed(there)
            if not missing:
                return
            if late:
                raise TimeoutError(
                    f"{self._folder}: waited {self._timeout:g} s for "
                    f"{', '.join(missing)}. No samples were exchanged."
                )
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _there(self) -> set[str]:
        return set(list_folder(self._folder))

    def _check_failed(self, there: set[str]) -> None:
        for worker in range(self._num):
            name = f"failed-{worker}"
            if name in there:
                text = self._load(name).decode(errors="replace")
                raise RuntimeError(
                    f"{self._folder}: worker {worker} has failed, and no samples "
                    f"were exchanged: {text}"
                )

    def _clean(self, receivers: Iterable[int], senders: Iterable[int]) -> None:
        """Removes sample files, ignoring errors."""
        for sender in senders:
            for receiver in receivers:
                path = self._path(self._samples_of(sender, receiver))
                with contextlib.suppress(OSError, tf.errors.OpError):
                    if tf.io.gfile.exists(path):
                        tf.io.gfile.remove(path)

    def _samples_of(self, sender: int, receiver: int) -> str:
        return f"{self._digest}-{sender}-to-{receiver}.samples"

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _write(self, name: str, data: bytes = b"") -> None:
        with AtomicFile(self._path(name)) as file:
            file.write(data)

    def _load(self, name: str) -> bytes:
        with tf.io.gfile.GFile(self._path(name), "rb") as file:
            return file.read()


def _shuffled(bases: np.ndarray, seed: int, begin: int, end: int) -> np.ndarray:
    """Returns positions [begin, end) of the shuffled order of all samples."""
    return gen_ops.lodestar_shuffled_numbers(
        count=bases[-1], seed=seed, begin=begin, end=end
    ).numpy()
