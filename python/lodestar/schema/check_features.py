"""Checks features against the columns of a schema."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lodestar.schema.column import Column


class _Found(NamedTuple):
    """The form ("dense", "ragged" or "sparse"), dtype and shape of a feature."""

    form: str
    dtype: str
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        shape = "of unknown rank"
        if self.shape is not None:
            shape = f"[{', '.join(map(_size, self.shape))}]"
        return f"a {self.form} {self.dtype} tensor {shape}"

    @property
    def holds(self) -> str:
        """Returns "integers", "floats", "strings" or the name of another dtype."""
        for name, prefixes in (
            ("integers", ("int", "uint")),
            ("floats", ("float", "bfloat")),
            ("strings", ("string",)),
        ):
            if self.dtype.startswith(prefixes):
                return name
        return self.dtype


def check(columns: Iterable[Column], features: Mapping[str, Any]) -> None:
    """Raises ValueError unless `features` fit; see `Schema.check`."""
    if not isinstance(features, Mapping):
        raise ValueError(
            "`features` must map column names to tensors, got a "
            f"{type(features).__name__}."
        )
    columns = [c for c in columns if c.used and c.is_feature]
    problems = []
    missing = [c.name for c in columns if c.name not in features]
    if missing:
        problems.append(
            f"No features for the columns {missing}; found {sorted(features)}."
        )
    for column in columns:
        if column.name in features:
            found = _found(features[column.name])
            allowed, fits = _allowed(column, found)
            if not fits:
                problems.append(
                    f"Column {column.name!r} is declared as "
                    f"{column.describe()}, which is {allowed}, but found "
                    f"{found}."
                )
    if problems:
        raise ValueError(
            "\n".join(
                [
                    "The features do not fit the schema:",
                    *problems,
                    "Read the data with this schema: "
                    "lodestar.data.open_dataset(data, schema=schema).",
                ]
            )
        )


def _allowed(column: Column, found: _Found) -> tuple[str, bool]:
    """Describes the allowed features, and returns whether `found` is one."""
    if column.kind == "sparse":
        rank = 1 + column.depth
        values = ("integers",) if column.holds_ids else ("floats", "integers")
        if column.encoding != "int":
            values = ("integers", "strings")
        shape = ", ".join(["batch", *["values"] * column.depth])
        return (
            f"a ragged, sparse or dense tensor [{shape}] of "
            f"{' or '.join(values)}",
            found.holds in values
            and (found.shape is None or len(found.shape) == rank),
        )
    sizes = (column.size,) if column.kind == "one_hot" else column.shape
    values = ("floats", "integers")
    if column.kind == "dense" and column.dtype != "float":
        values = ("integers",)
    shape = ", ".join(["batch", *(_size(None if s < 0 else s) for s in sizes)])
    return (
        f"a dense tensor [{shape}] of {' or '.join(values)}",
        found.form == "dense"
        and found.holds in values
        and _has_shape(found.shape, sizes),
    )


def _has_shape(
    shape: tuple[int | None, ...] | None, sizes: tuple[int, ...]
) -> bool:
    if shape is None:
        return True
    # Keras appends a last dimension to single numbers.
    if sizes == (1,) and len(shape) == 1:
        return True
    return len(shape) == 1 + len(sizes) and all(
        size is None or wanted < 0 or size == wanted
        for size, wanted in zip(shape[1:], sizes, strict=True)
    )


def _found(x: Any) -> _Found:
    if not hasattr(x, "dtype") or not hasattr(x, "shape"):
        try:
            x = np.asarray(x)
        except ValueError:  # lists of different lengths
            x = np.asarray(None)
    form = "dense"
    if isinstance(x, (tf.RaggedTensor, tf.RaggedTensorSpec)):
        form = "ragged"
    elif isinstance(x, (tf.SparseTensor, tf.SparseTensorSpec)):
        form = "sparse"
    elif getattr(x, "ragged", False) is True:  # a KerasTensor
        form = "ragged"
    elif getattr(x, "sparse", False) is True:
        form = "sparse"
    shape: tuple[int | None, ...] | None
    if isinstance(x.shape, tf.TensorShape):
        shape = None if x.shape.rank is None else tuple(x.shape.as_list())
    else:
        shape = tuple(x.shape)
    return _Found(form, _dtype_name(x), shape)


def _dtype_name(x: Any) -> str:
    name = getattr(x.dtype, "name", None) or str(x.dtype)
    if getattr(x.dtype, "kind", "") in ("U", "S"):
        return "string"
    if name == "object" and all(
        isinstance(value, (str, bytes)) for value in np.asarray(x).flat
    ):
        return "string"
    return name


def _size(size: int | None) -> str:
    return "None" if size is None else str(size)
