"""lodestar.data.arrow.batch_packer: rows as one buffer and a table of offsets."""

import gc

import numpy as np

from lodestar.data import Column
from lodestar.data.arrow.batch_packer import BatchPacker
from lodestar.data.arrow.decode import Rows
from lodestar.data.binding import bind

NUMBERS = Rows(8, {0: np.arange(8, dtype=np.float32)[:, np.newaxis]})


def test_memory_of_batches_is_used_again():
    packer = BatchPacker(bind([Column.dense("I", (1,))]), None)
    buffer, places = packer.pack([(NUMBERS, 2, 6)], 4)
    assert places.tolist() == [[0, 16, 4]]
    assert buffer.view(np.float32)[:4].tolist() == [2, 3, 4, 5]
    address = buffer.ctypes.data
    assert address % 64 == 0
    assert packer.pack([(NUMBERS, 0, 4)], 4)[0].ctypes.data != address
    del buffer
    gc.collect()
    assert packer.pack([(NUMBERS, 0, 4)], 4)[0].ctypes.data == address
