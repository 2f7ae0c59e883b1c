"""Times readers of samples from page cache, and other readers of text."""

import multiprocessing
import os
import re
import statistics
import tempfile

import numpy as np
import tensorflow as tf

from benchmarks import measure
from lodestar.data import Column, Schema, open_dataset

# As in Criteo's click logs.
DENSE = 13
SLOTS = 26
BATCH = 16384
# Enough that startup hardly matters.
EPOCHS = 4
GIGABYTE = 1e9

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("I", (DENSE,)),
        *(Column.sparse(f"C{s + 1}") for s in range(SLOTS)),
    ]
)


def numbers_of(rng, records: int) -> np.ndarray:
    """Draws the label and the dense values of each record."""
    return rng.integers(0, 2, (records, 1 + DENSE)).astype(np.float32)


def keys_of(rng, records: int, hot: int) -> np.ndarray:
    """Draws `hot` keys for each slot of each record."""
    return rng.integers(0, 1 << 32, (records, SLOTS, hot), dtype=np.uint32)


def raw_bytes(rng, records: int, hot: int) -> bytes:
    """Returns a Raw file of float32 values and uint32 keys."""
    numbers = numbers_of(rng, records)
    if hot > 1:  # the multi-hot layouts have an int32 label
        numbers[:, 0] = numbers[:, 0].astype(np.int32).view(np.float32)
    keys = keys_of(rng, records, hot).reshape(records, -1)
    return np.hstack([numbers.view(np.uint32), keys]).tobytes()


def norm_bytes(rng, records: int, hot: int, check: str) -> bytes:
    """Returns a Norm file with `hot` uint32 keys in every slot."""
    keys = keys_of(rng, records, hot)
    counts = np.full((records, SLOTS, 1), hot, np.uint32)
    samples = np.hstack(
        [
            numbers_of(rng, records).view(np.uint32),
            np.concatenate([counts, keys], axis=2).reshape(records, -1),
        ]
    ).view(np.uint8)
    fields = [check == "sum", records, 1, DENSE, SLOTS, 0, 0, 0]
    header = np.array([fields], np.int64).view(np.uint8)
    if check == "sum":
        header, samples = framed(header), framed(samples)
    return header.tobytes() + samples.tobytes()


def framed(payloads: np.ndarray) -> np.ndarray:
    """Adds the length before, and the checksum after each row."""
    count, size = payloads.shape
    length = np.tile(np.array([size], np.int32).view(np.uint8), (count, 1))
    total = payloads.sum(axis=1, dtype=np.uint8)[:, None]
    return np.hstack([length, payloads, total])


def multislot_bytes(rng, records: int) -> bytes:
    """Returns MultiSlot text with one key in every slot."""
    numbers = numbers_of(rng, records).astype(int)
    keys = keys_of(rng, records, 1)[:, :, 0]
    return "".join(
        f"1 {row[0]} {DENSE} {' '.join(map(str, row[1:]))} "
        + " ".join(f"1 {key}" for key in schema)
        + "\n"
        for row, schema in zip(numbers.tolist(), keys.tolist())
    ).encode()


def seconds_of(read, runs: int) -> list[float]:
    """Times `runs` calls, after one untimed call."""
    return [measure.seconds_of(read) for _ in range(runs + 1)][1:]


def reading(dataset: tf.data.Dataset, records: int):
    """Returns a function that reads all batches in a graph, like model.fit()."""

    @tf.function
    def count():
        total = tf.constant(0, tf.int64)
        for _, label in dataset:
            total += tf.shape(label, tf.int64)[0]
        return total

    def read():
        if int(count()) != EPOCHS * records:
            raise RuntimeError("A reader lost samples.")

    return read


def report(work: str, seconds: list[float], size: int, records: int, **more):
    """Prints one JSON line."""
    seconds = [second / EPOCHS for second in seconds]
    median = statistics.median(seconds)
    measure.print_line(
        work=work,
        gigabytes_a_second=round(size / median / GIGABYTE, 3),
        ns_a_record=round(median / records * 1e9, 1),
        best_gigabytes_a_second=round(size / min(seconds) / GIGABYTE, 3),
        **more,
    )


def split_and_convert(path: str):
    """Reads MultiSlot text with the fastest ops of TensorFlow."""
    # Positions of the counts among a line's tokens, equal in all lines.
    counts = np.zeros(2 + 1 + DENSE + 2 * SLOTS, bool)
    counts[[0, 2]] = True
    counts[3 + DENSE :: 2] = True
    keys = np.flatnonzero(~counts)[1 + DENSE :]
    floats = np.flatnonzero(~counts)[: 1 + DENSE]

    def parse(lines):
        tokens = tf.strings.split(lines).to_tensor()
        return (
            tf.strings.to_number(tf.gather(tokens, floats, axis=1)),
            tf.strings.to_number(tf.gather(tokens, keys, axis=1), tf.int64),
        )

    return tf.data.TextLineDataset(path).batch(BATCH).map(parse).repeat(EPOCHS)


def parse_in_python(path: str) -> list[list]:
    """Reads MultiSlot text with str.split, into lists."""
    schema = [[] for _ in SPEC]
    convert = [int, float] + [int] * SLOTS
    with open(path) as file:
        for line in file:
            tokens = line.split()
            at = 0
            for values, number in zip(schema, convert):
                end = at + 1 + int(tokens[at])
                values.extend(map(number, tokens[at + 1 : end]))
                at = end
    return schema


def compare_text(path: str, size: int, records: int, runs: int) -> None:
    """Compares MultiSlot text with two other ways, in threads yet to start."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    dataset = open_dataset(
        path,
        SPEC,
        BATCH,
        format="multislot",
        num_parallel_files=1,
        sparse="lod",
        repeat=EPOCHS,
    )
    ours = seconds_of(reading(dataset, records), runs)
    others = {
        "tf.strings.split and to_number": (
            reading(split_and_convert(path), records),
            EPOCHS,
            3,
        ),
        "plain Python": (lambda: parse_in_python(path), 1, 10),
    }
    for against, (read, epochs, wanted) in others.items():
        theirs = statistics.median(seconds_of(read, runs)) / epochs
        report(
            "MultiSlot, one core",
            ours,
            size,
            records,
            against=against,
            ratio=round(theirs * EPOCHS / statistics.median(ours), 2),
            wanted=wanted,
        )


def main() -> None:
    options = measure.arguments(__doc__)
    records = 20_000 if options.small else 1_000_000
    rng = np.random.default_rng(7)
    files = {
        "MultiSlot": lambda: multislot_bytes(rng, records // 10),
        "Norm, no checksums": lambda: norm_bytes(rng, records, 1, "none"),
        "Norm, checksums": lambda: norm_bytes(rng, records, 1, "sum"),
        "Norm of 5 keys per slot": lambda: norm_bytes(
            rng, records // 4, 5, "none"
        ),
        "Raw": lambda: raw_bytes(rng, records, 1),
        "Raw of 5 keys per slot": lambda: raw_bytes(rng, records // 4, 5),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        for work, data_of in files.items():
            data = data_of()
            with open(path, "wb") as file:
                file.write(data)
            count = records // (10 if work == "MultiSlot" else 1)
            if "5 keys" in work:
                count = records // 4
            for threads in (1, 2):
                shared = {
                    "num_parallel_files": threads,
                    "sparse": "lod",
                    "repeat": EPOCHS,
                }
                if work == "Raw of 5 keys per slot":
                    shared |= {"layout": "multi_hot_float", "nnz_per_slot": 5}
                name = re.match(r"\w+", work)[0].lower()
                dataset = open_dataset(path, SPEC, BATCH, format=name, **shared)
                seconds = seconds_of(reading(dataset, count), options.runs)
                more = {} if work == "MultiSlot" else {"wanted": 1.0}
                report(
                    f"{work}, {threads} threads",
                    seconds,
                    len(data),
                    count,
                    **more,
                )
        with open(path, "wb") as file:
            data = multislot_bytes(rng, records // 10)
            file.write(data)
        # The threads of this process may run on every core.
        one_core = multiprocessing.get_context("spawn").Process(
            target=compare_text,
            args=(path, len(data), records // 10, options.runs),
        )
        one_core.start()
        one_core.join()
        if one_core.exitcode:
            raise SystemExit(one_core.exitcode)


if __name__ == "__main__":
    main()
