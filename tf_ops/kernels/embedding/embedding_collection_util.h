// What the kernels of the embedding collection share: the features, which are
// attributes, and their tensors.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/embedding/embedding_collection.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"

namespace lodestar {

// An error of a feature, with its name if it has one.
inline absl::Status InFeature(const CollectionFeature& feature,
                              const absl::Status& status) {
  if (status.ok() || feature.name.empty()) return status;
  return absl::Status(status.code(), StrCat("feature '", feature.name,
                                            "': ", status.message()));
}

// The features of an op. Beside CollectionFeature: which of them have
// row_splits, weights and winners, whose inputs are lists of only those.
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
    std::vector<DataType> dtypes;
    LODESTAR_TRY(ReadList(ctx, "feature_dtypes", &dtypes));
    LODESTAR_TRY(ctx->GetAttr("table_dtypes", &table_dtypes_));
    if (static_cast<int>(table_dtypes_.size()) != num_tables_) {
      return InvalidArgumentError("`table_dtypes` has ", table_dtypes_.size(),
                                  " items, but there are ", num_tables_,
                                  " tables");
    }
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
        return InvalidArgumentError("feature '", feature.name, "' has table ",
                                    feature.table, ", wanted 0 to ",
                                    num_tables_ - 1);
      }
      const DataType dtype = table_dtypes_[feature.table];
      if (dtypes[f] != dtype) {
        return InvalidArgumentError(
            "feature '", feature.name, "' is ", NameOf(RowTypeOf(dtypes[f])),
            " in `feature_dtypes`, but its table is ", NameOf(RowTypeOf(dtype)),
            " in `table_dtypes`");
      }
      if (!feature.pooled && (ragged_[f] || weighted_[f])) {
        return InvalidArgumentError(
            "feature '", feature.name,
            "' has row_splits or weights, but no combiner");
      }
    }
    int num_ragged = 0;
    int num_weighted = 0;
    LODESTAR_TRY(ctx->GetAttr("R", &num_ragged));
    LODESTAR_TRY(ctx->GetAttr("W", &num_weighted));
    LODESTAR_TRY(CheckCount("ragged", ragged_, "R", num_ragged));
    return CheckCount("weighted", weighted_, "W", num_weighted);
  }

  // InvalidArgument unless the attribute M is the number of max features.
  absl::Status CheckWinners(OpKernelConstruction* ctx) const {
    int num_winners = 0;
    LODESTAR_TRY(ctx->GetAttr("M", &num_winners));
    std::vector<bool> max;
    for (size_t f = 0; f < features_.size(); ++f) max.push_back(is_max(f));
    return CheckCount("combiners", max, "M", num_winners);
  }

  int num_tables() const { return num_tables_; }
  const std::vector<CollectionFeature>& features() const { return features_; }
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
                                " features");
  }

 private:
  friend class CollectionInputs;
  friend class CollectionTables;

  static absl::Status CheckCount(const char* name,
                                 const std::vector<bool>& flags,
                                 const char* attribute, int wanted) {
    int count = 0;
    for (bool flag : flags) count += flag;
    if (count == wanted) return absl::OkStatus();
    return InvalidArgumentError("`", name, "` names ", count, " features, but ",
                                attribute, " is ", wanted);
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
  // InvalidArgument, naming the feature: wrong ranks, weights not shaped as
  // ids.
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
  // The shape of a feature's rows without their last axis.
  const TensorShape& lead(int f) const { return leads_[f]; }

 private:
  // row_splits, weights: null where the feature has none.
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
            "`row_splits` is empty, wanted B + 1 offsets");
      }
      leads_[f] = TensorShape({tensors.row_splits.size() - 1});
    } else if (pooled) {
      if (ids.dims() == 0) {
        return InvalidArgumentError(
            "`ids` is a scalar; a combiner needs a last axis to pool");
      }
      const int64_t length = ids.dim_size(ids.dims() - 1);
      leads_[f].RemoveLastDims(1);
      const int64_t bags = leads_[f].num_elements();
      if (bags == std::numeric_limits<int64_t>::max()) {
        return InvalidArgumentError("`ids` has shape ",
                                    ids.shape().DebugString(),
                                    ", which makes too many bags");
      }
      Tensor& splits = uniform_splits_[f];
      LODESTAR_TRY(
          ctx->allocate_temp(tensorflow::DT_INT64, {bags + 1}, &splits));
      auto offsets = splits.vec<int64_t>();
      for (int64_t b = 0; b < offsets.size(); ++b) offsets(b) = b * length;
      tensors.row_splits =
          FlatSpan<int64_t>(static_cast<const Tensor&>(splits));
    }
    if (weights == nullptr) return absl::OkStatus();
    if (weights->shape() != ids.shape()) {
      return InvalidArgumentError(
          "`weights` has shape ", weights->shape().DebugString(),
          ", but `ids` has shape ", ids.shape().DebugString());
    }
    tensors.weights = FlatSpan<float>(*weights);
    return absl::OkStatus();
  }

  std::vector<FeatureTensors> tensors_;
  std::vector<TensorShape> leads_;
  std::vector<Tensor> uniform_splits_;
};

// The tables of an op: its inputs handles and missing_rows and its attribute
// missing. Their stores live at least as long as this.
class CollectionTables {
 public:
  // InvalidArgument: a table's dtype is not that of the op.
  absl::Status Init(OpKernelContext* ctx,
                    const CollectionAttributes& attributes,
                    const std::vector<std::string>& missing) {
    OpInputList handles, missing_rows;
    LODESTAR_TRY(ctx->input_list("handles", &handles));
    LODESTAR_TRY(ctx->input_list("missing_rows", &missing_rows));
    tables_.resize(handles.size());
    for (int t = 0; t < handles.size(); ++t) {
      LODESTAR_TRY(CheckRank(handles[t], "handles", 0));
      tensorflow::core::RefCountPtr<EmbeddingResource> resource;
      LODESTAR_TRY(FindResource(ctx, handles[t], &resource));
      stores_.push_back(resource->store());
      CollectionBatch::Table& table = tables_[t];
      table.store = store(t);
      LODESTAR_TRY(CheckDtype(attributes.table_dtypes_[t], "table_dtypes",
                              table.store->type()));
      LODESTAR_TRY(ReadMissing(ParseMissing(missing[t]), missing_rows[t],
                               table.store->dim(), &table.missing));
    }
    for (int t = 0; t < handles.size(); ++t) {
      for (int u = 0; u < t; ++u) {
        if (store(u) != store(t)) continue;
        return InvalidArgumentError("`handles[", u, "]` and `handles[", t,
                                    "]` are one table");
      }
    }
    return absl::OkStatus();
  }

  EmbeddingStore* store(int t) const { return stores_[t].get(); }
  std::vector<CollectionBatch::Table>& tables() { return tables_; }

 private:
  std::vector<std::shared_ptr<EmbeddingStore>> stores_;
  std::vector<CollectionBatch::Table> tables_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_UTIL_H_
