"""Assigns the tables of features to devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from lodestar._checks import did_you_mean
from lodestar.embedding.devices import check_devices
from lodestar.layers.feature import Feature, to_features

Plan = dict[str, tuple[str, ...]]


def plan_devices(
    features: Mapping[str, Feature | int],
    devices: Sequence[str],
    plan: Mapping[str, str | Sequence[str]] | None = None,
) -> Plan:
    """See `EmbeddingCollection.plan_devices`."""
    devices = check_devices(devices)
    if len(set(devices)) < len(devices):
        raise ValueError(
            f"`devices` must not repeat a device, got {list(devices)}."
        )
    tables = to_features(features)
    decided = _decided(tables, devices, {} if plan is None else plan)
    rows_share, lookups_share = _shares(tables)
    load = dict.fromkeys(devices, 0.0)
    result: Plan = {}

    def place(name: str, chosen: Sequence[str]) -> None:
        result[name] = tuple(chosen)
        for device in chosen:
            if device in load:
                share = rows_share[name] + lookups_share[name]
                load[device] += share / len(chosen)

    for name, chosen in decided.items():
        place(name, chosen)
    by_size = sorted(
        tables, key=lambda name: -(rows_share[name] + lookups_share[name])
    )
    for name in by_size:
        if name in result or tables[name].table is not None:
            continue
        if len(devices) > 1 and rows_share[name] * len(devices) > 1:
            # An unknown number of rows is no reason to partition a table.
            if tables[name].expected_rows is not None:
                place(name, devices)
                continue
        place(name, [min(devices, key=lambda device: load[device])])
    return {name: result[name] for name in tables if name in result}


def _decided(
    features: Mapping[str, Feature],
    devices: Sequence[str],
    plan: Mapping[str, Any],
) -> Plan:
    if not isinstance(plan, Mapping):
        raise ValueError(
            "`plan` must be a dict of feature name -> device or list of "
            f"devices, got a {type(plan).__name__}."
        )
    decided: Plan = {}
    for name, feature in features.items():
        if feature.table is not None:
            if feature.table.devices is not None:
                decided[name] = feature.table.devices
        elif feature.devices is not None:
            decided[name] = check_devices(feature.devices)
    for name, chosen in plan.items():
        if name not in features:
            raise ValueError(
                f"`plan` has the unknown feature {name!r}; the features are "
                f"{sorted(features)}.{did_you_mean(name, features)}"
            )
        feature = features[name]
        if feature.table is not None or feature.devices is not None:
            reason = "`devices`" if feature.table is None else "a table"
            raise ValueError(
                f"The feature {name!r} already has {reason}. Remove it from "
                "`plan`."
            )
        found = check_devices([chosen] if isinstance(chosen, str) else chosen)
        others = [device for device in found if device not in devices]
        if others:
            raise ValueError(
                f"`plan[{name!r}]` must be among `devices`={list(devices)}, got "
                f"{others}."
            )
        decided[name] = found
    return decided


def _shares(
    features: Mapping[str, Feature],
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns each table's shares of all bytes and of all looked-up numbers."""
    known = [
        f.expected_rows
        for f in features.values()
        if f.expected_rows is not None
    ]
    # Tables without `expected_rows` count as average.
    average = sum(known) / len(known) if known else 1.0
    bytes_of: dict[str, float] = {}
    lookups: dict[str, float] = {}
    seen: set[int] = set()
    for name, feature in features.items():
        if feature.table is not None:
            table = feature.table
            dim, size = table.output_dim, table._row_dtype.size
        else:
            assert feature.output_dim is not None
            dim, size = feature.output_dim, 4
        rows = (
            average if feature.expected_rows is None else feature.expected_rows
        )
        ids = 1.0 if feature.expected_ids is None else feature.expected_ids
        shared = feature.table is not None and id(feature.table) in seen
        seen.add(id(feature.table))
        bytes_of[name] = 0.0 if shared else float(rows * dim * size)
        lookups[name] = float(ids * dim)

    def of_all(values: dict[str, float]) -> dict[str, float]:
        total = sum(values.values()) or 1.0
        return {name: value / total for name, value in values.items()}

    return of_all(bytes_of), of_all(lookups)
