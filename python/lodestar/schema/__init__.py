"""Schemas: the declared meaning of the columns of a data set."""

from lodestar.schema.column import Column as Column
from lodestar.schema.keras_inputs import ColumnInput as ColumnInput
from lodestar.schema.schema import Schema as Schema
from lodestar.schema.schema import SchemaLike as SchemaLike
from lodestar.schema.schema import as_schema as as_schema
from lodestar.schema.schema import label_columns as label_columns
