"""Sequence pooling against tf.math.segment_* and ragged reductions."""

import numpy as np
import tensorflow as tf
from measure import arguments, compare

import lodestar

BATCHES = 16
DIM = 32
MEAN_LENGTH = 4

_SEGMENT = {
    "sum": tf.math.segment_sum,
    "mean": tf.math.segment_mean,
    "max": tf.math.segment_max,
}
_REDUCE = {
    "sum": tf.reduce_sum,
    "mean": tf.reduce_mean,
    "max": tf.reduce_max,
}


def batch(rng, num_rows: int, hot: int) -> tf.RaggedTensor:
    """Makes rows in sequences of 1 or more, one of them `hot` rows long."""
    count = (num_rows - hot) // MEAN_LENGTH
    lengths = 1 + rng.multinomial(
        num_rows - hot - count, np.full(count, 1 / count)
    )
    lengths = np.insert(lengths, count // 2, hot)
    values = rng.normal(size=(num_rows, DIM)).astype(np.float32)
    return tf.RaggedTensor.from_row_lengths(values, lengths.astype(np.int64))


def with_gradient(pool):
    """Returns a function that gives the gradient of a square of the pool."""

    def gradient(x, ids):
        values = x.flat_values
        with tf.GradientTape() as tape:
            tape.watch(values)
            y = pool(x.with_flat_values(values), ids)
        return tape.gradient(y, values, output_gradients=y)

    return gradient


def main() -> None:
    """Prints one line for each combiner, baseline and direction."""
    args = arguments(__doc__)
    num_rows, hot = (4096, 600) if args.small else (65536, 10000)
    rng = np.random.default_rng(5)
    ragged = [batch(rng, num_rows, hot) for _ in range(BATCHES)]
    feeds = [(x, x.value_rowids()) for x in ragged]

    def run(work, ours, baseline, against):
        functions = [
            tf.function(f, reduce_retracing=True) for f in (ours, baseline)
        ]
        compare(
            work,
            lambda feed: functions[0](*feed),
            lambda feed: functions[1](*feed),
            feeds,
            against=against,
            items=num_rows,
            wanted=2.0,
            runs=args.runs,
            # The other side may sum in another order; main() has compared.
            same_result=False,
        )

    for combiner in ("sum", "mean", "max"):

        def ours(x, ids, combiner=combiner):
            return lodestar.sequence.pool(x, combiner)

        def segment(x, ids, combiner=combiner):
            return _SEGMENT[combiner](x.flat_values, ids)

        def reduce(x, ids, combiner=combiner):
            return _REDUCE[combiner](x, axis=1)

        for against, baseline in (
            (f"tf.math.segment_{combiner}", segment),
            (f"ragged tf.reduce_{combiner}", reduce),
        ):
            np.testing.assert_allclose(
                ours(*feeds[0]), baseline(*feeds[0]), rtol=1e-4, atol=1e-3
            )
            run(f"pool {combiner}", ours, baseline, against)
            run(
                f"pool {combiner} with gradient",
                with_gradient(ours),
                with_gradient(baseline),
                against,
            )


if __name__ == "__main__":
    main()
