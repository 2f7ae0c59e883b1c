"""The AUC of scores."""

import numpy as np


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The area under the ROC curve, exactly: ties count one half."""
    positive, scores = np.ravel(labels) > 0.5, np.ravel(scores)
    _, inverse, counts = np.unique(
        scores, return_inverse=True, return_counts=True
    )
    # Equal scores share the mean of their ranks (Mann-Whitney).
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[np.ravel(inverse)]
    count = positive.sum()
    area = ranks[positive].sum() - count * (count + 1) / 2
    return float(area / (count * (len(scores) - count)))
