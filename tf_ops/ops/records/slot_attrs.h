// The attributes that describe feature slots.

#ifndef LODESTAR_TF_OPS_OPS_RECORDS_SLOT_ATTRS_H_
#define LODESTAR_TF_OPS_OPS_RECORDS_SLOT_ATTRS_H_

// slot_names: Names of the feature slots in errors.
// slot_types: int64 or float32.
// slot_shapes: Shape per sample. Unknown rank allows any number of values; one
//   unknown dimension must be equal for all samples of a batch.
// slot_limits: If positive, values must be integers in [0, limit).
// slot_weighs: -1, or the slot of ids that these values are the weights of.
// slot_used: Whether the slot is in the batch. It is checked in any case.
#define LODESTAR_SLOT_ATTRS                                                 \
  "slot_names: list(string) >= 1", "slot_types: list({int64, float}) >= 1", \
      "slot_shapes: list(shape) >= 1", "slot_limits: list(int) >= 1",       \
      "slot_weighs: list(int) >= 1", "slot_used: list(bool) >= 1"

#endif  // LODESTAR_TF_OPS_OPS_RECORDS_SLOT_ATTRS_H_
