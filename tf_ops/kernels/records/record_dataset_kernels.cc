// One dataset op per file format.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/records/instant_format.h"
#include "tf_ops/core/records/multislot_format.h"
#include "tf_ops/core/records/norm_format.h"
#include "tf_ops/core/records/raw_format.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/records/record_dataset.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {
namespace {

class MultiSlotDatasetOp : public RecordDatasetOp {
 public:
  explicit MultiSlotDatasetOp(OpKernelConstruction* ctx)
      : RecordDatasetOp(ctx, FieldColumns(LineFieldsOf(ctx))),
        fields_(LineFieldsOf(ctx)) {}

 protected:
  absl::Status MakeFormat(
      std::vector<ColumnSpec> specs,
      std::unique_ptr<RecordFormat>* format) const override {
    *format = std::make_unique<MultiSlotFormat>(std::move(specs), fields_);
    return absl::OkStatus();
  }

 private:
  const LineFields fields_;
};

class InstantDatasetOp : public RecordDatasetOp {
 public:
  explicit InstantDatasetOp(OpKernelConstruction* ctx) : RecordDatasetOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_sizes", &batch_sizes_));
  }

 protected:
  absl::Status MakeFormat(
      std::vector<ColumnSpec> specs,
      std::unique_ptr<RecordFormat>* format) const override {
    if (batch_sizes_.size() != specs.size()) {
      return absl::InvalidArgumentError(
          StrCat("`batch_sizes` must have ", specs.size(),
                 " values, one per slot, got ", batch_sizes_.size(), "."));
    }
    *format = std::make_unique<InstantFormat>(std::move(specs), batch_sizes_);
    return absl::OkStatus();
  }

 private:
  std::vector<bool> batch_sizes_;
};

// Returns the enum value of a string attribute; its values are listed in ops/.
template <typename T>
T AttrAs(OpKernelConstruction* ctx, const char* name,
         const std::vector<std::pair<std::string, T>>& values) {
  std::string found;
  ctx->SetStatus(ctx->GetAttr(name, &found));
  for (const auto& [text, value] : values) {
    if (text == found) return value;
  }
  return values[0].second;
}

std::vector<FieldKind> FieldKinds(OpKernelConstruction* ctx) {
  std::vector<std::string> names;
  ctx->SetStatus(ctx->GetAttr("slot_kinds", &names));
  std::vector<FieldKind> kinds;
  for (const std::string& name : names) {
    kinds.push_back(name == "label"   ? FieldKind::kLabel
                    : name == "dense" ? FieldKind::kDense
                                      : FieldKind::kKeys);
  }
  return kinds;
}

KeyType KeyTypeOf(OpKernelConstruction* ctx) {
  return AttrAs<KeyType>(ctx, "key_type",
                         {{"uint32", KeyType::kUint32},
                          {"int32", KeyType::kInt32},
                          {"int64", KeyType::kInt64}});
}

template <typename Format, typename Options>
absl::Status Make(std::vector<ColumnSpec> specs, const Options& options,
                  std::unique_ptr<RecordFormat>* format) {
  LODESTAR_TRY(Format::Check(specs, options));
  *format = std::make_unique<Format>(std::move(specs), options);
  return absl::OkStatus();
}

class NormDatasetOp : public RecordDatasetOp {
 public:
  explicit NormDatasetOp(OpKernelConstruction* ctx) : RecordDatasetOp(ctx) {
    options_.layout.kinds = FieldKinds(ctx);
    options_.layout.key = KeyTypeOf(ctx);
    options_.wants_check = AttrAs<bool>(
        ctx, "check", {{"auto", false}, {"none", true}, {"sum", true}});
    options_.check = AttrAs<NormCheck>(
        ctx, "check", {{"none", NormCheck::kNone}, {"sum", NormCheck::kSum}});
  }

 protected:
  absl::Status MakeFormat(
      std::vector<ColumnSpec> specs,
      std::unique_ptr<RecordFormat>* format) const override {
    return Make<NormFormat>(std::move(specs), options_, format);
  }

 private:
  NormOptions options_;
};

class RawDatasetOp : public RecordDatasetOp {
 public:
  explicit RawDatasetOp(OpKernelConstruction* ctx) : RecordDatasetOp(ctx) {
    SampleLayout& layout = options_.layout;
    layout.kinds = FieldKinds(ctx);
    layout.key = KeyTypeOf(ctx);
    layout.label = AttrAs<NumberType>(
        ctx, "label_type",
        {{"float", NumberType::kFloat}, {"int", NumberType::kInt}});
    layout.dense = AttrAs<NumberType>(
        ctx, "dense_type",
        {{"float", NumberType::kFloat}, {"int", NumberType::kLogOfInt}});
    OP_REQUIRES_OK(ctx, ctx->GetAttr("nnz_per_slot", &layout.nnz));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key_offsets", &layout.key_offsets));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_samples", &options_.num_samples));
  }

 protected:
  absl::Status MakeFormat(
      std::vector<ColumnSpec> specs,
      std::unique_ptr<RecordFormat>* format) const override {
    return Make<RawFormat>(std::move(specs), options_, format);
  }

 private:
  RawOptions options_;
};

LODESTAR_REGISTER(InstantDataset);
LODESTAR_REGISTER(MultiSlotDataset);
LODESTAR_REGISTER(NormDataset);
LODESTAR_REGISTER(RawDataset);

}  // namespace
}  // namespace lodestar
