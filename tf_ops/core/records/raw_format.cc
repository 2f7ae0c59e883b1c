#include "tf_ops/core/records/raw_format.h"

#include <algorithm>
#include <utility>

#include "tf_ops/core/records/parse_samples.h"

namespace lodestar {
namespace {

class RawCutter : public RecordCutter {
 public:
  RawCutter(int64_t stride, int64_t num_samples)
      : stride_(stride), num_samples_(num_samples) {}

  Status Next(const char* begin, const char* end, bool at_end,
              RecordCut* cut) override {
    *cut = RecordCut();
    int64_t count = (end - begin) / stride_;
    if (num_samples_ > 0) {
      count = std::min(count, num_samples_ - num_cut_);
      cut->last = num_cut_ + count == num_samples_;
    }
    if (count > 0 || (cut->last && num_samples_ > 0)) {
      cut->bytes = count * stride_;
      cut->records = count;
      num_cut_ += count;
      return Status();
    }
    if (!at_end) return Status();
    const int64_t size = num_cut_ * stride_ + (end - begin);
    if (begin < end) {
      return InvalidArgument(
          "its size is ", size, " bytes, expected a multiple of the ", stride_,
          " of a sample: found ", end - begin, " bytes after record ",
          num_cut_ - 1, " at byte ", num_cut_ * stride_,
          "; check the layout, the key type and the slots");
    }
    if (num_cut_ < num_samples_) {
      return InvalidArgument("its size is ", size, " bytes, ", num_cut_,
                             " samples of ", stride_, ", expected ",
                             num_samples_, " samples");
    }
    if (num_cut_ == 0) return InvalidArgument("the file has no records");
    return Status();
  }

 private:
  const int64_t stride_;
  const int64_t num_samples_;
  int64_t num_cut_ = 0;
};

SampleLayout FixedLayout(SampleLayout layout) {
  layout.counted = false;
  return layout;
}

}  // namespace

Status RawFormat::Check(const std::vector<ColumnSpec>& specs,
                        const RawOptions& options) {
  return SampleFields::Check(specs, FixedLayout(options.layout));
}

RawFormat::RawFormat(std::vector<ColumnSpec> specs, const RawOptions& options)
    : RecordFormat(std::move(specs)),
      fields_(&this->specs(), FixedLayout(options.layout)),
      num_samples_(options.num_samples) {}

std::unique_ptr<RecordCutter> RawFormat::NewCutter() const {
  return std::make_unique<RawCutter>(stride(), num_samples_);
}

Status RawFormat::Parse(int64_t /*variant*/, const char* begin, const char* end,
                        SlotRows* rows, BadRecord* bad) const {
  return ParseSamples(
      fields_, begin, end,
      [this](const char* p, const char* end, SampleFrame* frame) {
        if (end - p < stride()) return false;
        *frame = {p, p + stride(), p + stride()};
        return true;
      },
      rows, bad);
}

}  // namespace lodestar
