"""Writes and reads HugeCTR's Norm and Raw files value by value with `struct`."""

import struct
from typing import NamedTuple

_KEYS = {"uint32": "<I", "int32": "<i", "int64": "<q"}

# Two samples of 1 label, 2 dense values and 2 slots of uint32 keys.
SAMPLES = [
    ([1.0], [0.5, -2.0], [[7], [300, 301]]),
    ([0.0], [3.0, 0.25], [[8], []]),
]
NORM_NONE = bytes.fromhex(
    "00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00"
    "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00"
    "02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
    "00 00 80 3f 00 00 00 3f 00 00 00 c0 01 00 00 00"
    "07 00 00 00 02 00 00 00 2c 01 00 00 2d 01 00 00"
    "00 00 00 00 00 00 40 40 00 00 80 3e 01 00 00 00"
    "08 00 00 00 00 00 00 00"
)
NORM_SUM = bytes.fromhex(
    "40 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00"
    "00 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00"
    "00 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00"
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
    "00 00 00 00 08 20 00 00 00 00 00 80 3f 00 00 00"
    "3f 00 00 00 c0 01 00 00 00 07 00 00 00 02 00 00"
    "00 2c 01 00 00 2d 01 00 00 23 18 00 00 00 00 00"
    "00 00 00 00 40 40 00 00 80 3e 01 00 00 00 08 00"
    "00 00 00 00 00 00 47"
)


class Norm(NamedTuple):
    """A Norm file; samples are (labels, dense values, keys of each slot)."""

    check: str
    label_dim: int
    dense_dim: int
    slot_num: int
    samples: list[tuple[list[float], list[float], list[list[int]]]]


class _Bytes:
    """Takes values from the front of bytes; raises an error at the end."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return list(values)


def _take_samples(stream, count, label_dim, dense_dim, slot_num, key, check):
    samples = []
    for _ in range(count):
        length = stream.take("<i")[0] if check == "sum" else None
        begin = stream.at
        labels = stream.take(f"<{label_dim}f")
        dense = stream.take(f"<{dense_dim}f")
        schema = []
        for _ in range(slot_num):
            (nnz,) = stream.take("<i")
            assert nnz >= 0
            schema.append(stream.take(f"<{nnz}{key[1]}"))
        _end_of_record(stream, begin, length)
        samples.append((labels, dense, schema))
    return samples


def _end_of_record(stream, begin, length):
    if length is not None:
        payload = stream.data[begin : stream.at]
        assert len(payload) == length
        assert stream.take("<B") == [sum(payload) % 256]


def read_norm(data: bytes, key_type: str = "uint32") -> Norm:
    """Parses bytes; raises AssertionError or struct.error if they are invalid."""
    stream = _Bytes(data)
    check = "none"
    length = None
    if struct.unpack_from("<iq", data) == (64, 1):
        check, length = "sum", stream.take("<i")[0]
    begin = stream.at
    header = stream.take("<8q")
    _end_of_record(stream, begin, length)
    assert header[0] == (check == "sum")
    assert header[5:] == [0, 0, 0]
    count, label_dim, dense_dim, slot_num = header[1:5]
    samples = _take_samples(
        stream, count, label_dim, dense_dim, slot_num, _KEYS[key_type], check
    )
    assert stream.at == len(data)
    return Norm(check, label_dim, dense_dim, slot_num, samples)


def norm_record(payload: bytes, check: str) -> bytes:
    """Returns a header's or sample's bytes, framed if `check` is "sum"."""
    if check == "none":
        return payload
    return (
        struct.pack("<i", len(payload))
        + payload
        + struct.pack("<B", sum(payload) % 256)
    )


def norm_sample(sample, key_type: str = "uint32") -> bytes:
    """Returns the payload of one sample (labels, dense, slots)."""
    labels, dense, schema = sample
    key = _KEYS[key_type]
    floats = [*labels, *dense]
    return struct.pack(f"<{len(floats)}f", *floats) + b"".join(
        struct.pack(f"<i{len(keys)}{key[1]}", len(keys), *keys)
        for keys in schema
    )


def make_norm(
    samples, key_type: str = "uint32", check: str = "none", **header
) -> bytes:
    """Returns a Norm file of (labels, dense, slots); `header` overrides its fields."""
    labels, dense, schema = samples[0] if samples else ([], [], [])
    fields = {
        "error_check": int(check == "sum"),
        "number_of_records": len(samples),
        "label_dim": len(labels),
        "dense_dim": len(dense),
        "slot_num": len(schema),
        **header,
    }
    return b"".join(
        norm_record(payload, check)
        for payload in (
            struct.pack("<8q", *fields.values(), 0, 0, 0),
            *(norm_sample(sample, key_type) for sample in samples),
        )
    )


def _raw_forms(layout, key_type, label_dim, dense_dim, nnz_per_slot):
    label = "f" if layout == "float" else "i"
    dense = "i" if layout in ("int", "multi_hot_int") else "f"
    key = _KEYS[key_type]
    return [
        f"<{label_dim}{label}",
        f"<{dense_dim}{dense}",
        *(f"<{nnz}{key[1]}" for nnz in nnz_per_slot),
    ]


def read_raw(
    data: bytes,
    layout: str,
    key_type: str,
    label_dim: int,
    dense_dim: int,
    nnz_per_slot: list[int],
):
    """Returns the stored samples (labels, dense values, keys of each slot).

    An int32 dense value is the x of log(x + 1).
    """
    forms = _raw_forms(layout, key_type, label_dim, dense_dim, nnz_per_slot)
    stream = _Bytes(data)
    samples = []
    while stream.at < len(data):
        labels, dense, *schema = (stream.take(form) for form in forms)
        samples.append((labels, dense, schema))
    return samples


def make_raw(samples, layout: str, key_type: str = "uint32") -> bytes:
    """Returns a Raw file of (labels, dense, slots) as they are stored."""
    parts = []
    for labels, dense, schema in samples:
        nnz = [len(keys) for keys in schema]
        forms = _raw_forms(layout, key_type, len(labels), len(dense), nnz)
        for form, values in zip(forms, (labels, dense, *schema), strict=True):
            parts.append(struct.pack(form, *values))
    return b"".join(parts)
