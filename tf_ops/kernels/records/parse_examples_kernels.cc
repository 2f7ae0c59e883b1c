#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tf_ops/core/records/example_format.h"
#include "tf_ops/core/records/tfrecord_format.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {
namespace {

class ParseExamplesOp : public Kernel {
 public:
  explicit ParseExamplesOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_columns", &num_columns_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    LODESTAR_TRY(CheckRank(ctx->input(0), "data", 0));
    const std::string_view data(ctx->input(0).scalar<tstring>()());
    int64_t offset = 0;
    LODESTAR_TRY(ReadScalar(ctx->input(1), "offset", &offset, 0));
    ExampleParser parser;
    LODESTAR_TRY(AddColumns(ctx, &parser));

    const char* const end = data.data() + data.size();
    const char* position = data.data();
    TfrecordCutter cutter(0, offset);
    RecordCut cut;
    LODESTAR_TRY(cutter.Next(position, end, true, &cut));
    if (position + cut.bytes != end) {
      return ToTensorFlow(cutter.Next(position + cut.bytes, end, true, &cut));
    }
    std::vector<int64_t> bad_rows;
    std::vector<std::string> faults;
    for (int64_t row = 0; position < end; ++row) {
      const int64_t at = offset + (position - data.data());
      std::string_view record;
      Status status = ReadTfrecord(position, &record, &position);
      if (status.ok()) {
        status = parser.AddRecord(record);
        if (status.ok()) continue;
        faults.push_back(status.message());
      } else {
        parser.AddMissing();
        faults.push_back(StrCat("at byte ", at, ": ", status.message()));
      }
      bad_rows.push_back(row);
    }

    std::vector<int64_t> kinds;
    for (int i = 0; i < num_columns_; ++i) {
      const FeatureColumn& column = parser.columns()[i];
      LODESTAR_TRY(OutputVector(ctx, i, column.row_splits()));
      LODESTAR_TRY(OutputVector(ctx, num_columns_ + i, column.list_splits()));
      LODESTAR_TRY(
          OutputVector(ctx, 2 * num_columns_ + i, column.value_splits()));
      const std::string& bytes = column.data();
      Tensor* values = nullptr;
      LODESTAR_TRY(ctx->allocate_output(
          3 * num_columns_ + i, {static_cast<int64_t>(bytes.size())}, &values));
      std::copy(bytes.begin(), bytes.end(), values->flat<uint8_t>().data());
      kinds.push_back(column.kind());
    }
    LODESTAR_TRY(OutputVector(ctx, 4 * num_columns_, kinds));
    LODESTAR_TRY(OutputVector(ctx, 4 * num_columns_ + 1, bad_rows));
    return OutputVector(ctx, 4 * num_columns_ + 2, faults);
  }

 private:
  absl::Status AddColumns(OpKernelContext* ctx, ExampleParser* parser) const {
    const char* const arguments[] = {"names", "kinds", "nested"};
    for (int i = 0; i < 3; ++i) {
      const Tensor& input = ctx->input(2 + i);
      if (input.shape() != TensorShape({num_columns_})) {
        return InvalidArgumentError("`", arguments[i], "` must have shape [",
                                    num_columns_, "], found ",
                                    input.shape().DebugString());
      }
    }
    const auto names = ctx->input(2).vec<tstring>();
    const auto kinds = ctx->input(3).vec<int64_t>();
    const auto nested = ctx->input(4).vec<bool>();
    for (int i = 0; i < num_columns_; ++i) {
      if (kinds(i) < kNoValues || kinds(i) > kInt64List) {
        return InvalidArgumentError("`kinds[", i, "]` must be in [",
                                    int64_t{kNoValues}, ", ",
                                    int64_t{kInt64List}, "], got ", kinds(i));
      }
      parser->AddColumn(std::string(names(i)),
                        static_cast<FeatureKind>(kinds(i)), nested(i));
    }
    return absl::OkStatus();
  }

  int num_columns_ = 0;
};

LODESTAR_REGISTER(ParseExamples);

}  // namespace
}  // namespace lodestar
