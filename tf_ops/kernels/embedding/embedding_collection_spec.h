// The specification of a collection op, parsed from its attributes, and the
// inputs and outputs that these ops have in common. Shared by CPU and GPU
// kernels.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_SPEC_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_SPEC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"

namespace lodestar {

// The attributes of an op. Those that it lacks keep their default values.
struct CollectionSpec {
  // Returns InvalidArgument if the attributes contradict each other.
  absl::Status Init(OpKernelConstruction* ctx);

  int num_features() const { return static_cast<int>(features.size()); }
  int table(int f) const { return static_cast<int>(features[f].table); }
  DataType dtype(int f) const { return table_dtypes[table(f)]; }
  bool is_max(int f) const {
    return features[f].pooled && features[f].combiner == Combiner::kMax;
  }
  // Whether a lookup inserts or counts ids.
  bool training() const { return lookup.insert || lookup.count_frequency; }

  int num_tables = 0;
  std::vector<CollectionFeature> features;
  // By feature. Inputs row_splits and weights have only the features that are
  // true here.
  std::vector<bool> ragged;
  std::vector<bool> weighted;
  std::vector<DataType> table_dtypes;  // ops with rows
  std::vector<Missing::Kind> missing;  // by table
  LookupOptions lookup;
  std::vector<int> dims;  // by table
  bool deduplicated = false;
  int64_t num_parts = 1;

 private:
  absl::Status InitFeatures(OpKernelConstruction* ctx);
  absl::Status InitDtypes(OpKernelConstruction* ctx);
  absl::Status InitTables(OpKernelConstruction* ctx);
  absl::Status InitParts(OpKernelConstruction* ctx);
};

// Base of the kernels of ops with features.
class CollectionKernel : public Kernel {
 public:
  explicit CollectionKernel(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, spec_.Init(ctx));
  }

 protected:
  CollectionSpec spec_;
};

// Inputs ids, row_splits and weights, and the tensors with the rows of their
// features. `dims` are those of the tables.
class CollectionInputs {
 public:
  // Returns InvalidArgument with the name of the feature for wrong ranks or
  // weights not shaped like ids. `spec` must outlive this object.
  absl::Status Init(OpKernelContext* ctx, const CollectionSpec& spec);

  const std::vector<FeatureTensors>& tensors() const { return tensors_; }
  // This object must outlive the batch.
  absl::Status MakeBatch(CollectionBatch::Ids ids, const ParallelFor* parallel,
                         CollectionBatch* batch) const;

  // Reads input default_rows into tensors(): the rows of empty bags, for
  // fetched rows.
  absl::Status ReadDefaultRows(OpKernelContext* ctx,
                               const std::vector<int>& dims);
  // By feature; null for the winners of features without max.
  absl::Status ReadGradients(OpKernelContext* ctx, const std::vector<int>& dims,
                             std::vector<const void*>* gradients) const;
  absl::Status ReadWinners(OpKernelContext* ctx, const std::vector<int>& dims,
                           std::vector<const int64_t*>* winners) const;

  // Allocates output `output` for the rows, and the winners.
  absl::Status AllocateRowsAndWinners(OpKernelContext* ctx, const char* output,
                                      const std::vector<int>& dims,
                                      std::vector<void*>* rows,
                                      std::vector<int64_t*>* winners) const;

 private:
  // row_splits and weights may be null.
  absl::Status InitFeature(OpKernelContext* ctx, int f, const Tensor& ids,
                           const Tensor* row_splits, const Tensor* weights);
  absl::Status RowsShape(int f, const std::vector<int>& dims,
                         TensorShape* shape) const;
  // Checks that `tensor`, of input `name`, has the shape of a feature's rows.
  absl::Status CheckLikeRows(int f, const char* name,
                             const std::vector<int>& dims,
                             const Tensor& tensor) const;

  const CollectionSpec* spec_ = nullptr;
  std::vector<FeatureTensors> tensors_;
  // Shapes of the features' rows without the last axis.
  std::vector<TensorShape> leads_;
  std::vector<Tensor> uniform_splits_;
};

// Reads a list of vectors, one per table.
absl::Status ReadVectors(OpKernelContext* ctx, const char* name,
                         OpInputList* list);

// Return InvalidArgument unless table t has one position per id of `batch`, and
// also each is kNoPosition or in [0, num_unique), respectively.
absl::Status CheckNumPositions(const CollectionBatch& batch, int t,
                               int64_t num_positions);
absl::Status CheckTablePositions(const CollectionBatch& batch, int t,
                                 Span<const int64_t> positions,
                                 int64_t num_unique);
// CheckTablePositions for tables whose rows were fetched.
absl::Status CheckFetched(const CollectionBatch& batch,
                          const std::vector<CollectionBatch::Table>& tables);

// Reads the tables of an op on fetched rows: inputs rows and positions.
absl::Status ReadFetchedTables(OpKernelContext* ctx,
                               std::vector<CollectionBatch::Table>* tables);

// Returns InvalidArgument unless inputs hooks and unique_ids match fetched
// rows.
absl::Status CheckHooksAndIds(
    OpKernelContext* ctx, const std::vector<CollectionBatch::Table>& tables);

std::vector<int> DimsOf(const std::vector<CollectionBatch::Table>& tables);

// Tables of an op: inputs handles and missing_rows. Keeps their stores alive.
template <typename Store>
class CollectionStores {
 public:
  // Returns InvalidArgument if a table's dtype differs from the op's or a table
  // is repeated.
  absl::Status Init(OpKernelContext* ctx, const CollectionSpec& spec) {
    OpInputList handles, missing_rows;
    LODESTAR_TRY(ctx->input_list("handles", &handles));
    LODESTAR_TRY(ctx->input_list("missing_rows", &missing_rows));
    stores_.resize(handles.size());
    missing_.resize(handles.size());
    for (int t = 0; t < handles.size(); ++t) {
      LODESTAR_TRY(CheckRank(handles[t], "handles", 0));
      tensorflow::core::RefCountPtr<EmbeddingResource> resource;
      LODESTAR_TRY(FindResource(ctx, handles[t], &resource));
      LODESTAR_TRY(resource->GetStore(&stores_[t]));
      dims_.push_back(stores_[t]->dim());
      LODESTAR_TRY(
          CheckDtype(spec.table_dtypes[t], "table_dtypes", stores_[t]->type()));
      LODESTAR_TRY(ReadMissing(spec.missing[t], missing_rows[t], dims_[t],
                               &missing_[t]));
    }
    return CheckDifferent(stores_);
  }

  // Returns InvalidArgument unless input hooks matches these tables.
  absl::Status CheckHooks(OpKernelContext* ctx) const {
    OpInputList hooks;
    LODESTAR_TRY(ctx->input_list("hooks", &hooks));
    for (int t = 0; t < hooks.size(); ++t) {
      LODESTAR_TRY(CheckHook(hooks[t], *stores_[t]));
    }
    return absl::OkStatus();
  }

  Store* store(int t) const { return stores_[t].get(); }
  const Missing& missing(int t) const { return missing_[t]; }
  const std::vector<int>& dims() const { return dims_; }

 private:
  std::vector<std::shared_ptr<Store>> stores_;
  std::vector<Missing> missing_;
  std::vector<int> dims_;
};

// Finds the counters of input `counters`; null if the list is empty.
template <typename Counters>
absl::Status FindCounters(OpKernelContext* ctx, const CollectionSpec& spec,
                          tensorflow::core::RefCountPtr<Counters>* counters) {
  OpInputList handles;
  LODESTAR_TRY(ctx->input_list("counters", &handles));
  if (handles.size() == 0) return absl::OkStatus();
  LODESTAR_TRY(CheckRank(handles[0], "counters", 0));
  LODESTAR_TRY(FindResource(ctx, handles[0], counters));
  if ((*counters)->num_features() == spec.num_features()) {
    return absl::OkStatus();
  }
  return InvalidArgumentError("`counters` must count ", spec.num_features(),
                              " features, got ", (*counters)->num_features(),
                              ".");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_SPEC_H_
