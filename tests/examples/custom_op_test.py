"""Tests of examples/custom_op, and of the headers and functions that it uses."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import lodestar

FOLDER = pathlib.Path(os.path.abspath(__file__), "../../../examples").resolve()


@pytest.fixture(scope="module")
def custom_op():
    """Returns the example's module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER / "custom_op")
        import custom_op

        yield custom_op


@pytest.fixture(scope="module")
def library(custom_op, tmp_path_factory):
    path = tmp_path_factory.mktemp("custom_op") / "score_ids.so"
    custom_op.build(path)
    return path


@pytest.fixture(scope="module")
def score_ids(library):
    return tf.load_op_library(str(library)).score_ids


def _table(**options):
    table = lodestar.EmbeddingVariable(3, name="users", **options)
    rows = np.arange(30).reshape(10, 3)
    table.insert_or_assign(np.arange(10), tf.cast(rows, table.dtype))
    return table, rows


def test_the_program_prints_the_scores(
    custom_op, score_ids, monkeypatch, capsys
):
    monkeypatch.setattr(custom_op, "load", lambda: score_ids)
    custom_op.main()
    assert capsys.readouterr().out == "[43. 21.  0.]\n" * 2


@pytest.mark.parametrize("count", [0, 1, 7, 10_000])
def test_scores_are_those_of_numpy(score_ids, count):
    table, rows = _table()
    query = np.float32([1, -2, 0.5])
    ids = np.random.default_rng(0).integers(-3, 13, count)
    inside = (ids >= 0) & (ids < 10)
    wanted = np.where(inside, (rows @ query)[np.where(inside, ids, 0)], 0)
    found = score_ids(table.resource_handle, query, ids)
    np.testing.assert_array_equal(found, wanted)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def in_graph(ids):
        found = score_ids(table.resource_handle, query, ids)
        assert found.shape.as_list() == [None]
        return found

    np.testing.assert_array_equal(in_graph(ids), wanted)


def test_a_call_sees_earlier_writes_of_its_function(score_ids):
    table, _ = _table()

    @tf.function
    def write_and_score():
        table.insert_or_assign([50], [[1.0, 2.0, 3.0]])
        return score_ids(table.resource_handle, [1.0, 1.0, 1.0], [50])

    assert write_and_score().numpy() == [6]


def _handle_of_variable():
    return tf.Variable([1.0]).handle


def _handle_of_id_table():
    return lodestar.lookup.IdTable([7, 8]).resource_handle


@pytest.mark.parametrize(
    "make, found",
    [
        (_handle_of_variable, "tensorflow::Var"),
        (_handle_of_id_table, "tensorflow::lookup::LookupInterface"),
    ],
)
def test_another_kind_of_handle_is_refused(score_ids, make, found):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        score_ids(make(), [1.0], [1])
    assert (
        "input 0 of op 'ScoreIds' must be the `resource_handle` of an "
        f"EmbeddingVariable, got the handle of a {found}." in str(error.value)
    )


def test_several_handles_are_refused(score_ids):
    table, _ = _table()
    with pytest.raises(tf.errors.InvalidArgumentError, match="got 2 handles"):
        score_ids(tf.stack([table.resource_handle] * 2), [1.0, 1.0, 1.0], [1])


def test_errors_name_the_table(score_ids):
    table, _ = _table()
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"table 'users': `query` must have shape \[3\], got \[2\]\.",
    ):
        score_ids(table.resource_handle, [1.0, 2.0], [1])
    table, _ = _table(dtype="float16")
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="table 'users': rows must be float32, got float16",
    ):
        score_ids(table.resource_handle, [1.0, 1.0, 1.0], [1])


def test_headers_of_another_version_are_refused(library, tmp_path):
    version = f"{lodestar.__version__}\0".encode()
    other = b"9" * (len(version) - 1) + b"\0"
    content = library.read_bytes()
    assert content.count(version) == 1
    path = tmp_path / "other.so"
    # Of another name, because a process has one op of each.
    path.write_bytes(
        content.replace(version, other).replace(b"ScoreIds", b"ScoreOld")
    )
    score_old = tf.load_op_library(str(path)).score_old
    table, _ = _table()
    with pytest.raises(tf.errors.FailedPreconditionError) as error:
        score_old(table.resource_handle, [1.0, 1.0, 1.0], [1])
    assert (
        f"op 'ScoreOld' was compiled with the headers of Lodestar "
        f"{other[:-1].decode()}, but Lodestar {lodestar.__version__} is loaded. "
        "Compile it again." in str(error.value)
    )
