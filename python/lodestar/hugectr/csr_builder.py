"""CsrBuilder: compressed sparse rows, value by value."""

from typing import Any

import numpy as np
import numpy.typing as npt


class CsrBuilder:
    """Collects rows of values, as HugeCTR's data readers do.

    >>> builder = CsrBuilder(num_rows=2, max_values=3)
    >>> builder.new_row(); builder.push_back(7); builder.push_back(8)
    >>> builder.new_row()
    >>> [x.tolist() for x in builder.build()]
    [[0, 2, 2], [7, 8]]

    HugeCTR's loops call `new_row` once more at the end. With `num_rows` that
    call closes the last row; without, it would begin one more.

    Args:
        num_rows: How many rows it may hold; slots x batch for a CSR of several
            slots. None is no bound.
        max_values: How many values it may hold; None is no bound.
        dtype: NumPy dtype of the values.

    Raises:
        ValueError: a bound below 0.
    """

    def __init__(
        self,
        num_rows: int | None = None,
        max_values: int | None = None,
        dtype: npt.DTypeLike = np.int64,
    ):
        for name, bound in (("num_rows", num_rows), ("max_values", max_values)):
            if bound is not None and bound < 0:
                raise ValueError(f"`{name}` is {bound}, wanted 0 or more")
        self._row_bound = num_rows
        self._value_bound = max_values
        self._dtype = np.dtype(dtype)
        self._closed = False
        self.reset()

    @property
    def num_rows(self) -> int:
        """The rows begun."""
        return len(self._begins)

    @property
    def num_values(self) -> int:
        """The values pushed."""
        return len(self._values)

    def new_row(self) -> None:
        """Begins a row, to which values are pushed until the next one begins.

        After `num_rows` rows it closes the last one, once.

        Raises:
            IndexError: the last of `num_rows` rows is closed.
        """
        if self._closed:
            raise IndexError(
                f"row {self.num_rows} is out of bound: `num_rows` is "
                f"{self._row_bound}, and the last row is closed"
            )
        if self.num_rows == self._row_bound:
            self._closed = True
        else:
            self._begins.append(self.num_values)

    def push_back(self, value: Any) -> None:
        """Adds a value to the row begun last.

        Raises:
            IndexError: no row has begun, the last one is closed, or
                `max_values` values are there.
            OverflowError: an integer that the dtype does not hold.
            ValueError: what is no number of the dtype.
        """
        at = self.num_values
        if not self._begins:
            raise IndexError(f"value {value} has no row: call `new_row` first")
        if self._closed:
            raise IndexError(
                f"value {value} has no row: `num_rows` is {self._row_bound}, "
                "and the last row is closed"
            )
        if self._value_bound is not None and at >= self._value_bound:
            raise IndexError(
                f"value {value} at index {at} of row {self.num_rows - 1} is "
                f"out of bound: `max_values` is {self._value_bound}"
            )
        self._values.append(self._as_dtype(value, at))

    def roll_back(self) -> None:
        """Gives up the row begun last, or opens it again if it is closed.

        Raises:
            IndexError: no row has begun.
        """
        if self._closed:
            self._closed = False
            return
        if not self._begins:
            raise IndexError("there is no row to give up")
        del self._values[self._begins.pop() :]

    def reset(self) -> None:
        """Gives up all rows."""
        self._begins: list[int] = []
        self._values: list[Any] = []
        self._closed = False

    def build(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns int64 row offsets, one more than rows, and the values.

        Both are new arrays; more may be pushed afterwards. They are what
        `LoDTensor.from_csr` takes.
        """
        offsets = np.array([*self._begins, self.num_values], np.int64)
        return offsets, np.array(self._values, self._dtype)

    def _as_dtype(self, value: Any, at: int) -> Any:
        if self._dtype.kind in "iu":
            bounds = np.iinfo(self._dtype)
            number = int(value)
            if number != value:
                raise ValueError(
                    f"value {value} at index {at} is no {self._dtype.name}"
                )
            if not bounds.min <= number <= bounds.max:
                raise OverflowError(
                    f"value {value} at index {at} is beyond {self._dtype.name}"
                )
            return number
        return self._dtype.type(value)
