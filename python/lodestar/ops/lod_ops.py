"""The op on level-of-detail offsets: int64 vectors, outermost level first."""

from lodestar._library import gen_ops
from lodestar.ops.stand_ins import replaceable

lod_validate = replaceable(gen_ops.lodestar_lod_validate)
