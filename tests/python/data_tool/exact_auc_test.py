"""exact_auc beside a count of pairs."""

import numpy as np
import pytest

from lodestar._data_tool.exact_auc import exact_auc


def test_exact_auc():
    assert exact_auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) == 0.75
    assert exact_auc([0, 1], [0.5, 0.5]) == 0.5
    assert exact_auc([[0], [1], [1]], [[1], [2], [3]]) == 1.0
    rng = np.random.default_rng(0)
    y, s = rng.integers(0, 2, 300), rng.integers(0, 20, 300)
    pos, neg = s[y == 1], s[y == 0]
    wins = (pos[:, None] > neg).mean() + (pos[:, None] == neg).mean() / 2
    assert exact_auc(y, s) == pytest.approx(wins)
    with pytest.raises(
        ValueError, match="both classes, found 2 positive and 0"
    ):
        exact_auc([1, 1], [0, 1])
    with pytest.raises(ValueError, match="2 labels for 3 scores"):
        exact_auc([1, 0], [0, 1, 2])
