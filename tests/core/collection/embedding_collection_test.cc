#include "tf_ops/core/collection/embedding_collection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/testing/errors.h"
#include "tests/core/testing/stores.h"
#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/id_parts.h"

namespace lodestar {
namespace {

using Ids = CollectionBatch::Ids;

constexpr int kDims[] = {3, 8};
constexpr int kNumTables = 2;

// Splits into ranges of 3 items, one thread each.
ParallelFor Threads() {
  return [](int64_t total, int64_t,
            const std::function<void(int64_t, int64_t)>& body) {
    std::vector<std::thread> threads;
    for (int64_t begin = 0; begin < total; begin += 3) {
      threads.emplace_back(body, begin, std::min(total, begin + 3));
    }
    for (std::thread& thread : threads) thread.join();
  };
}

struct Batch {
  std::vector<int64_t> ids;
  std::vector<int64_t> splits = {0};
  std::vector<float> weights;

  FeatureTensors tensors(const CollectionFeature& feature) const {
    FeatureTensors tensors;
    tensors.ids = ids;
    if (feature.pooled) tensors.row_splits = splits;
    tensors.weights = weights;
    return tensors;
  }
};

// All options, over two tables with different dimensions.
std::vector<CollectionFeature> MakeFeatures() {
  std::vector<CollectionFeature> features;
  const auto add = [&](int64_t table, bool pooled, Combiner combiner) {
    CollectionFeature feature;
    feature.name = StrCat("f", features.size());
    feature.table = table;
    feature.pooled = pooled;
    feature.combiner = combiner;
    features.push_back(feature);
    return &features.back();
  };
  features.reserve(16);
  add(0, true, Combiner::kMean);
  add(1, true, Combiner::kSum)->padding_id = 3;
  add(0, false, Combiner::kSum)->padding_id = 4;
  add(0, true, Combiner::kMax)->salt = 0x123456789;
  CollectionFeature* all = add(1, true, Combiner::kSqrtn);
  all->salt = -5;
  all->padding_id = 0;
  all->default_id = 11;
  all->max_length = 2;
  add(1, true, Combiner::kLast)->default_id = 2;
  add(1, false, Combiner::kSum)->salt = 77;
  add(0, true, Combiner::kFirst)->max_length = 1;
  add(1, true, Combiner::kMean)->padding_id = 3;
  CollectionFeature* fallback = add(0, true, Combiner::kMean);
  fallback->padding_id = 3;
  fallback->default_id = 5;
  return features;
}

bool TakesWeights(const CollectionFeature& feature) {
  return feature.pooled && (feature.combiner == Combiner::kSum ||
                            feature.combiner == Combiner::kSqrtn);
}

struct Lengths {
  int num_bags;
  int shortest;
  int longest;
};

std::vector<Batch> MakeBatches(const std::vector<CollectionFeature>& features,
                               const Lengths& lengths) {
  const auto [num_bags, shortest, longest] = lengths;
  std::mt19937_64 rng(num_bags);
  std::vector<Batch> batches(features.size());
  for (size_t f = 0; f < features.size(); ++f) {
    for (int b = 0; b < num_bags; ++b) {
      const int length = shortest + rng() % (longest - shortest + 1);
      for (int i = 0; i < length; ++i) {
        batches[f].ids.push_back(rng() % 40);
        if (TakesWeights(features[f])) {
          batches[f].weights.push_back(static_cast<float>(rng() % 5) - 1.0f);
        }
      }
      batches[f].splits.push_back(batches[f].ids.size());
    }
  }
  return batches;
}

std::vector<FeatureTensors> Tensors(
    const std::vector<CollectionFeature>& features,
    const std::vector<Batch>& batches) {
  std::vector<FeatureTensors> tensors;
  for (size_t f = 0; f < features.size(); ++f) {
    tensors.push_back(batches[f].tensors(features[f]));
  }
  return tensors;
}

// The bags that the table sees, by definition: salted and truncated.
Batch Plain(const CollectionFeature& feature, const Batch& batch) {
  Batch plain;
  for (size_t b = 0; b + 1 < batch.splits.size(); ++b) {
    for (int64_t i = batch.splits[b]; i < batch.splits[b + 1]; ++i) {
      if (feature.pooled && feature.max_length > 0 &&
          i - batch.splits[b] >= feature.max_length) {
        continue;
      }
      plain.ids.push_back(feature.salt ? Mix64(batch.ids[i] ^ *feature.salt)
                                       : batch.ids[i]);
      if (!batch.weights.empty()) plain.weights.push_back(batch.weights[i]);
    }
    plain.splits.push_back(plain.ids.size());
  }
  return plain;
}

// One feature, looked up by the functions for single lookups.
struct Single {
  Single(const CollectionFeature& feature, const Batch& batch)
      : plain(Plain(feature, batch)), positions(plain.ids.size()) {
    if (feature.padding_id) padding = TableId(feature, *feature.padding_id);
    if (feature.default_id) fallback = TableId(feature, *feature.default_id);
    if (!feature.pooled) {
      plain.splits = {0};
      for (size_t i = 0; i < plain.ids.size(); ++i) {
        plain.splits.push_back(i + 1);
      }
    }
    bags.ids = plain.ids;
    bags.row_splits = plain.splits;
    bags.weights = plain.weights;
    bags.combiner = feature.pooled ? feature.combiner : Combiner::kSum;
    if (feature.padding_id) bags.padding_id = &padding;
    if (feature.default_id) bags.default_id = &fallback;
    BatchUnique(plain.ids, bags.padding_id, &unique, positions);
  }
  Single(const Single&) = delete;

  std::vector<float> Lookup(EmbeddingStore* store, bool insert,
                            std::vector<int64_t>* winners) const {
    std::vector<RowRef> refs(unique.size());
    EXPECT_TRUE(
        store->FindOrInsert(unique, {insert, insert}, refs, nullptr).ok());
    std::vector<float> rows(bags.size() * store->dim());
    winners->resize(rows.size());
    PoolFind({store, Missing()}, bags, rows.data(),
             bags.combiner == Combiner::kMax ? winners->data() : nullptr);
    return rows;
  }

  Batch plain;
  std::vector<int64_t> positions;
  std::vector<int64_t> unique;
  int64_t padding = 0;
  int64_t fallback = 0;
  Bags bags;
};

// A lookup of all features together.
struct Together {
  // default_rows: for features whose tables' rows were fetched.
  explicit Together(const std::vector<CollectionFeature>& features,
                    const std::vector<Batch>& batches, Ids ids,
                    const ParallelFor* threads,
                    const std::vector<std::vector<float>>& default_rows = {})
      : tensors(Tensors(features, batches)), parallel(threads) {
    for (size_t f = 0; f < default_rows.size(); ++f) {
      if (!default_rows[f].empty()) {
        tensors[f].default_row = default_rows[f].data();
      }
    }
    EXPECT_TRUE(batch.Init(features, tensors, kNumTables, ids, parallel).ok());
    for (size_t f = 0; f < features.size(); ++f) {
      const int64_t count = features[f].pooled ? batches[f].splits.size() - 1
                                               : batches[f].ids.size();
      rows.emplace_back(count * kDims[features[f].table], -7.0f);
      winners.emplace_back(rows.back().size(), -9);
      max.push_back(features[f].pooled &&
                    features[f].combiner == Combiner::kMax);
    }
  }

  void Deduplicate() {
    std::vector<Span<int64_t>> spans;
    for (int t = 0; t < kNumTables; ++t) {
      positions.emplace_back(batch.num_ids(t));
      spans.push_back(positions.back());
    }
    EXPECT_TRUE(batch.Deduplicate(&unique, spans, parallel).ok());
  }

  void Lookup(const std::vector<EmbeddingStore*>& stores, bool insert,
              bool found) {
    std::vector<CollectionBatch::Table> tables(kNumTables);
    std::vector<std::vector<float>> unique_rows(kNumTables);
    resident.resize(kNumTables);
    for (int t = 0; t < kNumTables; ++t) {
      tables[t].reads.store = stores[t];
      if (!found) continue;
      const int64_t count = static_cast<int64_t>(unique[t].size());
      std::vector<RowRef> refs(count);
      resident[t].resize(count);
      unique_rows[t].resize(count * kDims[t]);
      const EmbeddingStore::TableIds ids = {stores[t], unique[t],
                                            refs,      resident[t].data(),
                                            {},        unique_rows[t].data()};
      EXPECT_TRUE(
          EmbeddingStore::FindOrInsert({&ids, 1}, {insert, insert}, parallel)
              .ok());
      tables[t].has_rows = true;
      tables[t].positions = positions[t];
      tables[t].fetched = {RowType::kFloat32, kDims[t], unique_rows[t].data(),
                           count};
    }
    Lookup(tables);
  }

  void Lookup(const std::vector<CollectionBatch::Table>& tables) {
    std::vector<void*> outputs;
    std::vector<int64_t*> winner_outputs;
    for (size_t f = 0; f < rows.size(); ++f) {
      outputs.push_back(rows[f].data());
      winner_outputs.push_back(max[f] ? winners[f].data() : nullptr);
    }
    batch.Lookup(tables, outputs, winner_outputs, parallel);
  }

  std::vector<FeatureTensors> tensors;
  const ParallelFor* parallel;
  CollectionBatch batch;
  std::vector<std::vector<float>> rows;
  std::vector<std::vector<int64_t>> winners;
  std::vector<bool> max;
  std::vector<std::vector<int64_t>> unique;
  std::vector<std::vector<int64_t>> positions;
  std::vector<std::vector<char>> resident;
};

struct Stores {
  Stores() {
    for (int dim : kDims) owned.push_back(StoreOf(dim));
    for (const auto& store : owned) pointers.push_back(store.get());
  }
  std::vector<std::unique_ptr<EmbeddingStore>> owned;
  std::vector<EmbeddingStore*> pointers;
};

class EmbeddingCollectionTest : public testing::TestWithParam<Lengths> {
 protected:
  const std::vector<CollectionFeature> features_ = MakeFeatures();
  const std::vector<Batch> batches_ = MakeBatches(features_, GetParam());
};

TEST_P(EmbeddingCollectionTest, EqualsSingleLookups) {
  const ParallelFor threads = Threads();
  for (const ParallelFor* parallel : {(const ParallelFor*)nullptr, &threads}) {
    Stores stores;
    Stores others;
    for (const bool insert : {true, false}) {
      for (const bool found : {true, false}) {
        if (insert && !found) continue;
        Together together(features_, batches_,
                          found ? Ids::kByTable : Ids::kRead, parallel);
        if (found) together.Deduplicate();
        together.Lookup(stores.pointers, insert, found);
        for (size_t f = 0; f < features_.size(); ++f) {
          const Single single(features_[f], batches_[f]);
          std::vector<int64_t> winners;
          EXPECT_EQ(together.rows[f],
                    single.Lookup(others.pointers[features_[f].table], insert,
                                  &winners))
              << features_[f].name;
          if (together.max[f]) {
            EXPECT_EQ(together.winners[f], winners);
          }
        }
      }
    }
    for (int t = 0; t < kNumTables; ++t) {
      const EmbeddingRows a = Export(*stores.pointers[t]);
      const EmbeddingRows b = Export(*others.pointers[t]);
      EXPECT_EQ(a.ids, b.ids);
      EXPECT_EQ(a.values, b.values);
      // One occurrence per id, however many features contain it.
      EXPECT_EQ(a.frequencies, b.frequencies);
    }
  }
}

TEST_P(EmbeddingCollectionTest, DeduplicatesOverTheFeaturesOfATable) {
  Together together(features_, batches_, Ids::kByTable, nullptr);
  together.Deduplicate();
  for (int t = 0; t < kNumTables; ++t) {
    std::vector<int64_t> unique;
    std::vector<int64_t> positions;
    for (size_t f = 0; f < features_.size(); ++f) {
      if (features_[f].table != t) continue;
      const Single single(features_[f], batches_[f]);
      for (int64_t id : single.plain.ids) {
        if (single.bags.padding_id != nullptr && id == single.padding) {
          positions.push_back(kNoPosition);
          continue;
        }
        const auto at = std::find(unique.begin(), unique.end(), id);
        positions.push_back(at - unique.begin());
        if (at == unique.end()) unique.push_back(id);
      }
    }
    EXPECT_EQ(together.unique[t], unique);
    EXPECT_EQ(together.positions[t], positions);
  }
}

TEST_P(EmbeddingCollectionTest, SumsGradientsOverTheFeaturesOfATable) {
  const ParallelFor threads = Threads();
  std::vector<std::vector<float>> first;
  for (const ParallelFor* parallel : {(const ParallelFor*)nullptr, &threads}) {
    Stores stores;
    Together forward(features_, batches_, Ids::kByTable, parallel);
    forward.Deduplicate();
    forward.Lookup(stores.pointers, true, true);
    std::mt19937_64 rng(3);
    std::vector<std::vector<float>> gradients;
    std::vector<const void*> gradient_data;
    std::vector<const int64_t*> winner_data;
    for (size_t f = 0; f < features_.size(); ++f) {
      gradients.emplace_back(forward.rows[f].size());
      for (float& x : gradients.back()) x = static_cast<float>(rng() % 9) - 4;
      winner_data.push_back(forward.max[f] ? forward.winners[f].data()
                                           : nullptr);
    }
    for (const auto& gradient : gradients) {
      gradient_data.push_back(gradient.data());
    }
    std::vector<std::vector<float>> sums;
    std::vector<CollectionBatch::Sums> tables(kNumTables);
    for (int t = 0; t < kNumTables; ++t) {
      sums.emplace_back(forward.unique[t].size() * kDims[t], -7.0f);
      tables[t].positions = forward.positions[t];
      tables[t].num_unique = forward.unique[t].size();
      tables[t].dim = kDims[t];
    }
    for (int t = 0; t < kNumTables; ++t) tables[t].sums = sums[t].data();
    // The gradient op uses only the number of ids.
    Together backward(features_, batches_, Ids::kCount, parallel);
    ASSERT_TRUE(backward.batch
                    .SumGradients(gradient_data, winner_data, tables, parallel)
                    .ok());

    std::vector<std::map<int64_t, std::vector<double>>> want(kNumTables);
    for (size_t f = 0; f < features_.size(); ++f) {
      const Single single(features_[f], batches_[f]);
      const int t = features_[f].table;
      const Bags& bags = single.bags;
      for (int64_t b = 0; b < bags.size(); ++b) {
        const int64_t begin = bags.row_splits[b];
        std::vector<float> factors(bags.row_splits[b + 1] - begin);
        BagFactors(bags, single.positions, b, factors.data());
        for (int64_t i = begin; i < bags.row_splits[b + 1]; ++i) {
          if (single.positions[i] == kNoPosition) continue;
          std::vector<double>& sum = want[t][bags.ids[i]];
          sum.resize(kDims[t]);
          for (int c = 0; c < kDims[t]; ++c) {
            const int64_t at = b * kDims[t] + c;
            if (forward.max[f] && winner_data[f][at] != i) continue;
            sum[c] += factors[i - begin] * gradients[f][at];
          }
        }
      }
    }
    for (int t = 0; t < kNumTables; ++t) {
      ASSERT_EQ(want[t].size(), forward.unique[t].size());
      for (size_t u = 0; u < forward.unique[t].size(); ++u) {
        for (int c = 0; c < kDims[t]; ++c) {
          EXPECT_NEAR(sums[t][u * kDims[t] + c],
                      want[t][forward.unique[t][u]][c], 1e-4);
        }
      }
    }
    if (first.empty()) first = sums;
    EXPECT_EQ(sums, first);  // bitwise, for any number of threads
  }
}

TEST_P(EmbeddingCollectionTest, FetchedRowsEqualThoseOfAStore) {
  Stores stores;
  Together near(features_, batches_, Ids::kByTable, nullptr);
  near.Deduplicate();
  near.Lookup(stores.pointers, true, true);
  const auto fetch = [&](int t, const std::vector<int64_t>& ids) {
    std::vector<float> rows(ids.size() * kDims[t]);
    stores.pointers[t]->Find(ids, nullptr, Missing(), rows.data(), nullptr,
                             nullptr);
    return rows;
  };
  std::vector<std::vector<float>> default_rows;
  for (const CollectionFeature& feature : features_) {
    default_rows.emplace_back();
    if (!feature.default_id) continue;
    default_rows.back() =
        fetch(feature.table, {TableId(feature, *feature.default_id)});
  }
  std::vector<CollectionBatch::Table> tables(kNumTables);
  std::vector<std::vector<float>> rows;
  for (int t = 0; t < kNumTables; ++t) rows.push_back(fetch(t, near.unique[t]));
  for (int t = 0; t < kNumTables; ++t) {
    tables[t].has_rows = true;
    tables[t].positions = near.positions[t];
    tables[t].fetched = {RowType::kFloat32, kDims[t], rows[t].data(),
                         static_cast<int64_t>(near.unique[t].size())};
  }
  const ParallelFor threads = Threads();
  Together far(features_, batches_, Ids::kRead, &threads, default_rows);
  far.Lookup(tables);
  EXPECT_EQ(far.rows, near.rows);
  EXPECT_EQ(far.winners, near.winners);
}

// Tables whose features have the same ids are deduplicated together if the ids
// are also at the same place in memory.
TEST(EmbeddingCollectionSharedIdsTest, EqualsTablesWithCopiesOfTheIds) {
  enum Change {
    kNone,
    kSalt,
    kPadding,
    kLength,
    kSplits,
    kIds,
    kFewer,
    kOtherOrder,
    kCount
  };
  for (int change = 0; change < kCount; ++change) {
    std::vector<CollectionFeature> features(5);
    for (int f = 0; f < 5; ++f) {
      features[f].table = f < 3 ? 0 : 1;
      features[f].combiner = Combiner::kSum;
      features[f].max_length = 3;
    }
    features[1].padding_id = features[4].padding_id = 7;
    features[2].table = 2;
    if (change == kSalt) features[4].salt = 9;
    if (change == kPadding) features[4].padding_id = 8;
    if (change == kLength) features[4].max_length = 2;
    if (change == kFewer) features[4].table = 2;
    const std::vector<Batch> drawn =
        MakeBatches({features[0], features[1]}, {40, 0, 6});
    // Features 0 and 1 are in table 0, and 3 and 4, with the same ids, in
    // table 1. Feature 2 has the ids of feature 0 and a table of its own.
    std::vector<Batch> copies = {drawn[0], drawn[1], drawn[0], drawn[0],
                                 drawn[1]};
    if (change == kOtherOrder) std::swap(copies[3], copies[4]);
    // As many ids after truncation, but others.
    if (change == kSplits) {
      std::vector<int64_t>& splits = copies[4].splits;
      const int64_t end = splits.back();
      std::reverse(splits.begin(), splits.end());
      for (int64_t& split : splits) split = end - split;
    }
    if (change == kIds) copies[4].ids[5] = 1234;
    std::vector<FeatureTensors> apart = Tensors(features, copies);
    std::vector<FeatureTensors> together = apart;
    together[2] = together[0];
    together[3].ids = together[change == kOtherOrder ? 1 : 0].ids;
    if (change != kIds) {
      together[4].ids = together[change == kOtherOrder ? 0 : 1].ids;
    }
    std::vector<std::vector<int64_t>> unique[2];
    std::vector<std::vector<int64_t>> positions[2];
    const ParallelFor threads = Threads();
    for (int i = 0; i < 2; ++i) {
      CollectionBatch batch;
      ASSERT_TRUE(batch
                      .Init(features, i == 0 ? apart : together, 3,
                            Ids::kByTable, &threads)
                      .ok());
      std::vector<Span<int64_t>> spans;
      positions[i].resize(3);
      for (int t = 0; t < 3; ++t) {
        positions[i][t].resize(batch.num_ids(t), -5);
        spans.push_back(positions[i][t]);
      }
      ASSERT_TRUE(batch.Deduplicate(&unique[i], spans, &threads).ok());
    }
    EXPECT_EQ(unique[0], unique[1]) << change;
    EXPECT_EQ(positions[0], positions[1]) << change;
    EXPECT_EQ(
        unique[0][0] == unique[0][1] && positions[0][0] == positions[0][1],
        change == kNone)
        << change;
  }
}

// Two tables with the same ids in bags of other lengths, which are truncated to
// equal lengths, keep other ids.
TEST(EmbeddingCollectionSharedIdsTest, TruncatedBagsMayKeepOtherIds) {
  const std::vector<int64_t> ids = {10, 11, 12, 13, 14};
  const std::vector<int64_t> splits[2] = {{0, 3, 5}, {0, 2, 5}};
  std::vector<CollectionFeature> features(2);
  std::vector<FeatureTensors> tensors(2);
  for (int f = 0; f < 2; ++f) {
    features[f].table = f;
    features[f].max_length = 2;
    tensors[f].ids = ids;
    tensors[f].row_splits = splits[f];
  }
  CollectionBatch batch;
  ASSERT_TRUE(batch.Init(features, tensors, 2, Ids::kByTable, nullptr).ok());
  std::vector<int64_t> positions[2] = {std::vector<int64_t>(4),
                                       std::vector<int64_t>(4)};
  std::vector<std::vector<int64_t>> unique;
  ASSERT_TRUE(
      batch.Deduplicate(&unique, {positions[0], positions[1]}, nullptr).ok());
  EXPECT_EQ(unique[0], (std::vector<int64_t>{10, 11, 13, 14}));
  EXPECT_EQ(unique[1], (std::vector<int64_t>{10, 11, 12, 13}));
}

TEST_P(EmbeddingCollectionTest, CountsByFeature) {
  Stores stores;
  Together first(features_, batches_, Ids::kByTable, nullptr);
  first.Deduplicate();
  first.Lookup(stores.pointers, true, true);
  stores.pointers[0]->Clear({}).ok();
  Together second(features_, batches_, Ids::kByTable, nullptr);
  second.Deduplicate();
  second.Lookup(stores.pointers, true, true);
  CollectionBatch::Tally tally;
  std::vector<int64_t> num_unique;
  for (const auto& ids : second.unique) num_unique.push_back(ids.size());
  second.batch.MakeTally(num_unique, &tally);
  const std::vector<Span<const int64_t>> positions(second.positions.begin(),
                                                   second.positions.end());
  const ParallelFor threads = Threads();
  second.batch.Count(positions, second.resident, &threads, &tally);
  for (size_t f = 0; f < features_.size(); ++f) {
    const Single single(features_[f], batches_[f]);
    const FeatureCounts& counts = tally.counts[f];
    const int64_t padding = std::count(single.positions.begin(),
                                       single.positions.end(), kNoPosition);
    EXPECT_EQ(counts.ids, single.plain.ids.size());
    EXPECT_EQ(counts.padding, padding);
    EXPECT_EQ(counts.unique, single.unique.size());
    EXPECT_EQ(counts.hits,
              features_[f].table == 0 ? 0 : counts.ids - counts.padding);
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, EmbeddingCollectionTest,
                         testing::Values(Lengths{0, 0, 0}, Lengths{7, 0, 0},
                                         Lengths{20, 0, 6}, Lengths{60, 0, 90},
                                         Lengths{50, 1, 1}, Lengths{50, 1, 2}));

TEST_P(EmbeddingCollectionTest, PartitionedBagsAddUp) {
  std::vector<CollectionFeature> features;
  std::vector<Batch> batches;
  for (size_t f = 0; f < features_.size(); ++f) {
    if (!features_[f].pooled || features_[f].combiner == Combiner::kMax) {
      continue;
    }
    features.push_back(features_[f]);
    features.back().default_id.reset();
    batches.push_back(batches_[f]);
  }
  const ParallelFor threads = Threads();
  for (const int64_t num_parts : {1, 2, 5}) {
    Together together(features, batches, Ids::kRead, &threads);
    std::vector<std::vector<int64_t>> places;
    std::vector<Span<int64_t>> spans;
    for (const Batch& batch : batches) places.emplace_back(batch.ids.size());
    for (auto& of_feature : places) spans.push_back(of_feature);
    std::vector<std::vector<CollectionBatch::PartBags>> parts;
    ASSERT_TRUE(
        together.batch.PartitionBags(num_parts, &parts, spans, &threads).ok());
    for (size_t f = 0; f < features.size(); ++f) {
      SCOPED_TRACE(testing::Message() << num_parts << " parts, feature " << f);
      const Single single(features[f], batches[f]);
      std::vector<float> factors(single.plain.ids.size());
      for (int64_t b = 0; b < single.bags.size(); ++b) {
        BagFactors(single.bags, single.positions, b,
                   factors.data() + single.plain.splits[b]);
      }
      // Expected multiset of (id, factor) of each bag.
      using Bag = std::map<std::pair<int64_t, float>, int>;
      std::vector<Bag> wanted(single.bags.size());
      std::vector<Bag> got(single.bags.size());
      for (int64_t b = 0; b < single.bags.size(); ++b) {
        for (int64_t i = single.plain.splits[b]; i < single.plain.splits[b + 1];
             ++i) {
          const bool padding = single.positions[i] == kNoPosition;
          ++wanted[b][{single.plain.ids[i], padding ? 0.0f : factors[i]}];
        }
      }
      std::vector<int64_t> all_ids;
      ASSERT_EQ(parts[f].size(), static_cast<size_t>(num_parts));
      for (int64_t p = 0; p < num_parts; ++p) {
        const CollectionBatch::PartBags& part = parts[f][p];
        ASSERT_EQ(part.row_splits.size(), wanted.size() + 1);
        ASSERT_EQ(part.row_splits.back(),
                  static_cast<int64_t>(part.ids.size()));
        for (size_t b = 0; b < wanted.size(); ++b) {
          for (int64_t i = part.row_splits[b]; i < part.row_splits[b + 1];
               ++i) {
            const bool padding = single.bags.is_padding(part.ids[i]);
            EXPECT_EQ(p, padding ? 0 : PartOfId(part.ids[i], num_parts));
            ++got[b][{part.ids[i], part.factors[i]}];
          }
        }
        all_ids.insert(all_ids.end(), part.ids.begin(), part.ids.end());
      }
      EXPECT_EQ(got, wanted);
      int64_t left_out = 0;
      for (size_t i = 0; i < places[f].size(); ++i) {
        if (places[f][i] < 0) {
          ++left_out;
          continue;
        }
        EXPECT_EQ(all_ids[places[f][i]],
                  TableId(features[f], batches[f].ids[i]));
      }
      EXPECT_EQ(left_out,
                static_cast<int64_t>(places[f].size() - all_ids.size()));
    }
  }
}

TEST(EmbeddingCollectionBagsTest, AsManyIdsAsBagsIsNotOneIdPerBag) {
  Stores stores;
  std::vector<CollectionFeature> features(2);
  features[1].table = 1;
  Batch none_first;
  none_first.ids = {1, 2};
  none_first.splits = {0, 0, 2};
  Batch two_first = none_first;
  two_first.splits = {0, 2, 2};
  const std::vector<Batch> batches = {none_first, two_first};
  Together together(features, batches, Ids::kByTable, nullptr);
  together.Deduplicate();
  together.Lookup(stores.pointers, true, true);
  Stores others;
  for (int f = 0; f < 2; ++f) {
    const Single single(features[f], batches[f]);
    std::vector<int64_t> winners;
    EXPECT_EQ(together.rows[f],
              single.Lookup(others.pointers[f], true, &winners));
  }
}

TEST(EmbeddingCollectionErrorTest, NamesTheFeature) {
  std::vector<CollectionFeature> features(2);
  features[0].name = "good";
  features[1].name = "bad";
  const std::vector<int64_t> ids = {1, 2};
  const std::vector<int64_t> splits = {0, 2};
  const std::vector<int64_t> bad_splits = {0, 3};
  std::vector<FeatureTensors> tensors(2);
  tensors[0].ids = tensors[1].ids = ids;
  tensors[0].row_splits = splits;
  tensors[1].row_splits = bad_splits;
  CollectionBatch batch;
  ExpectError(batch.Init(features, tensors, 1, Ids::kByTable, nullptr),
              StatusCode::kInvalidArgument, {"feature 'bad': `row_splits"});
}

}  // namespace
}  // namespace lodestar
