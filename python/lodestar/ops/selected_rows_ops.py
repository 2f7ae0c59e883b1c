"""The op of selected rows."""

from lodestar._library import gen_ops

selected_rows_validate = gen_ops.lodestar_selected_rows_validate
