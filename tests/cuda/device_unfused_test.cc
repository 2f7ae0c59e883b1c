// Compares updates computed outside of a table on a GPU (unfused optimizers),
// and checks of sums of gradients, with those of a table in host memory.

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_tables.h"
#include "tests/cuda/outside_update.h"
#include "tests/cuda/run_tests.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/embedding_rows.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {
namespace {

// Calls on a pair of tables.
class Pair : public Tables {
 public:
  Pair(int64_t dim, RowType type, Random* random,
       const TablePolicies& policies = TablePolicies())
      : Tables(dim, type, "uniform", policies), random_(*random) {}

  Ids SomeUnique(int64_t count) {
    return UniqueOf(SomeIds(&random_, count, count));
  }
  void Evict(int64_t max_rows) {
    EvictionPolicy policy;
    policy.max_rows = max_rows;
    int64_t got = 0;
    int64_t wanted = 0;
    ExpectOk(device->Evict(policy, &got, on), "evict");
    ExpectOk(host->Evict(policy, &wanted, {}), "evict on the host");
    Expect(got == wanted, "evicted rows");
  }
  void Import(const EmbeddingRows& rows) {
    const EmbeddingRowsView view = View(rows);
    ExpectOk(device->Import(view, on), "import");
    ExpectOk(host->Import(view, {}), "import on the host");
  }
  // A call that changes rows.
  void Write(int64_t batch) {
    const Ids ids = SomeUnique(batch);
    switch (Draw(&random_, 0, 4)) {
      case 0:
        return Assign(ids, 1);
      case 1:
        return Remove(ids);
      case 2:
        // Removes the rows and creates them again, most of them elsewhere.
        Remove(ids);
        return Assign({ids.rbegin(), ids.rend()}, 2);
      case 3:
        ExpectOk(device->SetStep(device->step() + 1, on), "step");
        ExpectOk(host->SetStep(host->step() + 1), "step");
        return Evict(batch);
      default:
        return FindOrInsert(ids, true, false, "lookup");
    }
  }

 private:
  Random& random_;
};

// Two updates at a time, with writers in between.
void TestInterleaved(Random* random) {
  const int64_t batch = few ? 70 : 2000;
  for (const auto& [dim, type, slots, shared_rows] :
       {std::tuple<int64_t, RowType, int, int64_t>{5, RowType::kFloat32, 2, 0},
        {40, RowType::kFloat32, 4, 7},
        {8, RowType::kFloat32, 1, 3},
        {3, RowType::kFloat16, 3, 0},
        {16, RowType::kBFloat16, 0, 2},
        {1, RowType::kFloat32, 0, 0}}) {
    const std::string what = "dim " + std::to_string(dim) + ", " + NameOf(type);
    TablePolicies policies;
    policies.shared_rows = shared_rows;
    Pair pair(dim, type, random, policies);
    pair.FindOrInsert(pair.SomeUnique(batch), true, true, what);
    const AttachedOptimizer optimizer = Unfused(slots);
    OutsideUpdate first(&pair, optimizer);
    OutsideUpdate second(&pair, optimizer);
    for (int step = 0; step < (few ? 6 : 20); ++step) {
      first.Gather(pair.SomeUnique(batch), random, what);
      if (step % 2 == 0) {
        second.Gather(pair.SomeUnique(batch), random, what + ", second");
      }
      if (step % 3 != 0) pair.Write(batch);
      first.Finish(what);
      if (step % 2 == 0) second.Finish(what + ", second");
      pair.ExpectSameTable(what);
    }
    first.Gather({}, random, what + ", no ids");
    first.Finish(what + ", no ids");
    EmbeddingStats got, wanted;
    ExpectOk(pair.device->ReadStats(&got, pair.on), what);
    ExpectOk(pair.host->ReadStats(&wanted, {}), what);
    Expect(got.count(Event::kGradientsDropped) ==
               wanted.count(Event::kGradientsDropped),
           what + ": dropped gradients");
  }
}

// What counts as a change.
void TestChanged(Random* random) {
  Pair pair(4, RowType::kFloat32, random);
  OutsideUpdate update(&pair, Unfused(1));
  const Ids ids = {1, 2, 3, 4};
  const auto expect = [&](size_t changed, const std::string& what) {
    Expect(update.Assign(what).size() == changed, what);
    pair.ExpectSameTable(what);
  };
  pair.Assign(ids, 1);
  update.Gather(ids, random, "gather");
  expect(0, "nothing");
  expect(4, "an assignment of the same rows");
  update.Gather(ids, random, "gather");
  pair.Remove({2});
  pair.Assign({2}, 1);
  expect(1, "a row that was created again");
  update.Gather(ids, random, "gather");
  pair.Remove({2, 3});
  pair.Assign({3}, 1);
  pair.Assign({2}, 1);
  expect(2, "rows that were created elsewhere");
  EmbeddingRows rows;
  ExpectOk(pair.host->Export(true, &rows, {}), "export");
  update.Gather(ids, random, "gather");
  pair.Import(rows);
  expect(4, "an import");
  update.Gather(ids, random, "gather");
  pair.RemoveAll();
  pair.Assign(ids, 1);
  expect(4, "all rows created again");
  update.Gather(ids, random, "gather");
  pair.Clear();
  expect(4, "a cleared table");
  pair.Assign(ids, 1);
  update.Gather(ids, random, "gather");
  pair.FindOrInsert({1, 2, 7}, false, false, "a lookup");
  expect(0, "a lookup");

  // Rows of a table that was replaced, by one with the same optimizer and by
  // one without.
  for (const bool with_slots : {true, false}) {
    update.Gather(ids, random, "gather");
    ExpectOk(pair.host->Export(with_slots, &rows, {}), "export");
    pair.Replace(View(rows));
    expect(4, "a replaced table");
  }
}

// A gradient of an id without a row trains a shared row, together with the
// shared row's own.
void TestShared(Random* random) {
  TablePolicies policies;
  policies.shared_rows = 2;
  Pair pair(3, RowType::kFloat32, random, policies);
  OutsideUpdate update(&pair, Unfused(2));
  pair.Assign({10, 11}, 1);
  const Ids ids = {0, 10, 1, 20, 21, 22, 11};
  const std::vector<char> shared = {1, 0, 1, 0, 0, 0, 0};
  std::vector<float> gradients(ids.size() * 3);
  for (float& g : gradients) g = static_cast<float>(Draw(random, -99, 99)) / 7;
  update.Gather(ids, shared, gradients, Nonfinite::kRaise, "shared");
  OutsideUpdate other(&pair, Unfused(2));
  other.Gather({30, 31, 32, 10}, random, "shared, others");
  other.Finish("shared, others");
  update.Finish("shared");
  pair.ExpectSameTable("shared");
  update.Gather(ids, random, "shared");
  pair.Clear();
  update.Finish("cleared");
  pair.ExpectSameTable("cleared");
  // A replaced table on the host, whose rows have all changed.
  EmbeddingRows rows;
  ExpectOk(pair.host->Export(true, &rows, {}), "export");
  update.Gather(ids, random, "gather");
  int64_t removed = 0;
  ExpectOk(pair.device->ImportDelta({}, View(rows), &removed, pair.on),
           "delta");
  std::unique_ptr<Table> host;
  ExpectOk(pair.host->CreateReplacement(View(rows), {}, &host),
           "replacement on the host");
  pair.host.reset(static_cast<EmbeddingStore*>(host.release()));
  update.Finish("a delta");
  pair.ExpectSameTable("a delta");
  for (const int64_t number : {-1, 2}) {
    update.Gather({0, number}, {1, 1}, std::vector<float>(6, 1.0f),
                  Nonfinite::kPass, "no such shared row");
    Expect(!update.status.ok(), "no such shared row");
  }
}

void TestNonfinite(Random* random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLarge = std::numeric_limits<float>::max() * 0.75f;
  for (const int64_t shared_rows : {0, 2}) {
    TablePolicies policies;
    policies.shared_rows = shared_rows;
    Pair pair(3, RowType::kFloat32, random, policies);
    OutsideUpdate update(&pair, Unfused(1));
    pair.Assign({10, 11, 12, 13}, 1);
    const char exempt = shared_rows > 0;
    const Ids ids = {10, 11, 0, 12, 20, 21, 22, 23, 13};
    const std::vector<char> shared = {0, 0, exempt, 0, 0, 0, 0, 0, 0};
    for (int round = 0; round < 5; ++round) {
      std::vector<float> gradients(ids.size() * 3, 0.5f);
      const auto at = [&](int i) -> float& { return gradients[i * 3 + 1]; };
      if (round % 2 == 1) at(1) = std::numeric_limits<float>::quiet_NaN();
      if (round >= 2) at(2) = kInfinity;
      if (round >= 3) at(4) = at(5) = at(6) = at(7) = kLarge;
      if (round == 4) at(8) = -kInfinity;
      for (const Nonfinite nonfinite :
           {Nonfinite::kRaise, Nonfinite::kSkip, Nonfinite::kPass}) {
        const std::string what = "round " + std::to_string(round) + ", " +
                                 std::to_string(shared_rows) + " shared";
        update.Gather(ids, shared, gradients, nonfinite, what);
        if (update.status.ok()) update.Finish(what);
        EmbeddingStats got, wanted;
        ExpectOk(pair.device->ReadStats(&got, pair.on), what);
        ExpectOk(pair.host->ReadStats(&wanted, {}), what);
        Expect(got.count(Event::kNonfiniteGradients) ==
                   wanted.count(Event::kNonfiniteGradients),
               what + ": skipped gradients");
        // NaN differs from itself.
        if (nonfinite == Nonfinite::kSkip && round < 2) {
          pair.ExpectSameTable(what);
        }
        pair.Clear();
        pair.Assign({10, 11, 12, 13}, 1);
      }
    }
  }
}

// Errors leave the table without an optimizer.
void TestErrors(Random* random) {
  LimitedAllocator allocator(int64_t{1} << 40);
  Tables tables(4, RowType::kFloat32, "uniform", TablePolicies(), &allocator);
  tables.FindOrInsert({1, 2, 3}, true, true, "lookup");
  OutsideUpdate fused(&tables, AttachedOptimizer{"sgd", {}, {}});
  fused.Gather({1}, random, "a fused optimizer");
  Expect(!fused.status.ok(), "a fused optimizer");
  const Ids ids = {1, 2};
  const std::vector<float> gradients(8, 1.0f);
  const std::vector<char> shared(2, 0);
  const DeviceBuffer<int64_t> device_ids(ids);
  const DeviceBuffer<float> device_gradients(gradients);
  const DeviceBuffer<char> device_shared(shared);
  TableUpdate update;
  update.table = tables.device.get();
  update.ids = {device_ids.data(), 2};
  update.gradients = device_gradients.data();
  const auto gather = [&](bool allocates) {
    return tables.device->GatherForUpdate(
        update, {reinterpret_cast<const bool*>(device_shared.data()), 2},
        Unfused(2),
        [&](int64_t, RowsForUpdate*) {
          return allocates ? Status() : ResourceExhausted("no memory");
        },
        tables.on);
  };
  ExpectError(gather(false), StatusCode::kResourceExhausted, "no memory");
  allocator.Allow(allocator.used());
  ExpectError(gather(true), StatusCode::kResourceExhausted, "optimizer slots");
  allocator.Allow(int64_t{1} << 40);
  tables.ExpectSameTable("after errors");
  OutsideUpdate works(&tables, Unfused(3));
  works.Gather(ids, random, "works");
  works.Finish("works");
  tables.ExpectSameTable("after an update");
  OutsideUpdate other(&tables, Unfused(2));
  other.Gather(ids, random, "another optimizer");
  Expect(!other.status.ok(), "another optimizer");
}

// Checks of sums to which gradients are added.
void CheckSums(RowType type, Random* random) {
  const std::string what = std::string("sums of ") + NameOf(type);
  Pair pair(3, type, random);
  pair.FindOrInsert({1, 2, 3}, true, true, what);
  const float most = std::numeric_limits<float>::max();
  std::vector<float> rows(9, 1.0f);
  if (type == RowType::kFloat32) {
    rows[4] = most / 4;
    const auto* const bytes = reinterpret_cast<const char*>(rows.data());
    pair.Assign({1, 2, 3}, {bytes, bytes + rows.size() * sizeof(float)});
  }
  const Ids ids = {9, 2, 1, 2, 8};
  const DeviceBuffer<int64_t> device_ids(ids);
  const AttachedOptimizer sgd = {"sgd", {}, {}};
  int64_t errors = 0;
  for (const float large :
       {1.0f, most / 100, most / 30, most / 15, most / 8, most / 3, most,
        std::numeric_limits<float>::infinity()}) {
    for (const int64_t additions : {0, 1, 4}) {
      for (int at = 0; at < 5; ++at) {
        std::vector<float> gradients(15, 1.0f);
        gradients[at * 3 + 1] = large;
        if (at == 3) gradients[4] = large;
        const DeviceBuffer<float> device_gradients(gradients);
        TableUpdate update;
        update.table = pair.device.get();
        update.ids = {device_ids.data(), 5};
        update.gradients = device_gradients.data();
        const Status got =
            pair.device->CheckUpdate(update, sgd, additions, pair.on);
        update.table = pair.host.get();
        update.ids = ids;
        update.gradients = gradients.data();
        const Status wanted =
            pair.host->CheckUpdate(update, sgd, additions, {});
        Expect(got.message() == wanted.message(), what + ": '" + got.message() +
                                                      "', wanted '" +
                                                      wanted.message() + "'");
        errors += !wanted.ok();
      }
    }
  }
  Expect(errors > 10, what + ": some errors");
}

void TestSums(Random* random) {
  CheckSums(RowType::kFloat32, random);
  CheckSums(RowType::kFloat16, random);
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  using namespace lodestar;
  return RunTests(argc, argv,
                  {{"interleaved", TestInterleaved},
                   {"changed", TestChanged},
                   {"shared", TestShared},
                   {"nonfinite", TestNonfinite},
                   {"errors", TestErrors},
                   {"sums", TestSums}});
}
