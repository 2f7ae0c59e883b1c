#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/records/multislot_format.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {
namespace {

class ParseMultiSlotOp : public Kernel {
 public:
  explicit ParseMultiSlotOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, slots_.Init(ctx, /*leading=*/{}));
    OP_REQUIRES_OK(ctx, slots_.InitOutputs(ctx));
    format_ = std::make_unique<MultiSlotFormat>(slots_.specs());
  }

  absl::Status Run(OpKernelContext* ctx) override {
    LODESTAR_TRY(CheckRank(ctx->input(0), "text", 1));
    std::string text;
    LODESTAR_TRY(Join(FlatSpan<tstring>(ctx->input(0)), &text));
    const auto rows = std::make_shared<SlotRows>(slots_.specs());
    BadRecord bad;
    const Status status = format_->Parse(
        /*variant=*/0, text.data(), text.data() + text.size(), rows.get(),
        &bad);
    if (!status.ok()) {
      return InvalidArgumentError("`text[", bad.record,
                                  "]`: ", status.message());
    }
    SlotBatch batch;
    batch.Add(rows, 0, rows->num_rows());
    std::vector<Tensor> tensors;
    LODESTAR_TRY(slots_.CheckInferred(batch));
    slots_.AppendTensors(batch, &tensors);
    for (size_t i = 0; i < tensors.size(); ++i) {
      ctx->set_output(static_cast<int>(i), tensors[i]);
    }
    return absl::OkStatus();
  }

 private:
  // Joins the lines, each with a newline.
  static absl::Status Join(Span<const tstring> lines, std::string* text) {
    size_t size = 0;
    for (int64_t i = 0; i < lines.size(); ++i) size += lines[i].size() + 1;
    text->reserve(size);
    for (int64_t i = 0; i < lines.size(); ++i) {
      const tstring& line = lines[i];
      const size_t length =
          line.size() - (!line.empty() && line[line.size() - 1] == '\n');
      const void* newline =
          length == 0 ? nullptr : std::memchr(line.data(), '\n', length);
      if (newline != nullptr) {
        return InvalidArgumentError(
            "`text[", i, "]`: a newline at byte ",
            static_cast<const char*>(newline) - line.data() + 1,
            ", expected one line");
      }
      text->append(line.data(), length);
      text->push_back('\n');
    }
    return absl::OkStatus();
  }

  SlotAttributes slots_;
  std::unique_ptr<MultiSlotFormat> format_;
};

LODESTAR_REGISTER(ParseMultiSlot);

}  // namespace
}  // namespace lodestar
