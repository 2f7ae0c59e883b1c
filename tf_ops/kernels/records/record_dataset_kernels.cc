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

using SharedFormat = std::shared_ptr<const RecordFormat>;

template <typename Format, typename Options>
absl::Status CheckAndMake(std::vector<ColumnSpec> specs, const Options& options,
                          SharedFormat* format) {
  LODESTAR_TRY(Format::Check(specs, options));
  *format = std::make_shared<const Format>(std::move(specs), options);
  return absl::OkStatus();
}

absl::Status MakeMultiSlot(OpKernelConstruction* ctx,
                           std::vector<ColumnSpec> specs,
                           SharedFormat* format) {
  *format = std::make_shared<const MultiSlotFormat>(std::move(specs),
                                                    LineFieldsOf(ctx));
  return absl::OkStatus();
}

absl::Status MakeInstant(OpKernelConstruction* ctx,
                         std::vector<ColumnSpec> specs, SharedFormat* format) {
  std::vector<bool> batch_sizes;
  LODESTAR_TRY(ctx->GetAttr("batch_sizes", &batch_sizes));
  if (batch_sizes.size() != specs.size()) {
    return InvalidArgumentError("`batch_sizes` must have ", specs.size(),
                                " values, one per slot, got ",
                                batch_sizes.size(), ".");
  }
  *format = std::make_shared<const InstantFormat>(std::move(specs),
                                                  std::move(batch_sizes));
  return absl::OkStatus();
}

absl::Status MakeNorm(OpKernelConstruction* ctx, std::vector<ColumnSpec> specs,
                      SharedFormat* format) {
  NormOptions options;
  options.layout.kinds = FieldKinds(ctx);
  options.layout.key = KeyTypeOf(ctx);
  options.wants_check = AttrAs<bool>(
      ctx, "check", {{"auto", false}, {"none", true}, {"sum", true}});
  options.check = AttrAs<NormCheck>(
      ctx, "check", {{"none", NormCheck::kNone}, {"sum", NormCheck::kSum}});
  return CheckAndMake<NormFormat>(std::move(specs), options, format);
}

absl::Status MakeRaw(OpKernelConstruction* ctx, std::vector<ColumnSpec> specs,
                     SharedFormat* format) {
  RawOptions options;
  SampleLayout& layout = options.layout;
  layout.kinds = FieldKinds(ctx);
  layout.key = KeyTypeOf(ctx);
  layout.label = AttrAs<NumberType>(
      ctx, "label_type",
      {{"float", NumberType::kFloat}, {"int", NumberType::kInt}});
  layout.dense = AttrAs<NumberType>(
      ctx, "dense_type",
      {{"float", NumberType::kFloat}, {"int", NumberType::kLogOfInt}});
  LODESTAR_TRY(ctx->GetAttr("nnz_per_slot", &layout.nnz));
  LODESTAR_TRY(ctx->GetAttr("key_offsets", &layout.key_offsets));
  LODESTAR_TRY(ctx->GetAttr("num_samples", &options.num_samples));
  return CheckAndMake<RawFormat>(std::move(specs), options, format);
}

template <RecordDatasetOp::MakeFormat make_format>
class FormatDatasetOp : public RecordDatasetOp {
 public:
  explicit FormatDatasetOp(OpKernelConstruction* ctx)
      : RecordDatasetOp(ctx, make_format) {}
};

class MultiSlotDatasetOp : public RecordDatasetOp {
 public:
  explicit MultiSlotDatasetOp(OpKernelConstruction* ctx)
      : RecordDatasetOp(ctx, MakeMultiSlot, FieldColumns(LineFieldsOf(ctx))) {}
};
using InstantDatasetOp = FormatDatasetOp<MakeInstant>;
using NormDatasetOp = FormatDatasetOp<MakeNorm>;
using RawDatasetOp = FormatDatasetOp<MakeRaw>;

LODESTAR_REGISTER(InstantDataset);
LODESTAR_REGISTER(MultiSlotDataset);
LODESTAR_REGISTER(NormDataset);
LODESTAR_REGISTER(RawDataset);

}  // namespace
}  // namespace lodestar
