// Pack: values that a GPU loads and stores with one instruction.

#ifndef LODESTAR_TF_OPS_CORE_BASE_PACK_H_
#define LODESTAR_TF_OPS_CORE_BASE_PACK_H_

#include <cstdint>
#include <type_traits>

#include "tf_ops/core/base/host_device.h"

namespace lodestar {

// A GPU loads at most 16 bytes at once, so longer packs need no larger
// alignment.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  T at[kWidth];
};

template <int kWidth, typename T>
LODESTAR_HOST_DEVICE inline Pack<T, kWidth> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}
template <typename T, int kWidth>
LODESTAR_HOST_DEVICE inline void StorePack(const Pack<T, kWidth>& pack, T* to) {
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

// The widest unit, in bytes, that divides rows of `bytes` at `pointers`.
template <typename... Pointers>
int UnitBytes(int64_t bytes, const Pointers*... pointers) {
  for (const int unit : {16, 8, 4}) {
    if (bytes % unit == 0 &&
        ((reinterpret_cast<uintptr_t>(pointers) % unit == 0) && ...)) {
      return unit;
    }
  }
  return 2;
}

// Calls visit(pack) with a pack of `bytes` bytes, as UnitBytes returns.
template <typename Visit>
auto VisitUnit(int bytes, const Visit& visit) {
  switch (bytes) {
    case 16:
      return visit(Pack<uint32_t, 4>());
    case 8:
      return visit(Pack<uint32_t, 2>());
    case 4:
      return visit(Pack<uint32_t, 1>());
    default:
      return visit(Pack<uint16_t, 1>());
  }
}

// Calls visit(std::integral_constant<int, n>()) with the pack width n for rows
// of `dim` elements of T at `pointers`.
template <typename T, typename Visit, typename... Pointers>
auto VisitPack(int64_t dim, const Visit& visit, const Pointers*... pointers) {
  constexpr int kWidest = 16 / sizeof(T);
  if (UnitBytes(dim * static_cast<int64_t>(sizeof(T)), pointers...) == 16) {
    return visit(std::integral_constant<int, kWidest>());
  }
  return visit(std::integral_constant<int, 1>());
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_PACK_H_
