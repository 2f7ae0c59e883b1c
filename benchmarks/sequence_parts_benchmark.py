"""Compares concatenation and windows of sequences with TensorFlow.

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

FILTER = 3


def owners(x) -> tf.Tensor:
    """Returns the sequence of each row; value_rowids() is slower."""
    rows = tf.range(tf.shape(x.flat_values, out_type=tf.int64)[0])
    return tf.searchsorted(x.row_splits, rows, "right", tf.int64) - 1


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
    indexes = [
        x.with_flat_values(tf.constant(rng.integers(0, 64, num_rows)))
        for x in xs
    ]

    def run(work, against, ours, baseline, feeds, place=None):
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
                items=num_rows,
                wanted=1.0,
                runs=args.runs,
                # Sums may be in another order; compared above.
                same_result=False,
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


if __name__ == "__main__":
    main()
