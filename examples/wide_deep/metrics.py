"""Metrics: the AUC of one batch, and the exact AUC of a whole data set."""

import keras
import numpy as np


@keras.saving.register_keras_serializable(package="wide_deep")
class BatchAUC(keras.metrics.AUC):
    """AUC of the last batch alone: what online training watches."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Forgets the batches before and counts this one."""
        self.reset_state()
        return super().update_state(y_true, y_pred, sample_weight)


def exact_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Probability that a positive scores above a negative; ties count half.

    Computed from ranks (Mann-Whitney), so without the thresholds of
    keras.metrics.AUC.

    Args:
        labels: `[N]`, 0 or 1.
        scores: `[N]`.

    Returns:
        AUC, or NaN where all labels are equal.
    """
    labels = np.asarray(labels) > 0.5
    _, group, counts = np.unique(
        scores, return_inverse=True, return_counts=True
    )
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return float("nan")
    last_rank = np.cumsum(counts)
    mean_rank = last_rank - (counts - 1) / 2.0
    rank_sum = mean_rank[group][labels].sum()
    return float(
        (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)
    )
