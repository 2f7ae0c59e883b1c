"""Tests of TensorBoard for models with tables."""

import contextlib
import re
import types

import keras
import numpy as np
import pytest

import lodestar
from lodestar.embedding import dense_view

X = [np.arange(12).reshape(6, 2), np.arange(6).reshape(6, 1)]
Y = np.ones((6, 1))


def fitted(board, name="user", epochs=1):
    ids = keras.Input((2,), dtype="int64", name="users")
    words = keras.Input((1,), dtype="int64", name="words")
    users = lodestar.layers.EmbeddingCollection(
        {name: lodestar.Feature(output_dim=3, combiner="sum")}
    )
    word = keras.layers.Embedding(6, 4, name="word")
    rows = [users({name: ids})[name], keras.layers.Flatten()(word(words))]
    rows = keras.layers.Concatenate()(rows)
    model = keras.Model([ids, words], keras.layers.Dense(1)(rows))
    model.compile(lodestar.optimizers.SGD(), "mse")
    model.fit(X, Y, epochs=epochs, verbose=0, callbacks=[board])
    return users.tables[0], word


def shown(folder):
    """Returns {name: (rows, metadata)} as the projector reads them."""
    config = (folder / "projector_config.pbtxt").read_text()
    found = {}
    for name, rows, metadata in re.findall(
        r'tensor_name: "(.*)"\n.*path: "(.*)"\n.*path: "(.*)"\n', config
    ):
        metadata = (folder / metadata).read_text().split("\n")
        assert metadata.pop() == ""
        lines = np.loadtxt(folder / rows, delimiter="\t", ndmin=2)
        found[name] = lines.astype(np.float32), metadata
    return found


def board(folder, **options):
    return lodestar.callbacks.TensorBoard(
        folder, write_graph=False, embeddings_freq=1, **options
    )


@pytest.fixture(autouse=True)
def histograms(monkeypatch):
    """Replaces the tensorboard package; returns histogram arguments by name."""
    written = {}
    writer = types.SimpleNamespace(
        as_default=lambda *_: contextlib.nullcontext(),
        close=lambda: None,
        flush=lambda: None,
    )
    summary = types.SimpleNamespace(
        create_file_writer=lambda _: writer,
        scalar=lambda *_, **__: None,
        histogram=lambda name, data, step: written.update({name: data}),
    )
    monkeypatch.setattr(keras.callbacks.TensorBoard, "summary", summary)
    return written


class OfATable(keras.Model):
    def __init__(self, name):
        super().__init__()
        self.table = lodestar.EmbeddingVariable(3, name=name)
        self.score = keras.layers.Dense(1)

    def call(self, inputs):
        rows = self.table.lookup(inputs[0], combiner="sum")
        return self.score(rows)


@pytest.mark.filterwarnings("error:.*this reads")
@pytest.mark.parametrize("bare", [False, True])
def test_histograms_of_a_sample_of_the_rows(
    histograms, bare, tmp_path, monkeypatch
):
    monkeypatch.setattr(dense_view, "_MOST_NUMBERS", 18)
    callback = lodestar.callbacks.TensorBoard(
        tmp_path, write_graph=False, histogram_freq=1
    )
    if bare:
        model = OfATable("user")
        model.compile(lodestar.optimizers.SGD(), "mse")
        model.fit(X, Y, verbose=0, callbacks=[callback])
        table = model.table
    else:
        table, _ = fitted(callback)
    (shown,) = [histograms[name] for name in histograms if "user" in name]
    shown = np.asarray(shown)
    assert len(shown) < 12
    exported = {tuple(row) for row in table.export().rows.numpy()}
    assert {tuple(row) for row in shown} < exported


def test_rows_with_their_ids(tmp_path):
    table, word = fitted(board(tmp_path))
    found = shown(tmp_path)
    exported = table.export()
    np.testing.assert_array_equal(found["user"][0], exported.rows)
    assert found["user"][1] == [str(i) for i in exported.ids.numpy()]
    np.testing.assert_array_equal(found["word"][0], word.embeddings)
    assert found["word"][1] == [*"012345"]


@pytest.mark.parametrize("as_dict", [False, True])
def test_metadata_of_one_column(tmp_path, as_dict):
    (tmp_path / "labels.tsv").write_text("zero\none\ntwo\n")
    metadata = {"user": "labels.tsv"} if as_dict else "labels.tsv"
    fitted(board(tmp_path, embeddings_metadata=metadata))
    found = shown(tmp_path)
    wanted = ["id\tlabel", "0\tzero", "1\tone", "2\ttwo", "3\t", "4\t", "5\t"]
    assert found["user"][1] == [*wanted, *(f"{i}\t" for i in range(6, 12))]
    assert found["word"][1] == ([*"012345"] if as_dict else wanted)


def test_metadata_of_several_columns(tmp_path):
    path = tmp_path / "elsewhere.tsv"
    path.write_text("name\tkind\nzero\ta\none\tb\n")
    fitted(board(tmp_path / "logs", embeddings_metadata={"user": path}))
    lines = shown(tmp_path / "logs")["user"][1]
    assert lines[:4] == ["id\tname\tkind", "0\tzero\ta", "1\tone\tb", "2\t\t"]


def test_metadata_of_an_unknown_table_stops_before_training(tmp_path):
    with pytest.raises(
        ValueError, match="'item', but the model has no .*'user'"
    ):
        fitted(board(tmp_path, embeddings_metadata={"item": "labels.tsv"}))


def test_a_sample_of_a_large_table(tmp_path):
    table, _ = fitted(board(tmp_path, embeddings_rows=5))
    rows, ids = shown(tmp_path)["user"]
    assert 5 <= len(ids) <= 6
    want = table.lookup([int(i) for i in ids], training=False)
    np.testing.assert_array_equal(rows, want)


@pytest.mark.parametrize(
    "name, written", [("..", ".."), ('"\\', r"\042\134"), ("ü/", r"\303\274/")]
)
def test_names_are_quoted(tmp_path, name, written):
    fitted(board(tmp_path), name)
    assert {*shown(tmp_path)} == {written, "word"}


def test_an_empty_table_is_omitted(tmp_path):
    callback = board(tmp_path)
    table = lodestar.EmbeddingVariable(2)
    ids = keras.Input((1,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(table=table, grow=False)
    model = keras.Model(ids, layer(ids))
    model.compile(lodestar.optimizers.SGD(), "mse")
    model.fit(
        np.ones((2, 1), int), np.ones((2, 1, 2)), verbose=0, callbacks=callback
    )
    assert shown(tmp_path) == {}
