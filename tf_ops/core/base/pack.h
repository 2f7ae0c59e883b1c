// Pack: values that a GPU loads and stores with one instruction.

#ifndef LODESTAR_TF_OPS_CORE_BASE_PACK_H_
#define LODESTAR_TF_OPS_CORE_BASE_PACK_H_

namespace lodestar {

// A GPU loads at most 16 bytes at once, so longer packs need no larger
// alignment.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  T at[kWidth];
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_PACK_H_
