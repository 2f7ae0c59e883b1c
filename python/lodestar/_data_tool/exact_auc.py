"""The area under the ROC curve of labels and scores."""

import numpy as np


def exact_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The area under the ROC curve, exactly: ties count one half.

    Args:
        labels: `[N]`, 0 or 1.
        scores: `[N]`, any numbers whose order matters.

    Raises:
        ValueError: The lengths differ, or one of the two classes is missing.
    """
    labels = np.asarray(labels).reshape(-1)
    scores = np.asarray(scores).reshape(-1)
    if len(labels) != len(scores):
        raise ValueError(
            f"{len(labels)} labels for {len(scores)} scores; wanted as many"
        )
    positive = labels > 0.5
    num_positive = int(positive.sum())
    num_negative = len(labels) - num_positive
    if num_positive == 0 or num_negative == 0:
        raise ValueError(
            f"AUC needs both classes, found {num_positive} positive and "
            f"{num_negative} negative labels"
        )
    # Sum of the positives' ranks (Mann-Whitney); equal scores share their mean.
    _, inverse, counts = np.unique(
        scores, return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2.0)[inverse.reshape(-1)]
    area = ranks[positive].sum() - num_positive * (num_positive + 1) / 2.0
    return float(area / (num_positive * num_negative))
