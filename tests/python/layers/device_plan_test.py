"""Tests of the plan that places the tables of features on devices."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers import EmbeddingCollection

plan_devices = EmbeddingCollection.plan_devices

DEVICES = ["/CPU:0", "/CPU:1"]


def numbers(plan):
    """Returns {name: the numbers of its devices}."""
    return {
        name: tuple(int(device[-1]) for device in devices)
        for name, devices in plan.items()
    }


def feature(rows=None, ids=None, output_dim=8, **options):
    return lodestar.Feature(
        output_dim=output_dim, expected_rows=rows, expected_ids=ids, **options
    )


def test_equal_tables_are_dealt_out():
    plan = plan_devices({f"f{i}": 8 for i in range(7)}, DEVICES)
    counts = np.bincount([d for of in numbers(plan).values() for d in of])
    assert sorted(counts) == [3, 4]
    assert all(len(of) == 1 for of in plan.values())


def test_a_table_larger_than_a_device_is_partitioned():
    plan = plan_devices(
        {"large": feature(10**9), "a": feature(10**6), "b": feature(10**6)},
        DEVICES,
    )
    assert numbers(plan)["large"] == (0, 1)
    assert len(plan["a"]) == len(plan["b"]) == 1
    assert plan["a"] != plan["b"]


def test_rows_and_lookups_are_balanced():
    rng = np.random.default_rng(1)
    features = {
        f"f{i}": feature(
            int(rng.integers(1, 100)), float(rng.integers(1, 30)), output_dim=4
        )
        for i in range(60)
    }
    plan = numbers(plan_devices(features, DEVICES))
    load = np.zeros(2)
    rows = sum(f.expected_rows for f in features.values())
    ids = sum(f.expected_ids for f in features.values())
    for name, (device,) in plan.items():
        load[device] += features[name].expected_rows / rows
        load[device] += features[name].expected_ids / ids
    assert load.max() - load.min() < 0.02 * load.sum()


def test_lookups_count_where_rows_are_equal():
    plan = numbers(
        plan_devices(
            {
                "hot": feature(100, 30.0),
                **{f"cold{i}": feature(100, 1.0) for i in range(4)},
            },
            DEVICES,
        )
    )
    (hot,) = plan.pop("hot")
    on_other = [name for name, (device,) in plan.items() if device != hot]
    assert len(on_other) >= 3


def test_the_same_features_give_the_same_plan():
    features = {f"f{i}": feature(i + 1, i % 3 + 1) for i in range(20)}
    assert plan_devices(features, DEVICES) == plan_devices(features, DEVICES)


def test_a_plan_by_hand_goes_before():
    features = {
        "a": feature(10**9),
        "b": 8,
        "c": feature(devices=["/CPU:0"]),
        "d": lodestar.Feature(lodestar.EmbeddingVariable(4)),
        "e": lodestar.Feature(
            lodestar.EmbeddingVariable(4, devices=["/CPU:1"])
        ),
    }
    plan = numbers(
        plan_devices(
            features, DEVICES, {"a": "/CPU:1", "b": ["/CPU:1", "/CPU:0"]}
        )
    )
    assert plan == {"a": (1,), "b": (1, 0), "c": (0,), "e": (1,)}


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"devices": []}, "`devices` must have at least one"),
        ({"devices": ["/CPU:0", "/CPU:0"]}, "must not repeat a device"),
        ({"devices": ["/CPU:9"]}, "does not exist"),
        ({"plan": {"z": "/CPU:0"}}, "`plan` has the unknown feature 'z'"),
        (
            {"plan": {"t": "/CPU:0"}},
            "The feature 't' already has a table",
        ),
        (
            {"plan": {"p": "/CPU:0"}},
            "The feature 'p' already has `devices`",
        ),
        (
            {"devices": ["/CPU:0"], "plan": {"a": "/CPU:1"}},
            r"`plan\['a'\]` must be among .*, got .*CPU:1",
        ),
        ({"plan": ["/CPU:0"]}, "`plan` must be a dict .*, got a list"),
    ],
)
def test_errors_name_the_cause(changed, message):
    arguments = {"devices": DEVICES, "plan": None} | changed
    features = {
        "a": feature(),
        "t": lodestar.Feature(lodestar.EmbeddingVariable(4)),
        "p": feature(devices=["/CPU:1"]),
    }
    with pytest.raises(ValueError, match=message):
        plan_devices(features, **arguments)
    with pytest.raises(ValueError, match=message):
        EmbeddingCollection(features, **arguments)


@pytest.mark.parametrize("features", [["a"], {"a": 2.5}, {"a": "8"}, {"a": 0}])
def test_features_are_checked(features):
    with pytest.raises(
        ValueError, match=r"dict .*, got a list|`features\['a'\]`"
    ):
        plan_devices(features, DEVICES)


def test_a_plan_needs_devices():
    with pytest.raises(ValueError, match="`plan` needs `devices`"):
        EmbeddingCollection({"a": 4}, plan={"a": "/CPU:0"})


@pytest.mark.parametrize("name", ["expected_rows", "expected_ids"])
@pytest.mark.parametrize("value", [0, -1.0, "many", True])
def test_expected_rows_must_be_positive(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive number"):
        lodestar.Feature(output_dim=4, **{name: value})


def test_a_collection_places_its_tables_and_keeps_them():
    layer = EmbeddingCollection(
        {"a": feature(10**9), "b": feature(10), "c": feature(10)},
        devices=DEVICES,
    )
    assert numbers(layer.plan)["a"] == (0, 1)
    assert {numbers(layer.plan)[n] for n in "bc"} == {(0,), (1,)}
    ids = {name: tf.constant([1, 2, 3]) for name in "abc"}
    rows = layer(ids, training=True)
    assert {name: r.shape for name, r in rows.items()} == dict.fromkeys(
        "abc", (3, 8)
    )
    assert all(table.size() == 3 for table in layer.tables)
    assert layer.stats()["a"]["ids"] == 3
    again = EmbeddingCollection.from_config(layer.get_config())
    assert again.plan == layer.plan
