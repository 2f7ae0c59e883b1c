// Reads the attributes for initialization, admission, eviction, rounding and
// storage of a table.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_POLICIES_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_POLICIES_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/kernels/base/kernel.h"

namespace lodestar {

inline absl::Status ReadInitializer(tensorflow::OpKernelConstruction* ctx,
                                    RowInitializer* initializer) {
  std::string kind;
  float a = 0.0f;
  float b = 0.0f;
  int64_t seed = 0;
  int64_t salt = 0;
  LODESTAR_TRY(ctx->GetAttr("initializer", &kind));
  LODESTAR_TRY(ctx->GetAttr("initializer_a", &a));
  LODESTAR_TRY(ctx->GetAttr("initializer_b", &b));
  LODESTAR_TRY(ctx->GetAttr("seed", &seed));
  LODESTAR_TRY(ctx->GetAttr("init_salt", &salt));
  return ToTensorFlow(
      RowInitializer::Create(kind, a, b, seed, salt, initializer));
}

inline absl::Status ReadAdmission(tensorflow::OpKernelConstruction* ctx,
                                  AdmissionPolicy* policy) {
  std::string kind;
  LODESTAR_TRY(ctx->GetAttr("admission", &kind));
  policy->kind = kind == "min_count" ? AdmissionPolicy::Kind::kMinCount
                 : kind == "counting_bloom"
                     ? AdmissionPolicy::Kind::kCountingBloom
                     : AdmissionPolicy::Kind::kAll;
  LODESTAR_TRY(ctx->GetAttr("min_count", &policy->min_count));
  LODESTAR_TRY(ctx->GetAttr("count_occurrences", &policy->count_occurrences));
  LODESTAR_TRY(ctx->GetAttr("num_counters", &policy->num_counters));
  return ctx->GetAttr("num_hashes", &policy->num_hashes);
}

inline absl::Status ReadEviction(tensorflow::OpKernelConstruction* ctx,
                                 EvictionPolicy* policy) {
  std::string order;
  LODESTAR_TRY(ctx->GetAttr("max_rows_policy", &order));
  policy->order = order == "lfu" ? EvictionPolicy::Order::kLfu
                                 : EvictionPolicy::Order::kLru;
  LODESTAR_TRY(ctx->GetAttr("max_rows", &policy->max_rows));
  LODESTAR_TRY(ctx->GetAttr("max_age", &policy->max_age));
  LODESTAR_TRY(ctx->GetAttr("min_norm", &policy->min_norm));
  return ctx->GetAttr("min_frequency", &policy->min_frequency);
}

// The attributes that only a table's own policy has.
inline absl::Status ReadOwnEviction(tensorflow::OpKernelConstruction* ctx,
                                    EvictionPolicy* policy) {
  LODESTAR_TRY(ReadEviction(ctx, policy));
  std::string when_full;
  LODESTAR_TRY(ctx->GetAttr("when_full", &when_full));
  policy->raise_when_full = when_full == "raise";
  LODESTAR_TRY(ctx->GetAttr("min_norm_every", &policy->min_norm_every));
  return ctx->GetAttr("min_frequency_every", &policy->min_frequency_every);
}

inline absl::Status ReadRounding(tensorflow::OpKernelConstruction* ctx,
                                 RowType type, bool* stochastic) {
  std::string rounding;
  LODESTAR_TRY(ctx->GetAttr("rounding", &rounding));
  *stochastic = rounding == "stochastic";
  if (!*stochastic || SizeOf(type) == 2) return absl::OkStatus();
  return InvalidArgumentError(
      "`rounding` is 'stochastic', but the rows are ", NameOf(type),
      ". Only float16 and bfloat16 rows are rounded stochastically.");
}

inline absl::Status ReadStorage(tensorflow::OpKernelConstruction* ctx,
                                RowType type, RowStorage* storage) {
  std::string stored_as;
  LODESTAR_TRY(ctx->GetAttr("stored_as", &stored_as));
  for (const RowStorage kind :
       {RowStorage::kFloat16, RowStorage::kBFloat16, RowStorage::kInt8}) {
    if (stored_as == NameOf(kind)) *storage = kind;
  }
  if (*storage == RowStorage::kSame || SizeOf(type) > SizeOf(*storage)) {
    return absl::OkStatus();
  }
  return InvalidArgumentError("`stored_as` is '", stored_as,
                              "', but the rows are ", NameOf(type),
                              ", which is no larger.");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_POLICIES_H_
