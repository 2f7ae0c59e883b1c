"""Builds compressed sparse rows value by value."""

from typing import Any

import numpy as np
import numpy.typing as npt


class CsrBuilder:
    """Collects rows of values like HugeCTR's data readers.

    >>> builder = CsrBuilder(num_rows=2, max_values=3)
    >>> builder.new_row(); builder.push_back(7); builder.push_back(8)
    >>> builder.new_row()
    >>> [x.tolist() for x in builder.build()]
    [[0, 2, 2], [7, 8]]

    HugeCTR's loops call `new_row` once more at the end. With `num_rows` that call
    closes the last row; without, it would start another row.

    Args:
        num_rows: Maximum number of rows, slots x batch for a CSR of several slots.
            None is unlimited.
        max_values: Maximum number of values; None is unlimited.
        dtype: NumPy dtype of the values.

    Raises:
        ValueError: If a limit is negative.
    """

    def __init__(
        self,
        num_rows: int | None = None,
        max_values: int | None = None,
        dtype: npt.DTypeLike = np.int64,
    ):
        for name, bound in (("num_rows", num_rows), ("max_values", max_values)):
            if bound is not None and bound < 0:
                raise ValueError(f"`{name}` must be at least 0, got {bound}.")
        self._row_bound = num_rows
        self._value_bound = max_values
        self._dtype = np.dtype(dtype)
        self._closed = False
        self.reset()

    @property
    def num_rows(self) -> int:
        """Number of rows, including the last one."""
        return len(self._begins)

    @property
    def num_values(self) -> int:
        """Number of values."""
        return len(self._values)

    def new_row(self) -> None:
        """Starts a row, or closes the last one after `num_rows` rows.

        Raises:
            IndexError: If the last of `num_rows` rows is closed.
        """
        if self._closed:
            raise IndexError(
                f"`num_rows` is {self._row_bound}, and the last row is closed: "
                f"row {self.num_rows} cannot be started."
            )
        if self.num_rows == self._row_bound:
            self._closed = True
        else:
            self._begins.append(self.num_values)

    def push_back(self, value: Any) -> None:
        """Adds a value to the last row.

        Raises:
            IndexError: If there is no row, the last one is closed, or there are
                `max_values` values.
            OverflowError: If the dtype cannot represent the integer.
            ValueError: If the value is not a number of the dtype.
        """
        at = self.num_values
        if not self._begins:
            raise IndexError(f"Value {value} has no row. Call `new_row` first.")
        if self._closed:
            raise IndexError(
                f"Value {value} has no row: `num_rows` is {self._row_bound}, "
                "and the last row is closed."
            )
        if self._value_bound is not None and at >= self._value_bound:
            raise IndexError(
                f"Value {value} of row {self.num_rows - 1} exceeds "
                f"`max_values`={self._value_bound}."
            )
        self._values.append(self._as_dtype(value, at))

    def set_check_point(self) -> None:
        """Marks the current end, for `roll_back`, e.g. before each sample."""
        self._check_point = self.num_rows, self.num_values, self._closed

    def roll_back(self) -> None:
        """Removes what was added since `set_check_point`, or everything without it.

        >>> builder = CsrBuilder()
        >>> for sample in ([[1], [2, 3]], [[4], [None, 5]]):  # 2 samples, 2 slots
        ...     builder.set_check_point()
        ...     try:
        ...         for row in sample:
        ...             builder.new_row()
        ...             for value in row:
        ...                 builder.push_back(value)
        ...     except TypeError:
        ...         builder.roll_back()
        >>> [x.tolist() for x in builder.build()]
        [[0, 1, 3], [1, 2, 3]]
        """
        rows, values, self._closed = self._check_point
        del self._begins[rows:]
        del self._values[values:]

    def reset(self) -> None:
        """Removes all rows and the check point."""
        self._begins: list[int] = []
        self._values: list[Any] = []
        self._closed = False
        self.set_check_point()

    def build(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns int64 row offsets, one more than rows, and the values.

        Both are new arrays, so the builder may be used further. Pass them to
        `lodestar.hugectr.from_csr`.
        """
        offsets = np.array([*self._begins, self.num_values], np.int64)
        return offsets, np.array(self._values, self._dtype)

    def _as_dtype(self, value: Any, at: int) -> Any:
        if self._dtype.kind in "iu":
            bounds = np.iinfo(self._dtype)
            number = int(value)
            if number != value:
                raise ValueError(
                    f"Value {value} at index {at} is not of {self._dtype.name}."
                )
            if not bounds.min <= number <= bounds.max:
                raise OverflowError(
                    f"Value {value} at index {at} exceeds {self._dtype.name}."
                )
            return number
        return self._dtype.type(value)
