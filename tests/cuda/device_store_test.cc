// Compares the embedding table in GPU memory with EmbeddingStore on random
// input. Needs neither Bazel nor TensorFlow (see docs/internals/kernels.md).
// Skipped without a device.

#include "tf_ops/core/device/device_store.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_tables.h"
#include "tests/cuda/run_tests.h"
#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/device/batch/device_batch.h"
#include "tf_ops/core/device/batch/device_gradient.h"
#include "tf_ops/core/embedding/embedding_gradient.h"
#include "tf_ops/core/embedding/embedding_pool.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/optimizer_rules.h"

namespace lodestar {
namespace {

void TestBatches(Random* random) {
  for (const int64_t count : {0, 1, 31, 32, 33, 1000, 100000}) {
    if (few && count > 1000) continue;
    for (const bool padded : {false, true}) {
      const Ids ids = SomeIds(random, count, std::max<int64_t>(1, count / 3));
      const std::string what = "unique of " + std::to_string(count);
      cudaStream_t stream;
      REQUIRE_CUDA(cudaStreamCreate(&stream));
      {
        StreamAllocator memory(stream);
        const DeviceStream on = {stream, &memory};
        const int64_t padding_id = count > 5 ? ids[5] : 0;
        const DeviceBuffer<int64_t> device_ids(ids);
        DeviceBatch batch;
        ExpectOk(batch.Unique(on, {device_ids.data(), count, nullptr},
                              padded ? &padding_id : nullptr),
                 what);
        int64_t size = 0;
        ExpectOk(batch.Count(on, &size), what);
        Ids unique;
        Ids positions(count);
        BatchUnique(ids, padded ? &padding_id : nullptr, &unique, positions);
        Expect(size == static_cast<int64_t>(unique.size()), what + ": size");
        Ids got(unique.size()), got_positions(count);
        REQUIRE_CUDA(cudaMemcpy(got.data(), batch.ids().data, got.size() * 8,
                                cudaMemcpyDeviceToHost));
        REQUIRE_CUDA(cudaMemcpy(got_positions.data(), batch.positions(),
                                count * 8, cudaMemcpyDeviceToHost));
        Expect(got == unique, what + ": unique ids");
        Expect(got_positions == positions, what + ": positions");

        for (const int64_t dim : {1, 3, 32, 100}) {
          for (int k = 0; k < 2; ++k) {
            // Frequent positions span many tiles.
            Ids at = positions;
            if (k == 1) {
              for (size_t i = 0; i < at.size(); ++i) {
                if (Draw(random, 0, 3) != 0 && !unique.empty()) at[i] = 0;
              }
            }
            std::vector<float> gradients(count * dim);
            for (float& g : gradients) {
              g = static_cast<float>(Draw(random, -64, 64)) / 8;
            }
            std::vector<float> wanted(unique.size() * dim);
            SumByPosition<float>(gradients.data(), at,
                                 static_cast<int64_t>(unique.size()),
                                 static_cast<int>(dim), wanted.data(), nullptr);
            const DeviceBuffer<float> device_gradients(gradients);
            const DeviceBuffer<int64_t> device_at(at);
            const DeviceBuffer<float> sums(wanted.size());
            ExpectOk(SumByPosition(on, RowType::kFloat32,
                                   device_gradients.data(), device_at.data(),
                                   count, static_cast<int64_t>(unique.size()),
                                   dim, sums.data()),
                     what);
            REQUIRE_CUDA(cudaStreamSynchronize(stream));
            Expect(sums.Download() == wanted,
                   what + ": sums, dim " + std::to_string(dim));
            Expect(sums.ZonesAreIntact(), what + ": sums outside");
          }
        }
      }
      cudaStreamDestroy(stream);
    }
  }
}

void TestTables(Random* random) {
  const char* const initializers[] = {"zeros", "uniform", "normal",
                                      "truncated_normal"};
  int number = 0;
  for (const RowType type :
       {RowType::kFloat32, RowType::kFloat16, RowType::kBFloat16}) {
    for (const int64_t dim : {1, 3, 8, 33, 64, 128, 300}) {
      if (few && dim > 64 && type != RowType::kFloat16) continue;
      const std::string initializer = initializers[number++ % 4];
      const std::string what = std::string(NameOf(type)) + " dim " +
                               std::to_string(dim) + " " + initializer;
      Tables tables(dim, type,
                    initializer == "uniform" ? "uniform" : initializer);
      tables.ExpectSameTable(what + ", empty");
      for (int round = 0; round < 6; ++round) {
        const int64_t count = int64_t{1} << Draw(random, 0, few ? 9 : 13);
        const Ids ids = SomeIds(random, count, count + 10);
        const Ids unique = UniqueOf(ids);
        tables.SetStep(round);
        tables.FindOrInsert(unique, round != 3, round % 2 == 0, what);
        const int64_t padding_id = ids[0];
        for (const auto kind : {Missing::Kind::kZeros, Missing::Kind::kInitial,
                                Missing::Kind::kVector}) {
          Ids asked = SomeIds(random, count / 2 + 1, count + 10);
          asked.insert(asked.end(), ids.begin(), ids.end());
          tables.ExpectSameRows(asked, round % 2 == 0 ? &padding_id : nullptr,
                                kind, what, round % 3);
        }
        Ids some = SomeIds(random, count / 4 + 1, count / 8 + 6);
        std::vector<char> rows(some.size() * tables.row_bytes());
        for (char& byte : rows) byte = static_cast<char>(Draw(random, 0, 59));
        tables.Assign(some, rows);
        tables.ExpectSameTable(what + ", assigned");
        Ids gone = SomeIds(random, count / 3 + 1, count + 10);
        gone.insert(gone.end(), unique.begin(),
                    unique.begin() + unique.size() / 2);
        tables.Remove(gone);
        tables.ExpectSameTable(what + ", removed");
      }
      tables.Clear();
      tables.FindOrInsert({1, 2, 3}, true, true, what + ", cleared");
      tables.ExpectSameTable(what + ", cleared");
    }
  }
}

void TestOptimizers(Random* random) {
  for (const RowType type :
       {RowType::kFloat32, RowType::kFloat16, RowType::kBFloat16}) {
    for (const int64_t dim : {1, 5, 64}) {
      VisitRules([&](auto rule) {
        using Rule = decltype(rule);
        const std::string what = std::string(Rule::kName) + " " + NameOf(type) +
                                 " dim " + std::to_string(dim);
        std::vector<float> h(kHyperparameters<Rule>);
        for (float& x : h) {
          x = static_cast<float>(Draw(random, 1, 900)) / 1000;
        }
        h[1] = Draw(random, 0, 1) == 0 ? 0.0f : 0.1f;
        const bool is_ftrl = std::string(Rule::kName) == "ftrl";
        if (is_ftrl) h.at(2) = Draw(random, 0, 1) == 0 ? -0.5f : -0.4f;
        // A centered average that exceeds the square would give NaN.
        if (std::string(Rule::kName).find("centered") != std::string::npos) {
          h.at(2) = 0.5f, h.at(3) = 0.5f, h.at(4) = 1.0f;
        }
        std::vector<float> inits(kRuleSlots<Rule>, 0.1f);
        Tables tables(dim, type, "normal");
        const Ids all =
            UniqueOf(SomeIds(random, few ? 300 : 3000, few ? 200 : 2000));
        const Ids half(all.begin(), all.begin() + all.size() / 2);
        tables.FindOrInsert(half, true, true, what);
        for (int step = 0; step < 3; ++step) {
          tables.Apply(all, Rule::kName, h, inits, step == 1, random, what);
        }
        tables.ExpectSameTable(what, is_ftrl
                                         ? (type == RowType::kFloat16    ? 2e-3
                                            : type == RowType::kBFloat16 ? 2e-2
                                                                         : 1e-5)
                                         : 0);
        DeviceTableState state;
        ExpectOk(tables.device->ReadState(tables.on, &state), what);
        Expect(static_cast<int64_t>(state.events[Event::kGradientsDropped]) ==
                   tables.host->Stats().count(Event::kGradientsDropped),
               what + ": dropped gradients");
      });
    }
  }
  Tables tables(4, RowType::kFloat32, "zeros");
  tables.FindOrInsert({1}, true, true, "errors");
  tables.Apply({1}, "sgd", {0.1f, 0.0f}, {}, false, random, "sgd");
  TableUpdate update = tables.UpdateOf(nullptr, 0, nullptr);
  update.optimizer = "adagrad";
  const std::vector<float> numbers = {0.1f, 0.0f, 1e-7f};
  const std::vector<float> inits = {0.1f};
  update.hyperparameters = numbers;
  update.slot_inits = inits;
  ExpectError(tables.UpdateDevice(tables.on, update),
              StatusCode::kFailedPrecondition,
              "slots of 'sgd', but the update uses 'adagrad'");
  update.optimizer = "adagrab";
  ExpectError(tables.UpdateDevice(tables.on, update),
              StatusCode::kInvalidArgument, "unknown optimizer 'adagrab'");
  update.optimizer = "adagrad";
  update.slot_inits = {};
  ExpectError(tables.UpdateDevice(tables.on, update),
              StatusCode::kInvalidArgument, "`slot_inits` has 0 elements");
  update.slot_inits = inits;
  update.hyperparameters = inits;
  ExpectError(tables.UpdateDevice(tables.on, update),
              StatusCode::kInvalidArgument, "takes 3 hyperparameters, got 1");
}

void TestPooling(Random* random) {
  for (const RowType type : {RowType::kFloat32, RowType::kBFloat16}) {
    for (const int64_t dim : {1, 17, 64}) {
      TablePolicies policies;
      policies.shared_rows = 50;
      Tables tables(dim, type, "normal", policies);
      const Ids ids = SomeIds(random, 3000, 600);
      Ids known = UniqueOf(ids);
      known.resize(known.size() / 2);
      tables.FindOrInsert(known, true, true, "pool");
      std::vector<int64_t> splits = {0};
      while (splits.back() < 3000) {
        splits.push_back(
            std::min<int64_t>(3000, splits.back() + Draw(random, 0, 9)));
      }
      std::vector<float> weights(ids.size());
      for (float& w : weights) {
        w = static_cast<float>(Draw(random, -2, 8)) / 4;
      }
      const int64_t padding_id = ids[7];
      const int64_t default_id = 123456789;  // has no row
      for (const auto combiner :
           {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn, Combiner::kMax,
            Combiner::kFirst, Combiner::kLast}) {
        for (const bool weighted : {false, true}) {
          if (weighted && combiner > Combiner::kSqrtn) continue;
          const std::string what =
              "pool " + std::to_string(static_cast<int>(combiner)) +
              (weighted ? " weighted dim " : " dim ") + std::to_string(dim);
          const int64_t bags = static_cast<int64_t>(splits.size()) - 1;
          const bool is_max = combiner == Combiner::kMax;
          const DeviceBuffer<int64_t> device_ids(ids);
          const DeviceBuffer<int64_t> device_splits(splits);
          const DeviceBuffer<float> device_weights(weights);
          const DeviceBuffer<char> pooled(bags * tables.row_bytes());
          const DeviceBuffer<int64_t> winners(bags * dim);
          DeviceStore::Bags device_bags;
          device_bags.row_splits = device_splits.data();
          device_bags.size = bags;
          device_bags.weights = weighted ? device_weights.data() : nullptr;
          device_bags.combiner = combiner;
          device_bags.padding_id = &padding_id;
          device_bags.default_id = &default_id;
          Missing missing;
          missing.kind =
              weighted ? Missing::Kind::kShared : Missing::Kind::kInitial;
          ExpectOk(
              tables.device->Pool(tables.on, {device_ids.data(), 3000, nullptr},
                                  device_bags, missing, pooled.data(),
                                  is_max ? winners.data() : nullptr),
              what);
          REQUIRE_CUDA(cudaStreamSynchronize(tables.stream));
          Bags host_bags;
          host_bags.ids = ids;
          host_bags.row_splits = splits;
          if (weighted) host_bags.weights = weights;
          host_bags.combiner = combiner;
          host_bags.padding_id = &padding_id;
          host_bags.default_id = &default_id;
          std::vector<char> wanted(bags * tables.row_bytes());
          std::vector<int64_t> wanted_winners(bags * dim);
          PoolFind({tables.host.get(), missing}, host_bags, wanted.data(),
                   is_max ? wanted_winners.data() : nullptr);
          Expect(pooled.Download() == wanted, what);
          Expect(!is_max || winners.Download() == wanted_winners,
                 what + ": winners");
          Expect(pooled.ZonesAreIntact(), what + ": outside");
        }
      }
    }
  }
}

// Evicts rows of 4 floats, which are returned by id.
Status EvictRows(Table* table, const EvictionPolicy& policy,
                 const Execution& on, int64_t* evicted,
                 std::map<int64_t, std::vector<float>>* rows) {
  std::vector<int64_t> ids;
  std::vector<float> values;
  LODESTAR_RETURN_IF_ERROR(table->EvictRows(
      policy,
      [&](int64_t count, Table::EvictedRows* out) {
        ids.resize(count);
        values.resize(4 * count);
        *out = {ids.data(), reinterpret_cast<char*>(values.data())};
        return Status();
      },
      evicted, on));
  for (size_t i = 0; i < ids.size(); ++i) {
    (*rows)[ids[i]] = {values.begin() + 4 * i, values.begin() + 4 * i + 4};
  }
  return Status();
}

void TestEviction(Random* random) {
  for (const auto order :
       {EvictionPolicy::Order::kLru, EvictionPolicy::Order::kLfu}) {
    for (int round = 0; round < 8; ++round) {
      Tables tables(4, RowType::kFloat32, "normal");
      const int64_t steps = 6;
      for (int64_t step = 0; step < steps; ++step) {
        tables.SetStep(step);
        tables.FindOrInsert(UniqueOf(SomeIds(random, 500, 800)), true, true,
                            "evict");
      }
      EvictionPolicy policy;
      policy.order = order;
      policy.max_rows = round % 2 == 0 ? Draw(random, 1, 1500) : 0;
      if (round % 4 >= 2) policy.max_age = Draw(random, 0, 4);
      if (round >= 4) policy.min_norm = 0.6f;
      if (round % 3 == 2) policy.min_frequency = Draw(random, 1, 5);
      int64_t evicted = 0, wanted = 0;
      if (round % 2 == 0) {
        std::map<int64_t, std::vector<float>> on_device, on_host;
        ExpectOk(EvictRows(tables.device.get(), policy, tables.on, &evicted,
                           &on_device),
                 "evict");
        ExpectOk(
            EvictRows(tables.host.get(), policy, nullptr, &wanted, &on_host),
            "evict");
        Expect(on_device == on_host, "evict: rows");
      } else {
        ExpectOk(tables.device->Evict(policy, &evicted, tables.on), "evict");
        ExpectOk(tables.host->Evict(policy, &wanted, nullptr), "evict");
      }
      Expect(evicted == wanted, "evict: " + std::to_string(evicted) +
                                    " rows, wanted " + std::to_string(wanted));
      tables.ExpectSameTable("evict");
      tables.FindOrInsert(UniqueOf(SomeIds(random, 900, 800)), true, true,
                          "after eviction");
      tables.ExpectSameTable("after eviction");
    }
  }
}

// Tables with a cap evict rows for new ones and refuse some ids.
void TestCap(Random* random) {
  for (int round = 0; round < 12; ++round) {
    EvictionPolicy policy;
    policy.max_rows = Draw(random, 1, 900);
    policy.order = round % 2 == 0 ? EvictionPolicy::Order::kLru
                                  : EvictionPolicy::Order::kLfu;
    TablePolicies policies;
    policies.eviction = policy;
    Tables tables(5, RowType::kFloat32, "normal", policies);
    for (int64_t step = 0; step < 8; ++step) {
      tables.SetStep(step / 2);
      const Ids ids = UniqueOf(SomeIds(random, Draw(random, 1, 700), 1500));
      const std::string what = "cap " + std::to_string(policy.max_rows);
      tables.FindOrInsert(ids, true, step != 5, what);
      tables.ExpectSameTable(what);
    }
    const Ids some = SomeIds(random, 300, 200);
    tables.Assign(some, 1);
    tables.ExpectSameTable("cap, assigned");
    EmbeddingStats on_device;
    ExpectOk(tables.device->ReadStats(&on_device, tables.on), "cap");
    const EmbeddingStats stats = tables.host->Stats();
    Expect(on_device.events == stats.events, "cap: events");
    Expect(on_device.rows == stats.rows, "cap: rows");
    Expect(on_device.max_rows == stats.max_rows, "cap: max_rows");
    Ids many(1000);
    for (size_t i = 0; i < many.size(); ++i) many[i] = 7000 + i;
    EmbeddingRowsView view;
    const std::vector<float> values(5000);
    const Ids numbers(1000);
    view.ids = many;
    view.values = values;
    view.frequencies = numbers;
    view.last_seen = numbers;
    ExpectError(tables.device->Import(view, tables.on),
                StatusCode::kFailedPrecondition,
                "but `max_rows` of the table is");
    tables.ExpectSameTable("cap, import refused");
  }
}

// Tables that raise when they are full change nothing then.
void TestFull(Random* random) {
  TablePolicies policies;
  policies.eviction.max_rows = 100;
  policies.eviction.raise_when_full = true;
  policies.table_name = "user";
  Tables tables(4, RowType::kFloat32, "normal", policies);
  tables.FindOrInsert(UniqueOf(SomeIds(random, 60, 1000)), true, true, "room");
  tables.ExpectSameTable("room");
  Ids many(150);
  for (size_t i = 0; i < many.size(); ++i) many[i] = 2000 + i;
  const DeviceBuffer<int64_t> ids(many);
  const DeviceBuffer<float> rows(std::vector<float>(600));
  ExpectError(
      tables.device->InsertOrAssign({ids.data(), 150}, rows.data(), tables.on),
      StatusCode::kFailedPrecondition, "table 'user' is full: it has ");
  ExpectError(tables.device->FindOrInsert(tables.on, {ids.data(), 150, nullptr},
                                          DeviceStore::InsertOptions(), {}),
              StatusCode::kFailedPrecondition, "the call has 150 new ids.");
  tables.ExpectSameTable("full");
}

void TestImport(Random* random) {
  for (const bool with_slots : {false, true}) {
    Tables from(12, RowType::kFloat32, "normal");
    Tables to(12, RowType::kFloat32, "uniform");
    const Ids ids = UniqueOf(SomeIds(random, 20000, 15000));
    from.FindOrInsert(ids, true, true, "import");
    from.Apply(ids, "adam", {0.1f, 0.0f, 0.1f, 0.001f, 1e-7f, 0.01f},
               {0.0f, 0.0f}, false, random, "import");
    to.FindOrInsert(UniqueOf(SomeIds(random, 900, 800)), true, false, "import");
    EmbeddingRows rows;
    ExpectOk(from.host->Export(with_slots, &rows, nullptr), "export");
    EmbeddingRowsView view = View(rows);
    view.with_counters = false;
    ExpectOk(to.device->Import(view, to.on), "import");
    ExpectOk(to.host->Import(view, nullptr), "import on the host");
    to.ExpectSameTable("import");
    to.Apply(ids, "adam", {0.1f, 0.0f, 0.1f, 0.001f, 1e-7f, 0.01f},
             {0.0f, 0.0f}, false, random, "after import");
    to.ExpectSameTable("after import");

    std::vector<int64_t> twice = rows.ids;
    twice[1] = twice[0];
    view.ids = twice;
    ExpectError(to.device->Import(view, to.on), StatusCode::kInvalidArgument,
                "twice, at 0 and 1");
    view.ids = rows.ids;
    view.last_seen = {};
    ExpectError(to.device->Import(view, to.on), StatusCode::kInvalidArgument,
                "last_seen");
    to.ExpectSameTable("after errors");
  }
}

// A replacement has the imported rows, the step and the events of the table.
void TestReplacement(Random* random) {
  for (const bool with_counters : {false, true}) {
    Tables tables(6, RowType::kFloat32, "normal");
    const Ids ids = UniqueOf(SomeIds(random, 300, 200));
    tables.FindOrInsert(ids, true, true, "replacement");
    tables.Apply(ids, "adagrad", {0.1f, 0.0f, 1e-7f}, {0.1f}, false, random,
                 "replacement");
    EmbeddingRows rows;
    ExpectOk(tables.host->Export(true, &rows, nullptr), "export");
    EmbeddingRowsView view;
    view.ids = Span<const int64_t>(rows.ids).subspan(0, 2);
    const std::vector<float> values(12, 0.5f);
    view.values = values;
    view.frequencies = Span<const int64_t>(rows.frequencies).subspan(0, 2);
    view.last_seen = Span<const int64_t>(rows.last_seen).subspan(0, 2);
    view.with_counters = with_counters;
    view.step = 77;
    view.seed = 5;
    const auto replaced = [&](Table* table, const Execution& on,
                              std::unique_ptr<Table>* next) {
      ExpectOk(table->CreateReplacement(view, on, next), "replacement");
      table->CountBatch(9, 8, 1);
      ExpectOk(table->MoveStep(38, on), "step");
      ExpectOk((*next)->CopyLiveState(*table, view, on), "live state");
    };
    std::unique_ptr<Table> host, device;
    replaced(tables.host.get(), {}, &host);
    replaced(tables.device.get(), tables.on, &device);
    Expect(device->step() == host->step(), "replacement: step");
    EmbeddingRows got, wanted;
    ExpectOk(host->Export(true, &wanted, {}), "export");
    ExpectOk(device->Export(true, &got, tables.on), "export");
    Expect(got.ids == wanted.ids && got.values == wanted.values &&
               got.seed == wanted.seed && got.salt == wanted.salt &&
               got.own_step == wanted.own_step,
           "replacement: content");
    ExpectOk(device->ExportIds(&got, tables.on), "export of ids");
    Expect(got.ids == wanted.ids && got.values.size() == 0, "exported ids");
    EmbeddingStats stats;
    ExpectOk(device->ReadStats(&stats, tables.on), "stats");
    EmbeddingStats host_stats;
    ExpectOk(host->ReadStats(&host_stats, {}), "stats");
    Expect(stats.events == host_stats.events, "replacement: events");
    device->SubtractEvents(stats);
    ExpectOk(device->ReadStats(&stats, tables.on), "stats");
    for (const int64_t count : stats.events) {
      Expect(count == 0, "events after a reset");
    }
  }
}

void TestOptions(Random*) {
  Tables tables(2, RowType::kFloat32, "zeros");
  DeviceStore::Options options;
  options.dim = 2;
  const auto expect = [&](StatusCode code, const char* message) {
    std::unique_ptr<DeviceStore> store;
    ExpectError(
        DeviceStore::Create(options, {std::shared_ptr<void>(), &tables.cuda},
                            tables.on, &store),
        code, message);
  };
  options.policies.eviction.max_rows = -1;
  expect(StatusCode::kInvalidArgument, "`max_rows` must be at least 0");
}

// Inspect returns the state of ids with and without a row.
void TestInspect(Random* random) {
  Tables tables(3, RowType::kBFloat16, "normal");
  const Ids ids = UniqueOf(SomeIds(random, 500, 400));
  const Ids known(ids.begin(), ids.begin() + ids.size() / 2);
  tables.FindOrInsert(known, true, true, "inspect");
  tables.Apply(known, "adam", {0.1f, 0.0f, 0.1f, 0.001f, 1e-7f, 0.01f},
               {0.0f, 0.0f}, false, random, "inspect");
  InspectedIds got, wanted;
  ExpectOk(tables.device->Inspect(ids, &got, tables.on), "inspect");
  ExpectOk(tables.host->Inspect(ids, &wanted, {}), "inspect");
  Expect(got.values == wanted.values && got.slots == wanted.slots &&
             got.slot_names == wanted.slot_names &&
             got.frequencies == wanted.frequencies &&
             got.last_seen == wanted.last_seen && got.states == wanted.states,
         "inspected ids");
}

// A table without memory to grow is unchanged.
void TestOutOfMemory(Random* random) {
  LimitedAllocator limited(int64_t{2} << 20);
  Tables tables(64, RowType::kFloat32, "normal", TablePolicies(), &limited);
  const Ids few = UniqueOf(SomeIds(random, 1000, 800));
  tables.FindOrInsert(few, true, true, "out of memory");
  Ids many(100000);
  for (int64_t& id : many) id = Draw(random, kLow, kHigh);
  many = UniqueOf(many);
  const DeviceBuffer<int64_t> ids(many);
  const int64_t n = static_cast<int64_t>(many.size());
  const int64_t used = limited.used();
  ExpectError(
      tables.device->FindOrInsert(tables.on, {ids.data(), n, nullptr}, {}, {}),
      StatusCode::kResourceExhausted, "out of memory on the GPU");
  ExpectError(tables.device->Reserve(tables.on, 10000000),
              StatusCode::kResourceExhausted, "bytes for rows of a table");
  Expect(limited.used() == used, "a failed call keeps no memory");
  tables.ExpectSameTable("out of memory");
  // No memory for slots.
  limited.Allow(used);
  const std::vector<float> numbers = {0.1f, 0.0f, 1e-7f};
  const std::vector<float> inits = {0.1f};
  const DeviceBuffer<float> gradients(n * 64);
  TableUpdate update = tables.UpdateOf(ids.data(), n, gradients.data());
  update.optimizer = "adagrad";
  update.hyperparameters = numbers;
  update.slot_inits = inits;
  ExpectError(tables.UpdateDevice(tables.on, update),
              StatusCode::kResourceExhausted, "bytes for optimizer slots");
  tables.ExpectSameTable("no room for slots");
  limited.Allow(int64_t{1} << 30);
  tables.FindOrInsert(many, true, true, "memory again");
  tables.Apply(many, "adagrad", numbers, inits, false, random, "memory again");
  tables.ExpectSameTable("memory again");
}

// Callers on their own streams: each reads its own rows, and at the end all
// rows exist.
void TestStreams(Random* random) {
  Tables tables(16, RowType::kFloat32, "normal");
  constexpr int kCallers = 4;
  const int rounds = few ? 10 : 30;
  std::vector<Ids> all(kCallers);
  std::vector<std::thread> callers;
  std::vector<uint64_t> seeds;
  for (int c = 0; c < kCallers; ++c) seeds.push_back((*random)());
  std::vector<int> wrong(kCallers, 0);
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      Random own(seeds[c]);
      cudaStream_t stream;
      REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      StreamAllocator memory(stream);
      const DeviceStream on = {stream, &memory};
      for (int round = 0; round < rounds; ++round) {
        Ids ids(Draw(&own, 1, few ? 300 : 3000));
        for (int64_t& id : ids) id = Draw(&own, 0, 20000) * kCallers + c;
        ids = UniqueOf(ids);
        const int64_t n = static_cast<int64_t>(ids.size());
        const DeviceBuffer<int64_t> device_ids(ids);
        const DeviceBuffer<uint32_t> refs(n);
        const DeviceBuffer<float> rows(n * 16);
        const DeviceBuffer<char> found(n);
        const DeviceStore::Ids batch = {device_ids.data(), n, nullptr};
        wrong[c] +=
            !tables.device->FindOrInsert(on, batch, {}, {refs.data()}).ok();
        wrong[c] +=
            !tables.device
                 ->FindRows({device_ids.data(), n}, nullptr, {}, rows.data(),
                            reinterpret_cast<bool*>(found.data()), on)
                 .ok();
        REQUIRE_CUDA(cudaStreamSynchronize(stream));
        for (const char is_found : found.Download()) wrong[c] += !is_found;
        all[c].insert(all[c].end(), ids.begin(), ids.end());
      }
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
      cudaStreamDestroy(stream);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (int c = 0; c < kCallers; ++c) {
    Expect(wrong[c] == 0, "streams: caller " + std::to_string(c) + ": " +
                              std::to_string(wrong[c]) + " wrong");
    std::vector<RowRef> refs(UniqueOf(all[c]).size());
    LookupOptions insert;
    insert.insert = true;
    ExpectOk(tables.host->FindOrInsert(UniqueOf(all[c]), insert, refs, nullptr),
             "streams");
  }
  tables.ExpectSameTable("streams");
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  using namespace lodestar;
  return RunTests(argc, argv,
                  {{"batches", TestBatches},
                   {"tables", TestTables},
                   {"optimizers", TestOptimizers},
                   {"pooling", TestPooling},
                   {"eviction", TestEviction},
                   {"cap", TestCap},
                   {"full", TestFull},
                   {"import", TestImport},
                   {"replacement", TestReplacement},
                   {"options", TestOptions},
                   {"inspect", TestInspect},
                   {"memory", TestOutOfMemory},
                   {"streams", TestStreams}});
}
