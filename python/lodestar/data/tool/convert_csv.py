"""CSV to MultiSlot text: numbers become float slots, all else id slots."""

from collections.abc import Callable, Collection

import tensorflow as tf

from lodestar._files import as_path
from lodestar._typing import StrPath
from lodestar.data.csv.csv_table import CsvTable
from lodestar.data.schema import Schema
from lodestar.data.tool.formats import FORMATS
from lodestar.data.tool.output import Output, Target


def convert_csv(
    source: StrPath,
    target: StrPath,
    *,
    label: str,
    delimiter: str | None = None,
    categorical: Collection[str] = (),
    numeric: Collection[str] = (),
    missing: Collection[str] = ("", "?"),
    on_start: Callable[[str, int], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Schema:
    """Writes a CSV file with a header as MultiSlot text.

    Reads the file twice: once to see which columns are numbers, once to write.
    A column of numbers becomes a dense float slot of its name, 0 where missing;
    any other column a sparse id slot, empty where missing, else one id,
    `hash_ids(column, value)`. Columns of text are ids, and so are whole numbers
    of many values that come back; docs/data.md has the rule. A column without
    any value is an id slot. Memory does not grow with the file.

    Beside `target` the schema file `target + ".schema.yaml"` is written. Both
    appear only when all is done.

    Args:
        source: The CSV file, UTF-8, fields separated by `delimiter`.
        target: The MultiSlot file to write; `.gz` compresses it.
        label: `COLUMN`, a column of numbers, or `COLUMN=POSITIVE`: 1 where the
            column's value is POSITIVE (or POSITIVE and a full stop, as in some
            copies of the census data), 0 at any other value.
        delimiter: None finds it in the header.
        categorical: Columns that are ids, whatever they hold.
        numeric: Columns that are numbers; another value is an error.
        missing: Texts that stand for a missing value.
        on_start: Called before each pass with what it does and the file's bytes.
        on_progress: Called with the number of bytes of each piece read.

    Returns:
        The slots: the label first, then the columns in the file's order.

    Raises:
        DataError: The input is missing, empty, binary or cut short, a column is
            unknown, a value is not valid, or the output cannot be written. One
            line that names the file, and the line and column where there is
            one. Nothing is left behind.

    Warns:
        UserWarning: Columns of whole numbers were taken for ids, or for numbers
            though they may be ids; or the last line has no newline, so the file
            may be cut short.
    """
    path = as_path(source)
    size = 0
    if on_start is not None:
        if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
            size = tf.io.gfile.stat(path).length
        on_start("reading columns", size)
    table = CsvTable(
        [path],
        label=label,
        delimiter=delimiter,
        categorical=categorical,
        numeric=numeric,
        missing=missing,
        on_progress=on_progress,
    )
    if on_start is not None:
        on_start("writing", size)
    made = Target(target, FORMATS["multislot"])
    with Output(made, table.spec, inputs=[path]) as output:
        for columns in table.batches(path):
            output.write_batch(columns)
    return table.spec
