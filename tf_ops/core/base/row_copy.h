// Copies of rows of `width` elements. T is char, for rows of bytes, or a type
// that is copied by assignment.
//
// A call of memcpy costs as much as copying a short row, so loops over rows are
// compiled for each common width.

#ifndef LODESTAR_TF_OPS_CORE_BASE_ROW_COPY_H_
#define LODESTAR_TF_OPS_CORE_BASE_ROW_COPY_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lodestar {

// Prefetches a row, for writing if kWrite is 1. Stops after 512 bytes. The
// hardware prefetcher handles the rest.
template <int kWrite>
inline void PrefetchRow(const void* row, int64_t bytes) {
  const char* line = static_cast<const char*>(row);
  const char* last = line + std::min<int64_t>(bytes, 512) - 1;
  for (; line < last; line += 64) __builtin_prefetch(line, kWrite);
  __builtin_prefetch(last, kWrite);
}

// Calls f(std::integral_constant) and returns true if `width` is one of
// kWidths.
template <int64_t... kWidths, typename F>
bool VisitIfOneOf(int64_t width, const F& f) {
  return ((width == kWidths &&
           (f(std::integral_constant<int64_t, kWidths>()), true)) ||
          ...);
}

// Calls f(width), with a std::integral_constant for the common widths in bytes.
template <typename T, typename F>
void VisitWidth(int64_t width, const F& f) {
  if constexpr (std::is_same_v<T, char>) {
    if (VisitIfOneOf<1, 2, 4, 8, 16, 32, 64, 128, 256>(width, f)) return;
  }
  f(width);
}

// Copies `count` rows. `Width` is the type that VisitWidth passes.
template <typename T, typename Width>
void CopyRows(const T* rows, int64_t count, Width width, T* out) {
  if constexpr (std::is_same_v<T, char> && !std::is_integral_v<Width>) {
    // memcpy is faster for longer copies.
    if (count * width <= 1024) {
      for (int64_t r = 0; r < count; ++r) {
        std::memcpy(out + r * width, rows + r * width, width);
      }
      return;
    }
  }
  std::copy_n(rows, count * width, out);
}

// Copies one row `count` times. Requires: width >= 1.
template <typename T, typename Width>
void RepeatRow(const T* row, int64_t count, Width width, T* out) {
  if constexpr (std::is_same_v<T, char> && !std::is_integral_v<Width>) {
    // A local copy cannot alias `out`, so it stays in registers.
    char copy[Width::value];
    std::memcpy(copy, row, width);
    for (int64_t r = 0; r < count; ++r) {
      std::memcpy(out + r * width, copy, width);
    }
  } else if (count > 0) {
    std::copy_n(row, width, out);
    // Doubles the copied part each time, from what is still in the cache.
    const int64_t most = 1 + 4096 / width;
    for (int64_t r = 1, copied; r < count; r += copied) {
      copied = std::min({r, count - r, most});
      std::copy_n(out, copied * width, out + r * width);
    }
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_ROW_COPY_H_
