"""The AUC of each batch."""

from typing import Any

import keras
import tensorflow as tf

from lodestar import _bases
from lodestar._arguments import explained
from lodestar._checks import after, assert_true, check_count, check_flag
from lodestar._typing import DTypeLike, TensorLike


@keras.saving.register_keras_serializable(package="lodestar")
class BatchAUC(_bases.Metric):
    """The mean area under the ROC curve (AUC) over batches, or that of recent batches.

    Scores are only compared within their batch, so scores of different model weights do
    not mix. The area is exact, by ranks instead of thresholds: the weighted share of
    positive-negative pairs in which the positive has the higher score; equal scores
    count one half. Scores can be any numbers; a NaN score makes the result NaN.

    All batches have the same weight. Batches without a pair, because one class is
    missing or has weight 0, are skipped; without any other batch the result is NaN. For
    the AUC of the last batch alone, call `reset_state()` before each.

    >>> metric = lodestar.metrics.BatchAUC()
    >>> metric.update_state([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> float(metric.result())
    0.75

    With `slide_steps` it is Paddle's `batch_auc`: one area over all scores of the last
    batches together, which are rounded down to `num_thresholds` + 1 values. Use it
    where one step runs at a time, not with threads or replicas.

    >>> metric = lodestar.metrics.BatchAUC(slide_steps=20, from_softmax=True)

    Args:
        name: Name of the metric.
        dtype: Dtype of the result. The area is computed in float64.
        from_softmax: Whether scores are pairs `[..., 2]`, the outputs of a softmax, of
            which the second is the probability of a positive label.
        slide_steps: Number of recent batches. None is the mean over all batches.
        num_thresholds: With `slide_steps`: 1 / distance of distinguished scores.
    """

    @explained()
    def __init__(
        self,
        name: str = "batch_auc",
        dtype: DTypeLike | None = None,
        *,
        from_softmax: bool = False,
        slide_steps: int | None = None,
        num_thresholds: int = 4095,
    ):
        super().__init__(name=name, dtype=dtype)
        self._from_softmax = check_flag("from_softmax", from_softmax)
        self._num_thresholds = check_count("num_thresholds", num_thresholds)
        self._slide_steps = slide_steps
        if slide_steps is not None:
            check_count("slide_steps", slide_steps)
            # Weights of negatives and positives by score, of each batch.
            shape = (slide_steps, 2, num_thresholds + 1)
            self._recent = self.add_variable(
                shape, "zeros", "float64", name="recent"
            )
        else:
            self._total = self.add_variable(
                (), "zeros", "float64", name="total"
            )
        self._batches = self.add_variable(
            (), "zeros", "float64", name="batches"
        )

    def update_state(
        self,
        y_true: TensorLike,
        y_pred: TensorLike,
        sample_weight: TensorLike | None = None,
    ) -> None:
        """Adds a batch.

        Args:
            y_true: Labels, positive above 0.5; any shape.
            y_pred: As many scores, or pairs of scores; with `slide_steps`, in [0, 1].
            sample_weight: As many nonnegative weights, or weights that broadcast to
                the shape of the labels, such as `[B]`. Defaults to 1.

        Raises:
            ValueError, tf.errors.InvalidArgumentError: The numbers of scores and
                labels differ, or a score is out of range.
        """
        labels = tf.convert_to_tensor(y_true)
        scores = tf.cast(y_pred, tf.float64)
        if self._from_softmax:
            scores = _second(scores)
        scores = tf.reshape(scores, [-1])
        weights = _weights(sample_weight, labels)
        labels = tf.reshape(labels, [-1])
        _check_sizes(labels, scores)
        positive = tf.cast(labels, tf.float64) > 0.5
        if self._slide_steps is not None:
            self._add_recent(positive, scores, weights)
            return
        area, pairs = _area(positive, scores, weights)
        counts = pairs > 0
        self._total.assign_add(tf.where(counts, area, 0.0))
        self._batches.assign_add(tf.cast(counts, tf.float64))

    def _add_recent(
        self, positive: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor
    ) -> None:
        """Replaces the sums of the oldest batch."""
        steps, _, buckets = self._recent.shape
        inside = tf.logical_and(scores >= 0, scores <= 1)
        check = assert_true(
            tf.reduce_all(inside),
            [
                "`y_pred` must be in [0, 1] with `slide_steps`, got",
                tf.boolean_mask(scores, ~inside),
            ],
        )
        scores = after(check, scores)
        of_score = tf.cast(scores * self._num_thresholds, tf.int32)
        sums = tf.math.unsorted_segment_sum(
            weights,
            of_score + tf.where(positive, buckets, 0),
            2 * buckets,
        )
        place = tf.cast(self._batches % steps, tf.int32)
        newest = tf.range(steps)[:, None, None] == place
        self._recent.assign(
            tf.where(newest, tf.reshape(sums, [2, buckets]), self._recent.value)
        )
        self._batches.assign_add(1.0)

    def result(self) -> tf.Tensor:
        """Returns the mean over the batches with a pair, or NaN.

        With `slide_steps`: the area over the recent batches, or NaN without a pair.
        """
        if self._slide_steps is None:
            return tf.cast(self._total / self._batches, self.dtype)
        sums = tf.reduce_sum(self._recent.value, 0)
        won, pairs = _won(positives=sums[1], negatives=sums[0])
        return tf.cast(won / pairs, self.dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "from_softmax": self._from_softmax,
            "slide_steps": self._slide_steps,
            "num_thresholds": self._num_thresholds,
        }


def _second(scores: tf.Tensor) -> tf.Tensor:
    """Returns the second of each pair of scores."""
    if not scores.shape[-1:].is_compatible_with([2]):
        raise ValueError(
            "`y_pred` must have shape [..., 2] with `from_softmax`, got "
            f"{scores.shape}."
        )
    check = tf.debugging.assert_equal(
        tf.shape(scores)[-1],
        2,
        "`y_pred` must have shape [..., 2] with `from_softmax`",
    )
    return after(check, scores)[..., 1]


def _weights(sample_weight: Any, labels: tf.Tensor) -> tf.Tensor:
    shape = tf.shape(labels)
    if sample_weight is None:
        return tf.ones([tf.size(labels)], tf.float64)
    weights = tf.cast(sample_weight, tf.float64)
    while weights.shape.rank < labels.shape.rank:
        weights = weights[..., tf.newaxis]
    if weights.shape.rank > labels.shape.rank:  # [B, 1] for [B]
        weights = tf.reshape(weights, shape)
    return tf.reshape(tf.broadcast_to(weights, shape), [-1])


def _check_sizes(labels: tf.Tensor, scores: tf.Tensor) -> None:
    if not labels.shape.is_compatible_with(scores.shape):
        raise ValueError(
            f"`y_true` has {labels.shape[0]} labels, but `y_pred` has "
            f"{scores.shape[0]} scores."
        )
    tf.debugging.assert_equal(
        tf.size(labels),
        tf.size(scores),
        "`y_true` and `y_pred` differ in size.",
    )


def _area(
    positive: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the area, and the total weight of all pairs."""
    order = tf.argsort(scores)
    scores = tf.gather(scores, order)
    weights = tf.gather(weights, order)
    positive = tf.gather(positive, order)
    # Equal scores share a rank.
    places = tf.cumsum(
        tf.concat([[0], tf.cast(scores[1:] != scores[:-1], tf.int32)], 0)
    )[: tf.size(scores)]

    def sums(of: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(
            tf.where(of, weights, 0.0), places, tf.size(scores)
        )

    won, pairs = _won(positives=sums(positive), negatives=sums(~positive))
    unknown = tf.reduce_any(tf.math.is_nan(scores))
    nan = tf.constant(float("nan"), tf.float64)
    return tf.where(unknown, nan, won / pairs), pairs


def _won(
    positives: tf.Tensor, negatives: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the weights of won and of all pairs, by ascending score."""
    below = tf.cumsum(negatives, exclusive=True)
    won = tf.reduce_sum(positives * (below + negatives / 2))
    return won, tf.reduce_sum(positives) * tf.reduce_sum(negatives)
