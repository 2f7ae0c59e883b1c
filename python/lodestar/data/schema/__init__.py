"""Schemas: the declared meaning of the columns of a data set."""

from lodestar.data.schema.column import Column as Column
from lodestar.data.schema.keras_inputs import ColumnInput as ColumnInput
from lodestar.data.schema.schema import Schema as Schema
from lodestar.data.schema.schema import SchemaLike as SchemaLike
from lodestar.data.schema.schema import as_schema as as_schema
from lodestar.data.schema.schema import label_columns as label_columns
