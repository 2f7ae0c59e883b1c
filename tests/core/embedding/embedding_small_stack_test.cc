// Updates on threads with small stacks, as other runtimes start them.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/core/testing/small_stack.h"
#include "tests/core/testing/stores.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

class EmbeddingSmallStackTest : public testing::TestWithParam<RowType> {};

// Adam's first step, with rate 1 and both moments half of their final value.
TEST_P(EmbeddingSmallStackTest, WideRowsAreMadeAndUpdated) {
  constexpr int kDim = 65536;
  for (const int64_t shared_rows : {0, 1}) {
    TablePolicies policies;
    policies.shared_rows = shared_rows;
    if (shared_rows > 0) {
      policies.admission.kind = AdmissionPolicy::Kind::kMinCount;
      policies.admission.min_count = 100;
    }
    const auto store =
        StoreOf(kDim, 1, InitializerOf("constant", 2, 0), policies, GetParam());
    const SparseOptimizer adam = OptimizerOf("adam", {1, 0, 0.5, 0.5, 0, 1});
    const std::vector<int64_t> ids = {5, 7};
    Status status;
    OnSmallStack([&] {
      const std::vector<float> gradients(ids.size() * kDim, 1);
      const std::vector<float> inits = {0, 0};
      status = store->Apply(ids, gradients.data(), "adam", adam, inits,
                            /*create_missing=*/true, EmbeddingStore::kSameStep,
                            nullptr);
    });
    ASSERT_TRUE(status.ok()) << status.message();
    Missing missing;
    missing.kind = Missing::Kind::kShared;
    VisitRowType(GetParam(), [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> rows(ids.size() * kDim);
      store->Find(ids, nullptr, missing, rows.data(), nullptr, nullptr);
      for (const T x : rows) {
        ASSERT_NEAR(ToCompute(x), 2 - std::sqrt(0.5), 0.01);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EmbeddingSmallStackTest,
                         testing::Values(RowType::kFloat32,
                                         RowType::kBFloat16));

}  // namespace
}  // namespace lodestar
