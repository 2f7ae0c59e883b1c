"""Errors of EmbeddingVariable name the argument, its value and allowed values."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

I64 = tf.int64
Invalid = tf.errors.InvalidArgumentError
ragged = tf.ragged.constant


def table(dim=2, **options):
    t = lodestar.EmbeddingVariable(dim, name="t", **options)
    t.lookup([1, 2, 3], training=True)
    return t


def splits(row_splits):
    return tf.RaggedTensor.from_row_splits(
        tf.constant([1, 2, 3], I64), row_splits, validate=False
    )


def sparse(indices, values):
    return tf.SparseTensor(indices, values, [2, 2])


PAIRS = ragged([[1], [2, 3]], dtype=I64)
LOOKUPS = {
    "floats": (
        {"ids": [1.5]},
        "`ids` has dtype float64, but must be integers .*dtype='int64'",
    ),
    "strings": ({"ids": ["a"]}, "`ids` has dtype string, but must be integers"),
    "bools": ({"ids": [True]}, "`ids` has dtype bool, but must be integers"),
    "none": ({"ids": None}, "`ids`, a NoneType, is not an array of 64-bit"),
    "lists": (
        {"ids": [[1], [2, 3]]},
        r"`ids`, a list, is not an array .*tf.ragged.constant\(ids\)",
    ),
    "above 64 bits": (
        {"ids": [2**64]},
        "`ids`, a list, is not an array of 64-bit",
    ),
    "rank 1 with a combiner": (
        {"ids": [1, 2, 3], "combiner": "mean"},
        r"`ids` has shape \(3,\), and combiner='mean' pools .* is the batch: .*"
        r"tf.expand_dims\(ids, -1\)",
    ),
    "sparse of rank 1 with a combiner": (
        {
            "ids": tf.SparseTensor([[0], [2]], [1, 2], [3]),
            "combiner": "mean",
        },
        r"`ids` has shape \(3,\), and combiner='mean' pools .* is the batch",
    ),
    "rank 0": ({"ids": 1}, r"`ids` has shape \(\); a combiner needs .* rank"),
    "combiner": ({"combiner": "avg"}, "`combiner`='avg' is not None or one of"),
    "sparse without a combiner": (
        {"ids": sparse([[0, 0]], [1]), "combiner": None},
        "Sparse `ids` need a `combiner`, one of",
    ),
    "sparse out of order": (
        {"ids": sparse([[1, 0], [0, 0]], [1, 2])},
        "not in row-major order .*tf.sparse.reorder",
    ),
    "training as a tensor": (
        {"training": tf.constant(True)},
        "`training`=<tf.Tensor.*is not a Python bool or None",
    ),
    "training as text": ({"training": "yes"}, "`training`='yes' is not a Pyth"),
    "training 2": ({"training": 2}, "`training`=2 is not a Python bool"),
    "padding_id": (
        {"padding_id": 1.5},
        "`padding_id` must be a 64-bit integer, got 1.5",
    ),
    "padding_id above 64 bits": (
        {"padding_id": 2**63},
        f"`padding_id` must be a 64-bit integer, got {2**63}",
    ),
    "default_id": (
        {"default_id": "a"},
        "`default_id` must be a 64-bit integer, got 'a'",
    ),
    "default_id without bags": (
        {"default_id": 1, "combiner": None},
        "`default_id`=1, .* needs a `combiner`",
    ),
    "weights of another shape": (
        {"weights": [[1.0], [2.0]]},
        r"layout of `ids`, .* \(1, 2\), got a .* of shape \(2, 1\)",
    ),
    "weights of other splits": (
        {"ids": PAIRS, "weights": ragged([[1.0, 2.0], [3.0]])},
        "row_splits of axis 1; weights: 0, 2, 3 ids: 0, 1, 3",
    ),
    "weights of other indices": (
        {
            "ids": sparse([[0, 0], [1, 0]], [1, 2]),
            "weights": sparse([[0, 0], [0, 1]], [1.0, 2.0]),
        },
        "sparse `weights` and `ids` differ in indices; weights:",
    ),
    "weights of another kind": (
        {"ids": PAIRS, "weights": [1.0, 2.0, 3.0]},
        "layout of `ids`, a RaggedTensor .*, got a list",
    ),
    "weights as text": (
        {"weights": [["a", "b"]]},
        "`weights` has dtype string, but must be numbers",
    ),
    "weights with max": (
        {"weights": [[1.0, 2.0]], "combiner": "max"},
        "`weights` need a `combiner` of .*, got 'max'",
    ),
    "weights of uneven lists": (
        {"weights": [[1.0], [2.0, 3.0]]},
        "`weights`, a list, is not an array of numbers",
    ),
    "weights without a combiner": (
        {"weights": [[1.0, 2.0]], "combiner": None},
        "`weights` need a `combiner` of .*, got None",
    ),
    "ragged weights of dense ids": (
        {"weights": ragged([[1.0, 2.0]])},
        "layout of `ids`, .*, got a RaggedTensor",
    ),
    "dense weights of sparse ids": (
        {"ids": sparse([[0, 0]], [1]), "weights": [[1.0, 2.0]]},
        "layout of `ids`, a SparseTensor .*, got a list",
    ),
    "grow as text": ({"grow": "no"}, "`grow`='no' is not a Python bool"),
    "grow of None": ({"grow": None}, "`grow`=None is not a Python bool"),
    "count as a tensor": (
        {"count": tf.constant(False)},
        "`count`=<tf.Tensor.*is not a Python bool",
    ),
    "padding_id as a bool": (
        {"padding_id": True},
        "`padding_id` must be a 64-bit integer, got True",
    ),
    "symbolic ids": (
        {"ids": keras.Input((2,), dtype="int64")},
        r"`ids` is symbolic.*DynamicEmbedding\(table=",
    ),
    "negative splits": (
        {"ids": splits([0, -1, 3])},
        r"`row_splits\[0\]` is 0 and `row_splits\[1\]` is -1",
    ),
    "unsorted splits": (
        {"ids": splits([0, 3, 1, 3])},
        r"`row_splits\[1\]` is 3 and `row_splits\[2\]` is 1",
    ),
    "short splits": (
        {"ids": splits([0, 2])},
        "`row_splits` must end at 3, the number of ids, got 2",
    ),
}


@pytest.mark.parametrize(
    "name, training", [(name, i % 2 == 0) for i, name in enumerate(LOOKUPS)]
)
def test_lookup(name, training):
    changed, message = LOOKUPS[name]
    t = table()
    arguments = {"ids": [[1, 9]], "combiner": "sum", "training": training}
    with pytest.raises((ValueError, Invalid), match=f"(?s){message}"):
        t.lookup(**{**arguments, **changed})
    assert int(t.size()) == 3


RUN_TIME = {
    "weights of another shape": (
        tf.TensorSpec([None, None]),
        tf.constant([[1, 2]], I64),
        tf.ones([1, 3]),
        "`weights` and `ids` differ in shape",
    ),
    "weights of other splits": (
        tf.RaggedTensorSpec([None, None]),
        PAIRS,
        ragged([[1.0, 2.0], [3.0]]),
        "differ in row_splits of axis 1",
    ),
}


@pytest.mark.parametrize("name", RUN_TIME)
def test_lookup_in_a_graph(name):
    spec, ids, weights, message = RUN_TIME[name]
    t = table()
    of_ids = (
        tf.RaggedTensorSpec([None, None], I64)
        if isinstance(ids, tf.RaggedTensor)
        else tf.TensorSpec([None, None], I64)
    )

    @tf.function(input_signature=[of_ids, spec])
    def lookup(ids, weights):
        return t.lookup(ids, weights=weights, combiner="sum")

    with pytest.raises(Invalid, match=message):
        lookup(ids, weights)


CALLS = {
    "insert of ragged": (
        lambda t: t.insert_or_assign(PAIRS, np.ones((3, 2))),
        r"`ids` is a RaggedTensor of shape \(2, None\), but insert_or_assign",
    ),
    "insert of a matrix": (
        lambda t: t.insert_or_assign([[1]], [[1.0, 2.0]]),
        r"`ids` must have rank 1, found shape \[1,1\]",
    ),
    "insert of another width": (
        lambda t: t.insert_or_assign([1], [[1.0, 2.0, 3.0]]),
        r"`rows` must have shape \[1,2\], got \[1,3\]",
    ),
    "insert of text": (
        lambda t: t.insert_or_assign([1], [["a", "b"]]),
        "`rows` has dtype string, but must be numbers",
    ),
    "insert of nothing": (
        lambda t: t.insert_or_assign([1], None),
        "`rows`, a NoneType, is not an array of numbers",
    ),
    "import of a dict": (
        lambda t: t.load_rows({"ids": [1]}),
        "`rows` must be a lodestar.EmbeddingRows, got a dict",
    ),
    "import of ragged": (
        lambda t: t.load_rows(lodestar.EmbeddingRows(PAIRS, np.ones((3, 2)))),
        r"`ids` is a RaggedTensor of shape \(2, None\), but load_rows takes",
    ),
    "gradient without ids": (
        lambda t: lodestar.optimizers.SGD().apply([tf.ones((3, 2))], [t]),
        "The gradient of <EmbeddingVariable 't' .*> must be .* got a EagerTensor",
    ),
    "gradient of floating ids": (
        lambda t: lodestar.optimizers.SGD().apply(
            [tf.IndexedSlices(tf.ones((1, 2)), [1.5])], [t]
        ),
        "integer `indices`, got float32",
    ),
    "dim of 0": (
        lambda _: lodestar.EmbeddingVariable(0),
        "`output_dim` must be .* got 0",
    ),
    "dim as a bool": (
        lambda _: lodestar.EmbeddingVariable(True),
        "`output_dim` must be .* got True",
    ),
    "no shard": (
        lambda _: lodestar.EmbeddingVariable(2, num_shards=0),
        "`num_shards` must be .* got 0",
    ),
    "missing as text": (
        lambda _: lodestar.EmbeddingVariable(2, default_row="nan"),
        "`default_row`='nan'",
    ),
    "missing of another size": (
        lambda _: lodestar.EmbeddingVariable(2, default_row=[1.0]),
        r"`default_row` must have shape .*got shape \(1,\)",
    ),
    "dim as text": (
        lambda _: lodestar.EmbeddingVariable("a"),
        "`output_dim` must be an integer in \\[1, 65536\\], got 'a'",
    ),
    "dim of None": (
        lambda _: lodestar.EmbeddingVariable(None),
        "`output_dim` must be an integer in \\[1, 65536\\], got None",
    ),
    "dim as a float": (
        lambda _: lodestar.EmbeddingVariable(16.0),
        "`output_dim` must be an integer in \\[1, 65536\\], got 16.0",
    ),
    "dim of a number of ids": (
        lambda _: lodestar.EmbeddingVariable(1_000_000),
        r"`output_dim` must be an integer in \[1, 65536\], got 1000000",
    ),
    "dim of a layer": (
        lambda _: lodestar.layers.DynamicEmbedding(1_000_000),
        r"`output_dim` must be an integer in \[1, 65536\], got 1000000",
    ),
    "dim of a feature": (
        lambda _: lodestar.layers.EmbeddingCollection({"a": 1_000_000}),
        r"`features\['a'\]` must be an integer in \[1, 65536\], got 1000000",
    ),
    "many shards": (
        lambda _: lodestar.EmbeddingVariable(2, num_shards=4097),
        r"`num_shards` must be an integer in \[1, 4096\], got 4097",
    ),
    "many occurrences": (
        lambda _: lodestar.MinCount(2**32),
        r"`n` of MinCount must be an integer in \[1, 4294967295\], got 42949",
    ),
    "many shared rows": (
        lambda _: lodestar.SharedRows(2**30 + 1),
        r"`n` of SharedRows must be an integer in \[1, 1073741824\], got",
    ),
    "max_length as a float": (
        lambda t: lodestar.Feature(t, combiner="mean", max_length=5.0),
        "`max_length` must be an integer of at least 1, got 5.0",
    ),
    "half a shard": (
        lambda _: lodestar.EmbeddingVariable(2, num_shards=2.5),
        "`num_shards` must be an integer in \\[1, 4096\\], got 2.5",
    ),
    "dtype": (
        lambda _: lodestar.EmbeddingVariable(2, dtype="foo"),
        "`dtype`=foo is not one of float32, float16, bfloat16",
    ),
    "wide dtype": (
        lambda _: lodestar.EmbeddingVariable(2, dtype="float64"),
        "`dtype`=float64 is not one of float32, float16, bfloat16",
    ),
    "name": (
        lambda _: lodestar.EmbeddingVariable(2, name=5),
        "`name` must be a string, got 5",
    ),
    "missing as a class": (
        lambda _: lodestar.EmbeddingVariable(
            2, default_row=lodestar.SharedRows
        ),
        r"`default_row`=<class .*> is not 'zeros', 'initial', SharedRows\(n\) or a",
    ),
    "missing above the dtype": (
        lambda _: lodestar.EmbeddingVariable(
            2, default_row=[1e30, 0], dtype="float16"
        ),
        "`default_row` has numbers that are infinite as float16",
    ),
    "remove of sparse": (
        lambda t: t.remove(sparse([[0, 0]], [1])),
        "`ids` is a SparseTensor .*, but remove takes a dense tensor",
    ),
    "inspect of ragged": (
        lambda t: t.inspect(PAIRS),
        "`ids` is a RaggedTensor .*, but inspect takes a dense tensor",
    ),
    "step as text": (
        lambda t: t.set_step("a"),
        "`step` has dtype string, but must be integers",
    ),
    "step as a float": (
        lambda t: t.set_step(1.5),
        "`step` has dtype float64, but must be integers",
    ),
    "policy as text": (
        lambda t: t.evict("all"),
        "`policy` must be MaxAge, MaxRows, MinFrequency or MinNorm, got 'all'",
    ),
    "rate": (
        lambda t: t.decay_frequencies(1.5),
        r"`rate` must be in \[0, 1\], got 1.5",
    ),
    "import of another dim": (
        lambda t: t.load_rows(table(3).export()),
        r"`rows` must have shape \[3,2\], got \[3,3\]",
    ),
    "import of slots without an optimizer": (
        lambda t: t.load_rows(
            lodestar.EmbeddingRows([1], [[1, 2]], {"m": [[1, 2]]})
        ),
        r"optimizer slots \['m'\]",
    ),
    "import of equal ids": (
        lambda t: t.load_rows(lodestar.EmbeddingRows([1, 1], [[1, 2], [3, 4]])),
        "1",
    ),
    "import of a mode": (
        lambda t: t.load_rows(t.export(), mode="add"),
        "`mode`='add' is not 'replace' or 'merge'",
    ),
    "seed": (
        lambda _: lodestar.EmbeddingVariable(2, seed="x"),
        "`seed` must be a 64-bit integer, got 'x'",
    ),
    "salt": (
        lambda _: lodestar.EmbeddingVariable(2, seed=(0, 2**64)),
        f"`seed` must be a 64-bit integer, got {2**64}",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_calls(name):
    call, message = CALLS[name]
    t = table()
    before = t.export()
    with pytest.raises((ValueError, Invalid), match=f"(?s){message}"):
        call(t)
    np.testing.assert_array_equal(t.export().ids, before.ids)
    np.testing.assert_array_equal(t.export().rows, before.rows)


def layer(*arguments, **options):
    return lodestar.layers.DynamicEmbedding(*arguments, **options)


LAYERS = {
    "regularizer": (
        {"embeddings_regularizer": "l2"},
        r"`embeddings_regularizer` is not supported: .*model.compile\("
        r"lodestar.optimizers.Adam\(1e-3, weight_decay=1e-5\)\)",
    ),
    "constraint": (
        {"embeddings_constraint": "max_norm"},
        r"`embeddings_constraint` is not .*UnitNormalization\(\)\(rows\)",
    ),
    "input_dim": ({"input_dim": 9}, "`input_dim` is not supported: .*MaxRows"),
    "input_length": (
        {"input_length": 5},
        "`input_length` is not supported: inputs may have any length",
    ),
    "output_dim as a float": (
        {"output_dim": 16.0},
        "`output_dim` must be an integer in \\[1, 65536\\], got 16.0",
    ),
    "mask_zero": (
        {"mask_zero": True},
        "`mask_zero` is not supported: .*padding_id=0",
    ),
    "optimizer": (
        {"optimizer": "adamm"},
        "`optimizer`='adamm' is not a Keras optimizer, nor the name or config",
    ),
    "padding_id": ({"padding_id": 0.5}, "`padding_id` must be .* got 0.5"),
    "salt": ({"salt": 5}, "`salt` must be a string or None, got 5"),
    "weights": ({"weights": [np.ones([3, 2])]}, "insert_or_assign.ids, matr"),
    "grow": ({"grow": "no"}, "`grow`='no' is not a Python bool"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    options, message = LAYERS[name]
    with pytest.raises(ValueError, match=message):
        layer(**{"output_dim": 2, **options})


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("kind", ["layer", "collection"])
def test_training_of_a_layer_as_a_tensor(kind, graph):
    t = table()
    if kind == "layer":
        call, ids = layer(table=t), tf.constant([9])
    else:
        call = lodestar.layers.EmbeddingCollection(
            {"a": lodestar.Feature(t, combiner="mean")}
        )
        ids = {"a": tf.constant([[9]])}

    def run(training):
        return call(ids, training=training)

    with pytest.raises(ValueError, match="`training`=.*is not a Python bool"):
        (tf.function(run) if graph else run)(tf.constant(True))
    assert int(t.size()) == 3


@pytest.mark.parametrize("name", ["stats", "export", "inspect"])
def test_methods_that_run_eagerly_only(name):
    t = table()
    arguments = ([1],) if name == "inspect" else ()
    with pytest.raises(RuntimeError, match=f"`{name}` .* runs eagerly"):
        tf.function(lambda: getattr(t, name)(*arguments) and 1)()


def test_unknown_optimizer_to_wrap():
    with pytest.raises(
        ValueError,
        match="`optimizer`='adamm' is not a Keras optimizer, nor the",
    ):
        lodestar.optimizers.wrap("adamm")
    for inner in (3, None):
        with pytest.raises(
            ValueError, match=f"`optimizer`={inner} is not a Keras optimizer"
        ):
            lodestar.optimizers.wrap(inner)
    assert isinstance(
        lodestar.optimizers.wrap(
            {"class_name": "SGD", "config": {"learning_rate": 0.1}}
        ),
        keras.optimizers.SGD,
    )
