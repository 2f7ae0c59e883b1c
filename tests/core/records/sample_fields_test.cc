#include "tf_ops/core/records/sample_fields.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lodestar {
namespace {

template <typename T>
void Put(T number, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

const std::vector<ColumnSpec>& Specs() {
  static const std::vector<ColumnSpec> specs = {
      {"C1", false, -1, 0}, {"click", true, 1, 2}, {"I", true, 2, 0}};
  return specs;
}

SampleLayout Layout() {
  SampleLayout layout;
  layout.kinds = {FieldKind::kKeys, FieldKind::kLabel, FieldKind::kDense};
  return layout;
}

// A label, two values, and keys from `key` on.
std::string Sample(float label, int32_t nnz, uint32_t key) {
  std::string bytes;
  for (const float number : {label, 0.5f, -2.0f}) Put(number, &bytes);
  Put(nnz, &bytes);
  for (int32_t i = 0; i < nnz; ++i) Put(key + i, &bytes);
  return bytes;
}

TEST(SampleFieldsTest, ReadsABlockByColumns) {
  ASSERT_TRUE(SampleFields::Check(Specs(), Layout()).ok());
  const SampleFields fields(&Specs(), Layout());
  EXPECT_EQ(fields.label_dim(), 1);
  EXPECT_EQ(fields.dense_dim(), 2);
  EXPECT_EQ(fields.num_key_slots(), 1);
  EXPECT_EQ(fields.min_bytes(), 16);
  const std::string samples[] = {Sample(1, 2, 7), Sample(0, 0, 0)};
  const char* begins[2];
  const char* ends[2];
  for (int i = 0; i < 2; ++i) {
    begins[i] = samples[i].data();
    ends[i] = begins[i] + samples[i].size();
    EXPECT_EQ(fields.Size(begins[i], ends[i]),
              static_cast<int64_t>(samples[i].size()));
  }
  SlotRows rows(Specs());
  SampleFields::Scratch scratch;
  ASSERT_TRUE(fields.ReadSamples(begins, ends, 2, &scratch, &rows));
  EXPECT_EQ(rows.num_rows(), 2);
  EXPECT_EQ(rows.columns()[0].ints, (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(rows.columns()[0].row_splits, (std::vector<int64_t>{0, 2, 2}));
  EXPECT_EQ(rows.columns()[1].floats, (std::vector<float>{1, 0}));
  EXPECT_EQ(rows.columns()[2].floats, (std::vector<float>{0.5f, -2, 0.5f, -2}));
}

TEST(SampleFieldsTest, ABadSampleRejectsItsBlockAndIsExplained) {
  const SampleFields fields(&Specs(), Layout());
  const std::string samples[] = {Sample(1, 1, 7), Sample(5, 1, 7)};
  const char* begins[] = {samples[0].data(), samples[1].data()};
  const char* ends[] = {begins[0] + samples[0].size(),
                        begins[1] + samples[1].size()};
  SlotRows rows(Specs());
  SampleFields::Scratch scratch;
  EXPECT_FALSE(fields.ReadSamples(begins, ends, 2, &scratch, &rows));
  EXPECT_EQ(rows.num_rows(), 0);
  const Status status = fields.Explain(begins[1], ends[1]);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("click"), std::string::npos)
      << status.message();
}

TEST(SampleFieldsTest, SizeOfTruncatedOrNegativeSamples) {
  const SampleFields fields(&Specs(), Layout());
  const std::string whole = Sample(1, 3, 7);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_GT(fields.Size(whole.data(), whole.data() + size),
              static_cast<int64_t>(size));
  }
  const std::string negative = Sample(1, -1, 7);
  EXPECT_EQ(fields.Size(negative.data(), negative.data() + negative.size()),
            -1);
}

TEST(SampleFieldsTest, RejectsUnsupportedLayouts) {
  std::vector<ColumnSpec> specs = Specs();
  specs[1].size = 2;
  EXPECT_NE(SampleFields::Check(specs, Layout()).message().find("click"),
            std::string::npos);
}

}  // namespace
}  // namespace lodestar
