#include "tf_ops/kernels/embedding/embedding_collection_spec.h"

#include <algorithm>
#include <limits>
#include <string>

namespace lodestar {
namespace {

// Reads a list with one item for each of `count` features or tables (`of`).
template <typename T>
absl::Status ReadList(OpKernelConstruction* ctx, const char* name, int count,
                      const char* of, std::vector<T>* list) {
  LODESTAR_TRY(ctx->GetAttr(name, list));
  if (static_cast<int>(list->size()) == count) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` has ", list->size(),
                              " items, but there are ", count, " ", of, ".");
}

// Returns InvalidArgument unless `list` is true for the number of features in
// `attribute`.
absl::Status CheckCount(OpKernelConstruction* ctx, const char* attribute,
                        const char* name, const std::vector<bool>& list) {
  int wanted = 0;
  LODESTAR_TRY(ctx->GetAttr(attribute, &wanted));
  const int64_t count = std::count(list.begin(), list.end(), true);
  if (count == wanted) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` lists ", count, " features, but ",
                              attribute, " is ", wanted, ".");
}

absl::Status CheckShape(const CollectionFeature& feature, const char* name,
                        const Tensor& tensor, const TensorShape& wanted) {
  if (tensor.shape() == wanted) return absl::OkStatus();
  return InFeature(feature,
                   InvalidArgumentError("`", name, "` must have shape ",
                                        wanted.DebugString(), ", got ",
                                        tensor.shape().DebugString(), "."));
}

}  // namespace

absl::Status CollectionSpec::Init(OpKernelConstruction* ctx) {
  LODESTAR_TRY(ctx->GetAttr("T", &num_tables));
  LODESTAR_TRY(InitFeatures(ctx));
  if (ctx->HasAttr("table_dtypes")) LODESTAR_TRY(InitDtypes(ctx));
  if (ctx->HasAttr("M")) {
    std::vector<bool> max;
    for (int f = 0; f < num_features(); ++f) max.push_back(is_max(f));
    LODESTAR_TRY(CheckCount(ctx, "M", "combiners", max));
  }
  LODESTAR_TRY(InitTables(ctx));
  if (ctx->HasAttr("insert")) LODESTAR_TRY(ReadLookupOptions(ctx, &lookup));
  return ctx->HasAttr("num_parts") ? InitParts(ctx) : absl::OkStatus();
}

absl::Status CollectionSpec::InitFeatures(OpKernelConstruction* ctx) {
  int count = 0;
  LODESTAR_TRY(ctx->GetAttr("F", &count));
  features.resize(count);
  const auto read = [&](const char* name, auto* list) {
    return ReadList(ctx, name, count, "features", list);
  };
  std::vector<std::string> names, combiners;
  std::vector<int64_t> tables, salts, padding_ids, default_ids, max_lengths;
  std::vector<bool> salted, use_padding, use_default;
  LODESTAR_TRY(read("names", &names));
  LODESTAR_TRY(read("tables", &tables));
  LODESTAR_TRY(read("combiners", &combiners));
  LODESTAR_TRY(read("ragged", &ragged));
  LODESTAR_TRY(read("weighted", &weighted));
  LODESTAR_TRY(read("salted", &salted));
  LODESTAR_TRY(read("salts", &salts));
  LODESTAR_TRY(read("use_padding", &use_padding));
  LODESTAR_TRY(read("padding_ids", &padding_ids));
  LODESTAR_TRY(read("use_default", &use_default));
  LODESTAR_TRY(read("default_ids", &default_ids));
  LODESTAR_TRY(read("max_lengths", &max_lengths));
  for (int f = 0; f < count; ++f) {
    CollectionFeature& feature = features[f];
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
    if (feature.table < 0 || feature.table >= num_tables) {
      return InvalidArgumentError("feature '", feature.name,
                                  "' must have a table in [0, ", num_tables,
                                  "), got ", feature.table, ".");
    }
    if (!feature.pooled && (ragged[f] || weighted[f])) {
      return InvalidArgumentError(
          "feature '", feature.name,
          "' has row_splits or weights, but no combiner.");
    }
  }
  LODESTAR_TRY(CheckCount(ctx, "R", "ragged", ragged));
  return CheckCount(ctx, "W", "weighted", weighted);
}

absl::Status CollectionSpec::InitDtypes(OpKernelConstruction* ctx) {
  std::vector<DataType> dtypes, defaults, given;
  LODESTAR_TRY(
      ReadList(ctx, "feature_dtypes", num_features(), "features", &dtypes));
  LODESTAR_TRY(
      ReadList(ctx, "table_dtypes", num_tables, "tables", &table_dtypes));
  for (int f = 0; f < num_features(); ++f) {
    if (features[f].default_id.has_value()) defaults.push_back(dtype(f));
    if (dtypes[f] == dtype(f)) continue;
    return InvalidArgumentError(
        "feature '", features[f].name, "' is ", NameOf(RowTypeOf(dtypes[f])),
        " in `feature_dtypes`, but its table is ", NameOf(RowTypeOf(dtype(f))),
        " in `table_dtypes`.");
  }
  if (!ctx->HasAttr("default_dtypes")) return absl::OkStatus();
  LODESTAR_TRY(ctx->GetAttr("default_dtypes", &given));
  if (given == defaults) return absl::OkStatus();
  return InvalidArgumentError(
      "`default_rows` must have one row of its table's dtype for each of the ",
      defaults.size(), " features in `use_default`, got ", given.size(), ".");
}

absl::Status CollectionSpec::InitTables(OpKernelConstruction* ctx) {
  if (ctx->HasAttr("missing")) {
    std::vector<std::string> kinds;
    LODESTAR_TRY(ReadList(ctx, "missing", num_tables, "tables", &kinds));
    for (const std::string& kind : kinds) missing.push_back(ParseMissing(kind));
  }
  if (!ctx->HasAttr("dims")) return absl::OkStatus();
  LODESTAR_TRY(ctx->GetAttr("deduplicated", &deduplicated));
  LODESTAR_TRY(ReadList(ctx, "dims", num_tables, "tables", &dims));
  for (int dim : dims) {
    if (dim >= 1 && dim <= kMaxDim) continue;
    return InvalidArgumentError("`dims` must be in [1, ", kMaxDim, "], got ",
                                dim, ".");
  }
  return absl::OkStatus();
}

absl::Status CollectionSpec::InitParts(OpKernelConstruction* ctx) {
  int64_t num_outputs = 0;
  LODESTAR_TRY(ctx->GetAttr("num_parts", &num_parts));
  LODESTAR_TRY(ctx->GetAttr("N", &num_outputs));
  if (num_outputs != num_features() * num_parts) {
    return InvalidArgumentError("`N` must be ", num_parts, " parts x ",
                                num_features(), " features, got ", num_outputs,
                                ".");
  }
  for (int f = 0; f < num_features(); ++f) {
    const CollectionFeature& feature = features[f];
    if (feature.pooled && !is_max(f) && !feature.default_id.has_value()) {
      continue;
    }
    return InFeature(
        feature,
        InvalidArgumentError("partitioned bags require a combiner other than "
                             "max and no default id."));
  }
  return absl::OkStatus();
}

absl::Status CollectionInputs::Init(OpKernelContext* ctx,
                                    const CollectionSpec& spec) {
  spec_ = &spec;
  OpInputList ids, row_splits, weights;
  LODESTAR_TRY(ctx->input_list("ids", &ids));
  LODESTAR_TRY(ctx->input_list("row_splits", &row_splits));
  LODESTAR_TRY(ctx->input_list("weights", &weights));
  tensors_.resize(spec.num_features());
  leads_.resize(spec.num_features());
  uniform_splits_.resize(spec.num_features());
  int next_splits = 0;
  int next_weights = 0;
  for (int f = 0; f < spec.num_features(); ++f) {
    const Tensor* const splits_of_f =
        spec.ragged[f] ? &row_splits[next_splits++] : nullptr;
    const Tensor* const weights_of_f =
        spec.weighted[f] ? &weights[next_weights++] : nullptr;
    LODESTAR_TRY(
        InFeature(spec.features[f],
                  InitFeature(ctx, f, ids[f], splits_of_f, weights_of_f)));
  }
  return absl::OkStatus();
}

absl::Status CollectionInputs::InitFeature(OpKernelContext* ctx, int f,
                                           const Tensor& ids,
                                           const Tensor* row_splits,
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
  } else if (spec_->features[f].pooled) {
    if (ids.dims() == 0) {
      return InvalidArgumentError(
          "`ids` is a scalar, but a combiner needs a last axis to pool.");
    }
    const int64_t length = ids.dim_size(ids.dims() - 1);
    leads_[f].RemoveLastDims(1);
    const int64_t bags = leads_[f].num_elements();
    if (bags == std::numeric_limits<int64_t>::max()) {
      return InvalidArgumentError("`ids` has shape ", ids.shape().DebugString(),
                                  ", which gives too many bags.");
    }
    Tensor& splits = uniform_splits_[f];
    tensorflow::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    LODESTAR_TRY(
        ctx->allocate_temp(tensorflow::DT_INT64, {bags + 1}, &splits, on_host));
    auto offsets = splits.vec<int64_t>();
    for (int64_t b = 0; b < offsets.size(); ++b) offsets(b) = b * length;
    tensors.row_splits = FlatSpan<int64_t>(static_cast<const Tensor&>(splits));
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

absl::Status CollectionInputs::MakeBatch(CollectionBatch::Ids ids,
                                         const ParallelFor* parallel,
                                         CollectionBatch* batch) const {
  return ToTensorFlow(
      batch->Init(spec_->features, tensors_, spec_->num_tables, ids, parallel));
}

absl::Status CollectionInputs::RowsShape(int f, const std::vector<int>& dims,
                                         TensorShape* shape) const {
  *shape = leads_[f];
  return shape->AddDimWithStatus(dims[spec_->table(f)]);
}

absl::Status CollectionInputs::CheckLikeRows(int f, const char* name,
                                             const std::vector<int>& dims,
                                             const Tensor& tensor) const {
  TensorShape wanted;
  LODESTAR_TRY(RowsShape(f, dims, &wanted));
  return CheckShape(spec_->features[f], name, tensor, wanted);
}

absl::Status CollectionInputs::ReadDefaultRows(OpKernelContext* ctx,
                                               const std::vector<int>& dims) {
  OpInputList rows;
  LODESTAR_TRY(ctx->input_list("default_rows", &rows));
  int next = 0;
  for (int f = 0; f < spec_->num_features(); ++f) {
    const CollectionFeature& feature = spec_->features[f];
    if (!feature.default_id.has_value()) continue;
    const Tensor& row = rows[next++];
    LODESTAR_TRY(
        CheckShape(feature, "default_rows", row, {dims[spec_->table(f)]}));
    tensors_[f].default_row = RowData(row);
  }
  return absl::OkStatus();
}

absl::Status CollectionInputs::ReadGradients(
    OpKernelContext* ctx, const std::vector<int>& dims,
    std::vector<const void*>* gradients) const {
  OpInputList list;
  LODESTAR_TRY(ctx->input_list("gradients", &list));
  for (int f = 0; f < list.size(); ++f) {
    LODESTAR_TRY(CheckLikeRows(f, "gradients", dims, list[f]));
    gradients->push_back(RowData(list[f]));
  }
  return absl::OkStatus();
}

absl::Status CollectionInputs::ReadWinners(
    OpKernelContext* ctx, const std::vector<int>& dims,
    std::vector<const int64_t*>* winners) const {
  OpInputList list;
  LODESTAR_TRY(ctx->input_list("winners", &list));
  int next = 0;
  for (int f = 0; f < spec_->num_features(); ++f) {
    winners->push_back(nullptr);
    if (!spec_->is_max(f)) continue;
    const Tensor& tensor = list[next++];
    LODESTAR_TRY(CheckLikeRows(f, "winners", dims, tensor));
    winners->back() = tensor.flat<int64_t>().data();
  }
  return absl::OkStatus();
}

absl::Status CollectionInputs::AllocateRowsAndWinners(
    OpKernelContext* ctx, const char* output, const std::vector<int>& dims,
    std::vector<void*>* rows, std::vector<int64_t*>* winners) const {
  OpOutputList row_list, winner_list;
  LODESTAR_TRY(ctx->output_list(output, &row_list));
  LODESTAR_TRY(ctx->output_list("winners", &winner_list));
  int next = 0;
  for (int f = 0; f < spec_->num_features(); ++f) {
    TensorShape shape;
    LODESTAR_TRY(RowsShape(f, dims, &shape));
    Tensor* tensor = nullptr;
    LODESTAR_TRY(row_list.allocate(f, shape, &tensor));
    rows->push_back(RowData(tensor));
    winners->push_back(nullptr);
    if (!spec_->is_max(f)) continue;
    LODESTAR_TRY(winner_list.allocate(next++, shape, &tensor));
    winners->back() = tensor->flat<int64_t>().data();
  }
  return absl::OkStatus();
}

absl::Status ReadVectors(OpKernelContext* ctx, const char* name,
                         OpInputList* list) {
  LODESTAR_TRY(ctx->input_list(name, list));
  for (int t = 0; t < list->size(); ++t) {
    LODESTAR_TRY(CheckRank((*list)[t], name, 1));
  }
  return absl::OkStatus();
}

absl::Status CheckNumPositions(const CollectionBatch& batch, int t,
                               int64_t num_positions) {
  if (num_positions == batch.num_ids(t)) return absl::OkStatus();
  return InvalidArgumentError("`positions[", t, "]` has ", num_positions,
                              " elements, but the features have ",
                              batch.num_ids(t), " ids.");
}

absl::Status CheckTablePositions(const CollectionBatch& batch, int t,
                                 Span<const int64_t> positions,
                                 int64_t num_unique) {
  LODESTAR_TRY(CheckNumPositions(batch, t, positions.size()));
  return CheckPositions(positions, num_unique);
}

absl::Status CheckFetched(const CollectionBatch& batch,
                          const std::vector<CollectionBatch::Table>& tables) {
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!tables[t].has_rows) continue;
    LODESTAR_TRY(CheckTablePositions(batch, t, tables[t].positions,
                                     tables[t].fetched.size));
  }
  return absl::OkStatus();
}

absl::Status ReadFetchedTables(OpKernelContext* ctx,
                               std::vector<CollectionBatch::Table>* tables) {
  OpInputList rows, positions;
  LODESTAR_TRY(ctx->input_list("rows", &rows));
  LODESTAR_TRY(ReadVectors(ctx, "positions", &positions));
  for (int t = 0; t < rows.size(); ++t) {
    LODESTAR_TRY(CheckRank(rows[t], "rows", 2));
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
    tables->push_back(table);
  }
  return absl::OkStatus();
}

absl::Status CheckHooksAndIds(
    OpKernelContext* ctx, const std::vector<CollectionBatch::Table>& tables) {
  OpInputList hooks, unique_ids;
  LODESTAR_TRY(ctx->input_list("hooks", &hooks));
  LODESTAR_TRY(ReadVectors(ctx, "unique_ids", &unique_ids));
  for (int t = 0; t < hooks.size(); ++t) {
    const FetchedRows& fetched = tables[t].fetched;
    const TensorShape shape({0, fetched.dim});
    if (hooks[t].shape() != shape) {
      return InvalidArgumentError("`hooks[", t, "]` must have shape ",
                                  shape.DebugString(), ", got ",
                                  hooks[t].shape().DebugString(), ".");
    }
    if (unique_ids[t].NumElements() != fetched.size) {
      return InvalidArgumentError("`rows[", t, "]` has ", fetched.size,
                                  " rows, but `unique_ids[", t, "]` has ",
                                  unique_ids[t].NumElements(), " ids.");
    }
  }
  return absl::OkStatus();
}

std::vector<int> DimsOf(const std::vector<CollectionBatch::Table>& tables) {
  std::vector<int> dims;
  for (const CollectionBatch::Table& table : tables) {
    dims.push_back(table.dim());
  }
  return dims;
}

}  // namespace lodestar
