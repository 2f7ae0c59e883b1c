"""Served tables that store the rows of snapshots in fewer bits."""

import numpy as np
import pytest
import tensorflow as tf
from followed_models import Trainer, serve

from lodestar._library import gen_ops


def test_memory_of_what_follows(tmp_path):
    """The new copies of the table are stored as the exported one."""
    bytes_of = {}
    for dtype in (None, "int8"):
        trainer = Trainer(tmp_path / str(dtype), follow=True, dtype=dtype)
        served = serve(trainer, "export")
        trainer.train()
        trainer.save()
        served.poll()
        # The loaded table has the rows of the version.
        stats = gen_ops.lodestar_embedding_stats(
            served.loaded.tables["clicks"].resource_handle
        ).stats.numpy()
        assert stats[0] == int(trainer.table.size())
        bytes_of[dtype] = stats[2] / stats[5]
    assert bytes_of == {None: 24 + 16, "int8": 24 + 8}


@pytest.mark.parametrize(
    ("dtype", "value", "read"),
    [("float16", 1e6, np.inf), ("int8", np.inf, np.nan)],
)
def test_a_later_row_that_does_not_fit(dtype, value, read, tmp_path):
    trainer = Trainer(tmp_path, follow=True, dtype=dtype)
    served = serve(trainer, "export")
    trainer.table.insert_or_assign(trainer.ids[:1], [[value, 1, 1, 1]])
    trainer.save()
    assert served.poll()
    ids = tf.RaggedTensor.from_tensor(trainer.ids[None, :1])
    rows = served({"clicks": ids})["rows"].numpy()
    np.testing.assert_array_equal(rows[0, 0], np.float32(read))


def test_an_export_of_a_served_model(tmp_path):
    """Rows that were rounded are rounded again without a further error."""
    trainer = Trainer(tmp_path, dtype="int8")
    trainer.train()
    trainer.save()
    model = serve(trainer, "row")
    rows = gen_ops.lodestar_embedding_export(
        model.loaded.tables["clicks"].resource_handle,
        dtype=tf.float32,
    )
    again = gen_ops.lodestar_embedding_variable(
        dim=4, dtype=tf.float32, stored_as="int8"
    )
    gen_ops.lodestar_embedding_import(again, *rows)
    copy = gen_ops.lodestar_embedding_export(again, dtype=tf.float32)
    np.testing.assert_array_equal(copy.ids, rows.ids)
    np.testing.assert_allclose(copy.rows, rows.rows, rtol=1e-6)
