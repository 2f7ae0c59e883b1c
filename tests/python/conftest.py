"""Fixtures shared by all Python tests."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    """A seeded NumPy generator."""
    return np.random.default_rng(20240917)
