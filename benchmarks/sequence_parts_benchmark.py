"""Compares slice, concat, windows, scatter and top-k ops with TensorFlow.

The baselines are the fastest compositions of TensorFlow's ops that we found.
"""

import numpy as np
import tensorflow as tf

import lodestar
from benchmarks.measure import arguments, compare
from benchmarks.sequence_benchmark import (
    BATCHES,
    DIM,
    lengths_of,
    with_gradient,
)

sequence = lodestar.sequence

WIDTH = 64
FILTER = 3
TOKENS = [1, 2, 3]
TOPKS = [1, 3, 5]
CHANNELS = 3


def owners(x) -> tf.Tensor:
    """Returns the sequence of each row; value_rowids() is slower."""
    rows = tf.range(tf.shape(x.flat_values, out_type=tf.int64)[0])
    return tf.searchsorted(x.row_splits, rows, "right", tf.int64) - 1


def gathered_slice(x, offset, length):
    """Slices by a gather."""
    begins = x.row_splits[:-1] + offset
    return tf.gather(
        x.flat_values, tf.ragged.range(begins, begins + length).flat_values
    )


def gathered_windows(x, start, size, pad):
    """Returns windows `[N, size, ...]` by a gather."""
    rows = x.flat_values
    owner = owners(x)[:, tf.newaxis]
    at = tf.range(tf.shape(rows, out_type=tf.int64)[0])[:, tf.newaxis]
    at = at + start + tf.range(size, dtype=tf.int64)
    inside = (at >= tf.gather(x.row_splits, owner)) & (
        at < tf.gather(x.row_splits, owner + 1)
    )
    padded = tf.concat([tf.fill([1, *rows.shape[1:]], pad), rows], 0)
    return tf.gather(padded, tf.where(inside, at + 1, 0))


def gathered_conv(x, weight):
    """Convolves gathered windows."""
    windows = gathered_windows(x, -(FILTER // 2), FILTER, 0.0)
    return tf.matmul(tf.reshape(windows, [-1, weight.shape[0]]), weight)


def scattered(matrix, index, updates):
    """Adds updates to rows of a matrix."""
    places = tf.stack([owners(index), index.flat_values], 1)
    return tf.tensor_scatter_nd_add(matrix, places, updates.flat_values)


def masked_erase(x):
    """Drops TOKENS by a mask."""
    ids = x.flat_values
    kept = tf.ones_like(ids, tf.bool)
    for token in TOKENS:
        kept &= ids != token
    kept_before = tf.pad(tf.cumsum(tf.cast(kept, tf.int64)), [[1, 0]])
    return tf.boolean_mask(ids, kept), tf.gather(kept_before, x.row_splits)


def padded_topk(x, lengths, order):
    """Averages the largest values by tf.math.top_k of padded rows."""
    rows = tf.RaggedTensor.from_row_lengths(
        x.flat_values, lengths, validate=False
    ).to_tensor(-np.inf)
    largest = tf.math.top_k(rows, max(TOPKS)).values
    largest = tf.where(largest == -np.inf, 0.0, largest)
    means = [tf.reduce_sum(largest[:, :k], 1) / k for k in TOPKS]
    means = tf.gather(tf.stack(means, -1), order)
    return tf.reshape(means, [-1, CHANNELS * len(TOPKS)])


def matrices(rng, count):
    """Returns matrices, their row and col, and the arguments of padded_topk()."""
    rows, cols = rng.integers(1, 40, count), rng.integers(1, 40, count)
    lengths = np.repeat(cols, rows * CHANNELS)
    numbers = rng.normal(size=lengths.sum()).astype(np.float32)
    ends = np.cumsum(rows * CHANNELS)
    order = [
        end
        - r * CHANNELS
        + np.arange(r * CHANNELS).reshape(CHANNELS, r).T.ravel()
        for end, r in zip(ends, rows, strict=True)
    ]
    return (
        tf.RaggedTensor.from_row_lengths(numbers, rows * cols * CHANNELS),
        tf.RaggedTensor.from_row_lengths(np.zeros(rows.sum()), rows),
        tf.RaggedTensor.from_row_lengths(np.zeros(cols.sum()), cols),
        tf.constant(lengths),
        tf.constant(np.concatenate(order)),
    )


def main() -> None:
    """Prints one line for each op and direction."""
    args = arguments(__doc__)
    num_rows, hot = (4096, 600) if args.small else (65536, 10000)
    rng = np.random.default_rng(5)
    weight = tf.constant(
        rng.normal(size=(FILTER * DIM, DIM)).astype(np.float32)
    )
    xs = [
        tf.RaggedTensor.from_row_lengths(
            rng.normal(size=(num_rows, DIM)).astype(np.float32),
            lengths_of(rng, num_rows, hot),
        )
        for _ in range(BATCHES)
    ]
    counts = [int(x.nrows()) for x in xs]
    indexes = [
        x.with_flat_values(tf.constant(rng.integers(0, WIDTH, num_rows)))
        for x in xs
    ]

    def parts(x):
        lengths = x.row_lengths().numpy()
        offset = rng.integers(0, lengths + 1)
        return tf.constant(offset), tf.constant(
            rng.integers(0, lengths - offset + 1)
        )

    def run(work, against, ours, baseline, feeds, place=None, items=num_rows):
        pairs = [(work, ours, baseline)]
        if place is not None:
            pairs.append(
                (
                    f"{work} with gradient",
                    with_gradient(ours, place),
                    with_gradient(baseline, place),
                )
            )
        for work, *sides in pairs:
            functions = [tf.function(f, reduce_retracing=True) for f in sides]
            for a, b in zip(
                *(tf.nest.flatten(f(*feeds[0])) for f in functions), strict=True
            ):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
            compare(
                work,
                lambda feed, f=functions[0]: tf.nest.flatten(f(*feed))[0],
                lambda feed, f=functions[1]: tf.nest.flatten(f(*feed))[0],
                feeds,
                against=against,
                items=items,
                wanted=1.0,
                runs=args.runs,
                # Sums may be in another order; compared above.
                same_result=False,
            )

    run(
        "slice",
        "tf.ragged.range, tf.gather",
        lambda *feed: sequence.slice(*feed).flat_values,
        gathered_slice,
        [(x, *parts(x)) for x in xs],
        place=0,
    )
    run(
        "concat",
        "tf.concat of RaggedTensors",
        lambda x, y: sequence.concat([x, y]).flat_values,
        lambda x, y: tf.concat([x, y], 1).flat_values,
        [(x, x.with_flat_values(-x.flat_values)) for x in xs],
        place=0,
    )
    run(
        "conv",
        "windows of tf.gather, tf.matmul",
        lambda x, weight: sequence.conv(x, weight, FILTER).flat_values,
        gathered_conv,
        [(x, weight) for x in xs],
        place=0,
    )
    run(
        "enumerate",
        "tf.gather",
        lambda x: sequence.enumerate(x, 3).flat_values,
        lambda x: gathered_windows(x, 0, 3, tf.constant(0, tf.int64)),
        [(x,) for x in indexes],
    )
    run(
        "erase",
        "tf.boolean_mask, tf.cumsum",
        lambda x: tf.nest.flatten(
            sequence.erase(x, TOKENS), expand_composites=True
        ),
        masked_erase,
        [(x,) for x in indexes],
    )
    run(
        "scatter",
        "tf.tensor_scatter_nd_add",
        sequence.scatter,
        scattered,
        [
            (
                tf.zeros([count, WIDTH]),
                index,
                index.with_flat_values(tf.random.normal([num_rows])),
            )
            for index, count in zip(indexes, counts, strict=True)
        ],
        place=2,
    )
    feeds = [matrices(rng, 16 if args.small else 256) for _ in range(BATCHES)]
    run(
        "topk_avg_pooling",
        "tf.math.top_k of padded rows",
        lambda x, row, col, lengths, order: (
            sequence.topk_avg_pooling(x, row, col, TOPKS, CHANNELS).flat_values
        ),
        lambda x, row, col, lengths, order: padded_topk(x, lengths, order),
        feeds,
        place=0,
        items=int(np.mean([x.flat_values.shape[0] for x, *_ in feeds])),
    )


if __name__ == "__main__":
    main()
