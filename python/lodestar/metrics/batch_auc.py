"""The AUC of each batch."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="lodestar")
class BatchAUC(keras.metrics.Metric):
    """The mean area under the ROC curve (AUC) over batches.

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

    Args:
        name: Name of the metric.
        dtype: Dtype of the result. The area is computed in float64.
    """

    def __init__(self, name: str = "batch_auc", dtype: Any = None):
        super().__init__(name=name, dtype=dtype)
        self._total = self.add_variable((), "zeros", "float64", name="total")
        self._batches = self.add_variable(
            (), "zeros", "float64", name="batches"
        )

    def update_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        """Adds a batch.

        Args:
            y_true: Labels, positive above 0.5; any shape.
            y_pred: As many scores.
            sample_weight: As many nonnegative weights, or weights that broadcast to
                the shape of the labels, such as `[B]`. Defaults to 1.

        Raises:
            ValueError, tf.errors.InvalidArgumentError: The numbers of scores and
                labels differ.
        """
        labels = tf.convert_to_tensor(y_true)
        scores = tf.reshape(tf.cast(y_pred, tf.float64), [-1])
        weights = _weights(sample_weight, labels)
        labels = tf.reshape(labels, [-1])
        _check_sizes(labels, scores)
        area, pairs = _area(tf.cast(labels, tf.float64) > 0.5, scores, weights)
        counts = pairs > 0
        self._total.assign_add(tf.where(counts, area, 0.0))
        self._batches.assign_add(tf.cast(counts, tf.float64))

    def result(self) -> tf.Tensor:
        """Returns the mean over the batches with a pair, or NaN."""
        return tf.cast(self._total / self._batches, self.dtype)


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

    positives, negatives = sums(positive), sums(~positive)
    below = tf.cumsum(negatives, exclusive=True)
    won = tf.reduce_sum(positives * (below + negatives / 2))
    pairs = tf.reduce_sum(positives) * tf.reduce_sum(negatives)
    unknown = tf.reduce_any(tf.math.is_nan(scores))
    nan = tf.constant(float("nan"), tf.float64)
    return tf.where(unknown, nan, won / pairs), pairs
