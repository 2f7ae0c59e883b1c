#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/lookup/bucket_hash.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

absl::Status CheckOffsets(Span<const int64_t> offsets, int64_t size) {
  if (offsets.size() == 0) {
    return InvalidArgumentError("`offsets` must have at least one element.");
  }
  for (int64_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i - 1] <= offsets[i]) continue;
    return InvalidArgumentError("`offsets` must not decrease, but offsets[",
                                i - 1, "] is ", offsets[i - 1], " and offsets[",
                                i, "] is ", offsets[i], ".");
  }
  const int64_t last = offsets.size() - 1;
  for (const int64_t i : {int64_t{0}, last}) {
    if (offsets[i] >= 0 && offsets[i] <= size) continue;
    return InvalidArgumentError("`offsets` must be in [0, ", size,
                                "], the size of `data`, but offsets[", i,
                                "] is ", offsets[i], ".");
  }
  return absl::OkStatus();
}

absl::Status RunHashText(OpKernelContext* ctx) {
  const Tensor& data = ctx->input(0);
  LODESTAR_TRY(CheckRank(data, "data", 1));
  LODESTAR_TRY(CheckRank(ctx->input(1), "offsets", 1));
  LODESTAR_TRY(CheckRank(ctx->input(2), "prefix", 0));
  const auto offsets = FlatSpan<int64_t>(ctx->input(1));
  LODESTAR_TRY(CheckOffsets(offsets, data.NumElements()));
  const tstring& prefix = ctx->input(2).scalar<tstring>()();
  const int64_t count = offsets.size() - 1;
  Tensor* output = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 0, {count}, &output));

  int64_t* const hashes = output->flat<int64_t>().data();
  const std::string_view bytes(data.tensor_data().data(), data.NumElements());
  const auto string_at = [&](int64_t i) {
    return bytes.substr(offsets[i], offsets[i + 1] - offsets[i]);
  };
  std::atomic<bool> is_out_of_memory{false};
  const auto hash = [&](int64_t begin, int64_t end) {
    if (prefix.empty()) {
      for (int64_t i = begin; i < end; ++i) {
        hashes[i] = static_cast<int64_t>(Fingerprint64(string_at(i)));
      }
      return;
    }
    try {
      std::string text(prefix.data(), prefix.size());
      for (int64_t i = begin; i < end; ++i) {
        text.resize(prefix.size());
        text.append(string_at(i));
        hashes[i] = static_cast<int64_t>(Fingerprint64(text));
      }
    } catch (const std::bad_alloc&) {
      is_out_of_memory = true;  // the body of a parallel loop must not throw
    }
  };
  // FarmHash takes about 10 ns plus 1 ns per 8 bytes.
  const int64_t total = offsets[count] - offsets[0];
  const int64_t length = total / std::max<int64_t>(1, count);
  const int64_t cost = 10 + (prefix.size() + length) / 8;
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  RunParallel(&parallel, count, cost, hash);
  if (is_out_of_memory) {
    return ToTensorFlow(ResourceExhausted("out of memory."));
  }
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(HashText);

}  // namespace
}  // namespace lodestar
