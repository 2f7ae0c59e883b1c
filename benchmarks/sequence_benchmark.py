"""Compares sequence ops with compositions of TensorFlow's ops."""

import functools
import itertools

import numpy as np
import tensorflow as tf

import lodestar
from benchmarks.measure import arguments, compare

BATCHES = 16
DIM = 32
MEAN_LENGTH = 4


def lengths_of(rng, num_rows: int, hot: int) -> np.ndarray:
    """Draws lengths of 1 or more; one is `hot` unless that is 0."""
    count = (num_rows - hot) // MEAN_LENGTH
    lengths = 1 + rng.multinomial(
        num_rows - hot - count, np.full(count, 1 / count)
    )
    if hot:
        lengths = np.insert(lengths, count // 2, hot)
    return lengths.astype(np.int64)


def zipf_lengths(rng, count: int, longest: int, exponent: float) -> np.ndarray:
    """Draws lengths of histories, from 1 to `longest`, by a Zipf law."""
    weights = np.arange(1, longest + 1) ** -exponent
    return 1 + rng.choice(longest, count, p=weights / weights.sum())


def feed(rng, lengths: np.ndarray, dim: int) -> tuple[tf.Tensor, ...]:
    """Makes rows, their splits, and the sequence that each belongs to."""
    values = rng.normal(size=(lengths.sum(), dim)).astype(np.float32)
    x = tf.RaggedTensor.from_row_lengths(values, lengths)
    return x.flat_values, x.row_splits, x.value_rowids()


def with_gradient(function, place=0):
    """Returns a function for the gradient of half the square of `function`.

    `place` is the position of the tensor or RaggedTensor argument to derive by.
    """

    def gradient(*feed):
        feed = list(feed)
        x = feed[place]
        values = x.flat_values if isinstance(x, tf.RaggedTensor) else x
        with tf.GradientTape() as tape:
            tape.watch(values)
            if isinstance(x, tf.RaggedTensor):
                feed[place] = x.with_flat_values(values)
            y = function(*feed)
        # A gather's gradient is IndexedSlices.
        return tf.convert_to_tensor(tape.gradient(y, values, y))

    return gradient


def feeds(options, hot: int = 10000, dim: int = DIM) -> tuple[list, int]:
    """Returns batches of rows of dimension `dim`, and the number of rows in each."""
    rows = 4096 if options.small else 65536
    rng = np.random.default_rng(5)
    hot = min(hot, rows // 7)
    batches = [
        feed(rng, lengths_of(rng, rows, hot), dim) for _ in range(BATCHES)
    ]
    return batches, rows


def compiled(function, batches):
    """Returns a function of a feed, for `function` of a RaggedTensor and ids."""

    @tf.function
    def flat(values, splits, ids):
        x = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return function(x, ids)

    levels = tf.TensorSpec([None], tf.int64)
    concrete = flat.get_concrete_function(
        tf.TensorSpec([None, *batches[0][0].shape[1:]]), levels, levels
    )
    return lambda feed: concrete(*feed)


class Comparisons:
    """Compares functions of a RaggedTensor and the sequences of its rows."""

    def __init__(self, options, **kwargs):
        """Makes batches; `feeds` takes the `kwargs`."""
        self._use(options, *feeds(options, **kwargs))

    def _use(self, options, batches, rows):
        self._runs = options.runs
        self._feeds, self.rows = batches, rows
        self.sequences = len(self._feeds[0][1]) - 1

    def _time(self, work, ours, baseline, against, wanted):
        sides = [compiled(side, self._feeds) for side in (ours, baseline)]
        # The other side may sum in another order.
        np.testing.assert_allclose(
            *(side(self._feeds[0]) for side in sides), rtol=1e-4, atol=1e-3
        )
        compare(
            work,
            *sides,
            self._feeds,
            against=against,
            items=self.rows,
            wanted=wanted,
            runs=self._runs,
            same_result=False,
        )

    def run(self, work, ours, baseline, against, wanted, gradient=True):
        """Prints a line for `work`, and one for it with its gradient."""
        self._time(work, ours, baseline, against, wanted)
        if gradient:
            self._time(
                f"{work} with gradient",
                with_gradient(ours),
                with_gradient(baseline),
                against,
                wanted,
            )


def pool(options):
    """Compares with tf.math.segment_* and ragged reductions."""
    comparisons = Comparisons(options)
    for combiner, segment, reduce in (
        ("sum", tf.math.segment_sum, tf.reduce_sum),
        ("mean", tf.math.segment_mean, tf.reduce_mean),
        ("max", tf.math.segment_max, tf.reduce_max),
    ):

        def ours(x, ids, combiner=combiner):
            return lodestar.sequence.pool(x, combiner)

        comparisons.run(
            f"pool {combiner}",
            ours,
            lambda x, ids, segment=segment: segment(x.flat_values, ids),
            f"tf.math.segment_{combiner}",
            2.0,
        )
        comparisons.run(
            f"pool {combiner}",
            ours,
            lambda x, ids, reduce=reduce: reduce(x, axis=1),
            f"ragged tf.reduce_{combiner}",
            2.0,
        )


def columns(dim: int) -> str:
    """Names a width."""
    return f"{dim} column{'s' * (dim > 1)}"


def composed_softmax(x, ids):
    """Computes the softmax of each sequence by segments and gathers."""
    values = x.flat_values
    largest = tf.math.segment_max(values, ids)
    e = tf.exp(values - tf.gather(largest, ids))
    return e / tf.gather(tf.math.segment_sum(e, ids), ids)


def softmax(options):
    """Compares with a composition of segments and gathers."""
    for dim in (DIM, 1):
        Comparisons(options, dim=dim).run(
            f"softmax of {columns(dim)}",
            lambda x, ids: lodestar.sequence.softmax(x).flat_values,
            composed_softmax,
            "tf.math.segment_max, segment_sum, exp, gather",
            3.0,
        )


def repetitions(count: int, hot: int) -> tf.RaggedTensor:
    """Makes `count` sequences of 0 to 2 steps, one of them `hot` steps long."""
    lengths = np.arange(count) % 3
    lengths[count // 2] = max(hot, 1)
    nothing = tf.zeros([lengths.sum(), 0])
    return tf.RaggedTensor.from_row_lengths(nothing, lengths)


def expand_as(options):
    """Compares with gathers, for known and for computed sequence numbers."""
    comparisons = Comparisons(options)

    def run(y, gathered, against, wanted):
        comparisons.run(
            "expand_as"
            if y.row_lengths()[comparisons.rows // 2] > 1
            else "expand_as, no hot sequence",
            lambda x, ids: (
                lodestar.sequence.expand_as(x.flat_values, y).flat_values
            ),
            lambda x, ids: gathered(x.flat_values),
            against,
            wanted,
        )

    y = repetitions(comparisons.rows, 10000)
    run(
        y,
        lambda rows: tf.gather(rows, y.value_rowids()),
        "tf.gather, value_rowids",
        3.0,
    )
    known = y.value_rowids()
    run(
        y,
        lambda rows: tf.gather(rows, known),
        "tf.gather of known value_rowids",
        "no slower",
    )
    # With the hot sequence tf.repeat would need 17 GB.
    even = repetitions(comparisons.rows, 0)
    run(
        even,
        lambda rows: tf.repeat(rows, even.row_lengths(), axis=0),
        "tf.repeat",
        3.0,
    )


def expand(options):
    """Compares with a ragged gather by the sequences of another."""
    for dim in (DIM, 1):
        comparisons = Comparisons(options, dim=dim)
        y = repetitions(comparisons.sequences, 0)
        comparisons.run(
            f"expand of {columns(dim)}",
            lambda x, ids, y=y: lodestar.sequence.expand(x, y).flat_values,
            lambda x, ids, y=y: tf.gather(x, y.value_rowids()).flat_values,
            "ragged tf.gather, value_rowids",
            3.0,
        )


def pad(options):
    """Compares with RaggedTensor.to_tensor, with 64 steps or the longest length."""
    for dim, hot in itertools.product((DIM, 1), (64, 0)):
        Comparisons(options, hot=hot, dim=dim).run(
            f"pad of {columns(dim)}, longest {hot or 'a few'}",
            lambda x, ids: lodestar.sequence.pad(x)[0],
            lambda x, ids: x.to_tensor(),
            "RaggedTensor.to_tensor",
            3.0,
        )


def padded_rows(x):
    """Returns the rows as if they were padded: 16 steps each, 0 to 16 used."""
    padded = tf.reshape(x.flat_values, [-1, 16, DIM])
    return padded, tf.minimum(x.row_lengths()[: tf.shape(padded)[0]], 16)


def unpad(options):
    """Compares with RaggedTensor.from_tensor and a mask."""

    def masked(x, ids):
        padded, lengths = padded_rows(x)
        return tf.boolean_mask(padded, tf.sequence_mask(lengths, 16))

    comparisons = Comparisons(options, hot=0)
    for baseline, against in (
        (
            lambda x, ids: (
                tf.RaggedTensor.from_tensor(*padded_rows(x)).flat_values
            ),
            "RaggedTensor.from_tensor",
        ),
        (masked, "tf.boolean_mask, tf.sequence_mask"),
    ):
        comparisons.run(
            "unpad",
            lambda x, ids: lodestar.sequence.unpad(*padded_rows(x)).flat_values,
            baseline,
            against,
            3.0,
        )


class Histories(Comparisons):
    """Compares functions of histories with Zipf-distributed lengths."""

    def __init__(self, options, count, longest, exponent):
        rng = np.random.default_rng(5)
        lengths = [
            zipf_lengths(rng, count, longest, exponent) for _ in range(BATCHES)
        ]
        batches = [feed(rng, each, DIM) for each in lengths]
        self._use(
            options, batches, int(np.mean([sum(each) for each in lengths]))
        )


def padded_attention(causal):
    """Returns a function that pads all sequences to the longest, with a mask."""

    def attention(x, ids):
        del ids
        padded = x.to_tensor()
        heads = tf.reshape(
            padded, [*tf.unstack(tf.shape(padded)[:2]), 2, DIM // 2]
        )
        heads = tf.transpose(heads, [0, 2, 1, 3])
        scores = tf.matmul(heads, heads, transpose_b=True) * (DIM // 2) ** -0.5
        mask = tf.sequence_mask(x.row_lengths())[:, tf.newaxis, tf.newaxis]
        if causal:
            steps = tf.range(tf.shape(padded)[1])
            mask &= steps[:, tf.newaxis] >= steps
        weights = tf.nn.softmax(tf.where(mask, scores, tf.float32.min))
        rows = tf.transpose(tf.matmul(weights, heads), [0, 2, 1, 3])
        rows = tf.RaggedTensor.from_tensor(rows, x.row_lengths())
        return tf.reshape(rows.flat_values, [-1, DIM])

    return attention


def attention(options):
    """Compares with one padded tensor, as of keras.layers.MultiHeadAttention."""
    count = 64 if options.small else 256

    def ours(x, ids, causal=False):
        heads = x.with_flat_values(tf.reshape(x.flat_values, [-1, 2, DIM // 2]))
        rows = lodestar.sequence.attention(heads, heads, heads, causal=causal)
        return tf.reshape(rows.flat_values, [-1, DIM])

    for longest, exponent in ((50, 1.05), (200, 1.2)):
        histories = Histories(options, count, longest, exponent)
        for causal in (False, True):
            histories.run(
                f"{'causal ' * causal}attention, lengths to {longest}",
                functools.partial(ours, causal=causal),
                padded_attention(causal),
                "padded to the longest",
                1.0,
            )


def main() -> None:
    """Prints one JSON line per comparison."""
    options = arguments(__doc__)
    for works in (
        pool,
        softmax,
        expand_as,
        expand,
        pad,
        unpad,
        attention,
    ):
        works(options)


if __name__ == "__main__":
    main()
