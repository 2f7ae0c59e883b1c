"""Tests that the golden file of each format loads.

tests/data/golden/make.py wrote them and describes them.
"""

import pathlib

import keras
import make as golden
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.ops import id_hash

FOLDER = pathlib.Path(golden.__file__).parent


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDER / "expected.npz") as file:
        return {name: file[name] for name in file.files}


def assert_holds(found, expected):
    """Checks for bitwise equality."""
    names = {n for n in expected if n != "score" and not n.startswith("rows:")}
    assert found.keys() == names
    for name, value in found.items():
        want = expected[name]
        assert value.dtype == want.dtype and value.shape == want.shape, name
        assert value.tobytes() == want.tobytes(), name


def assert_model_holds(model, expected):
    assert_holds(golden.state(model), expected)
    score = model.predict(golden.batch()[0], verbose=0)
    np.testing.assert_allclose(score, expected["score"], rtol=1e-5, atol=1e-6)
    before = int(golden.tables_of(model)["counted"].step)
    model.train_on_batch(*golden.batch())  # the update of the sixth gradient
    assert int(golden.tables_of(model)["counted"].step) == before + 1


def test_files_hold_every_kind_of_state(expected):
    empty = {name for name, value in expected.items() if value.size == 0}
    # Only exact counts have occurrences, only filters counters, ...
    assert not empty & {
        "counted:ids",
        "counted:optimizer_slots",
        "counted:pending_ids",
        "counted:pending_sightings",
        "counted:shared_rows",
        "counted:shared_slots",
        "capped:sketch",
        "capped:last_seen",
        "counted_gradient_sum:ids",
        "capped_gradient_sum:rows",
    }
    assert expected["capped:ids"].size == 5


def test_checkpoint(expected):
    model = golden.model()
    objects = golden.objects()
    checkpoint = tf.train.Checkpoint(objects=objects, model=model)
    status = checkpoint.read(str(FOLDER / "checkpoint" / "golden"))
    status.assert_consumed()
    assert_model_holds(model, expected)
    assert_objects(objects)


def assert_objects(objects):
    strings = objects["strings"].lookup(["ada", "bob", "", "cy", "dee"])
    np.testing.assert_array_equal(strings, [0, 1, 2, 9, -1])
    integers = objects["integers"].lookup([7, -7, 0])
    np.testing.assert_array_equal(integers, [70, -70, -1])


def test_keras_file(expected):
    assert_model_holds(
        keras.saving.load_model(FOLDER / "model.keras"), expected
    )


def test_weights_file(expected):
    model = golden.model()
    model.load_weights(FOLDER / "model.weights.h5")
    assert_model_holds(model, expected)


def test_saved_model_serves(expected):
    loaded = tf.saved_model.load(str(FOLDER / "saved_model"))
    rows = loaded.rows(tf.constant(golden.IDS.ravel()))
    for name in ("counted", "capped"):
        np.testing.assert_array_equal(
            tf.cast(rows[name], tf.float32), expected[f"rows:{name}"]
        )
    np.testing.assert_array_equal(
        loaded.ids(tf.constant(["ada", "cy", "dee"])), [0, 9, -1]
    )


def test_saved_model_is_read_into_tables(expected):
    tables, objects = golden.tables(), golden.objects()
    module = golden.Module(tables, objects)
    path = FOLDER / "saved_model" / "variables" / "variables"
    status = tf.train.Checkpoint(module).read(str(path))
    status.assert_existing_objects_matched()
    assert_objects(objects)
    for name, table in tables.items():
        for kind, value in golden.table_state(table).items():
            want = expected[f"{name}:{kind}"]
            np.testing.assert_array_equal(value, want, f"{name}:{kind}")


# What saved files depend on besides their bytes.


def test_salts_and_fingerprints():
    assert id_hash.stable_hash("") == -5426141060434712860
    assert id_hash.stable_hash("user") == 7173623408806911919
    salted = id_hash.salted(tf.constant([-(2**63), -1, 0, 7]), "user")
    np.testing.assert_array_equal(
        salted,
        [
            8844539242377775107,
            4072531114880605978,
            -5814454816388300252,
            -6813784917849279367,
        ],
    )
    texts = id_hash.fingerprint(tf.constant(["", "ada"]))
    np.testing.assert_array_equal(
        texts, [-7286425919675154353, -5302328041424411012]
    )


@pytest.mark.parametrize(
    "hasher, key, strings, integers",
    [
        (
            "fast",
            None,
            [34397263, 285140604, 835565196],
            [208774112, 151076430, 252572735, 913062319],
        ),
        (
            "strong",
            (1, 2),
            [107117435, 498715014, 682238598],
            [822284092, 254822660, 828363823, 793419826],
        ),
    ],
    ids=["fast", "strong"],
)
def test_buckets(hasher, key, strings, integers):
    for keys, want in (
        (["", "ada", "a longer key than one word"], strings),
        ([-(2**63), -1, 0, 2**63 - 1], integers),
    ):
        table = lodestar.lookup.IdTableWithHashBuckets(
            None,
            10**9,
            hasher=hasher,
            hasher_key=key,
            key_dtype=tf.string if isinstance(keys[0], str) else tf.int64,
        )
        np.testing.assert_array_equal(table.lookup(tf.constant(keys)), want)


def test_shared_row_of_an_id():
    table = lodestar.EmbeddingVariable(
        1, name="t", default_row=lodestar.SharedRows(1000)
    )
    state = {k: v.numpy() for k, v in table._export_all().items()}
    ids = [-(2**63), -1, 0, 2**63 - 1]
    rows = table.lookup(ids).numpy()[:, 0]
    places = [int(np.flatnonzero(state["shared_rows"] == r)[0]) for r in rows]
    assert places == [id_hash.mix64(i) % 2**64 % 1000 for i in ids]
