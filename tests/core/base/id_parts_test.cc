#include "tf_ops/core/base/id_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/core/testing/threads.h"

namespace lodestar {
namespace {

TEST(IdPartsTest, PartsAreFrozen) {
  // The same values as in tests/python/ops/id_hash_test.py.
  const std::vector<int64_t> ids = {INT64_MIN, -1, 0, 1, 2, 3, INT64_MAX};
  const auto parts = [&](uint32_t num_parts) {
    std::vector<uint32_t> parts;
    for (int64_t id : ids) parts.push_back(PartOfId(id, num_parts));
    return parts;
  };
  EXPECT_EQ(parts(1), std::vector<uint32_t>(ids.size(), 0));
  EXPECT_EQ(parts(7), (std::vector<uint32_t>{2, 4, 6, 5, 1, 5, 3}));
  EXPECT_EQ(parts(1000),
            (std::vector<uint32_t>{410, 646, 883, 749, 254, 815, 557}));
}

// Expects the largest and smallest part to be near count / num_parts.
void ExpectEven(const std::vector<int64_t>& ids, int num_parts) {
  std::vector<int64_t> sizes(num_parts);
  for (int64_t id : ids) ++sizes[PartOfId(id, num_parts)];
  const double mean = static_cast<double>(ids.size()) / num_parts;
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  // Five standard deviations of a binomial count.
  EXPECT_GT(*least, mean - 5 * std::sqrt(mean));
  EXPECT_LT(*most, mean + 5 * std::sqrt(mean));
}

TEST(IdPartsTest, PartsAreEvenForSimilarIds) {
  std::vector<int64_t> counting, strided, salted, one_shard, one_tag;
  for (int64_t i = 0; i < 100000; ++i) {
    counting.push_back(i);
    strided.push_back(i * (int64_t{1} << 44));
    salted.push_back(Mix64(i ^ 0x1234567));
  }
  // Ids that a table would put into the first of 64 shards, or of 64 tags.
  for (int64_t i = 0; one_shard.size() < 20000; ++i) {
    if (Mix64(i) >> 58 == 0) one_shard.push_back(i);
    if (Mix64(i) % 64 == 0) one_tag.push_back(i);
  }
  for (const int num_parts : {2, 3, 8, 64}) {
    ExpectEven(counting, num_parts);
    ExpectEven(strided, num_parts);
    ExpectEven(salted, num_parts);
    ExpectEven(one_shard, num_parts);
    ExpectEven(one_tag, num_parts);
  }
}

TEST(IdPartsTest, ShardsOfAPartAreEven) {
  std::vector<int64_t> shards(64);
  int64_t ids = 0;
  for (int64_t i = 0; i < 400000; ++i) {
    if (PartOfId(i, 8) != 3) continue;
    ++shards[Mix64(i) >> 58];
    ++ids;
  }
  const double mean = ids / 64.0;
  for (int64_t shard : shards) EXPECT_NEAR(shard, mean, 5 * std::sqrt(mean));
}

class IdPartsOfWidthTest : public testing::TestWithParam<int64_t> {};

TEST_P(IdPartsOfWidthTest, AssembleRowsInvertsSplitRows) {
  const int64_t width = GetParam();
  const ParallelFor threads = Threads(7);
  for (const ParallelFor* parallel : {(const ParallelFor*)nullptr, &threads}) {
    for (const int64_t count : {0, 1, 50}) {
      for (const int num_parts : {1, 2, 5, 100}) {
        std::vector<int64_t> ids(count);
        std::iota(ids.begin(), ids.end(), -7);
        std::vector<char> rows(count * width);
        std::iota(rows.begin(), rows.end(), 1);
        std::vector<int64_t> places(count, -9);
        const IdParts split(ids, num_parts, places, parallel);

        // Expected parts, by definition.
        std::vector<std::vector<char>> want(num_parts);
        for (int64_t i = 0; i < count; ++i) {
          std::vector<char>& part = want[PartOfId(ids[i], num_parts)];
          part.insert(part.end(), rows.begin() + i * width,
                      rows.begin() + (i + 1) * width);
        }
        std::vector<std::vector<char>> parts(num_parts);
        std::vector<char*> outputs;
        std::vector<const char*> inputs;
        std::vector<int64_t> begins = {0};
        for (int p = 0; p < num_parts; ++p) {
          parts[p].assign(split.size(p) * width, 'x');
          outputs.push_back(parts[p].data());
          inputs.push_back(parts[p].data());
          begins.push_back(begins[p] + split.size(p));
        }
        EXPECT_EQ(begins.back(), count);
        split.SplitRows(rows.data(), width, outputs, parallel);
        EXPECT_EQ(parts, want);

        std::vector<char> assembled(rows.size(), 'x');
        AssembleRows(inputs, begins, places, width, assembled.data(), parallel);
        EXPECT_EQ(assembled, rows);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, IdPartsOfWidthTest,
                         testing::Values(0, 2, 8, 12, 128, 1000));

TEST(IdPartsTest, AssembleRowsAcceptsAnyPlaces) {
  const std::vector<char> first = {'a', 'b'};
  const std::vector<char> third = {'c'};
  std::vector<char> out(5);
  AssembleRows({first.data(), nullptr, third.data()}, {0, 2, 2, 3},
               std::vector<int64_t>{2, 0, 2, 1, 1}, 1, out.data(), nullptr);
  EXPECT_EQ(std::string(out.begin(), out.end()), "cacbb");
}

}  // namespace
}  // namespace lodestar
