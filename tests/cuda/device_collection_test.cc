// Compares collections of features in GPU memory with CollectionBatch on random
// input. Needs neither Bazel nor TensorFlow (see docs/internals/kernels.md).
// Skipped without a device.

#include "tf_ops/core/device/batch/device_collection.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_tables.h"
#include "tests/cuda/run_tests.h"
#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/core/device/batch/device_csr.h"
#include "tf_ops/core/device/batch/device_features.h"
#include "tf_ops/core/device/batch/staging_buffer.h"

namespace lodestar {
namespace {

void TestBlock(Random*) {
  DeviceBlock block;
  const auto chars = block.Reserve<char>(33);
  const auto numbers = block.Reserve<int64_t>(5);
  block.Reserve<float>(0);
  Expect(chars.offset == 0 && numbers.offset == 64 && block.bytes() == 128,
         "pieces are rounded up to 32 bytes");
  LimitedAllocator limited(100);
  ExpectError(block.Allocate(&limited, "a test"),
              StatusCode::kResourceExhausted, "128 bytes for a test");
  CudaAllocator cuda;
  ExpectOk(block.Allocate(&cuda, "a test"), "allocate after none was left");
  Expect(reinterpret_cast<uintptr_t>(block.at(numbers)) % 32 == 0,
         "pieces begin at sectors");
}

void TestStaging(Random*) {
  cudaStream_t stream;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  {
    StagingBuffer buffer(stream);
    void* const first = buffer.Allocate(100);
    void* const second = buffer.Allocate(100);
    void* const third = buffer.Allocate(1 << 20);
    Expect(first != nullptr && second != nullptr && third != nullptr,
           "staging: memory");
    Expect(first != second && second != third, "staging: memory of its own");
    std::memset(first, 1, 100);
    std::memset(third, 3, 1 << 20);
    buffer.Free(first);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    Expect(buffer.Allocate(50) == first, "staging: what is done comes again");
    buffer.Free(first);
    void* const larger = buffer.Allocate(1 << 20);
    std::memset(larger, 4, 1 << 20);
    buffer.Free(second);
    buffer.Free(third);
    buffer.Free(larger);
  }
  Expect(StagingBuffer::Of(stream) == StagingBuffer::Of(stream),
         "staging: one buffer a stream");
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  cudaStreamDestroy(stream);
}

// Features over two tables, and their batch.
struct Case {
  std::vector<CollectionFeature> features;
  std::vector<Ids> ids;
  std::vector<Ids> splits;
  std::vector<std::vector<float>> weights;
  std::vector<FeatureTensors> tensors;
};

void AddFeature(Random* random, int64_t table, bool pooled, Combiner combiner,
                bool weighted, int64_t max_bag, Case* batch) {
  CollectionFeature feature;
  feature.name = "f" + std::to_string(batch->features.size());
  feature.table = table;
  feature.pooled = pooled;
  feature.combiner = combiner;
  if (Draw(random, 0, 2) == 0) feature.salt = Draw(random, -5, 5);
  if (Draw(random, 0, 1) == 0) feature.padding_id = Draw(random, -3, 3);
  if (pooled && Draw(random, 0, 1) == 0) {
    feature.default_id = Draw(random, -9, 9);
  }
  if (pooled && Draw(random, 0, 3) == 0) feature.max_length = 2;
  Ids splits = {0};
  const int64_t bags = Draw(random, 0, few ? 60 : 2000);
  for (int64_t b = 0; b < bags; ++b) {
    splits.push_back(splits.back() +
                     (max_bag == 1 ? 1 : Draw(random, 0, max_bag)));
  }
  Ids ids;
  for (int64_t i = 0; i < splits.back(); ++i) {
    ids.push_back(Draw(random, 0, 3) == 0 ? Draw(random, -3, 3)
                                          : Draw(random, -999, 999));
  }
  std::vector<float> weights;
  for (size_t i = 0; weighted && i < ids.size(); ++i) {
    weights.push_back(static_cast<float>(Draw(random, -2, 8)) / 4);
  }
  batch->features.push_back(feature);
  batch->ids.push_back(ids);
  batch->splits.push_back(splits);
  batch->weights.push_back(weights);
}

Case SomeFeatures(Random* random) {
  Case batch;
  const Combiner combiners[] = {Combiner::kSum,   Combiner::kMean,
                                Combiner::kSqrtn, Combiner::kMax,
                                Combiner::kFirst, Combiner::kLast};
  const int64_t count = Draw(random, 1, 9);
  for (int64_t f = 0; f < count; ++f) {
    const Combiner combiner = combiners[Draw(random, 0, 5)];
    AddFeature(random, Draw(random, 0, 1), Draw(random, 0, 4) != 0, combiner,
               combiner <= Combiner::kSqrtn && Draw(random, 0, 1) == 0,
               Draw(random, 0, 2) == 0 ? 1 : Draw(random, 2, 90), &batch);
    if (!batch.features.back().pooled) batch.weights.back().clear();
  }
  for (int64_t f = 0; f < count; ++f) {
    FeatureTensors tensors;
    tensors.ids = batch.ids[f];
    if (batch.features[f].pooled) {
      tensors.row_splits = batch.splits[f];
      tensors.weights = batch.weights[f];
    }
    batch.tensors.push_back(tensors);
  }
  return batch;
}

// Rows or gradients of features on both sides.
struct Outputs {
  Outputs(const Case& batch, const std::vector<int64_t>& row_bytes,
          const std::vector<int64_t>& dims) {
    for (size_t f = 0; f < batch.features.size(); ++f) {
      const CollectionFeature& feature = batch.features[f];
      const size_t items =
          feature.pooled ? batch.splits[f].size() - 1 : batch.ids[f].size();
      const bool is_max = feature.pooled && feature.combiner == Combiner::kMax;
      host_rows.emplace_back(items * row_bytes[feature.table]);
      host_winners.emplace_back(items * dims[feature.table]);
      rows.push_back(std::make_unique<DeviceBuffer<char>>(
          static_cast<int64_t>(host_rows.back().size())));
      device_winners.push_back(std::make_unique<DeviceBuffer<int64_t>>(
          static_cast<int64_t>(host_winners.back().size())));
      host_row_data.push_back(host_rows.back().data());
      host_winner_data.push_back(is_max ? host_winners.back().data() : nullptr);
      winner_data.push_back(is_max ? device_winners.back()->data() : nullptr);
    }
  }
  std::vector<std::vector<char>> host_rows;
  std::vector<Ids> host_winners;
  std::vector<void*> host_row_data;
  std::vector<int64_t*> host_winner_data;
  std::vector<std::unique_ptr<DeviceBuffer<char>>> rows;
  std::vector<std::unique_ptr<DeviceBuffer<int64_t>>> device_winners;
  std::vector<int64_t*> winner_data;
};

// `magnitudes`, if not empty: sums of absolute values for the sums in `b`,
// because cancellation leaves rounding errors.
bool Near(const std::vector<float>& a, const std::vector<float>& b,
          float tolerance, const std::vector<float>& magnitudes = {}) {
  for (size_t i = 0; i < a.size(); ++i) {
    const float magnitude = magnitudes.empty() ? b[i] : magnitudes[i];
    if (!(std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(magnitude)))) {
      return false;
    }
  }
  return a.size() == b.size();
}

// A batch of features, looked up in tables on the device and on the host.
class Comparison {
 public:
  Comparison(Random* random, Tables* a, Tables* b, const std::string& what)
      : random_(*random), tables_{a, b}, what_(what) {}

  void Run(bool insert) {
    batch_ = SomeFeatures(&random_);
    CollectionBatch host;
    ExpectOk(host.Init(batch_.features, batch_.tensors, 2,
                       CollectionBatch::Ids::kByTable, nullptr),
             what_);
    DeviceCollection device;
    ExpectOk(device.Init(on(),
                         DeviceFeatures(batch_.features, host,
                                        CollectionBatch::Ids::kByTable),
                         2, nullptr),
             what_);
    const std::vector<int64_t> dims = {tables_[0]->dim, tables_[1]->dim};
    Outputs outputs(batch_, {tables_[0]->row_bytes(), tables_[1]->row_bytes()},
                    dims);
    ExpectOk(device.Unique(), what_);
    FindOnHost(host, insert);
    if (insert) InsertOnDevice(&device);
    Lookup(host, device, insert, &outputs);
    if (insert) {
      Count(host, &device);
      SumGradients(host, device, outputs);
      PoolFetched(&outputs);
    }
    for (int t = 0; t < 2; ++t) {
      tables_[t]->ExpectSameTable(what_ + ": table " + std::to_string(t));
    }
  }

 private:
  const DeviceStream& on() const { return tables_[0]->on; }

  void FindOnHost(const CollectionBatch& host, bool insert) {
    std::vector<Span<int64_t>> spans;
    for (int t = 0; t < 2; ++t) {
      positions_[t].resize(host.num_ids(t));
      spans.push_back(positions_[t]);
    }
    unique_.clear();
    ExpectOk(host.Deduplicate(&unique_, spans, nullptr), what_);
    for (int t = 0; t < 2; ++t) {
      std::vector<RowRef> refs(unique_[t].size());
      resident_[t].resize(unique_[t].size());
      if (!insert) continue;
      LookupOptions options;
      options.insert = true;
      options.count_frequency = true;
      EmbeddingStore* const store = tables_[t]->host.get();
      unique_rows_[t].resize(unique_[t].size() * store->row_bytes());
      EmbeddingStore::TableIds ids = {store, unique_[t], refs,
                                      resident_[t].data()};
      ids.rows = unique_rows_[t].data();
      ids.missing.kind = Missing::Kind::kInitial;
      ExpectOk(EmbeddingStore::FindOrInsert({&ids, 1}, options, nullptr),
               what_);
    }
  }

  void InsertOnDevice(DeviceCollection* device) {
    LookupOptions options;
    options.insert = true;
    options.count_frequency = true;
    ExpectOk(device->FindOrInsert(
                 {tables_[0]->device.get(), tables_[1]->device.get()}, options),
             what_);
    for (int t = 0; t < 2; ++t) {
      Ids unique(unique_[t].size());
      Ids positions(positions_[t].size());
      Expect(device->num_unique(t) == static_cast<int64_t>(unique.size()),
             what_ + ": number of unique ids");
      Expect(device->num_padding(t) ==
                 std::count(positions_[t].begin(), positions_[t].end(), -1),
             what_ + ": number of padding ids");
      if (device->num_unique(t) != static_cast<int64_t>(unique.size())) return;
      REQUIRE_CUDA(cudaMemcpy(unique.data(), device->batch(t).ids().data,
                              unique.size() * 8, cudaMemcpyDeviceToHost));
      REQUIRE_CUDA(cudaMemcpy(positions.data(), device->batch(t).positions(),
                              positions.size() * 8, cudaMemcpyDeviceToHost));
      Expect(unique == unique_[t], what_ + ": unique ids");
      Expect(positions == positions_[t], what_ + ": positions");
    }
  }

  std::vector<CollectionBatch::Table> HostTables(bool has_rows) {
    std::vector<CollectionBatch::Table> tables(2);
    for (int t = 0; t < 2; ++t) {
      const EmbeddingStore* const store = tables_[t]->host.get();
      tables[t].reads.store = store;
      tables[t].reads.missing.kind = Missing::Kind::kInitial;
      tables[t].has_rows = has_rows;
      tables[t].positions = positions_[t];
      tables[t].fetched = {store->type(), store->dim(), unique_rows_[t].data(),
                           static_cast<int64_t>(unique_[t].size())};
    }
    return tables;
  }

  void Lookup(const CollectionBatch& host, const DeviceCollection& device,
              bool insert, Outputs* outputs) {
    host.Lookup(HostTables(insert), outputs->host_row_data,
                outputs->host_winner_data, nullptr);
    for (size_t f = 0; f < batch_.features.size(); ++f) {
      const std::string what = what_ + ": feature " + std::to_string(f);
      ExpectOk(device.Lookup(static_cast<int>(f), StoreOf(f),
                             {Missing::Kind::kInitial, nullptr},
                             outputs->rows[f]->data(), outputs->winner_data[f]),
               what);
      ExpectSame(f, *outputs, what);
    }
  }

  void ExpectSame(size_t f, const Outputs& outputs, const std::string& what) {
    REQUIRE_CUDA(cudaStreamSynchronize(on().stream));
    Expect(outputs.rows[f]->Download() == outputs.host_rows[f], what);
    Expect(outputs.rows[f]->ZonesAreIntact(), what + ": outside");
    if (outputs.winner_data[f] == nullptr) return;
    Expect(outputs.device_winners[f]->Download() == outputs.host_winners[f],
           what + ": winners");
  }

  // Pools the rows of the unique ids, without a table.
  void PoolFetched(Outputs* outputs) {
    std::vector<FeatureTensors> tensors = batch_.tensors;
    std::vector<std::vector<char>> default_rows(tensors.size());
    std::vector<std::unique_ptr<DeviceBuffer<char>>> device_defaults;
    for (size_t f = 0; f < tensors.size(); ++f) {
      default_rows[f].assign(tables_[batch_.features[f].table]->row_bytes(),
                             0x3f);  // a number of any type
      device_defaults.push_back(
          std::make_unique<DeviceBuffer<char>>(default_rows[f]));
      if (!batch_.features[f].default_id.has_value()) continue;
      tensors[f].default_row = default_rows[f].data();
    }
    CollectionBatch host;
    ExpectOk(host.Init(batch_.features, tensors, 2, CollectionBatch::Ids::kRead,
                       nullptr),
             what_);
    DeviceCollection device;
    ExpectOk(device.Init(on(),
                         DeviceFeatures(batch_.features, host,
                                        CollectionBatch::Ids::kRead),
                         2, nullptr),
             what_);
    std::vector<CollectionBatch::Table> tables = HostTables(true);
    std::vector<std::unique_ptr<DeviceBuffer<char>>> rows;
    std::vector<std::unique_ptr<DeviceBuffer<int64_t>>> positions;
    std::vector<DeviceCollection::Fetched> fetched(2);
    for (int t = 0; t < 2; ++t) {
      tables[t].reads.store = nullptr;
      rows.push_back(std::make_unique<DeviceBuffer<char>>(unique_rows_[t]));
      positions.push_back(
          std::make_unique<DeviceBuffer<int64_t>>(positions_[t]));
      fetched[t].rows = {tables_[t]->type, tables_[t]->dim, rows[t]->data(),
                         static_cast<int64_t>(unique_[t].size())};
      fetched[t].positions = positions[t]->data();
    }
    host.Lookup(tables, outputs->host_row_data, outputs->host_winner_data,
                nullptr);
    for (size_t f = 0; f < tensors.size(); ++f) {
      const std::string what =
          what_ + ": fetched, feature " + std::to_string(f);
      DeviceCollection::Fetched from = fetched[batch_.features[f].table];
      if (tensors[f].default_row != nullptr) {
        from.default_row = device_defaults[f]->data();
      }
      ExpectOk(device.Lookup(static_cast<int>(f), from,
                             outputs->rows[f]->data(), outputs->winner_data[f]),
               what);
      ExpectSame(f, *outputs, what);
    }
  }

  void Count(const CollectionBatch& host, DeviceCollection* device) {
    CollectionBatch::Tally tally;
    host.MakeTally({static_cast<int64_t>(unique_[0].size()),
                    static_cast<int64_t>(unique_[1].size())},
                   &tally);
    host.Count({positions_[0], positions_[1]}, {resident_[0], resident_[1]},
               nullptr, &tally);
    for (size_t f = 0; f < batch_.features.size(); ++f) {
      const DeviceBuffer<unsigned long long> counts(
          std::vector<unsigned long long>(4));
      ExpectOk(device->Count(static_cast<int>(f), counts.data()), what_);
      REQUIRE_CUDA(cudaStreamSynchronize(on().stream));
      const std::vector<unsigned long long> got = counts.Download();
      const FeatureCounts& wanted = tally.counts[f];
      Expect(static_cast<int64_t>(got[0]) == wanted.ids &&
                 static_cast<int64_t>(got[1]) == wanted.padding &&
                 static_cast<int64_t>(got[2]) == wanted.unique &&
                 static_cast<int64_t>(got[3]) == wanted.hits,
             what_ + ": counts of feature " + std::to_string(f));
    }
  }

  // Multiples of 1/8, whose sums are exact in any order; means are not.
  std::vector<float> SomeGradients(int64_t count) {
    std::vector<float> gradients(count);
    for (float& g : gradients) {
      g = static_cast<float>(Draw(&random_, -16, 16)) / 8;
    }
    return gradients;
  }

  void SumGradients(const CollectionBatch& host, const DeviceCollection& device,
                    const Outputs& outputs) {
    std::vector<std::vector<float>> gradients;
    std::vector<std::unique_ptr<DeviceBuffer<float>>> on_device;
    std::vector<const void*> host_data, device_data;
    std::vector<const int64_t*> host_winners, device_winners;
    for (size_t f = 0; f < batch_.features.size(); ++f) {
      const int64_t dim = tables_[batch_.features[f].table]->dim;
      gradients.push_back(
          SomeGradients(static_cast<int64_t>(outputs.host_winners[f].size())));
      // Shifts every other one, so it cannot be loaded in wide packs.
      on_device.push_back(
          std::make_unique<DeviceBuffer<float>>(gradients[f], dim % 2));
      host_data.push_back(gradients[f].data());
      device_data.push_back(on_device[f]->data());
      host_winners.push_back(outputs.host_winner_data[f]);
      device_winners.push_back(outputs.winner_data[f]);
    }
    std::vector<std::vector<float>> wanted(2);
    std::vector<CollectionBatch::Sums> sums(2);
    for (int t = 0; t < 2; ++t) {
      wanted[t].resize(unique_[t].size() * tables_[t]->dim);
      sums[t] = {RowType::kFloat32, positions_[t],
                 static_cast<int64_t>(unique_[t].size()),
                 static_cast<int>(tables_[t]->dim), wanted[t].data()};
    }
    ExpectOk(host.SumGradients(host_data, host_winners, sums, nullptr), what_);
    const std::vector<std::vector<float>> wanted_sums = wanted;
    for (std::vector<float>& gradient : gradients) {
      for (float& g : gradient) g = std::abs(g);
    }
    ExpectOk(host.SumGradients(host_data, host_winners, sums, nullptr), what_);
    for (int t = 0; t < 2; ++t) {
      const DeviceBuffer<float> got(static_cast<int64_t>(wanted[t].size()));
      ExpectOk(
          device.SumGradients(t, RowType::kFloat32, device_data, device_winners,
                              device.batch(t).positions(), device.num_unique(t),
                              tables_[t]->dim, got.data()),
          what_);
      REQUIRE_CUDA(cudaStreamSynchronize(on().stream));
      Expect(Near(got.Download(), wanted_sums[t], 1e-5f, wanted[t]),
             what_ + ": sums of table " + std::to_string(t));
      Expect(got.ZonesAreIntact(), what_ + ": sums outside");
    }
  }

  DeviceStore* StoreOf(size_t f) const {
    return tables_[batch_.features[f].table]->device.get();
  }

  Random& random_;
  Tables* tables_[2];
  const std::string what_;
  Case batch_;
  std::vector<Ids> unique_;
  Ids positions_[2];
  std::vector<char> unique_rows_[2];
  std::vector<char> resident_[2];
};

void TestFeatures(Random* random) {
  for (const RowType type : {RowType::kFloat32, RowType::kBFloat16}) {
    for (const int64_t dim : {1, 5, 32}) {
      Tables a(dim, type, "normal");
      Tables b(64, type, "uniform");
      for (int round = 0; round < (few ? 6 : 30); ++round) {
        Comparison(random, &a, &b,
                   std::string(NameOf(type)) + " dim " + std::to_string(dim) +
                       " round " + std::to_string(round))
            .Run(round % 4 != 3);
      }
    }
  }
}

// Tables partitioned by the parity of ids, each on its own stream: partial sums
// of bags add up to the sums of one table.
void TestParts(Random* random) {
  constexpr int64_t kDim = 16;
  Tables parts[2] = {{kDim, RowType::kFloat32, "uniform"},
                     {kDim, RowType::kFloat32, "uniform"}};
  Tables whole(kDim, RowType::kFloat32, "uniform");
  for (int round = 0; round < (few ? 3 : 20); ++round) {
    Case batch;
    AddFeature(random, 0, true, Combiner::kSum, true, 20, &batch);
    batch.features[0] = CollectionFeature();
    batch.features[0].combiner = Combiner::kSum;
    const int64_t bags = static_cast<int64_t>(batch.splits[0].size()) - 1;
    std::vector<std::vector<float>> rows(3);
    std::vector<std::thread> callers;
    for (int p = 0; p < 3; ++p) {
      callers.emplace_back([&, p] {
        Ids ids, splits = {0};
        std::vector<float> weights;
        for (int64_t b = 0; b < bags; ++b) {
          for (int64_t i = batch.splits[0][b]; i < batch.splits[0][b + 1];
               ++i) {
            if (p < 2 && (batch.ids[0][i] & 1) != p) continue;
            ids.push_back(batch.ids[0][i]);
            weights.push_back(batch.weights[0][i]);
          }
          splits.push_back(static_cast<int64_t>(ids.size()));
        }
        Tables& tables = p < 2 ? parts[p] : whole;
        DeviceCollection device;
        DeviceCollection::Feature feature;
        feature.slot.ids = ids;
        feature.slot.row_splits = splits;
        feature.slot.weights = weights;
        feature.combiner = Combiner::kSum;
        Status status = device.Init(tables.on, {feature}, 1, nullptr);
        if (status.ok()) status = device.Unique();
        if (status.ok()) {
          LookupOptions options;
          options.insert = true;
          status = device.FindOrInsert({tables.device.get()}, options);
        }
        const DeviceBuffer<float> out(bags * kDim);
        if (status.ok()) {
          status =
              device.Lookup(0, tables.device.get(), {}, out.data(), nullptr);
        }
        REQUIRE_CUDA(cudaStreamSynchronize(tables.on.stream));
        rows[p] = status.ok() ? out.Download() : std::vector<float>();
      });
    }
    for (std::thread& caller : callers) caller.join();
    Expect(rows[0].size() == rows[2].size() && rows[1].size() == rows[2].size(),
           "parts: lookups");
    if (rows[0].size() != rows[2].size()) continue;
    for (size_t i = 0; i < rows[0].size(); ++i) rows[0][i] += rows[1][i];
    Expect(Near(rows[0], rows[2], 1e-5f), "parts: partial sums add up");
  }
}

void TestOutOfMemory(Random* random, const TablePolicies& policies) {
  LimitedAllocator limited(int64_t{1} << 40);
  Tables first(8, RowType::kFloat32, "uniform", policies);
  Tables second(8, RowType::kFloat32, "uniform", policies, &limited);
  limited.Allow(limited.used());
  Ids ids = SomeIds(random, 50000, 50000);
  DeviceCollection::Feature features[2];
  for (int t = 0; t < 2; ++t) {
    features[t].table = t;
    features[t].slot.ids = ids;
  }
  DeviceCollection device;
  ExpectOk(device.Init(first.on, {features[0], features[1]}, 2, nullptr),
           "memory");
  ExpectOk(device.Unique(), "memory");
  LookupOptions options;
  options.insert = true;
  options.count_frequency = true;
  ExpectError(
      device.FindOrInsert({first.device.get(), second.device.get()}, options),
      StatusCode::kResourceExhausted, "out of memory");
  first.ExpectSameTable("the table beside one without memory is as it was");
  second.ExpectSameTable("the table without memory is as it was");
  DeviceStream none = first.on;
  LimitedAllocator nothing(0);
  none.memory = &nothing;
  DeviceCollection refused;
  ExpectError(refused.Init(none, {features[0]}, 1, nullptr),
              StatusCode::kResourceExhausted, "a batch of ids");
}

void TestOutOfMemory(Random* random) {
  TablePolicies admission;
  admission.admission.kind = AdmissionPolicy::Kind::kMinCount;
  admission.admission.min_count = 2;
  for (const TablePolicies& policies : {TablePolicies(), admission}) {
    TestOutOfMemory(random, policies);
  }
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  using namespace lodestar;
  return RunTests(argc, argv,
                  {{"block", TestBlock},
                   {"staging", TestStaging},
                   {"features", TestFeatures},
                   {"parts", TestParts},
                   {"memory", TestOutOfMemory}});
}
