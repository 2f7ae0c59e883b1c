#include "tf_ops/kernels/records/slot_attributes.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "tensorflow/core/util/overflow.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {

using tensorflow::DataTypeVector;
using tensorflow::PartialTensorShape;

absl::Status SlotAttributes::Init(OpKernelConstruction* ctx,
                                  std::vector<ColumnSpec> leading) {
  std::vector<std::string> names;
  DataTypeVector types;
  std::vector<PartialTensorShape> shapes;
  std::vector<int64_t> limits;
  std::vector<int64_t> weighs;
  std::vector<bool> used;
  LODESTAR_TRY(ctx->GetAttr("slot_names", &names));
  LODESTAR_TRY(ctx->GetAttr("slot_types", &types));
  LODESTAR_TRY(ctx->GetAttr("slot_shapes", &shapes));
  LODESTAR_TRY(ctx->GetAttr("slot_limits", &limits));
  LODESTAR_TRY(ctx->GetAttr("slot_weighs", &weighs));
  LODESTAR_TRY(ctx->GetAttr("slot_used", &used));
  const size_t num_slots = names.size();
  if (types.size() != num_slots || shapes.size() != num_slots ||
      limits.size() != num_slots || weighs.size() != num_slots ||
      used.size() != num_slots) {
    return InvalidArgumentError(
        "`slot_names`, `slot_types`, `slot_shapes`, `slot_limits`, "
        "`slot_weighs` and `slot_used` must have one length, found ",
        num_slots, ", ", types.size(), ", ", shapes.size(), ", ", limits.size(),
        ", ", weighs.size(), " and ", used.size());
  }
  specs_ = std::move(leading);
  const int64_t num_leading = static_cast<int64_t>(specs_.size());
  for (const ColumnSpec& spec : specs_) {
    slot_types_.push_back(spec.is_text ? tensorflow::DT_STRING
                                       : tensorflow::DT_INT64);
    slot_shapes_.push_back(PartialTensorShape({}));
  }
  slot_types_.insert(slot_types_.end(), types.begin(), types.end());
  slot_shapes_.insert(slot_shapes_.end(), shapes.begin(), shapes.end());
  for (size_t i = 0; i < num_slots; ++i) {
    ColumnSpec spec;
    spec.name = names[i];
    spec.is_float = types[i] == tensorflow::DT_FLOAT;
    spec.limit = limits[i];
    spec.used = used[i];
    if (!shapes[i].unknown_rank()) {
      int64_t num_unknown = 0;
      for (int d = 0; d < shapes[i].dims(); ++d) {
        const int64_t dim = shapes[i].dim_size(d);
        num_unknown += dim < 0;
        if (dim >= 0) {
          spec.multiple =
              tensorflow::MultiplyWithoutOverflow(spec.multiple, dim);
        }
      }
      // A batch adds one dimension.
      if (num_unknown > 1 || spec.multiple < 1 ||
          spec.multiple > std::numeric_limits<int32_t>::max() ||
          shapes[i].dims() >= TensorShape::MaxDimensions()) {
        return InvalidArgumentError(
            "`slot_shapes` of slot '", spec.name,
            "' must have at most one unknown dimension, 1 to 2^31 - 1 elements "
            "and a rank below ",
            TensorShape::MaxDimensions(), ", or be of unknown rank, found ",
            shapes[i].DebugString());
      }
      if (num_unknown == 0) {
        spec.size = spec.multiple;
        spec.multiple = 1;
      }
    }
    if (weighs[i] >= 0) {
      const bool is_slot = weighs[i] < static_cast<int64_t>(num_slots);
      if (!is_slot || !shapes[i].unknown_rank() ||
          !shapes[weighs[i]].unknown_rank() || weighs[weighs[i]] >= 0 ||
          std::count(weighs.begin(), weighs.end(), weighs[i]) > 1) {
        return InvalidArgumentError(
            "`slot_weighs` of slot '", spec.name, "' is ", weighs[i],
            ", must be -1, or for a sparse slot the index of another sparse "
            "slot that has no other weights and is no weight itself.");
      }
      spec.weighs = num_leading + weighs[i];
    }
    specs_.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

absl::Status SlotAttributes::InitOutputs(OpKernelConstruction* ctx) {
  LODESTAR_TRY(ctx->GetAttr("output_types", &output_types_));
  LODESTAR_TRY(ctx->GetAttr("output_shapes", &output_shapes_));
  DataTypeVector types;
  for (size_t c = 0; c < specs_.size(); ++c) {
    if (!specs_[c].used) continue;
    types.push_back(slot_types_[c]);
    if (IsSparse(c)) types.push_back(tensorflow::DT_INT64);
  }
  if (types != output_types_ || types.size() != output_shapes_.size()) {
    return InvalidArgumentError(
        "`output_types` must be ", tensorflow::DataTypeVectorString(types),
        ", found ", tensorflow::DataTypeVectorString(output_types_));
  }
  return absl::OkStatus();
}

absl::Status SlotAttributes::CheckOutputShapes(int64_t num_rows) const {
  size_t output = 0;
  const auto check = [&](const std::vector<int64_t>& dims) {
    const PartialTensorShape& found = output_shapes_[output++];
    PartialTensorShape wanted, merged;
    LODESTAR_TRY(PartialTensorShape::BuildPartialTensorShape(dims, &wanted));
    if (found.MergeWith(wanted, &merged).ok() && merged.IsIdenticalTo(wanted)) {
      return absl::OkStatus();
    }
    return InvalidArgumentError("`output_shapes` of tensor ", output - 1,
                                " is ", found.DebugString(), ", expected ",
                                wanted.DebugString());
  };
  const bool is_known =
      num_rows >= 0 && num_rows < std::numeric_limits<int64_t>::max();
  for (size_t c = 0; c < specs_.size(); ++c) {
    if (!specs_[c].used) continue;
    if (IsSparse(c)) {
      LODESTAR_TRY(check({-1}));
      LODESTAR_TRY(check({is_known ? num_rows + 1 : -1}));
      continue;
    }
    std::vector<int64_t> dims = {num_rows};
    for (const int64_t dim : slot_shapes_[c].dim_sizes()) dims.push_back(dim);
    LODESTAR_TRY(check(dims));
  }
  return absl::OkStatus();
}

absl::Status SlotAttributes::CheckInferred(const SlotBatch& batch) const {
  std::vector<int64_t> splits(batch.num_rows() + 1);
  std::vector<SlotBatch::Piece> pieces;
  for (size_t c = 0; c < specs_.size(); ++c) {
    if (!IsInferred(c) || !specs_[c].used) continue;
    batch.Find(c, &pieces, splits.data());
    for (int64_t row = 1; row < batch.num_rows(); ++row) {
      const int64_t found = splits[row + 1] - splits[row];
      if (found == splits[1]) continue;
      return InvalidArgumentError(
          "slot '", specs_[c].name, "': sample ", row, " of the batch has ",
          found, " values, sample 0 has ", splits[1], "; with shape ",
          slot_shapes_[c].DebugString(),
          " all samples of a batch must have as many");
    }
  }
  return absl::OkStatus();
}

void SlotAttributes::AppendTensors(const SlotBatch& batch,
                                   std::vector<Tensor>* tensors) const {
  const int64_t num_rows = batch.num_rows();
  std::vector<SlotBatch::Piece> pieces;
  for (size_t c = 0; c < specs_.size(); ++c) {
    const ColumnSpec& spec = specs_[c];
    if (!spec.used) continue;
    Tensor splits;
    int64_t* ends = nullptr;
    if (IsSparse(c) || spec.is_text) {
      splits = NewTensor(tensorflow::DT_INT64, TensorShape({num_rows + 1}));
      ends = splits.vec<int64_t>().data();
    }
    const int64_t count = batch.Find(c, &pieces, ends);
    TensorShape shape({IsSparse(c) ? count : num_rows});
    for (int d = 0; !IsSparse(c) && d < slot_shapes_[c].dims(); ++d) {
      const int64_t dim = slot_shapes_[c].dim_size(d);
      // Without samples an unknown dimension becomes 0.
      const int64_t inferred =
          num_rows == 0 ? 0 : count / num_rows / spec.multiple;
      shape.AddDim(dim >= 0 ? dim : inferred);
    }
    Tensor values = NewTensor(slot_types_[c], shape);
    if (spec.is_text) {
      std::string text(count, 0);
      SlotBatch::Copy(pieces, &text[0]);
      for (int64_t row = 0; row < num_rows; ++row) {
        values.vec<tstring>()(row).assign(text.data() + ends[row],
                                          ends[row + 1] - ends[row]);
      }
    } else if (spec.is_float) {
      SlotBatch::Copy(pieces, values.flat<float>().data());
    } else {
      SlotBatch::Copy(pieces, values.flat<int64_t>().data());
    }
    tensors->push_back(std::move(values));
    if (IsSparse(c)) tensors->push_back(std::move(splits));
  }
}

LineFields LineFieldsOf(OpKernelConstruction* ctx) {
  std::vector<std::string> names;
  const absl::Status status = ctx->GetAttr("line_fields", &names);
  if (!status.ok()) ctx->SetStatus(status);
  const auto has = [&names](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  LineFields fields;
  fields.ins_id = has("ins_id");
  fields.content = has("content");
  fields.logkey = has("logkey");
  return fields;
}

Tensor NewTensor(DataType dtype, const TensorShape& shape) {
  Tensor tensor(dtype, shape);
  if (!tensor.IsInitialized()) throw std::bad_alloc();
  return tensor;
}

std::vector<std::pair<std::string, tensorflow::AttrValue>> GraphAttributes(
    OpKernelConstruction* ctx) {
  std::vector<std::pair<std::string, tensorflow::AttrValue>> attributes;
  for (const auto& attr : ctx->def().attr()) {
    // The dataset adds its outputs itself; attributes with "_" are
    // TensorFlow's.
    if (attr.first.front() != '_' && attr.first.rfind("output_", 0) != 0) {
      attributes.push_back(attr);
    }
  }
  return attributes;
}

absl::Status ReadScalar(const Tensor& tensor, const char* name, int64_t* value,
                        int64_t lowest, int64_t highest) {
  LODESTAR_TRY(CheckRank(tensor, name, 0));
  *value = tensor.scalar<int64_t>()();
  if (*value < lowest || *value > highest) {
    return InvalidArgumentError("`", name, "` must be from ", lowest, " to ",
                                highest, ", found ", *value);
  }
  return absl::OkStatus();
}

absl::Status ReadName(const Tensor& tensor, const char* name,
                      std::string* text) {
  LODESTAR_TRY(CheckRank(tensor, name, 0));
  *text = tensor.scalar<tstring>()();
  if (!text->empty()) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` must not be empty.");
}

absl::Status ReadPaths(const Tensor& filenames,
                       std::vector<std::string>* paths) {
  LODESTAR_TRY(CheckRank(filenames, "filenames", 1));
  for (int64_t i = 0; i < filenames.NumElements(); ++i) {
    paths->emplace_back(filenames.vec<tstring>()(i));
  }
  return absl::OkStatus();
}

}  // namespace lodestar
