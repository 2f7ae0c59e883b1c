"""What the columns of a CSV file are: numbers or ids."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

# More different whole numbers than ages, hours or percents have.
_MANY = 128
# An id is worth a row where it comes back about so often.
_OFTEN = 4
# Fewer different whole numbers are not worth a question.
_FEW = 10
# From here on, not even float64 holds every whole number.
_EXACT_DIGITS = 15
_WHOLE = re.compile(r"(-?[0-9]+)(\.0*)?", re.ASCII)
_ID_NAME = re.compile(r"(.*[\W_])?id|.*[a-z](Id|ID)|ID|Id|.*[\W_](ID|Id)")
# Of all columns together, and of each, the different numbers that are counted.
_MAX_COUNTED = 1 << 21
_COUNTED = (2 * _MANY, 4096)
_MAX_NAMES = 20


def as_number(text: str) -> float | None:
    """The number that `text` is, NaN included; None if it is none."""
    try:
        # float() also takes "1_000", which is no number in a file.
        return None if "_" in text else float(text)
    except ValueError:
        return None


class CsvColumns:
    """Tells numbers from ids by what columns hold, in bounded memory.

    A column with a text is ids, one of numbers that are not all whole is
    numbers. Whole numbers are ids as `docs/data.md` has it.
    """

    def __init__(self, names: Sequence[str], missing: Collection[str]):
        """Begins with columns that have no row yet.

        Args:
            names: Of the columns.
            missing: Texts that stand for a missing value.
        """
        least, most = _COUNTED
        room = max(least, min(most, _MAX_COUNTED // max(len(names), 1)))
        self._columns = [_Column(name, room) for name in names]
        self._by_name = {column.name: column for column in self._columns}
        self._missing = missing

    def add(self, columns: Iterable[Sequence[str]]) -> None:
        """Looks at the cells of some rows, column by column."""
        for column, texts in zip(self._columns, columns, strict=True):
            if column.is_number:
                self.add_counts(column.name, Counter(texts))

    def add_counts(self, name: str, counts: Counter[str]) -> None:
        """Looks at cells of a column by how often each text occurs in it."""
        column = self._by_name[name]
        for text in self._missing:
            counts.pop(text, None)
        column.add(counts)

    def numeric(self) -> list[bool]:
        """Of each column, whether it is numbers."""
        return [
            column.is_number and column.count > 0 and not column.is_ids()
            for column in self._columns
        ]

    def notes(self) -> list[str]:
        """What has been decided of columns of whole numbers, a line each."""
        ids = [c.name for c in self._columns if c.is_ids()]
        numbers = [c.name for c in self._columns if c.may_be_ids()]
        return [
            f"column{'s' * (len(names) > 1)} {', '.join(_some(names))}: whole "
            f"numbers, taken for {found}; name {'them' if names[1:] else 'it'} "
            f"in `{option}` to have {other}"
            for names, found, option, other in (
                (ids, "ids", "numeric", "numbers"),
                (numbers, "numbers", "categorical", "ids"),
            )
            if names
        ]


class _Column:
    """What has been seen of one column."""

    def __init__(self, name: str, room: int):
        self.name = name
        self.is_number = True
        self.count = 0  # of values that are not missing
        self._room = room
        self._whole = True
        self._is_code = False  # a number would not give it back
        self._has_point = False
        self._negative = False
        self._zeros = 0
        # How often numbers occur: of all, or of one in `1 << _level`, chosen by
        # their bits, once there are more than `_room`.
        self._counts: dict[int, int] = {}
        self._level = 0

    def add(self, counts: Counter[str]) -> None:
        for text, count in counts.items():
            self.count += count
            whole = _WHOLE.fullmatch(text) if self._whole else None
            if whole is None:
                self._whole = False
                if as_number(text) is None:
                    self.is_number = False
                    self._counts.clear()
                    return
                continue
            self._has_point |= whole[2] is not None
            digits = whole[1].removeprefix("-")
            if len(digits) > _EXACT_DIGITS or (
                len(digits) > 1 and digits[0] == "0"
            ):
                self._is_code = True
                continue
            value = int(whole[1])
            self._negative |= value < 0
            self._zeros += count * (value == 0)
            if self._is_counted(value):
                self._counts[value] = self._counts.get(value, 0) + count
        while len(self._counts) > self._room:
            self._level += 1
            self._counts = {
                value: count
                for value, count in self._counts.items()
                if self._is_counted(value)
            }

    def is_ids(self) -> bool:
        """Whether it is whole numbers that are taken for ids."""
        if not (self.is_number and self._whole and self.count):
            return False
        if self._has_point:
            return False
        if self._is_code:
            return True
        if _ID_NAME.fullmatch(self.name):
            return max(self._counts.values(), default=0) > 1
        distinct = self._distinct()
        return (
            self._is_plain()
            and distinct > _MANY
            and self.count >= _OFTEN * distinct
        )

    def may_be_ids(self) -> bool:
        """Whether it is whole numbers, not taken for ids, that could be some."""
        return (
            self.is_number
            and self._whole
            and self._distinct() > _FEW
            and self._is_plain()
            and not self.is_ids()
        )

    def _is_plain(self) -> bool:
        """Whether nothing shows that it counts or measures something."""
        return not self._negative and 2 * self._zeros <= self.count

    def _distinct(self) -> int:
        return len(self._counts) << self._level

    def _is_counted(self, value: int) -> bool:
        # Fibonacci hashing: the upper bits of the product depend on all bits.
        mixed = value * 0x9E3779B97F4A7C15 & (1 << 64) - 1
        return mixed >> (64 - self._level) == 0


def _some(names: list[str]) -> list[str]:
    more = len(names) > _MAX_NAMES
    return names[:_MAX_NAMES] + ["..."] * more
