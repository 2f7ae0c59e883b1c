"""Compares IdLookup with keras.layers.StringLookup and IntegerLookup."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from lodestar.layers import IdLookup
from lodestar.lookup import IdTable, IdTableWithHashBuckets

WORDS = ["a", "b", "c", "d"]


def same(ours, stock):
    """Asserts equal values, for any kind of tensor."""
    if isinstance(stock, tf.SparseTensor):
        assert isinstance(ours, tf.SparseTensor)
        ours, stock = tf.sparse.to_dense(ours), tf.sparse.to_dense(stock)
    if isinstance(stock, tf.RaggedTensor):
        assert ours.to_list() == stock.to_list()
        return
    np.testing.assert_array_equal(ours, stock)


@pytest.mark.parametrize("num_oov_indices", [1, 3])
@pytest.mark.parametrize("mask_token", [None, ""])
def test_strings_agree_with_keras(num_oov_indices, mask_token):
    options = dict(num_oov_indices=num_oov_indices, mask_token=mask_token)
    ours = IdLookup(WORDS, **options)
    stock = keras.layers.StringLookup(vocabulary=WORDS, **options)
    keys = tf.constant([["d", "", "x"], ["a", "zz", "y"]])
    same(ours(keys), stock(keys))
    same(ours(tf.constant("c")), stock(tf.constant("c")))
    assert ours.get_vocabulary() == stock.get_vocabulary()
    assert ours.get_vocabulary(False) == stock.get_vocabulary(False)
    assert ours.vocabulary_size() == stock.vocabulary_size()
    inverse = IdLookup(WORDS, invert=True, **options)
    stock_inverse = keras.layers.StringLookup(
        vocabulary=WORDS, invert=True, **options
    )
    ids = tf.range(ours.vocabulary_size() + 2, dtype=tf.int64)
    same(inverse(ids), stock_inverse(ids))
    assert inverse.get_vocabulary() == stock_inverse.get_vocabulary()


@pytest.mark.parametrize("num_oov_indices", [1, 4])
@pytest.mark.parametrize("mask_token", [None, 0])
def test_integers_agree_with_keras(num_oov_indices, mask_token):
    vocabulary = np.array([7, -3, 2**62])
    options = dict(num_oov_indices=num_oov_indices, mask_token=mask_token)
    ours = IdLookup(vocabulary, **options)
    stock = keras.layers.IntegerLookup(vocabulary=vocabulary, **options)
    keys = tf.constant([7, 5, 0, 2**62, 123456789, -3, -(2**63)], tf.int64)
    same(ours(keys), stock(keys))
    assert ours.get_vocabulary() == stock.get_vocabulary()
    narrow = tf.constant([7, -3, 5, 0])
    same(ours(narrow), stock(narrow))
    inverse = IdLookup(vocabulary, invert=True, **options)
    stock = keras.layers.IntegerLookup(
        vocabulary=vocabulary, invert=True, **options
    )
    same(inverse(tf.range(9)), stock(tf.range(9)))


def test_no_oov_index():
    layer = IdLookup(WORDS, num_oov_indices=0)
    stock = keras.layers.StringLookup(vocabulary=WORDS, num_oov_indices=0)
    keys = tf.constant([["d", "a"]])
    same(layer(keys), stock(keys))
    for call in (layer, tf.function(layer)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="these keys are not in the"
        ):
            call(tf.constant(["b", "strange"]))


def test_unknown_keys_come_first_here_and_last_in_the_table():
    keys = tf.constant(["a", "b", "nobody"])
    assert IdLookup(["a", "b"])(keys).numpy().tolist() == [1, 2, 0]
    table = IdTableWithHashBuckets(IdTable(["a", "b"]), 1)
    assert table.lookup(keys).numpy().tolist() == [0, 1, 2]
    layer = IdLookup(["a", "b"], oov_ids="last")
    assert layer(keys).numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("num_oov_indices", [1, 7])
def test_unknown_strings_last_agree_with_the_table(num_oov_indices):
    keys = tf.constant(["a", "d", "x", "y", "zz", ""])
    table = IdTableWithHashBuckets(IdTable(WORDS), num_oov_indices)
    options = dict(num_oov_indices=num_oov_indices, oov_ids="last")
    same(IdLookup(WORDS, **options)(keys), table.lookup(keys))
    masked = IdLookup(WORDS, mask_token="", **options)
    wanted = tf.where(keys == "", 0, table.lookup(keys) + 1)
    same(masked(keys), wanted)


def rotated(ids, masks, unknown, keys):
    """Moves the unknown ids, after those of masks, behind those of the keys."""
    return np.where(
        ids < masks,
        ids,
        np.where(ids < masks + unknown, ids + keys, ids - unknown),
    )


@pytest.mark.parametrize(
    "kind, mask_token",
    [("string", None), ("string", "m"), ("int64", None), ("int64", 0)],
)
@pytest.mark.parametrize("num_oov_indices", [0, 1, 3])
@pytest.mark.parametrize("mode", ["int", "one_hot", "count"])
def test_last_is_first_in_another_order(
    mode, kind, num_oov_indices, mask_token
):
    vocabulary = np.array([7, -3, 2**62, 9])
    asked = np.array([9, 7, -3, 2**62])
    unknown = np.array([4, 5, 6, 40]) if num_oov_indices else asked
    asked = np.concatenate([asked, unknown])
    mask = [] if mask_token is None else [mask_token]
    if kind == "string":
        vocabulary, asked = vocabulary.astype(str), asked.astype(str)
    keys = tf.constant([*asked.tolist(), *mask])
    first, last = (
        IdLookup(
            vocabulary,
            oov_ids=order,
            num_oov_indices=num_oov_indices,
            mask_token=mask_token,
            output_mode=mode,
        )
        for order in ("first", "last")
    )
    masks = len(mask) if mode == "int" else 0
    size = masks + num_oov_indices + 4
    assert first.vocabulary_size() == last.vocabulary_size() == size
    new = rotated(np.arange(size), masks, num_oov_indices, 4)
    if mode == "int":
        same(last(keys), new[first(keys)])
        same(tf.function(last)(keys), new[first(keys)])
        inverse = IdLookup(
            vocabulary,
            oov_ids="last",
            num_oov_indices=num_oov_indices,
            mask_token=mask_token,
            invert=True,
        )
        assert inverse(np.arange(size)).numpy().astype(str).tolist() == [
            str(token) for token in last.get_vocabulary()
        ]
    else:
        axis = -1
        same(np.take(last(keys), new, axis), first(keys))
    tokens = [*first.get_vocabulary()]
    assert [last.get_vocabulary()[i] for i in new] == tokens
    assert last.get_vocabulary(False) == first.get_vocabulary(False)
    # With its special tokens, and after a change.
    before = last.get_vocabulary()
    last.set_vocabulary(before)
    assert last.get_vocabulary() == before
    other = IdLookup.from_config(last.get_config())
    assert other.oov_ids == "last"
    other.set_vocabulary(before)
    same(other(keys), last(keys))


def test_a_longer_vocabulary_moves_the_last_ids():
    layer = IdLookup(["a"], oov_ids="last")
    call = tf.function(layer)
    keys = tf.constant(["a", "b", "x"])
    assert call(keys).numpy().tolist() == [0, 1, 1]
    layer.set_vocabulary(["a", "b"])
    assert call(keys).numpy().tolist() == [0, 1, 2]
    layer = IdLookup([5], 3, oov_ids="last")
    call = tf.function(layer)
    assert call(tf.constant([5, 6, 7])).numpy().tolist() == [0, 1, 2]
    layer.set_vocabulary([5, 6])
    assert call(tf.constant([5, 6, 7])).numpy().tolist() == [0, 1, 3]


@pytest.mark.parametrize("mode", ["one_hot", "multi_hot", "count"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask_token": ""},
        {"num_oov_indices": 3, "mask_token": "m"},
        {"max_tokens": 9, "pad_to_max_tokens": True},
        {"sparse": True},
    ],
    ids=str,
)
def test_output_modes_agree_with_keras(mode, options):
    ours = IdLookup(WORDS, output_mode=mode, **options)
    stock = keras.layers.StringLookup(
        vocabulary=WORDS, output_mode=mode, **options
    )
    assert ours.vocabulary_size() == stock.vocabulary_size()
    assert ours.get_vocabulary() == stock.get_vocabulary()
    flat = tf.constant(["d", "x", "a", "d", "", "m"])
    for keys in (flat, tf.reshape(flat, [2, 3]), tf.reshape(flat, [6, 1])):
        same(ours(keys), stock(keys))
        wanted = stock.compute_output_shape(keys.shape)
        assert ours.compute_output_shape(keys.shape) == wanted
        assert ours(keys).shape == wanted
        assert ours(keys).dtype == tf.float32


@pytest.mark.parametrize("mode", ["multi_hot", "count"])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_ragged_sparse_and_deep_keys(mode, sparse):
    layer = IdLookup(WORDS, output_mode=mode, sparse=sparse)
    ragged = tf.ragged.constant([["b", "b"], [], ["q", "a", "q"]])
    times = 2.0 if mode == "count" else 1.0
    wanted = np.zeros((3, 5), np.float32)
    wanted[0, 2] = times
    wanted[2, [0, 1]] = times, 1
    dense = tf.sparse.to_dense if sparse else tf.identity
    same(dense(layer(ragged)), wanted)
    same(dense(layer(ragged.to_sparse())), wanted)
    deep = tf.constant([[["b", "b"], ["a", "q"]], [["d", "a"], ["b", "q"]]])
    wanted = np.zeros((2, 2, 5), np.float32)
    wanted[0, 0, 2] = times
    wanted[0, 1, [0, 1]] = wanted[1, 0, [1, 4]] = wanted[1, 1, [0, 2]] = 1
    same(dense(layer(deep)), wanted)
    with pytest.raises(ValueError, match="Ragged or sparse inputs"):
        IdLookup(WORDS, output_mode="one_hot")(ragged)


def test_one_hot_of_a_scalar():
    layer = IdLookup(WORDS, output_mode="one_hot")
    assert layer(tf.constant("a")).numpy().tolist() == [0, 1, 0, 0, 0]
    layer = IdLookup(WORDS, output_mode="count")
    assert layer(tf.constant("a")).numpy().tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    "vocabulary",
    [
        tuple(WORDS),
        np.array(WORDS),
        np.array(WORDS, object),
        tf.constant(WORDS),
        [b"a", "b", b"c", "d"],
        ["", "[UNK]", *WORDS],
    ],
    ids=lambda x: type(x).__name__,
)
def test_kinds_of_vocabularies(vocabulary):
    layer = IdLookup(vocabulary, mask_token="")
    assert layer.get_vocabulary() == ["", "[UNK]", *WORDS]
    for vocabulary in ([5, 6], np.array([5, 6], np.int32), tf.constant([5, 6])):
        layer = IdLookup(vocabulary)
        assert layer.get_vocabulary() == [-1, 5, 6]


def test_vocabulary_files(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("x\r\ny\nz")
    for path in (str(words), words):
        layer = IdLookup(path)
        assert layer.get_vocabulary() == ["[UNK]", "x", "y", "z"]
        layer = IdLookup(["q"])
        layer.set_vocabulary(path)
        assert layer.get_vocabulary() == ["[UNK]", "x", "y", "z"]
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("7\n-3\n")
    layer = IdLookup(str(numbers), vocabulary_dtype="int64")
    assert layer(tf.constant([-3, 7, 1])).numpy().tolist() == [2, 1, 0]
    with pytest.raises(tf.errors.NotFoundError, match="absent"):
        IdLookup(str(tmp_path / "absent"))
    numbers.write_text("7\nx\n")
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"numbers.txt:2: 'x' is not a valid int64",
    ):
        IdLookup(str(numbers), vocabulary_dtype="int64")


@pytest.mark.parametrize("max_tokens", [None, 3])
@pytest.mark.parametrize("mask_token", [None, "w"])
def test_adapt_agrees_with_keras(max_tokens, mask_token):
    data = np.array(["x", "y", "y", "z", "x", "y", "w", "w", "[UNK]"])
    options = dict(max_tokens=max_tokens, mask_token=mask_token)
    stock = keras.layers.StringLookup(**options)
    stock.adapt(data)
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(4)
    kinds = (
        data,
        data.tolist(),
        tf.constant(data),
        dataset,
        iter(dataset),
        tf.RaggedTensor.from_row_lengths(data, [0, 2, 7]),
        tf.sparse.from_dense(tf.constant(data)),
    )
    for kind in kinds:
        ours = IdLookup(**options)
        ours.adapt(kind)
        assert ours.get_vocabulary() == stock.get_vocabulary()


def test_adapt_integers_steps_and_again():
    layer = IdLookup(vocabulary_dtype="int64")
    layer.adapt(np.array([[5, 5], [9, -1]]))
    assert layer.get_vocabulary() == [-1, 5, 9]
    batches = tf.data.Dataset.from_tensor_slices([[3, 3], [4, 4]]).repeat()
    layer.adapt(batches, steps=1)
    assert layer.get_vocabulary() == [-1, 3]
    with pytest.raises(ValueError, match="`data` has no keys"):
        layer.adapt([])


def test_functional_model_with_ragged_and_sparse_inputs(tmp_path):
    inputs = keras.Input((None,), dtype="string", ragged=True)
    outputs = IdLookup(WORDS)(inputs)
    assert outputs.ragged
    model = keras.Model(inputs, outputs)
    x = tf.ragged.constant([["b"], [], ["q", "a"]])
    assert model(x).to_list() == [[2], [], [0, 1]]
    path = str(tmp_path / "model.keras")
    model.save(path)
    assert keras.saving.load_model(path)(x).to_list() == [[2], [], [0, 1]]
    sparse = IdLookup(WORDS)(x.to_sparse())
    assert sparse.values.numpy().tolist() == [2, 0, 1]
    inputs = keras.Input((None,), dtype="string", sparse=True)
    assert IdLookup(WORDS)(inputs).sparse


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"invert": True, "mask_token": "m", "num_oov_indices": 2},
        {"output_mode": "count", "num_oov_indices": 3},
        {"oov_ids": "last", "mask_token": "m", "num_oov_indices": 3},
        {
            "output_mode": "multi_hot",
            "max_tokens": 9,
            "pad_to_max_tokens": True,
        },
    ],
    ids=str,
)
def test_saved_models_round_trip(options, tmp_path):
    layer = IdLookup(WORDS, **options)
    is_inverse = options.get("invert", False)
    dtype = "int64" if is_inverse else "string"
    x = tf.constant([[0, 3, 9]] if is_inverse else [["d", "x", "d"]], dtype)
    inputs = keras.Input((3,), dtype=dtype)
    model = keras.Model(inputs, layer(inputs))
    wanted = model(x)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    same(loaded(x), wanted)
    assert loaded.layers[-1].get_vocabulary() == layer.get_vocabulary()
    assert loaded.layers[-1].get_config() == layer.get_config()
    model.export(str(tmp_path / "exported"), verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    same(exported.serve(x), wanted)
    # Without the vocabulary, which the configuration does not contain.
    twin = keras.Model.from_config(model.get_config())
    twin.layers[-1].set_vocabulary(WORDS)
    same(twin(x), wanted)


def test_dataset_map_weights_and_checkpoint(tmp_path):
    layer = IdLookup(WORDS)
    dataset = tf.data.Dataset.from_tensor_slices(["c", "x"]).map(layer)
    assert [int(x) for x in dataset] == [3, 0]
    inputs = keras.Input((), dtype="string")
    model = keras.Model(inputs, layer(inputs))
    path = str(tmp_path / "w.weights.h5")
    model.save_weights(path)
    strange = IdLookup([b"\0", "é", ""])
    twin = keras.Model(inputs, strange(inputs))
    twin.load_weights(path)
    assert strange.get_vocabulary() == layer.get_vocabulary()
    checkpoint = tf.train.Checkpoint(layer=layer).write(str(tmp_path / "c"))
    other = IdLookup(["z"])
    tf.train.Checkpoint(layer=other).read(checkpoint).assert_consumed()
    assert other.get_vocabulary() == layer.get_vocabulary()
    assert other.vocabulary_size() == 5


def test_strange_vocabularies_round_trip(tmp_path):
    layer = IdLookup([b"\0x\0", "é\n", "", b"\xff\xfe"])
    inputs = keras.Input((), dtype="string")
    model = keras.Model(inputs, layer(inputs))
    path = str(tmp_path / "model.keras")
    model.save(path)
    keys = tf.constant([b"\xff\xfe", "", "é\n", b"\0x\0", "x"])
    loaded = keras.saving.load_model(path)
    assert loaded(keys).numpy().tolist() == [4, 3, 2, 1, 0]
    # get_vocabulary() returns a valid vocabulary.
    assert IdLookup(loaded.get_layer(layer.name).get_vocabulary())(
        keys
    ).numpy().tolist() == [4, 3, 2, 1, 0]


def test_invalid_arguments_are_refused():
    for options, message in (
        ({"num_oov_indices": -1}, "`num_oov_indices` must be .* got -1"),
        (
            {"num_oov_indices": 1.5},
            "`num_oov_indices` must be an int.* got 1.5",
        ),
        ({"oov_ids": "middle"}, "`oov_ids`='middle' is not in"),
        ({"output_mode": "tf_idf"}, "`output_mode`='tf_idf' is not in"),
        ({"invert": True, "output_mode": "count"}, "`invert` needs"),
        ({"sparse": True}, "`sparse` needs an"),
        ({"max_tokens": 1}, "`max_tokens` must be .* got 1"),
        ({"pad_to_max_tokens": True}, "needs `max_tokens`"),
        ({"vocabulary_dtype": "int32"}, "`vocabulary_dtype`='int32' is not"),
        ({"vocabulary": ["a", "b", "a"]}, "has duplicates of b'a'"),
        ({"vocabulary": [4, 5, 4]}, "has duplicates of 4"),
        ({"vocabulary": []}, "`vocabulary` must not be empty"),
        (
            {"vocabulary": ["a", ""], "mask_token": ""},
            "not have the `mask_token` ''",
        ),
        (
            {"vocabulary": ["a", "[UNK]"], "invert": True},
            r"not have the `oov_token` '\[UNK\]'",
        ),
        (
            {"vocabulary": ["a", "b"], "max_tokens": 2},
            "has 3 ids .* `max_tokens`=2",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            IdLookup(**options)
    with pytest.raises(ValueError, match="has no vocabulary"):
        IdLookup()(tf.constant(["a"]))
    with pytest.raises(ValueError, match="the length of its rows is unknown"):
        IdLookup(output_mode="count")(keras.Input((2,), dtype="string"))
    with pytest.raises(TypeError, match="`keys` have dtype int64"):
        IdLookup(["a"])(tf.constant([1], tf.int64))
    layer = IdLookup(["a"], output_mode="count")
    with pytest.raises(ValueError, match="must keep the 2 ids .*, got 3"):
        layer.set_vocabulary(["a", "b"])
    assert layer.get_vocabulary() == ["[UNK]", "a"]
