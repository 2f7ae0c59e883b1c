"""Computes ids of strings for tests."""

import lodestar


def hash_ids(column, values):
    """Returns the ids of the strings of a column, an int64 array."""
    return lodestar.hash_ids(list(values), column=column).numpy()
