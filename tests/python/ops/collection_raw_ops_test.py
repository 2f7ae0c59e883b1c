"""Raw ops of the embedding collection, with arguments that no wrapper passes."""

import numpy as np
import pytest
import tensorflow as tf
from random_arguments import (
    DIM,
    MIN,
    call,
    content,
    op_def,
    random_number,
    random_tensor,
    table,
    tensor,
)

import lodestar
from lodestar.embedding.lookup_arguments import ROW_DTYPES

# Four features over two tables: ragged and weighted; dense, pooled by max; one
# row per id; ragged with every option of a feature.
FEATURES = {
    "names": ["mean", "max", "ids", "sum"],
    "tables": [0, 1, 0, 1],
    "combiners": ["mean", "max", "", "sum"],
    "ragged": [True, False, False, True],
    "weighted": [True, False, False, False],
    "salted": [False, False, False, True],
    "salts": [0, 0, 0, 9],
    "use_padding": [False, True, False, True],
    "padding_ids": [0, 5, 0, 0],
    "use_default": [False, False, False, True],
    "default_ids": [0, 0, 0, 7],
    "max_lengths": [-1, -1, -1, 1],
}
IDS = [[1, 2, 3], [[1, 5], [2, 3]], [[3, 3]], [0, 1, 2, 3]]
SPLITS = [[0, 2, 3], [0, 0, 4]]
WEIGHTS = [[1.0, 2.0, 3.0]]
ROWS = [(2, DIM), (2, DIM), (1, 2, DIM), (2, DIM)]


def tensors(values, dtype):
    return [tensor(value, dtype) for value in values]


def usual_arguments(name, tables):
    """Returns valid arguments of the op."""
    missing = {
        "handles": [t.resource_handle for t in tables],
        "missing_rows": [tf.zeros([0])] * 2,
        "missing": ["zeros", "initial"],
    }
    lookup = {
        **missing,
        "hooks": [tf.zeros([0, DIM])] * 2,
        "counters": [],
        "M": 1,
        "feature_dtypes": [tf.float32] * 4,
    }
    gradients = {"gradients": [tf.ones(shape) for shape in ROWS]}
    batch = {
        "ids": tensors(IDS, tf.int64),
        "row_splits": tensors(SPLITS, tf.int64),
        "weights": tensors(WEIGHTS, tf.float32),
        **FEATURES,
    }
    if name == "EmbeddingCollectionLookup":
        return {**batch, **lookup}
    if name == "EmbeddingCollectionUnique":
        return {**batch, "T": 2}
    if name == PARTITION:
        # Only features that can be pooled from partial sums.
        sums = {
            "combiners": ["mean", "first", "last", "sum"],
            "use_default": [False] * 4,
        }
        return {**batch, **sums, "T": 2, "num_parts": 3, "N": 12}
    looked_up = call(
        "EmbeddingCollectionLookup",
        **usual_arguments("EmbeddingCollectionLookup", tables),
    )
    unique = {
        "unique_ids": looked_up.unique_ids,
        "positions": looked_up.positions,
    }
    fetched = {
        "hooks": lookup["hooks"],
        "rows": [tf.ones([len(x), DIM]) for x in looked_up.unique_ids],
        "default_rows": [tf.ones([DIM])],
    }
    if name == "EmbeddingCollectionPool":
        outputs = {k: lookup[k] for k in ("M", "feature_dtypes")}
        return {**batch, **unique, **fetched, **outputs}
    if name == "EmbeddingCollectionCount":
        counters = call("EmbeddingCollectionCounters", num_features=4)
        resident = [tf.ones([len(x)], tf.bool) for x in looked_up.unique_ids]
        extra = {"counters": counters, "resident": resident}
        return {**batch, **unique, **extra}
    return {
        **batch,
        **gradients,
        **unique,
        "winners": looked_up.winners,
        "dims": [DIM, DIM],
        "table_dtypes": [tf.float32] * 2,
        "deduplicated": True,
    }


LOOKUP, GRADIENT = "EmbeddingCollectionLookup", "EmbeddingCollectionGradient"
UNIQUE, POOL = "EmbeddingCollectionUnique", "EmbeddingCollectionPool"
COUNT = "EmbeddingCollectionCount"
PARTITION = "EmbeddingCollectionPartitionBags"
OPS = [PARTITION, COUNT, LOOKUP, GRADIENT, POOL, UNIQUE]


def prepared(name):
    tables = [table(), table()]
    arguments = usual_arguments(name, tables)
    taken = {a.name for a in op_def(name).input_arg}
    taken |= {a.name for a in op_def(name).attr}
    # If the wrapper cannot count them itself.
    if "M" in arguments and any(
        a.number_attr == "M" for a in op_def(name).input_arg
    ):
        del arguments["M"]
    return tables, {k: v for k, v in arguments.items() if k in taken}


@pytest.mark.parametrize("name", OPS)
def test_usual_arguments_are_accepted(name):
    tables, arguments = prepared(name)
    call(name, **arguments)
    assert len(tables) == 2


@pytest.mark.parametrize("name", OPS)
def test_every_op_checks_the_lengths_of_its_lists(name):
    _, arguments = prepared(name)
    of_tables = {"missing", "dims"} & set(arguments)
    for key in [*FEATURES, *of_tables]:
        values = arguments[key]
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=f"`{key}` has {len(values) + 1} items, but there are "
            f"{len(values)} {'tables' if key in of_tables else 'features'}",
        ):
            call(name, **{**arguments, key: [*values, values[-1]]})


def change_something(name, arguments, rng):
    lists = [
        k for k, v in arguments.items() if isinstance(v, list) and len(v) > 0
    ]
    chosen = lists[rng.integers(len(lists))]
    values = list(arguments[chosen])
    place = rng.integers(len(values))
    old = values[place]
    if chosen == "handles":
        values[place] = tf.reshape(old, [[1], [1, 1]][rng.integers(2)])
    elif isinstance(old, tf.Tensor):
        values[place] = random_tensor(rng, old.dtype)
    elif isinstance(old, bool):
        values[place] = not old
    elif isinstance(old, tf.DType):
        values[place] = ROW_DTYPES[rng.integers(len(ROW_DTYPES))]
    elif isinstance(old, str):
        values[place] = ["", "max", "first", "none", "zeros"][rng.integers(5)]
    else:
        values[place] = random_number(rng)
    if rng.integers(20) == 0:
        values.pop()
    arguments[chosen] = values


@pytest.mark.parametrize("name", OPS)
def test_random_arguments_are_taken_or_refused(name, rng):
    tables, usual = prepared(name)
    before = [content(t) for t in tables]
    taken = 0
    for _ in range(500):
        arguments = dict(usual)
        for _ in range(rng.integers(1, 3)):
            change_something(name, arguments, rng)
        if "deduplicated" in arguments:
            arguments["deduplicated"] = bool(rng.integers(2))
        try:
            call(name, **arguments)
        except (tf.errors.OpError, ValueError, TypeError):
            assert [content(t) for t in tables] == before, arguments
        else:
            taken += 1
            before = [content(t) for t in tables]
    assert taken
    for t in tables:
        assert t.find([1, 2, 3])[1].numpy().all()


def test_one_table_twice_is_refused():
    (t, _), arguments = prepared(LOOKUP)
    before = content(t)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`handles\[\d\]` and .* the same table",
    ):
        call(LOOKUP, **arguments | {"handles": [t.resource_handle] * 2})
    assert content(t) == before


@pytest.mark.parametrize(
    "changed, message",
    [
        (
            {"winners": [tf.zeros([1, 1], tf.int64)]},
            r"feature 'max': `winners` must have shape \[2,4\], got \[1,1\]",
        ),
        (
            {"combiners": ["mean", "max", "max", "sum"]},
            "`combiners` lists 2 features, but M is 1",
        ),
        (
            {"tables": [0, 1, 0, 2]},
            r"feature 'sum' must have a table in \[0, 2\), got 2",
        ),
        (
            {"weighted": [True, False, False, True]},
            "`weighted` lists 2 features, but W is 1",
        ),
        (
            {"combiners": ["avg", "max", "", "sum"]},
            "unknown combiner 'avg'",
        ),
        (
            {"combiners": ["", "max", "", "sum"]},
            "has row_splits or weights, but no combiner",
        ),
    ],
)
def test_attributes_that_contradict_inputs_are_refused(changed, message):
    _, arguments = prepared(GRADIENT)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(GRADIENT, **arguments | changed)


def test_the_dim_of_a_table_without_features_is_checked():
    _, arguments = prepared("EmbeddingCollectionGradient")
    arguments |= {
        "tables": [0, 0, 0, 0],
        "dims": [DIM, -1],
        "deduplicated": False,
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match="-1"):
        call("EmbeddingCollectionGradient", **arguments)


@pytest.mark.parametrize("dim", [0, 65537])
def test_dims_that_no_table_has_are_refused(dim):
    _, arguments = prepared("EmbeddingCollectionGradient")
    arguments["dims"] = [DIM, dim]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"`dims` must be in \[1, 65536\], got {dim}",
    ):
        call("EmbeddingCollectionGradient", **arguments)


def test_a_shape_of_too_many_bags_is_refused():
    _, arguments = prepared("EmbeddingCollectionLookup")
    many = tf.zeros([2**63 - 1, 0], tf.int64)
    arguments["ids"] = [arguments["ids"][0], many, *arguments["ids"][2:]]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"feature 'max': `ids` has shape \[9223372036854775807,0\], "
        "which gives too many bags",
    ):
        call("EmbeddingCollectionLookup", **arguments)


def test_positions_out_of_range_are_refused():
    _, arguments = prepared("EmbeddingCollectionGradient")
    for bad in (-2, 100):
        positions = [np.array(p) for p in arguments["positions"]]
        positions[1][0] = bad
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"`positions.*, got {bad}"
        ):
            call(
                "EmbeddingCollectionGradient",
                **{**arguments, "positions": positions},
            )


def of_one(name):
    """Like `prepared`, for one table and one unnamed feature."""
    tables, arguments = prepared(name)
    count = dict.fromkeys([*FEATURES, "ids", "row_splits", "weights"], 1)
    count |= dict.fromkeys(["gradients", "feature_dtypes"], 1)
    count |= dict.fromkeys(["winners"], 0)
    count |= dict.fromkeys(["handles", "hooks", "missing_rows", "missing"], 1)
    count |= dict.fromkeys(["unique_ids", "table_dtypes", "dims"], 1)
    count |= {"rows": 1, "default_rows": 0, "resident": 1}
    arguments = {
        k: v[: count[k]] if k in count else v for k, v in arguments.items()
    }
    arguments["names"] = [""]
    if "M" in arguments:
        arguments["M"] = 0
    if name == PARTITION:
        arguments["N"] = arguments["num_parts"]
    if "counters" in arguments and name == COUNT:
        arguments["counters"] = call(
            "EmbeddingCollectionCounters", num_features=1
        )
    if "T" in arguments:
        arguments["T"] = 1
    if "positions" in arguments:
        arguments["positions"] = [tf.constant([0, 1, 2], tf.int64)]
    return tables[:1], arguments


BAGS = [
    ({"row_splits": []}, "`row_splits` must have B + 1 elements, got none."),
    ({"row_splits": [1, 2, 3]}, "`row_splits[0]` must be 0, got 1."),
    ({"row_splits": [MIN, 2, 3]}, f"`row_splits[0]` must be 0, got {MIN}."),
    (
        {"row_splits": [0, 3, 2]},
        "`row_splits` must not decrease, but `row_splits[1]` is 3 and "
        "`row_splits[2]` is 2.",
    ),
    (
        {"row_splits": [0, 2, 4]},
        "`row_splits` must end at 3, the number of ids, got 4.",
    ),
    (
        {"row_splits": [[0, 2, 3]]},
        "`row_splits` must have rank 1, found shape [1,3]",
    ),
    (
        {"weights": [1.0, 2.0]},
        "`weights` has shape [2], but `ids` has shape [3]",
    ),
    ({"weights": 1.0}, "`weights` has shape [], but `ids` has shape [3]"),
    ({"ids": [[1, 2, 2]]}, "`ids` must have rank 1, found shape [1,3]"),
    (
        {"combiners": "first"},
        "`weights` require the combiner sum, mean or sqrtn.",
    ),
]
POSITIONS = [
    ({"positions": [0, 3, 1]}, "`positions[1]` must be in [-1, 3), got 3."),
    (
        {"positions": [0, 1, MIN]},
        f"`positions[2]` must be in [-1, 3), got {MIN}.",
    ),
    (
        {"positions": [0, 1]},
        "`positions[0]` has 2 elements, but the features have 3 ids",
    ),
    (
        {"positions": [[0, 1, 2]]},
        "`positions` must have rank 1, found shape [1,3]",
    ),
]
SUMS = [
    ({"unique_ids": []}, "`positions[0]` must be in [-1, 0), got 0."),
    (
        {"gradients": np.zeros([3])},
        "`gradients` must have shape [2,4], got [3].",
    ),
    (
        {"gradients": np.zeros([3, DIM])},
        "`gradients` must have shape [2,4], got [3,4].",
    ),
]


FETCHED = [
    ({"rows": np.ones([3])}, "`rows` must have rank 2, found shape [3]"),
    (
        {"rows": np.ones([3, 0])},
        "`rows[0]` must have a last axis in [1, 65536], got 0.",
    ),
    (
        {"rows": np.ones([0, 2**40])},
        f"`rows[0]` must have a last axis in [1, 65536], got {2**40}.",
    ),
]
POOLED = [
    (
        {"rows": np.ones([2, DIM])},
        "`rows[0]` has 2 rows, but `unique_ids[0]` has 3 ids",
    ),
    (
        {"rows": np.ones([3, 5])},
        "`hooks[0]` must have shape [0,5], got [0,4].",
    ),
    (
        {"hooks": np.ones([1, 4])},
        "`hooks[0]` must have shape [0,4], got [1,4].",
    ),
    (
        {"unique_ids": [[1, 2, 3]]},
        "`unique_ids` must have rank 1, found shape [1,3]",
    ),
]
RESIDENT = [
    ({"resident": [True]}, "`positions[1]` must be in [-1, 1), got 1."),
    (
        {"resident": [[True] * 3]},
        "`resident` must have rank 1, found shape [1,3]",
    ),
]
CASES = {
    LOOKUP: BAGS,
    UNIQUE: BAGS,
    PARTITION: BAGS,
    COUNT: [*BAGS, *POSITIONS, *RESIDENT],
    GRADIENT: [*BAGS, *POSITIONS, *SUMS],
    POOL: [*BAGS, *POSITIONS, *FETCHED, *POOLED],
}


@pytest.mark.parametrize(
    "name, changed, message",
    [(name, *case) for name, cases in CASES.items() for case in cases],
)
def test_a_feature_without_a_name_is_not_named(name, changed, message):
    (table,), arguments = of_one(name)
    call(name, **arguments)
    before = content(table)
    for key, value in changed.items():
        ints = ("ids", "row_splits", "unique_ids", "positions")
        dtype = tf.int64 if key in ints else tf.float32
        dtype = tf.bool if key == "resident" else dtype
        given = value if key == "combiners" else tensor(value, dtype)
        arguments[key] = [given]
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(name, **arguments)
    # After the name of the op.
    assert raised.value.message.startswith(message)
    assert content(table) == before


@pytest.mark.parametrize(
    "changed, message",
    [
        (
            {"combiners": ["mean", "max", "last", "sum"]},
            "feature 'max': partitioned bags",
        ),
        (
            {"combiners": ["mean", "first", "", "sum"]},
            "feature 'ids': partitioned bags",
        ),
        ({"use_default": [True] * 4}, "feature 'mean': partitioned bags"),
        ({"N": 11}, "`N` must be 3 parts x 4 features, got 11"),
    ],
)
def test_bags_that_no_sums_make_are_refused(changed, message):
    _, arguments = prepared(PARTITION)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(PARTITION, **{**arguments, **changed})


def test_counters_of_other_features_are_refused():
    _, arguments = prepared(COUNT)
    for number, handle in ((3, []), (4, [1])):
        counters = call("EmbeddingCollectionCounters", num_features=number)
        arguments["counters"] = tf.reshape(counters, handle)
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="`counters` must count 4 features, got 3"
            if number == 3
            else "`counters` must have rank 0|must be rank 0",
        ):
            call(COUNT, **arguments)


def test_the_row_of_an_empty_bag_is_checked():
    _, arguments = prepared(POOL)
    for row in (tf.ones([]), tf.ones([5]), tf.ones([1, DIM])):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"feature 'sum': `default_rows` must have shape \[4\], got",
        ):
            call(POOL, **{**arguments, "default_rows": [row]})
    for rows in ([], [tf.ones([DIM])] * 2, [tf.ones([DIM], tf.float16)]):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="`default_rows` must have one row of its table's dtype for "
            f"each of the 1 features in `use_default`, got {len(rows)}",
        ):
            call(POOL, **{**arguments, "default_rows": rows})


def test_admission_of_a_call_goes_before_that_of_its_tables():
    tables = [
        lodestar.EmbeddingVariable(DIM, admission=lodestar.MinCount(2))
        for _ in range(2)
    ]
    arguments = usual_arguments(LOOKUP, tables)

    def sizes(**options):
        call(LOOKUP, **{**arguments, **options})
        return [t.size() for t in tables]

    assert sizes() == [0, 0]
    assert sizes(admit="none") == [0, 0]
    assert sizes(admit="all") == [3, 3]
