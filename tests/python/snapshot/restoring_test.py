"""Restoring: names, differences between both sides, and damaged files."""

import os
import warnings

import keras
import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.snapshot import restoring


@pytest.fixture
def saved(path):
    """Saves two tables: a full snapshot and a delta."""
    a, b, by = st.table("a"), st.table("b", dim=2), st.optimizer()
    st.train([a, b], tf.range(200, dtype=tf.int64), by)
    snapshot.save([a, b], path, dense={"w": np.arange(1000)})
    st.train([a, b], st.numbers(3, 1000), by)
    a.remove([5, 6])
    snapshot.save([a, b], path, delta=True, dense={"w": np.arange(1000) + 1})
    return a, b


def test_the_report_lists_the_results(path, saved):
    new = {"x": st.table("a"), "c": st.table("c")}
    st.fill(new["c"], [1])
    before = st.content(new["c"])
    report = snapshot.restore(
        new, path, rename={"a": "x"}, on_missing="init", on_extra="ignore"
    )
    assert report.version == 2 and report.step == 2
    assert report.path == os.path.join(path, "00000002")
    assert report.restored == {"x": 199}
    assert report.initial == ("c",) and report.ignored == ("b",)
    assert report.dense["w"].tolist() == [*range(1, 1001)]
    assert st.content(new["x"]) == st.content(saved[0])
    assert st.content(new["c"]) == before
    assert report == snapshot.restore(
        new, path, rename={"a": "x"}, on_missing="init", on_extra="ignore"
    )


def test_by_step_and_version(path, saved):
    new = [st.table("a"), st.table("b", dim=2)]
    assert snapshot.restore(new, path, 1).version == 1
    assert snapshot.restore(new, path, step=2).version == 2
    assert snapshot.restore(new, path, version=1).step == 1
    assert snapshot.restore(new, path).version == 2
    with pytest.raises(
        snapshot.SnapshotError, match="step 9; it has steps 1, 2"
    ):
        snapshot.restore(new, path, 9)
    with pytest.raises(
        snapshot.SnapshotError, match="no version 9; it has 1, 2"
    ):
        snapshot.restore(new, path, version=9)


@pytest.mark.parametrize("shards", [1, 2, 64])
def test_any_number_of_shards(path, saved, shards):
    new = st.table("a", num_shards=shards)
    snapshot.restore(new, path, on_extra="ignore")
    assert st.content(new) == st.content(saved[0])


def test_a_restore_keeps_the_salt_that_was_saved(path, saved):
    new = st.table("q", seed=5)
    snapshot.restore(new, path, rename={"a": "q"}, on_extra="ignore")
    again = st.table("a")
    snapshot.restore(again, path, on_extra="ignore")
    for t in (again, new):
        st.train(t, st.numbers(77_777), st.optimizer())
    assert st.content(new) == st.content(again)


def test_new_optimizer_slots(path, saved):
    new, by = st.table("a"), st.optimizer("adam")
    snapshot.restore(new, path, on_extra="ignore", optimizer_slots="reset")
    assert st.rows_of(new) == st.rows_of(saved[0])
    assert new.export().optimizer == ""
    st.train(new, st.numbers(3), by)
    assert new.export().optimizer == "adam"


def _refused(path, tables, message, kind=snapshot.SnapshotError, **options):
    """Checks that a restore fails and leaves the tables unchanged."""
    found = list(tables.values()) if isinstance(tables, dict) else tables
    before = [st.content(t) for t in found]
    with pytest.raises(kind, match=message):
        snapshot.restore(tables, path, **options)
    assert [st.content(t) for t in found] == before


def _two(**options):
    tables = [st.table("a", **options), st.table("b", dim=2)]
    for t in tables:
        st.fill(t, range(5))
    return tables


def test_names_that_do_not_match(path, saved):
    a, b = _two()
    _refused(path, [a], "2: has the table 'b', which is not among .* 'a'. Use")
    c = st.table("c")
    _refused(path, [a, b, c], "2: has no table 'c'; it has 'a', 'b'. Use")
    _refused(
        path, [a, b], "`rename` has 'z', but .*'a', 'b'", rename={"z": "a"}
    )
    _refused(
        path, [a, b], "maps 'a' to 'z', but the tables here", rename={"a": "z"}
    )
    _refused(path, [a, b], "two tables .* match 'b' here", rename={"a": "b"})


def test_kinds_that_do_not_match(path, saved):
    word = lodestar.lookup.IdTable(["x"], name="b")
    with pytest.raises(
        snapshot.SnapshotError,
        match="'b' is an embedding, but 'b' here is IdTable",
    ):
        snapshot.restore([st.table("a"), word], path)
    snapshot.save(word, path)
    _refused(path, [st.table("b")], "'b' is an id table, but 'b' here is <Emb")
    with pytest.raises(
        snapshot.SnapshotError,
        match="'b' is an IdTable of string keys in the snapshot, but an IdTable "
        "of int64 keys here",
    ):
        snapshot.restore(lodestar.lookup.IdTable([1], name="b"), path)


def _by_adam():
    b = st.table("b", dim=2)
    st.train(b, st.numbers(1), st.optimizer("adam"))
    return [st.table("a"), b]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: _two(dim=5),
            "2: the table 'a' has dim 4, but <Emb.* output_dim=5 .* has dim 5",
        ),
        (
            lambda: _two(dtype="float16"),
            "'a' has dtype float32, but <Emb.* dtype=float16> has dtype float16",
        ),
        (
            lambda: _two(eviction=lodestar.MaxRows(50)),
            "/table-00000': .* makes 199 rows, but `max_rows` .* is 50",
        ),
        (
            _by_adam,
            "^'.*00000002/table-00001': .* of 'adam', but .* uses 'adagrad'",
        ),
    ],
)
def test_tables_that_do_not_match(path, saved, make, message):
    _refused(path, make(), message)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"on_missing": "skip"},
            r"`on_missing`='skip' is not in \('error', 'init'\)",
        ),
        (
            {"on_extra": True},
            r"`on_extra`=True is not in \('error', 'ignore'\)",
        ),
        ({"optimizer_slots": ""}, "`optimizer_slots`='' is not in"),
        ({"rename": ["a"]}, r"`rename` must be a dict .* got \['a'\]"),
        ({"version": 0}, "`version` must be an integer of at least 1, got 0"),
        ({"version": "1"}, "`version` must be .* got '1'"),
        ({"step": 1, "version": 1}, "`step`=1 and `version`=1 cannot be"),
        ({"step": 1.5}, "`step` must be .* got 1.5"),
    ],
    ids=str,
)
def test_bad_arguments(path, saved, options, message):
    _refused(path, _two(), message, ValueError, **options)


def test_nothing_is_restored_for_dense_arrays_alone(path):
    t = st.table()
    st.fill(t, range(3))
    words = lodestar.lookup.IdTable(["x"], name="words")
    snapshot.save([t, words], path, dense={"w": [1, 2]}, metadata={"day": 2})
    snapshot.save([t, words], path, delta=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = snapshot.restore({}, path, version=1, on_extra="ignore")
    assert report.dense["w"].tolist() == [1, 2]
    assert (report.version, report.metadata) == (1, {"day": 2})
    assert (report.restored, report.ignored) == ({}, ("t", "words"))
    assert snapshot.restore({}, path, on_extra="ignore").dense == {}
    with pytest.raises(snapshot.SnapshotError, match="has the table 't', 'wo"):
        snapshot.restore({}, path)
    with pytest.raises(ValueError, match="holds no table"):
        snapshot.restore([], path)
    with pytest.raises(ValueError, match="holds no table"):
        snapshot.save({}, path)


def test_no_snapshots(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(
            snapshot.SnapshotError, match=f"{path}: holds no snapshot"
        ):
            snapshot.restore(st.table(), path)
        with pytest.raises(FileNotFoundError, match="holds no snapshot"):
            st.dense(path)


def test_nothing_is_removed_while_it_is_read(path, saved, monkeypatch):
    load = restoring.Plan.load

    def load_late(plan):
        assert snapshot.compact(path).removed == ()
        return load(plan)

    monkeypatch.setattr(restoring.Plan, "load", load_late)
    tables = [st.table("a"), st.table("b", dim=2)]
    assert snapshot.restore(tables, path).version == 2
    assert snapshot.compact(path).removed == (1, 2)
    assert st.content(tables[0]) == st.content(saved[0])


def test_a_layer_restores_only_its_table(path):
    def model():
        ids = keras.Input((2,), dtype="int64")
        rows = lodestar.layers.DynamicEmbedding(3, combiner="sum", name="user")
        return keras.Model(ids, keras.layers.Dense(1)(rows(ids)))

    first, second = model(), model()
    st.fill(first.get_layer("user").table, range(20))
    snapshot.save(first, path)
    kernel = second.layers[-1].kernel.numpy()
    report = snapshot.restore(second.get_layer("user"), path)
    assert report.restored == {"user": 20} and not report.ignored
    np.testing.assert_array_equal(second.layers[-1].kernel.numpy(), kernel)
    assert st.content(second.get_layer("user").table) == st.content(
        first.get_layer("user").table
    )


def _model(names=(None, None), dims=(3, 3)):
    ids = keras.Input((2,), dtype="int64")
    rows = [
        lodestar.layers.DynamicEmbedding(dim, combiner="sum", name=name)
        for name, dim in zip(names, dims)
    ]
    outputs = [keras.layers.Dense(1)(layer(ids)) for layer in rows]
    return keras.Model(ids, outputs), [layer.table for layer in rows]


def _filled(*arguments):
    model, tables = _model(*arguments)
    for number, t in enumerate(tables):
        st.fill(t, range(5), scale=number + 1)
    return model, tables


def test_automatic_names_are_matched_by_structure(path):
    keras.backend.clear_session()
    first, tables = _filled()
    snapshot.save(first, path)
    # The same cell again: each name is the next table's.
    keras.backend.clear_session()
    keras.layers.Dense(1)
    lodestar.layers.DynamicEmbedding(3)
    second, others = _model()
    assert others[0].name == tables[1].name != others[1].name
    report = snapshot.restore(second, path)
    assert [st.content(t) for t in others] == [st.content(t) for t in tables]
    assert report.matched == {
        other.name: (t.name, "structure") for other, t in zip(others, tables)
    }
    # A delta of these tables does not mix them up.
    st.fill(others[0], [2], scale=7)
    snapshot.save(second, path, delta=True)
    third, newest = _model()
    snapshot.restore(third, path)
    assert [st.content(t) for t in newest] == [st.content(t) for t in others]
    # In the same model they are found by name.
    report = snapshot.restore(second, path)
    assert {how for _, how in report.matched.values()} == {"name"}


def test_a_name_that_was_given_since_is_matched_by_structure(path):
    first, tables = _filled((None, None), (3, 2))
    snapshot.save(first, path)
    second, others = _model(("user", None), (3, 2))
    report = snapshot.restore(second, path)
    assert report.matched["user"] == (tables[0].name, "structure")
    assert [st.content(t) for t in others] == [st.content(t) for t in tables]


@pytest.mark.parametrize(
    ("names", "dims"),
    [
        (("user", "item"), (3, 3)),  # given names, and others
        ((None, None), (3, 2)),  # another dimension
        ((None, None, None), (3, 3, 3)),  # one more
        ((None,), (3,)),  # one less
    ],
)
def test_ambiguous_names_are_not_matched(path, names, dims):
    keras.backend.clear_session()
    given = ("a", "b") if "user" in names else (None, None)
    snapshot.save(_filled(given)[0], path)
    lodestar.layers.DynamicEmbedding(3, name="dynamic_embedding_1")
    model, tables = _filled(names, dims)
    before = [st.content(t) for t in tables]
    with pytest.raises(snapshot.SnapshotError, match="Use `rename`"):
        snapshot.restore(model, path)
    assert [st.content(t) for t in tables] == before


def test_waiting_gradients_go_with_their_table(path):
    def trained(names):
        model, tables = _filled(names)
        model.compile(
            lodestar.optimizers.Adam(gradient_accumulation_steps=4),
            "mse",
        )
        model.train_on_batch(np.ones((4, 2), np.int64), [np.ones((4, 1))] * 2)
        return model, tables

    first, _ = trained((None, None))
    snapshot.save(first, path)
    second, _ = trained((None, None))
    report = snapshot.restore(second, path)
    assert len(report.matched) == 4
    for here, (there, how) in report.matched.items():
        assert here.endswith("_gradient_sum") == there.endswith("_gradient_sum")
        assert how == "structure"
    third, _ = trained(("user", "item"))
    matched = snapshot.restore(third, path).matched
    for name in ("user", "item"):
        there, _ = matched[name]
        assert matched[f"{name}_gradient_sum"][0] == f"{there}_gradient_sum"


def test_a_table_skipped_for_its_name_causes_a_warning(path, saved):
    a, c = st.table("a"), st.table("c", dim=2)
    with pytest.warns(
        RuntimeWarning,
        match="the table 'c' stays unchanged, and 'b' of the snapshot, which "
        "is of the same kind, is ignored. Use `rename`",
    ):
        report = snapshot.restore(
            [a, c], path, on_missing="init", on_extra="ignore"
        )
    assert report.initial == ("c",) and report.ignored == ("b",)
    with pytest.warns(
        RuntimeWarning,
        match="no table was restored: it has 'a', 'b', but the tables here are 'c'",
    ):
        snapshot.restore(c, path, on_missing="init", on_extra="ignore")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        snapshot.restore(a, path, on_extra="ignore")
        other = st.table("other", dim=9)
        snapshot.restore([a, other], path, on_missing="init", on_extra="ignore")
        snapshot.restore(
            [a, c],
            path,
            on_missing="init",
            rename={"b": "c"},
            on_extra="ignore",
        )
