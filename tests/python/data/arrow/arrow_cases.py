"""Decodes Arrow arrays into plain Python values."""

import numpy as np
import pyarrow as pa

from lodestar.data.arrow.decode import decode_rows
from lodestar.data.arrow.faults import Faults
from lodestar.data.binding import Binding
from lodestar.schema.schema import NA_VALUES


def decode_table(columns, table, na_values=NA_VALUES):
    """Returns the decoded columns by name, and the errors of bad rows."""
    bindings = [
        c if isinstance(c, Binding) else Binding(c, c.name) for c in columns
    ]
    faults = Faults(lambda row: f"row {row}")
    rows = decode_rows(bindings, table, na_values, faults)
    assert rows.num_rows == table.num_rows
    found = {
        binding.column.name: as_lists(rows.columns[i])
        for i, binding in enumerate(bindings)
    }
    return found, {row: fault.text for row, fault in rows.bad.items()}


def decode(column, array, na_values=NA_VALUES):
    """Returns the rows of a decoded array as lists, and the errors of bad rows."""
    if not isinstance(array, pa.ChunkedArray):
        array = pa.chunked_array([array])
    table = pa.table({"x": array})
    found, bad = decode_table([Binding(column, "x")], table, na_values)
    return found[column.name], bad


def as_lists(column):
    """Returns the rows of a decoded column as lists."""
    if isinstance(column, np.ndarray):
        return column.tolist()
    values, splits = column
    rows = as_lists(values)
    return [rows[a:b] for a, b in zip(splits.tolist(), splits[1:].tolist())]
