"""Ids that Keras casts, or makes dense, before a layer sees them, are errors."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import layers
from lodestar.data import Column, Schema

WIDE = np.array([[5], [2**32 + 5], [2**33 + 5], [7]])
RAGGED = tf.ragged.constant([[7, 8, 9], [], [7], [8]], dtype=tf.int64)
WORDS = tf.ragged.constant([["a", "b"], [], ["a"], ["b"]])
FLOATS = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 1.0]], np.float32)
LABELS = np.zeros([4, 1], np.float32)
CALLS = ["fit", "evaluate", "predict"]
SCHEMA = Schema([Column.label("y"), Column.sparse("_id")])


def cast_of(source, dtype):
    return (
        f"are {source} in the data, but Keras cast them to {dtype}, "
        r'.*keras.Input\(shape, dtype="int64"\)'
    )


CAST = cast_of("int64", "int32")
FILLED = (
    "are sparse in the data, but Keras made them dense.*0.*"
    "RaggedTensor.from_sparse.*sparse=True.*`{option}`=0"
)
FLOAT = "must be integers, but the data has float.*schema"
OF_A_COLUMN = (
    "`.*` of the layer '.*' are the column '_id', which the schema of the model "
    "declares as ids, but the data has float32, .*schema=model"
)


def embedding(ids, **options):
    return layers.DynamicEmbedding(2, combiner="sum", **options)(ids)


def collection(ids, **options):
    feature = lodestar.Feature(output_dim=2, combiner="sum", **options)
    return layers.EmbeddingCollection({"_id": feature})({"_id": ids})["_id"]


def lookup(ids, **options):
    mask = options.get("padding_id")
    return layers.IdLookup(
        [1, 2, 3],
        mask_token=mask,
        output_mode="count",
        max_tokens=5,
        pad_to_max_tokens=True,
    )(ids)


FRONTS = [embedding, collection, lookup]


def ids_input(**options):
    options = {"shape": (None,), "dtype": "int64", "name": "_id", **options}
    return keras.Input(**options)


def of_schema():
    return SCHEMA.inputs()["_id"]


def model_of(front, ids, inputs=None, **options):
    score = keras.layers.Dense(1)(front(ids, **options))
    model = keras.Model({"_id": ids if inputs is None else inputs}, score)
    optimizer = lodestar.optimizers.SGD(0.1)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def run(model, call, ids):
    labels = () if call == "predict" else (LABELS,)
    getattr(model, call)({"_id": ids}, *labels, verbose=0)


def tables_of(model):
    for layer in model.layers:
        if isinstance(layer, layers.DynamicEmbedding):
            yield layer.table
        elif isinstance(layer, layers.EmbeddingCollection):
            yield from layer.tables


def ids_of(model):
    (table,) = tables_of(model)
    return sorted(table.export().ids.numpy().tolist())


def refused(message=CAST, option="padding_id"):
    return pytest.raises(ValueError, match=message.format(option=option))


# How the input is made, the data, the error, and data that is accepted.
CASES = {
    "cast dense": (
        lambda: ids_input(dtype="int32"),
        WIDE,
        CAST,
        WIDE.astype("int32"),
    ),
    "cast ragged": (
        lambda: ids_input(dtype="int32", ragged=True),
        tf.RaggedTensor.from_tensor(WIDE),
        CAST,
        tf.cast(RAGGED, tf.int32),
    ),
    "cast sparse": (
        lambda: ids_input(dtype="int32", sparse=True),
        tf.sparse.from_dense(WIDE),
        CAST,
        tf.cast(RAGGED, tf.int32).to_sparse(),
    ),
    "filled ragged": (
        lambda: ids_input(ragged=True),
        RAGGED.to_sparse(),
        FILLED,
        RAGGED,
    ),
    "filled dense": (ids_input, RAGGED.to_sparse(), FILLED, RAGGED),
    "float64": (
        lambda: ids_input(ragged=True),
        FLOATS.astype("float64"),
        FLOAT,
        FLOATS.astype(np.int32),
    ),
    "float16": (
        lambda: ids_input(ragged=True),
        FLOATS.astype("float16"),
        FLOAT,
        FLOATS > 1,
    ),
    "floats of a column": (
        of_schema,
        FLOATS,
        OF_A_COLUMN,
        FLOATS.astype(np.int64),
    ),
    "ragged floats of a column": (
        of_schema,
        tf.RaggedTensor.from_tensor(FLOATS),
        OF_A_COLUMN,
        RAGGED,
    ),
}


# Each layer with each case, by one of the calls in turns.
@pytest.mark.parametrize(
    "front, case, call",
    [
        (front, case, CALLS[sum(divmod(i, len(CASES))) % len(CALLS)])
        for i, (front, case) in enumerate(itertools.product(FRONTS, CASES))
    ],
)
def test_changed_ids_are_refused(front, case, call):
    make, changed, message, accepted = CASES[case]
    model = model_of(front, make())
    with refused(message, "mask_token" if front is lookup else "padding_id"):
        run(model, call, changed)
    assert not any(int(table.size()) for table in tables_of(model))
    # Keras cannot continue after an error in its first trace.
    run(model_of(front, make()), call, accepted)


@pytest.mark.parametrize(
    "front, case",
    [
        (embedding, "cast dense"),
        (collection, "filled ragged"),
        (lookup, "floats of a column"),
        (embedding, "floats of a column"),
    ],
)
def test_a_loaded_model(front, case, tmp_path):
    make, changed, message, _ = CASES[case]
    model_of(front, make()).save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    with refused(message):
        run(model, "predict", changed)


@pytest.mark.parametrize(
    ("source", "dtype", "holds_all"),
    [
        *(
            ("int64", narrow, False)
            for narrow in ("int8", "int16", "uint8", "uint32")
        ),
        *[("uint64", "int32", False), ("uint32", "int32", False)],
        *[("int32", "uint32", False), ("int32", "int64", True)],
        *[("uint32", "int64", True), ("uint8", "int32", True)],
        *[("uint64", "int64", True), ("bool", "int32", True)],
    ],
)
def test_pairs_of_dtypes(source, dtype, holds_all):
    ids = np.array([[1], [0], [1], [1]])
    model = model_of(embedding, ids_input(shape=(1,), dtype=dtype))
    if not holds_all:
        with refused(cast_of(source, dtype)):
            run(model, "predict", ids.astype(source))
        run(model, "predict", ids.astype(dtype))
        return
    run(model, "fit", ids.astype(source))
    assert ids_of(model) == [0, 1]


def test_unsigned_ids_keep_their_bits():
    model = model_of(embedding, ids_input())
    run(model, "fit", np.array([[2**64 - 1], [1], [1], [1]], "uint64"))
    assert ids_of(model) == [-1, 1]


def test_inputs_of_a_schema():
    model = model_of(embedding, of_schema())
    run(model, "fit", WIDE)
    run(model, "fit", np.array([[1], [2], [3], [4]], "int32"))
    run(model, "fit", tf.RaggedTensor.from_sparse(RAGGED.to_sparse()))
    assert ids_of(model) == sorted({1, 2, 3, 4, 8, 9, *WIDE.ravel().tolist()})
    with refused(FILLED):
        run(model_of(embedding, of_schema()), "fit", RAGGED.to_sparse())


def examples():
    """Returns a dataset of parsed tf.Examples with sparse ids."""
    records = []
    for row in RAGGED.to_list():
        example = tf.train.Example()
        example.features.feature["_id"].int64_list.value.extend(row)
        records.append(example.SerializeToString())
    features = {"_id": tf.io.VarLenFeature(tf.int64)}
    return tf.data.Dataset.from_tensors(records).map(
        lambda batch: (tf.io.parse_example(batch, features), LABELS)
    )


@pytest.mark.parametrize("fit", [keras.Model.fit, lodestar.train.fit])
def test_training_on_datasets(fit):
    model = model_of(embedding, ids_input(dtype="int32"))
    dataset = tf.data.Dataset.from_tensor_slices(({"_id": WIDE}, LABELS))
    with refused():
        fit(model, dataset.batch(2))
    with refused(FILLED):
        fit(model_of(embedding, ids_input(ragged=True)), examples())
    model = model_of(embedding, ids_input(sparse=True))
    fit(model, examples())
    assert ids_of(model) == [7, 8, 9]


def test_a_batch_and_several_batches_per_call():
    model = model_of(embedding, ids_input(dtype="int32"))
    for call in (
        functools.partial(model.train_on_batch, y=LABELS),
        functools.partial(model.test_on_batch, y=LABELS),
        model.predict_on_batch,
    ):
        with refused():
            call({"_id": WIDE})
    model.compile("sgd", "mse", steps_per_execution=2)
    with refused():
        run(model, "predict", WIDE)


class Outer(keras.Model):
    """Looks ids up by an inner functional model, or by a layer of its own."""

    def __init__(self, inner=True):
        super().__init__()
        ids = keras.Input((None,), dtype="int64")
        self.layer = layers.DynamicEmbedding(2, combiner="sum")
        self.inner = keras.Model(ids, embedding(ids)) if inner else None

    def call(self, ids):
        ids = ids["_id"] if isinstance(ids, dict) else ids
        if self.inner is None:
            return self.layer(tf.sparse.to_dense(ids))
        return self.inner(ids)


@pytest.mark.parametrize("case", ["cast dense", "filled dense", "float64"])
def test_ids_behind_other_layers_and_in_an_inner_model(case):
    make, changed, message, _ = CASES[case]
    ids = make()
    pairs = keras.ops.concatenate([ids, ids], axis=1)
    with refused(message):
        run(keras.Model({"_id": ids}, embedding(pairs)), "predict", changed)
    if case == "cast dense":
        ids = make()
        inner = keras.Model(ids, embedding(ids))
        outer = ids_input()
        model = keras.Model({"_id": outer}, inner({"_id": outer}))
    else:
        model = Outer()
    with refused(message):
        run(model, "predict", changed)


def test_changes_that_the_model_makes():
    """A cast of the model is checked when it runs, and a fill is its own."""
    ids = ids_input(shape=(1,))
    model = model_of(embedding, keras.ops.cast(ids % 100, "int32"), inputs=ids)
    run(model, "fit", WIDE)
    model = model_of(embedding, keras.ops.cast(ids, "int32"), inputs=ids)
    run(model, "fit", WIDE % 100)
    with pytest.raises(tf.errors.InvalidArgumentError, match="that cast wraps"):
        run(model, "fit", WIDE)
    run(Outer(inner=False), "predict", RAGGED.to_sparse())
    price = Schema([Column.dense("price")]).inputs()["price"]
    model = keras.Model(
        {"price": price}, embedding(keras.ops.cast(price, "int64"))
    )
    model.predict({"price": np.array([[1.0]], np.float32)}, verbose=0)


def test_a_table_in_a_layer_of_the_user():
    table = lodestar.EmbeddingVariable(2)
    ids = ids_input(shape=(1,), dtype="int32")
    rows = keras.layers.Lambda(lambda ids: table.lookup(ids), (1, 2))(ids)
    with pytest.raises(tf.errors.InvalidArgumentError, match="that cast wraps"):
        run(keras.Model({"_id": ids}, rows), "predict", WIDE)


@pytest.mark.parametrize("source", ["float32", "int64"])
@pytest.mark.parametrize("in_collection", [False, True])
def test_weights(source, in_collection):
    ids = keras.Input((1,), dtype="int64", name="ids")

    def rows(weights):
        if in_collection:
            feature = lodestar.Feature(output_dim=2, combiner="sum")
            embed = layers.EmbeddingCollection({"a": feature})
            return embed({"a": ids}, weights={"a": weights})["a"]
        layer = layers.DynamicEmbedding(2, combiner="sum")
        return layer(ids, weights=weights)

    data = {"ids": WIDE, "weights": np.ones([4, 1], source)}
    given = keras.Input((1,), dtype="int32", name="weights")
    with pytest.raises(
        ValueError,
        match=rf"(?s)`weights.* are {source} in the data.*dtype=.{source}",
    ):
        keras.Model([ids, given], rows(given)).predict(data, verbose=0)
    given = keras.Input((1,), dtype=source, name="weights")
    keras.Model([ids, given], rows(given)).predict(data, verbose=0)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("ragged", [True, False])
def test_declared_padding_is_ignored(front, ragged):
    model = model_of(front, ids_input(ragged=ragged), padding_id=0)
    run(model, "fit", RAGGED.to_sparse())
    if front is not lookup:
        assert ids_of(model) == [7, 8, 9]
    model = model_of(front, ids_input(ragged=ragged), padding_id=-1)
    with pytest.raises(ValueError, match="filled short rows with 0"):
        run(model, "predict", RAGGED.to_sparse())


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"ragged": False}, RAGGED),
        ({"sparse": True}, RAGGED),
        ({"sparse": True}, RAGGED.to_sparse()),
        ({"ragged": True}, np.array([[7, 8], [8, 9], [9, 7], [7, 7]])),
        ({"ragged": True, "dtype": "int32"}, tf.cast(RAGGED, tf.int32)),
    ],
    ids=["ragged for dense", "ragged for sparse", "sparse", "full", "int32"],
)
def test_ids_that_nothing_filled(options, ids):
    model = model_of(embedding, ids_input(**options))
    run(model, "fit", ids)
    assert ids_of(model) == [7, 8, 9]


def test_ids_that_are_filled_and_cast():
    with refused(FILLED):
        run(
            model_of(embedding, ids_input(ragged=True)),
            "fit",
            tf.cast(RAGGED, tf.int32).to_sparse(),
        )
    with pytest.raises(ValueError, match="are int64 in the data, but Keras ca"):
        run(
            model_of(embedding, ids_input(ragged=True, dtype="int32")),
            "fit",
            RAGGED.to_sparse(),
        )


def test_strings():
    strings = {"ragged": True, "dtype": "string"}
    of_strings = FILLED.replace("0", "''")
    with refused(of_strings):
        run(model_of(embedding, ids_input(**strings)), "fit", WORDS.to_sparse())
    model = model_of(embedding, ids_input(**strings), padding_id="")
    run(model, "fit", WORDS.to_sparse())
    assert ids_of(model) == sorted(lodestar.hash_ids(["a", "b"]).numpy())
    words = ids_input(**strings)
    model = keras.Model({"_id": words}, layers.IdLookup(["a"])(words))
    with refused(of_strings, "mask_token"):
        run(model, "predict", WORDS.to_sparse())
    for token in ("", b""):
        found = layers.IdLookup(["a"], mask_token=token)(words)
        run(keras.Model({"_id": words}, found), "predict", WORDS.to_sparse())


def test_the_signature_that_keras_traces_with_floats(tmp_path):
    model = Outer()
    model.predict(FLOATS.astype(np.int64), verbose=0)
    signature = [tf.TensorSpec([None, 2], tf.int64)]
    model.export(tmp_path, verbose=False, input_signature=signature)
    loaded = tf.saved_model.load(tmp_path)
    assert loaded.serve(tf.constant([[1, 2]], tf.int64)).shape == (1, 2)
    tf.saved_model.save(model, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    served = loaded.signatures["serving_default"]
    served(tf.constant(FLOATS))  # exact integers
    for wrong in np.nan, 2.0**24:
        with pytest.raises(tf.errors.InvalidArgumentError, match="has NaN or"):
            served(tf.constant([[1.0, wrong]]))


def test_a_layer_on_several_columns_names_them():
    inputs = Schema([Column.sparse("b"), Column.sparse("a")]).inputs()
    shared = layers.DynamicEmbedding(2, combiner="sum")
    rows = keras.layers.Add()([shared(ids) for ids in inputs.values()])
    model = keras.Model(inputs, rows)
    with pytest.raises(ValueError, match="the column 'a' and 'b', which"):
        model.predict({"a": FLOATS, "b": FLOATS}, verbose=0)
