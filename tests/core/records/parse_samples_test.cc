#include "tf_ops/core/records/parse_samples.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace lodestar {
namespace {

// Records of one label each. One in 13 is badly framed, one in 2 is not a
// label.
class ParseSamplesTest : public testing::Test {
 protected:
  ParseSamplesTest() : specs_{{"click", true, 1, 2}}, fields_(&specs_, Of()) {}

  static SampleLayout Of() {
    SampleLayout layout;
    layout.kinds = {FieldKind::kLabel};
    return layout;
  }
  Status Parse(const std::vector<float>& labels) {
    const char* const begin = reinterpret_cast<const char*>(labels.data());
    const auto find = [](const char* p, const char*, SampleFrame* frame) {
      *frame = {p, p + 4, p + 4};
      return Load<float>(p) != 13;
    };
    const auto explain = [](const char*, const char*) {
      return InvalidArgument("badly framed");
    };
    rows_ = SlotRows(specs_);
    return ParseSamples(fields_, begin, begin + 4 * labels.size(), find,
                        explain, &rows_, &bad_);
  }

  const std::vector<ColumnSpec> specs_;
  const SampleFields fields_;
  SlotRows rows_;
  BadRecord bad_;
};

TEST_F(ParseSamplesTest, ReadsMoreSamplesThanOneBlock) {
  const std::vector<float> labels(3 * SampleFields::kSamplesAtOnce + 5, 1);
  EXPECT_TRUE(Parse(labels).ok());
  EXPECT_EQ(rows_.columns()[0].floats, labels);
}

TEST_F(ParseSamplesTest, StopsAtTheFirstBadRecordOfEitherKind) {
  for (const float kind : {13.0f, 2.0f}) {
    for (const int64_t at : {0, 1, 63, 64, 100, 199}) {
      std::vector<float> labels(200, 1);
      labels[at] = kind;
      const Status status = Parse(labels);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message() == "badly framed", kind == 13);
      EXPECT_EQ(bad_.record, at);
      EXPECT_EQ(bad_.offset, 4 * at);
      EXPECT_EQ(bad_.next, 4 * (at + 1));
      EXPECT_EQ(rows_.num_rows(), at);
    }
  }
}

}  // namespace
}  // namespace lodestar
