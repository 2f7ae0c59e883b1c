"""Served tables that store the rows of snapshots in fewer bits."""

import numpy as np
import pytest
import tensorflow as tf
from followed_models import Trainer

import lodestar
from lodestar._library import gen_ops
from lodestar.embedding.stored_rows import DTYPES


def following(trainer):
    """Returns `serve` of an export that follows snapshots, and its refresh."""
    loaded = tf.saved_model.load(str(trainer.exported))
    refresh = loaded.signatures["refresh"]
    return loaded.serve, lambda: int(refresh()["version"]), loaded


def live(trainer, consistency):
    model = lodestar.serving.LiveModel(
        trainer.exported, trainer.snapshots, None, consistency=consistency
    )

    def refresh():
        model.poll()
        return model.version()

    return model, refresh, model


@pytest.mark.parametrize("server", ["export", "call", "row"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_versions_and_changes_are_rounded(dtype, server, tmp_path):
    follow = server == "export"
    trainer = Trainer(tmp_path, follow=follow, dtype=dtype)
    if follow:
        serve, refresh, owner = following(trainer)
    else:
        serve, refresh, owner = live(trainer, server)
    for version in range(1, 6):
        trainer.train()
        if version > 1:
            trainer.table.remove(trainer.ids[version : version + 5])
        trainer.save(delta=version not in (1, 4))
        assert refresh() == version
        want, got = trainer.outputs(), serve(trainer.features)
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-2)
        assert np.abs(got["rows"] - want["rows"]).max() > 0
    del owner


def test_memory_of_what_follows(tmp_path):
    """The new copies of the table are stored as the exported one."""
    bytes_of = {}
    for dtype in (None, "int8"):
        trainer = Trainer(tmp_path / str(dtype), follow=True, dtype=dtype)
        _, refresh, loaded = following(trainer)
        trainer.train()
        trainer.save()
        refresh()
        # The loaded table has the rows of the version.
        stats = gen_ops.lodestar_embedding_stats(
            loaded.tables["clicks"].resource_handle
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
    serve, refresh, owner = following(trainer)
    trainer.table.insert_or_assign(trainer.ids[:1], [[value, 1, 1, 1]])
    trainer.save()
    assert refresh() == 1
    ids = tf.RaggedTensor.from_tensor(trainer.ids[None, :1])
    rows = serve({"clicks": ids})["rows"].numpy()
    np.testing.assert_array_equal(rows[0, 0], np.float32(read))
    del owner


def test_an_export_of_a_served_model(tmp_path):
    """Rows that were rounded are rounded again without a further error."""
    trainer = Trainer(tmp_path, dtype="int8")
    trainer.train()
    trainer.save()
    model, _, _ = live(trainer, "row")
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
