// Helpers for the kernels of embedding collections: features, given as
// attributes, and their tensors.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_collection_counters.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"

namespace lodestar {

// Features of an op. In addition to CollectionFeature, tells which features
// have row_splits, weights and winners; the input lists contain only those.
class CollectionAttributes {
 public:
  absl::Status Init(OpKernelConstruction* ctx) {
    LODESTAR_TRY(ctx->GetAttr("T", &num_tables_));
    int num_features = 0;
    LODESTAR_TRY(ctx->GetAttr("F", &num_features));
    features_.resize(num_features);
    std::vector<std::string> names, combiners;
    std::vector<int64_t> tables, salts, padding_ids, default_ids, max_lengths;
    std::vector<bool> salted, use_padding, use_default;
    LODESTAR_TRY(ReadList(ctx, "names", &names));
    LODESTAR_TRY(ReadList(ctx, "tables", &tables));
    LODESTAR_TRY(ReadList(ctx, "combiners", &combiners));
    LODESTAR_TRY(ReadList(ctx, "ragged", &ragged_));
    LODESTAR_TRY(ReadList(ctx, "weighted", &weighted_));
    LODESTAR_TRY(ReadList(ctx, "salted", &salted));
    LODESTAR_TRY(ReadList(ctx, "salts", &salts));
    LODESTAR_TRY(ReadList(ctx, "use_padding", &use_padding));
    LODESTAR_TRY(ReadList(ctx, "padding_ids", &padding_ids));
    LODESTAR_TRY(ReadList(ctx, "use_default", &use_default));
    LODESTAR_TRY(ReadList(ctx, "default_ids", &default_ids));
    LODESTAR_TRY(ReadList(ctx, "max_lengths", &max_lengths));
    for (int f = 0; f < num_features; ++f) {
      CollectionFeature& feature = features_[f];
      feature.name = names[f];
      feature.table = tables[f];
      feature.pooled = !combiners[f].empty();
      if (feature.pooled) {
        LODESTAR_TRY(ParseCombiner(combiners[f], &feature.combiner));
      }
      if (salted[f]) feature.salt = salts[f];
      if (use_padding[f]) feature.padding_id = padding_ids[f];
      if (use_default[f]) feature.default_id = default_ids[f];
      feature.max_length = max_lengths[f];
      if (feature.table < 0 || feature.table >= num_tables_) {
        return InvalidArgumentError("feature '", feature.name,
                                    "' must have a table in [0, ", num_tables_,
                                    "), got ", feature.table, ".");
      }
      if (!feature.pooled && (ragged_[f] || weighted_[f])) {
        return InvalidArgumentError(
            "feature '", feature.name,
            "' has row_splits or weights, but no combiner.");
      }
    }
    int num_ragged = 0;
    int num_weighted = 0;
    LODESTAR_TRY(ctx->GetAttr("R", &num_ragged));
    LODESTAR_TRY(ctx->GetAttr("W", &num_weighted));
    LODESTAR_TRY(CheckCount("ragged", ragged_, "R", num_ragged));
    LODESTAR_TRY(CheckCount("weighted", weighted_, "W", num_weighted));
    return ctx->HasAttr("table_dtypes") ? ReadDtypes(ctx) : absl::OkStatus();
  }

  // Returns InvalidArgument unless attribute M is the number of max features.
  absl::Status CheckWinners(OpKernelConstruction* ctx) const {
    int num_winners = 0;
    LODESTAR_TRY(ctx->GetAttr("M", &num_winners));
    std::vector<bool> max;
    for (size_t f = 0; f < features_.size(); ++f) max.push_back(is_max(f));
    return CheckCount("combiners", max, "M", num_winners);
  }

  int num_tables() const { return num_tables_; }
  const std::vector<CollectionFeature>& features() const { return features_; }
  DataType dtype(int f) const { return table_dtypes_[features_[f].table]; }
  bool weighted(int f) const { return weighted_[f]; }
  bool is_max(int f) const {
    return features_[f].pooled && features_[f].combiner == Combiner::kMax;
  }

  template <typename T>
  absl::Status ReadList(OpKernelConstruction* ctx, const char* name,
                        std::vector<T>* list) const {
    LODESTAR_TRY(ctx->GetAttr(name, list));
    if (list->size() == features_.size()) return absl::OkStatus();
    return InvalidArgumentError("`", name, "` has ", list->size(),
                                " items, but there are ", features_.size(),
                                " features.");
  }

 private:
  friend class CollectionInputs;
  template <typename Resource>
  friend class CollectionStores;

  // For ops with rows.
  absl::Status ReadDtypes(OpKernelConstruction* ctx) {
    std::vector<DataType> dtypes;
    LODESTAR_TRY(ReadList(ctx, "feature_dtypes", &dtypes));
    LODESTAR_TRY(ctx->GetAttr("table_dtypes", &table_dtypes_));
    if (static_cast<int>(table_dtypes_.size()) != num_tables_) {
      return InvalidArgumentError("`table_dtypes` has ", table_dtypes_.size(),
                                  " items, but there are ", num_tables_,
                                  " tables.");
    }
    for (size_t f = 0; f < features_.size(); ++f) {
      if (dtypes[f] == dtype(f)) continue;
      return InvalidArgumentError(
          "feature '", features_[f].name, "' is ", NameOf(RowTypeOf(dtypes[f])),
          " in `feature_dtypes`, but its table is ",
          NameOf(RowTypeOf(dtype(f))), " in `table_dtypes`.");
    }
    return absl::OkStatus();
  }
  static absl::Status CheckCount(const char* name,
                                 const std::vector<bool>& flags,
                                 const char* attribute, int wanted) {
    int count = 0;
    for (bool flag : flags) count += flag;
    if (count == wanted) return absl::OkStatus();
    return InvalidArgumentError("`", name, "` lists ", count, " features, but ",
                                attribute, " is ", wanted, ".");
  }

  int num_tables_ = 0;
  std::vector<DataType> table_dtypes_;
  std::vector<CollectionFeature> features_;
  std::vector<bool> ragged_;
  std::vector<bool> weighted_;
};

// The inputs ids, row_splits and weights of an op.
class CollectionInputs {
 public:
  // Returns InvalidArgument with the name of the feature for wrong ranks or
  // weights not shaped like ids.
  absl::Status Init(OpKernelContext* ctx,
                    const CollectionAttributes& attributes) {
    OpInputList ids, row_splits, weights;
    LODESTAR_TRY(ctx->input_list("ids", &ids));
    LODESTAR_TRY(ctx->input_list("row_splits", &row_splits));
    LODESTAR_TRY(ctx->input_list("weights", &weights));
    const int num_features = static_cast<int>(attributes.features_.size());
    tensors_.resize(num_features);
    leads_.resize(num_features);
    uniform_splits_.resize(num_features);
    int next_splits = 0;
    int next_weights = 0;
    for (int f = 0; f < num_features; ++f) {
      const bool ragged = attributes.ragged_[f];
      const bool weighted = attributes.weighted_[f];
      const CollectionFeature& feature = attributes.features_[f];
      LODESTAR_TRY(InFeature(
          feature, InitFeature(ctx, f, feature.pooled, ids[f],
                               ragged ? &row_splits[next_splits] : nullptr,
                               weighted ? &weights[next_weights] : nullptr)));
      next_splits += ragged;
      next_weights += weighted;
    }
    return absl::OkStatus();
  }

  const std::vector<FeatureTensors>& tensors() const { return tensors_; }
  // Sets the row read by a feature's empty bags, for fetched rows.
  void set_default_row(int f, const void* row) {
    tensors_[f].default_row = row;
  }
  // Shape of a feature's rows without the last axis.
  const TensorShape& lead(int f) const { return leads_[f]; }

 private:
  // row_splits and weights may be null.
  absl::Status InitFeature(OpKernelContext* ctx, int f, bool pooled,
                           const Tensor& ids, const Tensor* row_splits,
                           const Tensor* weights) {
    FeatureTensors& tensors = tensors_[f];
    tensors.ids = FlatSpan<int64_t>(ids);
    leads_[f] = ids.shape();
    if (row_splits != nullptr) {
      LODESTAR_TRY(CheckRank(ids, "ids", 1));
      LODESTAR_TRY(CheckRank(*row_splits, "row_splits", 1));
      tensors.row_splits = FlatSpan<int64_t>(*row_splits);
      if (tensors.row_splits.empty()) {
        return InvalidArgumentError(
            "`row_splits` must have B + 1 elements, got none.");
      }
      leads_[f] = TensorShape({tensors.row_splits.size() - 1});
    } else if (pooled) {
      if (ids.dims() == 0) {
        return InvalidArgumentError(
            "`ids` is a scalar, but a combiner needs a last axis to pool.");
      }
      const int64_t length = ids.dim_size(ids.dims() - 1);
      leads_[f].RemoveLastDims(1);
      const int64_t bags = leads_[f].num_elements();
      if (bags == std::numeric_limits<int64_t>::max()) {
        return InvalidArgumentError("`ids` has shape ",
                                    ids.shape().DebugString(),
                                    ", which gives too many bags.");
      }
      Tensor& splits = uniform_splits_[f];
      tensorflow::AllocatorAttributes on_host;
      on_host.set_on_host(true);
      LODESTAR_TRY(ctx->allocate_temp(tensorflow::DT_INT64, {bags + 1}, &splits,
                                      on_host));
      auto offsets = splits.vec<int64_t>();
      for (int64_t b = 0; b < offsets.size(); ++b) offsets(b) = b * length;
      tensors.row_splits =
          FlatSpan<int64_t>(static_cast<const Tensor&>(splits));
    }
    if (weights == nullptr) return absl::OkStatus();
    if (weights->shape() != ids.shape()) {
      return InvalidArgumentError(
          "`weights` has shape ", weights->shape().DebugString(),
          ", but `ids` has shape ", ids.shape().DebugString(), ".");
    }
    tensors.weights = FlatSpan<float>(*weights);
    return absl::OkStatus();
  }

  std::vector<FeatureTensors> tensors_;
  std::vector<TensorShape> leads_;
  std::vector<Tensor> uniform_splits_;
};

// Reads attribute `missing`, with one item per table.
inline absl::Status ReadMissingKinds(OpKernelConstruction* ctx, int num_tables,
                                     std::vector<std::string>* missing) {
  LODESTAR_TRY(ctx->GetAttr("missing", missing));
  if (static_cast<int>(missing->size()) == num_tables) return absl::OkStatus();
  return InvalidArgumentError("`missing` has ", missing->size(),
                              " items, but there are ", num_tables, " tables.");
}

// Tables of an op: inputs handles and missing_rows, attribute missing. Keeps
// their stores alive.
template <typename Store>
class CollectionStores {
 public:
  // Returns InvalidArgument if a table's dtype differs from the op's or a table
  // is repeated.
  absl::Status Init(OpKernelContext* ctx,
                    const CollectionAttributes& attributes,
                    const std::vector<std::string>& missing) {
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
      LODESTAR_TRY(CheckDtype(attributes.table_dtypes_[t], "table_dtypes",
                              stores_[t]->type()));
      LODESTAR_TRY(ReadMissing(ParseMissing(missing[t]), missing_rows[t],
                               dims_[t], &missing_[t]));
    }
    for (int t = 0; t < handles.size(); ++t) {
      for (int u = 0; u < t; ++u) {
        if (stores_[u] != stores_[t]) continue;
        return InvalidArgumentError("`handles[", u, "]` and `handles[", t,
                                    "]` are the same table.");
      }
    }
    return absl::OkStatus();
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

// Tables in host memory, for CollectionBatch.
class CollectionTables : public CollectionStores<EmbeddingStore> {
 public:
  absl::Status Init(OpKernelContext* ctx,
                    const CollectionAttributes& attributes,
                    const std::vector<std::string>& missing) {
    LODESTAR_TRY(CollectionStores::Init(ctx, attributes, missing));
    tables_.resize(dims().size());
    for (size_t t = 0; t < tables_.size(); ++t) {
      tables_[t].reads = {store(t), this->missing(t)};
    }
    return absl::OkStatus();
  }

  std::vector<CollectionBatch::Table>& tables() { return tables_; }

 private:
  std::vector<CollectionBatch::Table> tables_;
};

// Returns InvalidArgument unless table t has one position per id of `batch`.
inline absl::Status CheckNumPositions(const CollectionBatch& batch, int t,
                                      int64_t num_positions) {
  if (num_positions == batch.num_ids(t)) return absl::OkStatus();
  return InvalidArgumentError("`positions[", t, "]` has ", num_positions,
                              " elements, but the features have ",
                              batch.num_ids(t), " ids.");
}

// Returns InvalidArgument unless table t has one position per id of `batch`,
// each kNoPosition or in [0, num_unique).
inline absl::Status CheckTablePositions(const CollectionBatch& batch, int t,
                                        Span<const int64_t> positions,
                                        int64_t num_unique) {
  LODESTAR_TRY(CheckNumPositions(batch, t, positions.size()));
  return CheckPositions(positions, num_unique);
}

// Tables of an op on fetched rows: inputs rows and positions.
class FetchedTables {
 public:
  // Returns InvalidArgument for wrong ranks and for rows without a table.
  absl::Status Init(OpKernelContext* ctx) {
    OpInputList rows, positions;
    LODESTAR_TRY(ctx->input_list("rows", &rows));
    LODESTAR_TRY(ctx->input_list("positions", &positions));
    for (int t = 0; t < rows.size(); ++t) {
      LODESTAR_TRY(CheckRank(rows[t], "rows", 2));
      LODESTAR_TRY(CheckRank(positions[t], "positions", 1));
      const int64_t dim = rows[t].dim_size(1);
      if (dim < 1 || dim > kMaxDim) {
        return InvalidArgumentError("`rows[", t,
                                    "]` must have a last axis in [1, ", kMaxDim,
                                    "], got ", dim, ".");
      }
      CollectionBatch::Table table;
      table.has_rows = true;
      table.positions = FlatSpan<int64_t>(positions[t]);
      table.fetched = {RowTypeOf(rows[t].dtype()), static_cast<int>(dim),
                       RowData(rows[t]), rows[t].dim_size(0)};
      tables_.push_back(table);
      dims_.push_back(table.fetched.dim);
    }
    return absl::OkStatus();
  }

  const std::vector<CollectionBatch::Table>& tables() const { return tables_; }
  const std::vector<int>& dims() const { return dims_; }

 private:
  std::vector<CollectionBatch::Table> tables_;
  std::vector<int> dims_;
};

// Finds the counters with input `handle` for the op's features.
template <typename Counters>
absl::Status FindCounters(OpKernelContext* ctx,
                          const CollectionAttributes& attributes,
                          const Tensor& handle,
                          tensorflow::core::RefCountPtr<Counters>* counters) {
  LODESTAR_TRY(CheckRank(handle, "counters", 0));
  LODESTAR_TRY(FindResource(ctx, handle, counters));
  const int64_t num_features =
      static_cast<int64_t>(attributes.features().size());
  if ((*counters)->num_features() == num_features) return absl::OkStatus();
  return InvalidArgumentError("`counters` must count ", num_features,
                              " features, got ", (*counters)->num_features(),
                              ".");
}

// CheckTablePositions for tables whose rows were fetched.
inline absl::Status CheckFetched(
    const CollectionBatch& batch,
    const std::vector<CollectionBatch::Table>& tables) {
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!tables[t].has_rows) continue;
    LODESTAR_TRY(CheckTablePositions(batch, t, tables[t].positions,
                                     tables[t].fetched.size));
  }
  return absl::OkStatus();
}

// Allocates output `output` for the rows of all features, and the winners.
// dims: of the tables.
inline absl::Status AllocateRowsAndWinners(
    OpKernelContext* ctx, const CollectionAttributes& attributes,
    const CollectionInputs& inputs, const char* output,
    const std::vector<int>& dims, std::vector<void*>* rows,
    std::vector<int64_t*>* winners) {
  OpOutputList row_list;
  OpOutputList winner_list;
  LODESTAR_TRY(ctx->output_list(output, &row_list));
  LODESTAR_TRY(ctx->output_list("winners", &winner_list));
  int next_winners = 0;
  for (size_t f = 0; f < attributes.features().size(); ++f) {
    TensorShape shape = inputs.lead(f);
    LODESTAR_TRY(shape.AddDimWithStatus(dims[attributes.features()[f].table]));
    Tensor* tensor = nullptr;
    LODESTAR_TRY(row_list.allocate(f, shape, &tensor));
    rows->push_back(RowData(tensor));
    winners->push_back(nullptr);
    if (!attributes.is_max(f)) continue;
    LODESTAR_TRY(winner_list.allocate(next_winners++, shape, &tensor));
    winners->back() = tensor->flat<int64_t>().data();
  }
  return absl::OkStatus();
}

// Checks that `tensor`, of input `name`, has the shape of a feature's rows.
inline absl::Status CheckLikeRows(const CollectionFeature& feature,
                                  const char* name, const Tensor& tensor,
                                  TensorShape lead, int dim) {
  LODESTAR_TRY(lead.AddDimWithStatus(dim));
  if (tensor.shape() == lead) return absl::OkStatus();
  return InFeature(
      feature,
      InvalidArgumentError("`", name, "` must have shape ", lead.DebugString(),
                           ", got ", tensor.shape().DebugString(), "."));
}

inline absl::Status ReadGradients(OpKernelContext* ctx,
                                  const CollectionAttributes& attributes,
                                  const CollectionInputs& inputs,
                                  const std::vector<int>& dims,
                                  std::vector<const void*>* gradients) {
  OpInputList list;
  LODESTAR_TRY(ctx->input_list("gradients", &list));
  for (int f = 0; f < list.size(); ++f) {
    const CollectionFeature& feature = attributes.features()[f];
    LODESTAR_TRY(CheckLikeRows(feature, "gradients", list[f], inputs.lead(f),
                               dims[feature.table]));
    gradients->push_back(RowData(list[f]));
  }
  return absl::OkStatus();
}

// Attributes of EmbeddingCollectionGradient and its inputs gradients and
// winners.
class CollectionGradientAttributes : public CollectionAttributes {
 public:
  absl::Status Init(OpKernelConstruction* ctx) {
    LODESTAR_TRY(CollectionAttributes::Init(ctx));
    LODESTAR_TRY(CheckWinners(ctx));
    LODESTAR_TRY(ctx->GetAttr("deduplicated", &deduplicated_));
    std::vector<int32_t> dims;
    LODESTAR_TRY(ctx->GetAttr("dims", &dims));
    dims_.assign(dims.begin(), dims.end());
    for (int dim : dims_) {
      if (dim >= 1 && dim <= kMaxDim) continue;
      return InvalidArgumentError("`dims` must be in [1, ", kMaxDim, "], got ",
                                  dim, ".");
    }
    if (static_cast<int>(dims_.size()) == num_tables()) return absl::OkStatus();
    return InvalidArgumentError("`dims` has ", dims_.size(),
                                " items, but there are ", num_tables(),
                                " tables.");
  }

  const std::vector<int>& dims() const { return dims_; }
  bool deduplicated() const { return deduplicated_; }

  absl::Status ReadWinners(OpKernelContext* ctx, const CollectionInputs& inputs,
                           std::vector<const int64_t*>* winners) const {
    OpInputList list;
    LODESTAR_TRY(ctx->input_list("winners", &list));
    int next = 0;
    for (size_t f = 0; f < features().size(); ++f) {
      winners->push_back(nullptr);
      if (!is_max(f)) continue;
      const Tensor& tensor = list[next++];
      LODESTAR_TRY(CheckLikeRows(features()[f], "winners", tensor,
                                 inputs.lead(f), dims_[features()[f].table]));
      winners->back() = tensor.flat<int64_t>().data();
    }
    return absl::OkStatus();
  }

 private:
  std::vector<int> dims_;
  bool deduplicated_ = false;
};

// Computes output weight_gradients from inputs gradients, ids, row_splits and
// weights.
inline absl::Status OutputWeightGradients(
    OpKernelContext* ctx, const CollectionAttributes& attributes,
    const std::vector<CollectionBatch::Table>& tables) {
  std::vector<int> dims;
  for (const CollectionBatch::Table& table : tables) {
    dims.push_back(table.dim());
  }
  CollectionInputs inputs;
  LODESTAR_TRY(inputs.Init(ctx, attributes));
  std::vector<const void*> gradients;
  LODESTAR_TRY(ReadGradients(ctx, attributes, inputs, dims, &gradients));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  CollectionBatch batch;
  LODESTAR_TRY(batch.Init(attributes.features(), inputs.tensors(),
                          attributes.num_tables(), CollectionBatch::Ids::kRead,
                          &parallel));
  LODESTAR_TRY(CheckFetched(batch, tables));
  OpInputList weights;
  OpOutputList outputs;
  LODESTAR_TRY(ctx->input_list("weights", &weights));
  LODESTAR_TRY(ctx->output_list("weight_gradients", &outputs));
  std::vector<float*> weight_gradients;
  int next = 0;
  for (size_t f = 0; f < attributes.features().size(); ++f) {
    weight_gradients.push_back(nullptr);
    if (!attributes.weighted(f)) continue;
    Tensor* output = nullptr;
    LODESTAR_TRY(outputs.allocate(next, weights[next].shape(), &output));
    ++next;
    weight_gradients.back() = output->flat<float>().data();
  }
  batch.WeightGradients(tables, gradients, weight_gradients, &parallel);
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_UTIL_H_
