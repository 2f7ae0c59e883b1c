"""What a new user sees of public names: signatures, attributes and reprs."""

import inspect
import types

import keras
import pytest

import lodestar
from lodestar._checks import did_you_mean

_MODULES = [
    lodestar,
    *(
        value
        for name in lodestar.__all__
        if isinstance(value := getattr(lodestar, name), types.ModuleType)
    ),
]
_PUBLIC = {
    f"{module.__name__}.{name}": value
    for module in _MODULES
    for name in module.__all__
    if callable(value := getattr(module, name))
}
_CLASSES = {k: v for k, v in _PUBLIC.items() if inspect.isclass(v)}
# Whose arguments are not known by name.
_OPEN = {
    "lodestar.data.DataError": "an exception",
    "lodestar.snapshot.SnapshotError": "an exception",
    "lodestar.snapshot.CorruptSnapshotError": "an exception",
}
# Public attributes of instances that belong to Keras or TensorFlow.
_FOREIGN = (
    keras.Variable,
    keras.layers.Layer,
    keras.callbacks.Callback,
    keras.optimizers.Optimizer,
    keras.metrics.Metric,
)


@pytest.mark.parametrize("name", _PUBLIC)
def test_a_signature_names_every_argument(name):
    if name in _OPEN:
        pytest.skip(_OPEN[name])
    for parameter in inspect.signature(_PUBLIC[name]).parameters.values():
        assert parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ), parameter
        assert parameter.annotation is not parameter.empty, parameter


@pytest.mark.parametrize("name", _PUBLIC)
def test_a_wrong_argument_is_explained(name):
    """Of all that have many arguments, except a NamedTuple."""
    if name in _OPEN or name == "lodestar.EmbeddingRows":
        pytest.skip("no constructor of ours")
    if len(inspect.signature(_PUBLIC[name]).parameters) > 5:
        with pytest.raises(TypeError, match="no argument `nonesuch`. Its arg"):
            _PUBLIC[name](nonesuch=1)


@pytest.mark.parametrize("module", _MODULES, ids=lambda m: m.__name__)
def test_dir_of_a_module_shows_the_public_names(module):
    assert dir(module) == sorted(module.__all__)


def _own(cls):
    """Returns the public attributes that Lodestar defines, by name."""
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("lodestar"):
            found.update(
                (name, value)
                for name, value in vars(base).items()
                if not name.startswith("_")
            )
    foreign = set().union(
        *(dir(base) for base in cls.__mro__ if base in _FOREIGN)
    )
    return {k: v for k, v in found.items() if k not in foreign}


@pytest.mark.parametrize("name", _CLASSES)
def test_public_attributes_are_documented(name):
    cls = _CLASSES[name]
    described = inspect.getdoc(cls) or ""
    assert not [
        attribute
        for attribute, value in _own(cls).items()
        if not inspect.getdoc(value) and f"{attribute}:" not in described
    ]


def test_the_attributes_of_a_table():
    table = lodestar.EmbeddingVariable(4, name="surface")
    foreign = dir(keras.Variable([0.0]))
    assert [
        name
        for name in dir(table)
        if not name.startswith("_") and name not in foreign
    ] == [
        "admission",
        "clear",
        "compact",
        "decay_frequencies",
        "devices",
        "evict",
        "export",
        "find",
        "frequency",
        "from_config",
        "get_config",
        "insert_or_assign",
        "inspect",
        "load_own_variables",
        "load_rows",
        "lookup",
        "on_evict",
        "optimizer",
        "output_dim",
        "remove",
        "resource_handle",
        "save_own_variables",
        "set_step",
        "size",
        "stats",
        "step",
    ]


@pytest.mark.parametrize(
    "make, foreign, names",
    [
        (
            lambda: lodestar.layers.DynamicEmbedding(4),
            keras.layers.Layer,
            {"combiner", "grow", "optimizer", "output_dim", "table"},
        ),
        (
            lambda: lodestar.layers.EmbeddingCollection({"x": 4}),
            keras.layers.Layer,
            {"features", "plan", "plan_devices", "stats", "tables"},
        ),
        (
            lambda: lodestar.optimizers.Adam(),
            lambda: keras.optimizers.Adam(),
            {"nonfinite"},
        ),
        (
            lambda: lodestar.callbacks.Evict(policy=lodestar.MaxRows(1)),
            keras.callbacks.Callback,
            {"get_state", "set_state"},
        ),
    ],
)
def test_the_attributes_of_an_object(make, foreign, names):
    found = set(dir(make())) - set(dir(foreign()))
    assert {name for name in found if not name.startswith("_")} == names


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: lodestar.layers.DynamicEmbedding(4, combinr="mean"),
            r"no argument `combinr`. Did you mean 'combiner'\? Its arguments are",
        ),
        (
            lambda: lodestar.EmbeddingVariable(4, initializer="zeros"),
            "Did you mean 'embeddings_initializer'",
        ),
        (
            lambda: lodestar.optimizers.Adam(nonfinit="skip"),
            "Adam has no argument `nonfinit`. Did you mean 'nonfinite'",
        ),
        (
            lambda: lodestar.data.open_dataset("x.csv", shufle=3),
            "Did you mean 'shuffle'",
        ),
        (
            lambda: lodestar.data.open_writer("x.csv", [], delimitr="|"),
            "Did you mean 'delimiter'",
        ),
    ],
)
def test_a_wrong_name_is_an_error_that_says_which_are_right(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    "value, text",
    [
        (lodestar.MaxRows(5), "MaxRows(n=5)"),
        (lodestar.MaxRows(5, "lfu"), "MaxRows(n=5, policy='lfu')"),
        (lodestar.MinCount(2), "MinCount(n=2)"),
        (
            lodestar.data.Column.sparse("x", separator="|"),
            "Column(name='x', kind='sparse', separator='|')",
        ),
        (lodestar.optimizers.Adam(), "Adam(learning_rate=0.001)"),
        (
            lodestar.optimizers.SGD(0.1, momentum=0.9, nonfinite="skip"),
            "SGD(learning_rate=0.1, momentum=0.9, nonfinite='skip')",
        ),
        (
            lodestar.optimizers.wrap(keras.optimizers.Lion(0.2)),
            "Lion(learning_rate=0.2)",
        ),
        (
            lodestar.optimizers.LossScaleOptimizer(lodestar.optimizers.SGD()),
            "LossScaleOptimizer(SGD(learning_rate=0.01))",
        ),
    ],
)
def test_a_repr_shows_what_differs_from_the_defaults(value, text):
    assert repr(value) == text


def test_the_repr_of_a_schedule():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    assert repr(lodestar.optimizers.Adagrad(schedule)).startswith(
        "Adagrad(learning_rate=ExponentialDecay(initial_learning_rate=0.1, "
    )


@pytest.mark.parametrize(
    "value, known, text",
    [
        ("maen", ("sum", "mean"), " Did you mean 'mean'?"),
        ("ADAMM", ("Adam", "SGD"), " Did you mean 'Adam'?"),
        ("init", ("name", "initializer"), " Did you mean 'initializer'?"),
        ("xyz", ("sum", "mean"), ""),
        ("nothing", ("encoding",), ""),
        (3, ("sum",), ""),
        ("a", (), ""),
    ],
)
def test_did_you_mean(value, known, text):
    assert did_you_mean(value, known) == text


def test_misspelled_names_of_features():
    layer = lodestar.layers.EmbeddingCollection
    with pytest.raises(ValueError, match="Did you mean 'user'"):
        layer({"user": 4}, devices=["/CPU:0"], plan={"usr": "/CPU:0"})
    with pytest.raises(ValueError, match="Did you mean 'uniform'"):
        lodestar.EmbeddingVariable(4, embeddings_initializer="unifrm")
    with pytest.raises(ValueError, match="Did you mean 'Adagrad'"):
        lodestar.EmbeddingVariable(4, optimizer="adagrd")
