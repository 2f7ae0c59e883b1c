"""The content of a table as plain arrays."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lodestar._optional import import_optional


def _say_fields(fields: Any, name: str) -> Any:
    """Raises an AttributeError that lists the fields."""
    what = type(fields).__name__
    raise AttributeError(
        f"{what} has no attribute {name!r}. Its fields are "
        f"{', '.join(fields._fields)}.",
        name=name,
        obj=fields,
    )


class EmbeddingRows(NamedTuple):
    """Rows of an EmbeddingVariable with their metadata.

    Attributes:
        ids: int64 `[N]`; ascending if exported.
        rows: `[N, D]`, of the table's dtype.
        optimizer_slots: Maps slot names to `[N, D]`, or to `[N, 1]` for
            RowWiseAdagrad, float32. Empty without an optimizer.
        frequencies: int64 `[N]`, or None for an import that counts from 0.
        last_seen: int64 `[N]`, steps, or None for an import at the table's step.
        optimizer: Name of the update rule that the slots belong to.
        slot_inits: Maps slot names to their initial value.
    """

    ids: np.ndarray
    rows: np.ndarray
    optimizer_slots: Mapping[str, np.ndarray] = {}
    frequencies: Any = None
    last_seen: Any = None
    optimizer: str = ""
    slot_inits: Mapping[str, float] = {}

    def to_pandas(self) -> Any:
        """Returns a `pandas.DataFrame` with one row per id.

        >>> table = lodestar.EmbeddingVariable(2, name="user")
        >>> table.lookup(tf.constant([7, 8]))[0].shape
        TensorShape([2])
        >>> list(table.export().to_pandas().columns)
        ['id', 'value', 'frequency', 'last_seen']

        Returns:
            Columns `id`, int64; `value`, NumPy arrays `[D]`; `frequency` and
            `last_seen`, int64, if the rows have them; and a column of NumPy arrays
            `[D]` for each optimizer slot, with its name.

        Raises:
            ImportError: pandas is not installed.
        """
        pandas = import_optional("pandas", "EmbeddingRows.to_pandas")
        return pandas.DataFrame(
            {
                name: list(values) if values.ndim > 1 else values
                for name, values in self._columns().items()
            }
        )

    def to_arrow(self) -> Any:
        """Returns a `pyarrow.Table` with the columns of `to_pandas`.

        Vectors are fixed-size lists; bfloat16 values become float32.
        """
        import pyarrow as pa

        def column(values: np.ndarray) -> Any:
            if values.ndim == 1:
                return pa.array(values)
            flat = pa.array(values.reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])

        return pa.table({n: column(v) for n, v in self._columns().items()})

    def _columns(self) -> dict[str, np.ndarray]:
        columns = {
            "id": self.ids,
            "value": self.rows,
            "frequency": self.frequencies,
            "last_seen": self.last_seen,
            **self.optimizer_slots,
        }
        arrays = {
            name: np.asarray(values)
            for name, values in columns.items()
            if values is not None
        }
        return {
            name: values.astype(np.float32)
            if values.dtype.kind == "V"
            else values
            for name, values in arrays.items()
        }


class InspectedIds(NamedTuple):
    """Result of `EmbeddingVariable.inspect` for N ids.

    Attributes:
        ids: int64 `[N]`.
        rows: `[N, D]`, of the table's dtype; zeros without a row.
        optimizer_slots: Maps slot names to `[N, D]`, as in EmbeddingRows.
        frequencies: int64 `[N]`; of pending ids, their counts so far.
        last_seen: int64 `[N]`, steps; -1 if unknown.
        shards: int64 `[N]`, the shard of each id.
        states: `"resident"`, `"pending"` (seen but not admitted yet) or
            `"missing"` for each id.
    """

    ids: np.ndarray
    rows: np.ndarray
    optimizer_slots: Mapping[str, np.ndarray]
    frequencies: np.ndarray
    last_seen: np.ndarray
    shards: np.ndarray
    states: list[str]


# In the classes, it would make type checkers allow any attribute.
for _fields in (EmbeddingRows, InspectedIds):
    _fields.__getattr__ = _say_fields  # type: ignore[union-attr]
