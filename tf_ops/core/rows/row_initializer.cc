#include "tf_ops/core/rows/row_initializer.h"

#include <algorithm>
#include <cmath>

namespace lodestar {

Status RowInitializer::Create(const std::string& kind, float a, float b,
                              int64_t seed, int64_t salt, RowInitializer* out) {
  RowInitializer result;
  if (kind == "zeros") {
    result.initial_.a = 0.0f;
  } else if (kind == "ones") {
    result.initial_.a = 1.0f;
  } else if (kind == "constant") {
    result.initial_.a = a;
  } else if (kind == "uniform" || kind == "normal" ||
             kind == "truncated_normal") {
    result.initial_.kind = kind == "uniform" ? InitialValue::Kind::kUniform
                           : kind == "normal"
                               ? InitialValue::Kind::kNormal
                               : InitialValue::Kind::kTruncatedNormal;
    result.initial_.a = a;
    result.initial_.b = b;
  } else {
    return InvalidArgument(
        "initializer must be zeros, ones, constant, uniform, normal or "
        "truncated_normal, got '",
        kind, "'.");
  }
  if (!std::isfinite(result.initial_.a) || !std::isfinite(result.initial_.b)) {
    return InvalidArgument("initializer '", kind,
                           "' must have finite parameters, got ", a, " and ", b,
                           ".");
  }
  if (result.initial_.kind == InitialValue::Kind::kUniform && b < a) {
    return InvalidArgument(
        "initializer 'uniform' must have minval <= maxval, got ", a, " and ", b,
        ".");
  }
  if (result.initial_.kind != InitialValue::Kind::kConstant &&
      result.initial_.kind != InitialValue::Kind::kUniform && b < 0) {
    return InvalidArgument("initializer '", kind,
                           "' must have a non-negative stddev, got ", b, ".");
  }
  result.SetSeed(seed, salt);
  *out = result;
  return Status();
}

void RowInitializer::SetSeed(int64_t seed, int64_t salt) {
  seed_ = seed;
  salt_ = salt;
  const uint64_t key = InitialValue::KeyOf(seed, salt);
  // Atomic because a lookup may draw while a restored table sets its seed.
  __atomic_store_n(&initial_.key, key, __ATOMIC_RELAXED);
}

template <typename T>
void RowInitializer::DrawColumns(int64_t id, int first, int count,
                                 T* columns) const {
  if (initial_.kind == InitialValue::Kind::kConstant) {
    std::fill_n(columns, count, RoundTo<T>(initial_.a));
    return;
  }
  const InitialValue initial = value();
  const uint64_t base = initial.BaseOf(id);
  for (int c = 0; c < count; ++c) {
    columns[c] = RoundTo<T>(initial.Draw(base, first + c));
  }
}

RowInitializer OfSharedRows(const RowInitializer& initializer) {
  constexpr int64_t kSalt = 0x5368617265643a29;
  RowInitializer result = initializer;
  result.SetSeed(initializer.seed(), initializer.salt() ^ kSalt);
  return result;
}

template void RowInitializer::DrawColumns(int64_t, int, int, float*) const;
template void RowInitializer::DrawColumns(int64_t, int, int, Float16*) const;
template void RowInitializer::DrawColumns(int64_t, int, int, BFloat16*) const;

}  // namespace lodestar
