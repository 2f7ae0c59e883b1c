// Compares admission and shared rows of tables in GPU memory with
// EmbeddingStore on random input. Needs neither Bazel nor TensorFlow (see
// docs/internals/kernels.md). Skipped without a device.

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_tables.h"
#include "tests/cuda/run_tests.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

AdmissionPolicy SomeAdmission(Random* random, int kind) {
  AdmissionPolicy policy;
  policy.min_count = Draw(random, 1, 4);
  policy.kind = AdmissionPolicy::Kind::kMinCount;
  policy.count_occurrences = kind == 1;
  if (kind < 2) return policy;
  policy.kind = AdmissionPolicy::Kind::kCountingBloom;
  policy.num_counters = kind == 2 ? 333 : 4097;  // with and without collisions
  policy.num_hashes = 3;
  return policy;
}

// Ids get rows, keep waiting and are forgotten as on the CPU: counted by step,
// by occurrence, and in a crowded or empty sketch, with and without a cap.
void TestAdmission(Random* random) {
  using Admit = LookupOptions::Admit;
  for (int round = 0; round < 16; ++round) {
    TablePolicies policies;
    policies.admission = SomeAdmission(random, round % 4);
    if (round >= 8) policies.eviction.max_rows = Draw(random, 1, 200);
    Tables tables(5, RowType::kFloat32, "normal", policies);
    const int64_t count = few ? 300 : 3000;
    for (int64_t call = 0; call < 14; ++call) {
      // Two calls per step, and once a step back. (That makes the eviction
      // order of the CPU the order of calls.)
      const bool back = call == 11 && policies.eviction.max_rows == 0;
      const int64_t step = back ? 1 : call / 2;
      tables.SetStep(step);
      const std::string what =
          "admission " + std::to_string(round) + ", " + std::to_string(call);
      const Ids ids = SomeIds(random, Draw(random, 1, count), count);
      const Ids unique = UniqueOf(ids);
      LookupOptions options;
      options.insert = call != 6;
      options.count_frequency = call != 9;
      options.admit = call == 5    ? Admit::kNone
                      : call == 12 ? Admit::kAll
                                   : Admit::kByPolicy;
      std::vector<uint32_t> occurrences;
      if (policies.admission.count_occurrences) {
        for (size_t i = 0; i < unique.size(); ++i) {
          occurrences.push_back(static_cast<uint32_t>(Draw(random, 1, 3)));
        }
      }
      tables.FindOrInsert(unique, options, what, occurrences);
      tables.ExpectSameTable(what);
      tables.Apply(UniqueOf(SomeIds(random, 50, count)), "sgd", {0.1f, 0.0f},
                   {}, call % 3 == 0, random, what);
      tables.ExpectSameTable(what + ", updated");
      InspectedIds got, wanted;
      const Ids asked = SomeIds(random, 200, count);
      ExpectOk(tables.device->Inspect(asked, &got, tables.on), what);
      ExpectOk(tables.host->Inspect(asked, &wanted, {}), what);
      Expect(got.frequencies == wanted.frequencies, what + ": inspected");
      Expect(got.last_seen == wanted.last_seen, what + ": inspected steps");
      Expect(got.states == wanted.states, what + ": inspected states");
      tables.ExpectSameEvents(what);
      if (call % 4 != 3) continue;
      const Ids some = SomeIds(random, 20, count);
      const std::vector<float> rows(20 * 5, 0.5f);
      const DeviceBuffer<int64_t> device_ids(some);
      const DeviceBuffer<float> device_rows(rows);
      ExpectOk(tables.device->InsertOrAssign({device_ids.data(), 20},
                                             device_rows.data(), tables.on),
               what);
      REQUIRE_CUDA(cudaStreamSynchronize(tables.stream));
      ExpectOk(tables.host->InsertOrAssign(some, rows.data(), nullptr), what);
      tables.ExpectSameTable(what + ", assigned");
      EvictionPolicy old;
      old.max_age = 2;
      int64_t evicted = 0, wanted_evicted = 0;
      ExpectOk(tables.device->Evict(old, &evicted, tables.on), what);
      ExpectOk(tables.host->Evict(old, &wanted_evicted, nullptr), what);
      Expect(evicted == wanted_evicted, what + ": evicted");
      tables.ExpectSameTable(what + ", forgotten");
    }
    ExpectOk(tables.device->RemoveAll(tables.on), "remove all");
    ExpectOk(tables.host->RemoveAll({}), "remove all");
    tables.ExpectSameTable("admission, rows removed");
    tables.Clear();
    tables.ExpectSameTable("admission, cleared");
  }
}

// Ids without a row read and train shared rows as on the CPU: also many ids of
// one row, ids that get their row in an update, and gradients that are skipped.
void TestSharedRows(Random* random) {
  int number = 0;
  for (const RowType type :
       {RowType::kFloat32, RowType::kFloat16, RowType::kBFloat16}) {
    for (const int64_t dim : {1, 5, 40}) {
      TablePolicies policies;
      policies.shared_rows = std::vector<int64_t>{1, 3, 97}[number % 3];
      policies.admission = SomeAdmission(random, number++ % 4);
      if (number % 2 == 0) policies.eviction.max_rows = 60;
      const std::string what =
          std::string("shared ") + NameOf(type) + " dim " + std::to_string(dim);
      Tables tables(dim, type, "normal", policies);
      tables.ExpectSameTable(what + ", new");
      for (int64_t step = 0; step < 5; ++step) {
        tables.SetStep(step);
        const Ids ids = UniqueOf(SomeIds(random, 300, 300));
        LookupOptions options;
        options.insert = true;
        options.count_frequency = true;
        tables.FindOrInsert(ids, options, what);
        const int64_t padding_id = ids[0];
        tables.ExpectSameRows(ids, step % 2 == 0 ? &padding_id : nullptr,
                              Missing::Kind::kShared, what);
        tables.Apply(UniqueOf(SomeIds(random, 300, 300)), "adagrad",
                     {0.1f, 0.0f, 1e-7f}, {0.1f}, step == 2, random, what);
        tables.ExpectSameTable(what + ", updated");
        tables.ExpectSameRows(ids, nullptr, Missing::Kind::kShared, what);
      }
      EmbeddingStats stats;
      ExpectOk(tables.device->ReadStats(&stats, tables.on), what);
      for (const Event event : {Event::kHits, Event::kMisses, Event::kAdmitted,
                                Event::kGradientsDropped}) {
        Expect(stats.count(event) == tables.host->Stats().count(event),
               what + ": events");
      }

      EmbeddingRows rows;
      ExpectOk(tables.host->Export(true, &rows, nullptr), what);
      EmbeddingRowsView view = View(rows);
      view.with_counters = false;
      if (number % 2 != 0) view.shared_values = view.shared_slots = {};
      tables.Replace(view);
      tables.ExpectSameTable(what + ", replacement");
      AttachedOptimizer adam;
      adam.name = "adam";
      adam.slot_names = {"momentum", "velocity"};
      adam.slot_inits = {0.0f, 0.5f};
      bool done = false;
      std::string former, wanted_former;
      ExpectOk(tables.device->RestartSlots(adam, KeptSlots::kNone, &done,
                                           &former, tables.on),
               what);
      ExpectOk(tables.host->RestartSlots(adam, KeptSlots::kNone, &done,
                                         &wanted_former, {}),
               what);
      Expect(former == wanted_former, what + ": former optimizer");
      tables.ExpectSameTable(what + ", other slots");
      tables.Clear();
      tables.ExpectSameTable(what + ", cleared");
      const std::vector<float> wrong(1000);
      view.slots = {};
      view.optimizer = {};
      view.shared_values = wrong;
      view.shared_slots = {};
      ExpectError(tables.device->Import(view, tables.on),
                  StatusCode::kInvalidArgument, "`shared_rows` must have");
    }
  }
}

// Repeated ids, and gradients whose sum by shared row is not finite.
void TestSharedGradients(Random* random) {
  constexpr int kWidth = 3;
  const float huge = std::numeric_limits<float>::max() * 0.75f;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto nonfinite :
       {Nonfinite::kPass, Nonfinite::kRaise, Nonfinite::kSkip}) {
    for (int round = 0; round < 4; ++round) {
      TablePolicies policies;
      policies.shared_rows = 7;
      Tables tables(kWidth, RowType::kFloat32, "normal", policies);
      tables.FindOrInsert({1, 2, 3}, true, true, "shared gradients");
      const Ids ids = SomeIds(random, 200, 90);
      std::vector<float> gradients(ids.size() * kWidth);
      for (float& g : gradients) {
        g = static_cast<float>(Draw(random, -64, 64)) / 8;
      }
      // Two ids of one shared row, in the second column.
      if (round > 0 && nonfinite != Nonfinite::kPass) {
        for (size_t i = 0; i < ids.size(); ++i) {
          if (SharedRowOf(ids[i], 7) == 2) gradients[i * kWidth + 1] = huge;
        }
      }
      if (round == 2) gradients[20] = nan;
      const std::vector<float> numbers = {0.1f, 0.0f};
      TableUpdate update;
      update.nonfinite = nonfinite;
      update.optimizer = "sgd";
      update.hyperparameters = numbers;
      update.create_missing = round == 3;
      update.next_step = -1;
      const std::string what =
          StrCat("shared gradients ", static_cast<int>(nonfinite), ", ", round);
      tables.Update(update, ids, gradients, what);
      tables.ExpectSameTable(what);
      tables.ExpectSameEvents(what);
    }
  }
}

// A replacement has the pending ids and the sketch of an export.
void TestAdmissionImport(Random* random) {
  for (int kind = 0; kind < 4; ++kind) {
    TablePolicies policies;
    policies.admission = SomeAdmission(random, kind);
    policies.admission.min_count = 3;
    Tables tables(5, RowType::kFloat32, "normal", policies);
    for (int64_t step = 0; step < 3; ++step) {
      tables.SetStep(step);
      tables.FindOrInsert(UniqueOf(SomeIds(random, 400, 600)), true, true,
                          "import");
    }
    EmbeddingRows rows;
    ExpectOk(tables.device->Export(true, &rows, tables.on), "export");
    EmbeddingRowsView view = View(rows);
    view.with_counters = false;
    Expect(!rows.pending_ids.empty(), "import: some ids are pending");
    tables.Replace(view);
    tables.ExpectSameTable("admission, replacement");
    for (int64_t call = 0; call < 4; ++call) {
      tables.SetStep(2 + call / 2);
      tables.FindOrInsert(UniqueOf(SomeIds(random, 400, 600)), true, true,
                          "after import");
      tables.ExpectSameTable("admission, after import");
    }
    view.pending_ids = view.pending_ids.subspan(1, view.pending_ids.size() - 1);
    ExpectError(tables.device->Import(view, tables.on),
                StatusCode::kInvalidArgument, "`pending_sightings` must have");
  }
}

// A table evicts by itself what the table on the CPU does, in the same steps.
void TestOwnEviction(Random* random) {
  const std::vector<float> numbers = {0.1f, 0.0f};
  int64_t evicted = 0;
  for (int round = 0; round < 12; ++round) {
    TablePolicies policies;
    policies.eviction.max_age = round % 3 == 0 ? -1 : Draw(random, 1, 4);
    if (round % 2 == 0) policies.eviction.min_frequency = Draw(random, 2, 3);
    if (round % 3 != 1) policies.eviction.min_norm = 0.7f;
    policies.eviction.min_frequency_every = Draw(random, 2, 5);
    policies.eviction.min_norm_every = Draw(random, 2, 5);
    if (round % 4 == 1) policies.eviction.max_rows = 60;
    if (round >= 6) policies.eviction.order = EvictionPolicy::Order::kLfu;
    if (round % 4 >= 2) policies.admission = SomeAdmission(random, 0);
    Tables tables(5, RowType::kFloat32, "normal", policies);
    for (int64_t call = 0; call < (few ? 15 : 60); ++call) {
      const std::string what = StrCat("eviction ", round, ", ", call);
      const Ids ids = UniqueOf(SomeIds(random, Draw(random, 1, 60), 150));
      tables.FindOrInsert(ids, true, call % 5 != 0, what);
      const std::vector<float> gradients(ids.size() * 5, 0.1f);
      TableUpdate update;
      update.optimizer = "sgd";
      update.hyperparameters = numbers;
      update.next_step = -1;
      tables.Update(update, ids, gradients, what);
      if (call % 7 == 6) {
        const int64_t step = tables.host->step() + Draw(random, 0, 3);
        tables.SetStep(step);
        tables.host->ReleaseStep();
        tables.device->ReleaseStep();
      }
      tables.ExpectSameTable(what);
      tables.ExpectSameEvents(what);
    }
    evicted += tables.host->Stats().count(Event::kEvicted);
  }
  Expect(evicted > 100, "rows go");
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  using namespace lodestar;
  return RunTests(argc, argv,
                  {{"admission", TestAdmission},
                   {"pending", TestAdmissionImport},
                   {"shared", TestSharedRows},
                   {"gradients", TestSharedGradients},
                   {"eviction", TestOwnEviction}});
}
