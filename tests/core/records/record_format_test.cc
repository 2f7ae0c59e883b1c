#include "tf_ops/core/records/record_format.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

class NoRecords : public RecordFormat {
 public:
  using RecordFormat::RecordFormat;
  std::unique_ptr<RecordCutter> NewCutter() const override { return nullptr; }
  Status Parse(int64_t, const char*, const char*, SlotRows*,
               BadRecord*) const override {
    return Status();
  }
};

TEST(RecordFormatTest, DescribesARecordByIndexAndByte) {
  const NoRecords format({{"click", false, 1, 2}});
  ASSERT_EQ(format.specs().size(), 1u);
  EXPECT_EQ(format.specs()[0].name, "click");
  EXPECT_EQ(format.Describe(3, 1000), ": record 3 at byte 1000");
}

TEST(RecordFormatTest, DefaultsOfBadRecordAndCut) {
  EXPECT_EQ(BadRecord().next, -1);
  EXPECT_TRUE(BadRecord().wants_message);
  EXPECT_EQ(RecordCut().records, 0);
}

}  // namespace
}  // namespace lodestar
