"""Ops on level-of-detail offsets: int64 vectors, outermost level first."""

from lodestar._library import gen_ops
from lodestar.ops.stand_ins import replaceable

lod_from_absolute = gen_ops.lodestar_lod_from_absolute
lod_from_lengths = gen_ops.lodestar_lod_from_lengths
lod_from_sparse = gen_ops.lodestar_lod_from_sparse
lod_slice = gen_ops.lodestar_lod_slice
lod_to_absolute = replaceable(gen_ops.lodestar_lod_to_absolute)
lod_validate = gen_ops.lodestar_lod_validate
