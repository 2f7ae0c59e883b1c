"""Which device has the table of each feature."""

from collections.abc import Mapping, Sequence
from typing import Any

from lodestar.embedding.devices import check_devices
from lodestar.layers.feature import Feature

Plan = dict[str, tuple[str, ...]]


def plan_devices(
    features: Mapping[str, Feature | int],
    devices: Sequence[str],
    plan: Mapping[str, str | Sequence[str]] | None = None,
) -> Plan:
    """Returns what `EmbeddingCollection.plan_devices` says."""
    devices = check_devices(devices)
    if len(set(devices)) < len(devices):
        raise ValueError(f"`devices`={list(devices)} names a device twice.")
    tables = _tables(features)
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
            # What is known of no table's rows is no reason to spread one.
            if tables[name].expected_rows is not None:
                place(name, devices)
                continue
        place(name, [min(devices, key=lambda device: load[device])])
    return {name: result[name] for name in tables if name in result}


def _tables(features: Mapping[str, Feature | int]) -> dict[str, Feature]:
    if not isinstance(features, Mapping):
        raise ValueError(
            f"`features` is a {type(features).__name__}, wanted a dict of "
            "name -> lodestar.Feature, or the output_dim of one."
        )
    return {
        name: feature
        if isinstance(feature, Feature)
        else Feature(output_dim=feature)
        for name, feature in features.items()
    }


def _decided(
    features: Mapping[str, Feature],
    devices: Sequence[str],
    plan: Mapping[str, Any],
) -> Plan:
    if not isinstance(plan, Mapping):
        raise ValueError(
            f"`plan` is a {type(plan).__name__}, wanted a dict of the name of "
            "a feature -> its device, or a list of devices."
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
                f"`plan` names {name!r}, which is no feature; features: "
                f"{sorted(features)}."
            )
        feature = features[name]
        if feature.table is not None or feature.devices is not None:
            raise ValueError(
                f"`plan` names {name!r}, whose "
                + (
                    "devices are given"
                    if feature.table is None
                    else "table is made"
                )
                + " already; leave it out."
            )
        found = check_devices([chosen] if isinstance(chosen, str) else chosen)
        others = [device for device in found if device not in devices]
        if others:
            raise ValueError(
                f"`plan[{name!r}]` names {others}, which are not among "
                f"`devices`={list(devices)}."
            )
        decided[name] = found
    return decided


def _shares(
    features: Mapping[str, Feature],
) -> tuple[dict[str, float], dict[str, float]]:
    """Of each feature's table, of all bytes and of all numbers looked up."""
    known = [
        f.expected_rows
        for f in features.values()
        if f.expected_rows is not None
    ]
    # A table of which nothing is known is as large as the others on average.
    average = sum(known) / len(known) if known else 1.0
    bytes_of: dict[str, float] = {}
    lookups: dict[str, float] = {}
    seen: set[int] = set()
    for name, feature in features.items():
        if feature.table is not None:
            table = feature.table
            dim, size = table.output_dim, table.row_dtype.size
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
