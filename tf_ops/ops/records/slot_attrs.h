// The attributes by which an op describes feature slots.

#ifndef LODESTAR_TF_OPS_OPS_RECORDS_SLOT_ATTRS_H_
#define LODESTAR_TF_OPS_OPS_RECORDS_SLOT_ATTRS_H_

// slot_names: What errors call the feature slots.
// slot_types: int64 or float32.
// slot_shapes: Of one sample; of unknown rank for any number of values; with
//   one unknown dimension for one that all samples of a batch agree on.
// slot_limits: Where positive, values must be whole numbers in [0, limit).
// slot_weighs: -1, or the slot of ids that this one holds a weight each of.
// slot_used: Whether the slot is in the batch; it is checked anyway.
#define LODESTAR_SLOT_ATTRS                          \
  Attr("slot_names: list(string) >= 1")              \
      .Attr("slot_types: list({int64, float}) >= 1") \
      .Attr("slot_shapes: list(shape) >= 1")         \
      .Attr("slot_limits: list(int) >= 1")           \
      .Attr("slot_weighs: list(int) >= 1")           \
      .Attr("slot_used: list(bool) >= 1")

#endif  // LODESTAR_TF_OPS_OPS_RECORDS_SLOT_ATTRS_H_
