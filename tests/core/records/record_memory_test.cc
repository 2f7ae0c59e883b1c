// RecordMemory against a model: a vector of plain structs.

#include "tf_ops/core/records/record_memory.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tf_ops/core/base/permutation.h"

namespace lodestar {
namespace {

using Role = RecordMemory::Role;

struct Sample {
  std::string id;
  int64_t label = 0;
  std::vector<float> dense;  // any number
  std::vector<int64_t> ids;
  std::vector<float> weights;  // one per id
  std::vector<float> floats;

  bool operator==(const Sample& other) const {
    return id == other.id && label == other.label && dense == other.dense &&
           ids == other.ids && weights == other.weights &&
           floats == other.floats;
  }
};
using Samples = std::vector<Sample>;

enum Column { kId, kLabel, kDense, kIds, kWeights, kFloats };

RecordMemory::Options Options(bool drop_zeros = true) {
  RecordMemory::Options options;
  options.specs.resize(7);
  const char* const names[] = {"ins_id",  "label",  "dense", "ids",
                               "weights", "floats", "unused"};
  for (size_t c = 0; c < options.specs.size(); ++c) {
    options.specs[c].name = names[c];
  }
  options.specs[kId].is_text = true;
  options.specs[kLabel].size = 1;
  options.specs[kDense].is_float = true;
  options.specs[kWeights].is_float = true;
  options.specs[kWeights].weighs = kIds;
  options.specs[kFloats].is_float = true;
  options.specs[6].used = false;
  options.roles = {Role::kField,  Role::kDense,  Role::kDense, Role::kSparse,
                   Role::kSparse, Role::kSparse, Role::kSparse};
  options.drop_zeros = drop_zeros;
  return options;
}

SlotRows ToRows(const Samples& samples) {
  SlotRows rows(Options().specs);
  for (const Sample& sample : samples) {
    SlotColumn* column = rows.mutable_column(kId);
    column->text += sample.id;
    column->row_splits.push_back(column->text.size());
    rows.mutable_column(kLabel)->ints.push_back(sample.label);
    const auto add = [&rows](int64_t c, const auto& values, auto member) {
      SlotColumn* to = rows.mutable_column(c);
      (to->*member).insert((to->*member).end(), values.begin(), values.end());
      to->row_splits.push_back((to->*member).size());
    };
    add(kDense, sample.dense, &SlotColumn::floats);
    add(kIds, sample.ids, &SlotColumn::ints);
    add(kWeights, sample.weights, &SlotColumn::floats);
    add(kFloats, sample.floats, &SlotColumn::floats);
    rows.AddRows(1);
  }
  return rows;
}

Samples FromRows(const SlotRows& rows) {
  EXPECT_EQ(rows.FindUnfit(Options().specs), -1);
  Samples samples;
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    Sample sample;
    const auto get = [&](int64_t c, const auto& values, auto* to) {
      to->assign(values.begin() + rows.ValueOffset(c, row),
                 values.begin() + rows.ValueOffset(c, row + 1));
    };
    get(kId, rows.columns()[kId].text, &sample.id);
    sample.label = rows.columns()[kLabel].ints[row];
    get(kDense, rows.columns()[kDense].floats, &sample.dense);
    get(kIds, rows.columns()[kIds].ints, &sample.ids);
    get(kWeights, rows.columns()[kWeights].floats, &sample.weights);
    get(kFloats, rows.columns()[kFloats].floats, &sample.floats);
    samples.push_back(std::move(sample));
  }
  return samples;
}

Samples Read(const RecordMemory::Contents& contents) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < contents.num_samples(); ++i) numbers.push_back(i);
  SlotBatch batch;
  contents.Gather(numbers, &batch);
  SlotRows rows(Options().specs);
  batch.AppendTo(&rows);
  return FromRows(rows);
}

Samples Read(const RecordMemory& memory) { return Read(*memory.Current()); }

// Loads in chunks of `chunk` samples.
void Load(const Samples& samples, size_t chunk, RecordMemory* memory) {
  RecordMemory::Load load(memory);
  for (size_t i = 0; i < samples.size(); i += chunk) {
    const auto begin = samples.begin() + i;
    load.Add(
        ToRows(Samples(begin, begin + std::min(chunk, samples.size() - i))));
  }
  memory->Join(load);
}

// Contains many zeros, repeated values and repeated ids.
Samples Random(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const float floats[] = {0.0f, -0.0f, 5e-7f, 1.5f, -2.0f, NAN};
  Samples samples;
  for (int64_t i = 0; i < count; ++i) {
    Sample sample;
    sample.id = std::string(random() % 3, 'x') + std::to_string(random() % 40);
    sample.label = random() % 2;
    sample.dense.resize(random() % 3);
    for (float& value : sample.dense) value = floats[random() % 4];
    sample.ids.resize(random() % 4);
    for (int64_t& id : sample.ids) id = random() % 5;
    for (size_t k = 0; k < sample.ids.size(); ++k) {
      sample.weights.push_back(floats[random() % 5]);
    }
    sample.floats.resize(random() % 3);
    for (float& value : sample.floats) value = floats[random() % 5];
    samples.push_back(std::move(sample));
  }
  return samples;
}

bool IsZero(float value) { return std::fabs(value) < 1e-6f; }

// The model of drop_zeros.
Samples Dropped(Samples samples) {
  for (Sample& sample : samples) {
    Sample kept;
    for (size_t k = 0; k < sample.ids.size(); ++k) {
      if (sample.ids[k] == 0 || IsZero(sample.weights[k])) continue;
      kept.ids.push_back(sample.ids[k]);
      kept.weights.push_back(sample.weights[k]);
    }
    for (const float value : sample.floats) {
      if (!IsZero(value)) kept.floats.push_back(value);
    }
    if (kept.ids.empty()) {
      kept.ids = {0};
      kept.weights = {0};
    }
    if (kept.floats.empty()) kept.floats = {0};
    sample.ids = kept.ids;
    sample.weights = kept.weights;
    sample.floats = kept.floats;
  }
  return samples;
}

TEST(RecordMemoryTest, KeepsTheOrderOfLoading) {
  const Samples samples = Random(1000, 1);
  for (const size_t chunk : {1, 7, 1000}) {
    RecordMemory memory(Options(false));
    EXPECT_TRUE(Read(memory).empty());
    Load(Samples(samples.begin(), samples.begin() + 300), chunk, &memory);
    Load({}, chunk, &memory);
    Load(Samples(samples.begin() + 300, samples.end()), chunk, &memory);
    EXPECT_EQ(Read(memory), samples);
    memory.Release();
    EXPECT_TRUE(Read(memory).empty());
    EXPECT_EQ(memory.Current()->Bytes(), 0);
  }
}

TEST(RecordMemoryTest, DropsZerosAndFillsEmptySlots) {
  const Samples samples = Random(1000, 2);
  RecordMemory memory(Options());
  Load(samples, 64, &memory);
  EXPECT_EQ(Read(memory), Dropped(samples));
}

TEST(RecordMemoryTest, KeepsNan) {
  RecordMemory memory(Options());
  Sample sample;
  sample.floats = {NAN, 0};
  Load({sample}, 1, &memory);
  const Samples got = Read(memory);
  ASSERT_EQ(got[0].floats.size(), 1u);
  EXPECT_TRUE(std::isnan(got[0].floats[0]));
}

TEST(RecordMemoryTest, HasLittleMemoryOverhead) {
  RecordMemory memory(Options(false));
  Samples samples(100'000);
  for (Sample& sample : samples) {
    sample.id = "1234";
    sample.ids = {1, 2};
    sample.weights = {1, 2};
  }
  Load(samples, 4000, &memory);
  // Its position, a label, the id's bytes, 2 ids and weights, 5 splits.
  const int64_t sample_bytes = 8 + 8 + 4 + 2 * 12 + 5 * 8;
  EXPECT_LE(memory.Current()->Bytes(), samples.size() * (sample_bytes + 1));
}

TEST(RecordMemoryTest, GlobalShuffleIsFixedBySeed) {
  const Samples samples = Random(500, 3);
  const auto run = [&](uint64_t seed, size_t chunk) {
    RecordMemory memory(Options(false));
    Load(samples, chunk, &memory);
    memory.GlobalShuffle(seed);
    return Read(memory);
  };
  const Permutation permutation(500, 9);
  Samples want;
  for (int64_t i = 0; i < 500; ++i) want.push_back(samples[permutation(i)]);
  EXPECT_EQ(run(9, 13), want);
  EXPECT_EQ(run(9, 500), want);
  EXPECT_FALSE(run(10, 13) == want);
}

TEST(RecordMemoryTest, ReplaceInstallsArrangedSamples) {
  const Samples samples = Random(50, 7);
  RecordMemory memory(Options(false));
  Load(Random(9, 8), 4, &memory);
  RecordMemory::Load load(&memory);
  load.Add(ToRows(Samples(samples.begin(), samples.begin() + 20)));
  load.Add(ToRows(Samples(samples.begin() + 20, samples.end())));
  std::vector<int64_t> order;
  Samples want;
  for (int64_t i = 0; i < 50; ++i) {
    order.push_back((7 * i + 3) % 50);
    want.push_back(samples[order.back()]);
  }
  const auto arranged = memory.Arrange(load, order);
  EXPECT_EQ(memory.Current()->num_samples(), 9);
  memory.Replace(arranged);
  EXPECT_EQ(Read(memory), want);
  std::swap(order[3], order[4]);
  EXPECT_NE(memory.Arrange(load, order)->fingerprint(),
            arranged->fingerprint());

  RecordMemory copy(Options(false));
  RecordMemory::Load copied(&copy);
  copied.Add(memory.Copy(*arranged, std::vector<int64_t>{5, 0, 49, 5}));
  copy.Join(copied);
  EXPECT_EQ(Read(copy), Samples({want[5], want[0], want[49], want[5]}));
}

TEST(RecordMemoryTest, SlotsShuffleMovesASlotAndItsWeights) {
  for (const int64_t count : {1, 10, 5000}) {  // more than a chunk
    const Samples samples = Random(count, 4);
    for (const int64_t column : {kIds, kWeights, kFloats}) {
      RecordMemory memory(Options(false));
      Load(samples, 300, &memory);
      memory.GlobalShuffle(5);
      const Samples before = Read(memory);
      memory.SlotsShuffle({column}, 6);
      const Permutation permutation(count, 6);
      Samples want = before;
      for (int64_t i = 0; i < count; ++i) {
        const Sample& from = before[permutation(i)];
        if (column == kFloats) {
          want[i].floats = from.floats;
        } else {
          want[i].ids = from.ids;
          want[i].weights = from.weights;
        }
      }
      EXPECT_EQ(Read(memory), want);
    }
  }
}

// The model of merging. The samples may have passed Dropped().
Samples Merged(const Samples& samples, int64_t min_size, bool keep, bool erase,
               bool drop_zeros, RecordMemory::MergeCounts* counts) {
  std::map<std::string, Samples> by_id;
  for (const Sample& sample : samples) by_id[sample.id].push_back(sample);
  Samples merged;
  std::set<std::string> seen;
  for (const Sample& sample : samples) {
    if (!seen.insert(sample.id).second) continue;
    const Samples& group = by_id[sample.id];
    const int64_t size = group.size();
    if (size < min_size) {
      if (keep) merged.insert(merged.end(), group.begin(), group.end());
      if (!keep) counts->too_few += size;
      continue;
    }
    Sample one;
    one.id = sample.id;
    bool agree = true;
    const auto choose = [&](auto member) {
      const auto is_zero = [](const auto& values) {
        return std::all_of(values.begin(), values.end(),
                           [](float value) { return value == 0; });
      };
      std::vector<std::vector<float>> set;
      for (const Sample& s : group) {
        if (!is_zero(member(s))) set.push_back(member(s));
      }
      for (const auto& values : set) {
        agree &= values.size() == set[0].size() &&
                 std::memcmp(values.data(), set[0].data(),
                             values.size() * sizeof(float)) == 0;
      }
      return set.empty() ? member(group[0]) : set[0];
    };
    one.label = choose([](const Sample& s) {
      return std::vector<float>{static_cast<float>(s.label)};
    })[0];
    one.dense = choose([](const Sample& s) { return s.dense; });
    if (!agree && erase) {
      counts->conflicting += size;
      continue;
    }
    std::set<int64_t> ids;
    std::set<float> floats;
    for (const Sample& s : group) {
      for (size_t k = 0; k < s.ids.size(); ++k) {
        if (drop_zeros && s.ids[k] == 0) continue;
        if (erase && !ids.insert(s.ids[k]).second) continue;
        one.ids.push_back(s.ids[k]);
        one.weights.push_back(s.weights[k]);
      }
      for (const float value : s.floats) {
        if (drop_zeros && IsZero(value)) continue;
        if (erase && !floats.insert(value).second) continue;
        one.floats.push_back(value);
      }
    }
    if (drop_zeros && one.ids.empty()) {
      one.ids = {0};
      one.weights = {0};
    }
    if (drop_zeros && one.floats.empty()) one.floats = {0};
    ++counts->merged;
    merged.push_back(one);
  }
  return merged;
}

TEST(RecordMemoryTest, MergesLikeTheModel) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const int64_t count : {0, 1, 60, 400}) {
      const Samples samples = Random(count, 100 + seed);
      const int64_t min_size = 2 + seed % 3;
      const bool keep = seed % 2;
      const bool erase = seed / 2 % 2;
      const bool drop_zeros = true;
      RecordMemory memory(Options(drop_zeros));
      Load(samples, 11, &memory);
      RecordMemory::MergeCounts want;
      const Samples merged =
          Merged(Dropped(samples), min_size, keep, erase, drop_zeros, &want);
      const RecordMemory::MergeCounts got =
          memory.MergeByText(kId, min_size, keep, erase);
      EXPECT_EQ(Read(memory), merged) << seed;
      EXPECT_EQ(got.merged, want.merged);
      EXPECT_EQ(got.too_few, want.too_few);
      EXPECT_EQ(got.conflicting, want.conflicting);
    }
  }
}

TEST(RecordMemoryTest, MergingKeepsZerosThatAreNotDropped) {
  RecordMemory memory(Options(false));
  Sample a;
  a.id = "a";
  a.ids = {0, 3, 0};
  a.weights = {1, 2, 3};
  Sample b = a;
  b.weights = {4, 5, 6};
  Load({a, b}, 2, &memory);
  memory.MergeByText(kId, 2, true, true);
  Samples got = Read(memory);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].ids, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(got[0].weights, (std::vector<float>{1, 2}));
  EXPECT_TRUE(got[0].floats.empty());
}

TEST(RecordMemoryTest, TheFingerprintDependsOnSamplesAndOrder) {
  const Samples samples = Random(300, 8);
  std::set<uint64_t> seen;
  const auto run = [&](Samples loaded, size_t chunk, const auto& change) {
    RecordMemory memory(Options(false));
    Load(loaded, chunk, &memory);
    change(&memory);
    return memory.Current()->fingerprint();
  };
  const auto nothing = [](RecordMemory*) {};
  const uint64_t plain = run(samples, 10, nothing);
  EXPECT_EQ(run(samples, 300, nothing), plain);
  Samples other = samples;
  std::swap(other[5], other[6]);
  std::vector<uint64_t> different = {
      plain,
      run(other, 10, nothing),
      run(Samples(samples.begin(), samples.end() - 1), 10, nothing),
      run(samples, 10, [](RecordMemory* m) { m->GlobalShuffle(1); }),
      run(samples, 10, [](RecordMemory* m) { m->GlobalShuffle(2); }),
      run(samples, 10, [](RecordMemory* m) { m->SlotsShuffle({kIds}, 1); }),
      run(samples, 10, [](RecordMemory* m) { m->SlotsShuffle({kFloats}, 1); }),
      run(samples, 10,
          [](RecordMemory* m) { m->MergeByText(kId, 2, true, true); }),
      run(samples, 10, [](RecordMemory* m) { m->Release(); })};
  EXPECT_EQ(std::set<uint64_t>(different.begin(), different.end()).size(),
            different.size());
}

// Readers see consistent states only, and keep them alive after Release().
TEST(RecordMemoryTest, ChangesDuringReads) {
  constexpr int64_t kLoad = 200;
  RecordMemory memory(Options(false));
  const Samples samples = Random(kLoad, 9);
  std::atomic<bool> done{false};
  std::atomic<int64_t> read{0};
  std::vector<std::thread> threads;
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&] {
      while (!done) {
        const auto contents = memory.Current();
        const Samples before = Read(*contents);
        EXPECT_EQ(before.size() % kLoad, 0u);
        EXPECT_EQ(Read(*contents), before);
        read += before.size();
      }
    });
  }
  std::vector<std::thread> changers;
  changers.emplace_back([&] {
    for (int i = 0; i < 40; ++i) Load(samples, 50, &memory);
  });
  changers.emplace_back([&] {
    for (int i = 0; i < 40; ++i) memory.GlobalShuffle(i);
  });
  changers.emplace_back([&] {
    for (int i = 0; i < 20; ++i) memory.SlotsShuffle({kFloats}, i);
  });
  changers.emplace_back([&] {
    for (int i = 0; i < 5; ++i) {
      std::this_thread::yield();
      memory.Release();
    }
  });
  for (std::thread& thread : changers) thread.join();
  while (memory.Current()->num_samples() > 0 && read == 0) {
    std::this_thread::yield();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  memory.Release();
  for (int i = 0; i < 3; ++i) Load(samples, 50, &memory);
  EXPECT_EQ(memory.Current()->num_samples(), 3 * kLoad);
}

}  // namespace
}  // namespace lodestar
