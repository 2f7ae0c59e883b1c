"""Conversions that share memory instead of copying values."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.hugectr import from_csr, to_csr
from lodestar.ragged import LoDTensor


def address(tensor):
    # `numpy()` would copy; this is a view.
    return np.asarray(memoryview(tensor)).__array_interface__["data"][0]


VALUES = tf.random.normal([1000])
OFFSETS = tf.constant([0, 400, 400, 1000], tf.int64)
RAGGED = tf.RaggedTensor.from_row_splits(VALUES, OFFSETS)
SPARSE = RAGGED.to_sparse()
SPARSE = tf.SparseTensor(SPARSE.indices, VALUES, SPARSE.dense_shape)


@pytest.mark.parametrize(
    "build",
    [
        lambda: LoDTensor(VALUES, [OFFSETS]),
        lambda: LoDTensor.from_offsets(VALUES, [OFFSETS]),
        lambda: LoDTensor.from_lengths(VALUES, [[400, 0, 600]]),
        lambda: LoDTensor.from_ragged(RAGGED),
        lambda: from_csr(OFFSETS, VALUES)[0],
        lambda: LoDTensor.from_sparse(SPARSE),
        lambda: LoDTensor.from_components({"values": VALUES, "lod_0": OFFSETS}),
        lambda: LoDTensor(VALUES, ()).reset_lod([OFFSETS]),
        lambda: LoDTensor(VALUES, ()).append_lod(OFFSETS),
    ],
    ids=[
        "constructor",
        "offsets",
        "lengths",
        "ragged",
        "csr",
        "sparse",
        "components",
        "reset",
        "append",
    ],
)
def test_values_stay_where_they_are(build):
    x = build()
    assert address(x.values) == address(VALUES)
    assert address(x.to_ragged().flat_values) == address(VALUES)
    assert address(to_csr([x])[1]) == address(VALUES)
    assert address(x.components()["values"]) == address(VALUES)


def test_offsets_stay_where_they_are():
    for x in (
        LoDTensor.from_offsets(VALUES, [OFFSETS]),
        LoDTensor.from_ragged(RAGGED),
        *from_csr(OFFSETS, VALUES),
    ):
        assert address(x.lod[0]) == address(OFFSETS)
        assert address(x.to_ragged().row_splits) == address(OFFSETS)


def test_a_copy_has_another_address():
    assert address(VALUES + 0) != address(VALUES)
