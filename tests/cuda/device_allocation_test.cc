// Fails each allocation of the calls of a table in GPU memory in turn. Needs
// neither Bazel nor TensorFlow (see docs/internals/kernels.md). Skipped without
// a device.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_tables.h"
#include "tests/cuda/outside_update.h"
#include "tests/cuda/run_tests.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/embedding/embedding_store.h"

// Number of allocations of this thread before one fails, on the device or, with
// `host_fails`, on the host; negative: never.
thread_local int64_t allocations_left = -1;
thread_local bool host_fails = false;

static bool Fails() { return allocations_left >= 0 && allocations_left-- == 0; }

void* operator new(size_t size) {
  if (host_fails && Fails()) throw std::bad_alloc();
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace lodestar {
namespace {

class FailingAllocator final : public DeviceAllocator {
 public:
  explicit FailingAllocator(DeviceAllocator* allocator)
      : allocator_(allocator) {}
  void* Allocate(int64_t bytes) override {
    return Fails() ? nullptr : allocator_->Allocate(bytes);
  }
  void Free(void* memory) override { allocator_->Free(memory); }

 private:
  DeviceAllocator* const allocator_;
};

// Whichever allocation of a call fails, on the host or on the device, the table
// is unchanged, and the call succeeds when repeated.
void TestEachAllocation(Random* random) {
  constexpr int kWidth = 16;
  const std::vector<float> numbers = {0.1f, 0.0f, 1e-7f};
  const std::vector<float> inits = {0.1f};
  const Ids old_ids = UniqueOf(SomeIds(random, 1000, 800));
  const Ids ids = UniqueOf(SomeIds(random, few ? 2000 : 4000, 3000));
  const int64_t n = static_cast<int64_t>(ids.size());
  const DeviceBuffer<int64_t> device_ids(ids);
  const DeviceStore::Ids batch = {device_ids.data(), n, nullptr};
  std::vector<float> floats(n * kWidth);
  for (float& x : floats) x = static_cast<float>(Draw(random, -9, 9));
  const DeviceBuffer<float> device_floats(floats);
  SparseOptimizer adagrad;
  ExpectOk(SparseOptimizer::Create("adagrad", numbers, &adagrad), "adagrad");
  const Ids counts(n, 1);
  EmbeddingRowsView view;
  view.ids = ids;
  view.values = floats;
  view.frequencies = counts;
  view.last_seen = counts;
  LookupOptions insert;
  insert.insert = true;
  EvictionPolicy evict;
  evict.max_rows = 100;
  std::vector<int64_t> evicted_ids(old_ids.size());
  std::vector<float> evicted_rows(old_ids.size() * kWidth);
  const auto copies = [&](int64_t, Table::EvictedRows* out) {
    *out = {evicted_ids.data(), reinterpret_cast<char*>(evicted_rows.data())};
    return Status();
  };
  std::vector<RowRef> refs(n);
  int64_t rows = 0;

  struct Call {
    const char* name;
    TablePolicies policies;
    // Whether host allocations fail too. Calls that evict rows have none of
    // their own, but the emulation of a sort has.
    bool on_both;
    std::function<Status(Tables*, const DeviceStream&)> on_device;
    std::function<Status(EmbeddingStore*)> on_host;
  };
  const auto lookup = [&](Tables* tables, const DeviceStream& on) {
    return tables->device->FindOrInsert(on, batch, {}, {});
  };
  const auto host_lookup = [&](EmbeddingStore* host) {
    return host->FindOrInsert(ids, insert, refs, nullptr);
  };
  TablePolicies none, cap, min_count, sketch, shared;
  shared.shared_rows = 5;
  cap.eviction.max_rows = 900;
  min_count.admission.kind = AdmissionPolicy::Kind::kMinCount;
  min_count.admission.min_count = 2;
  sketch.admission.kind = AdmissionPolicy::Kind::kCountingBloom;
  sketch.admission.min_count = 2;
  sketch.admission.num_counters = 2000;
  sketch.admission.num_hashes = 3;
  const auto counting_lookup = [&](Tables* tables, const DeviceStream& on) {
    LookupOptions counting = insert;
    counting.count_frequency = true;
    return tables->device->FindOrInsert(
        on, batch, DeviceStore::InsertOptions(counting), {});
  };
  const auto host_counting_lookup = [&](EmbeddingStore* host) {
    LookupOptions counting = insert;
    counting.count_frequency = true;
    return host->FindOrInsert(ids, counting, refs, nullptr);
  };
  const auto update = [&](Tables* tables, const DeviceStream& on) {
    TableUpdate update =
        tables->UpdateOf(device_ids.data(), n, device_floats.data());
    update.optimizer = "adagrad";
    update.hyperparameters = numbers;
    update.slot_inits = inits;
    update.create_missing = true;
    return tables->UpdateDevice(on, update);
  };
  const auto host_update = [&](EmbeddingStore* host) {
    return host->Apply(ids, floats.data(), "adagrad", adagrad, inits, true, 0,
                       nullptr);
  };
  // An update computed outside of the tables, which writes the gradients.
  const AttachedOptimizer unfused = Unfused(2);
  const std::vector<char> own(n, 0);
  const DeviceBuffer<char> device_own(own);
  GatheredRows<DeviceBuffer> device_rows(n, kWidth, 2);
  GatheredRows<HostMemory> host_rows(n, kWidth, 2);
  int64_t gathered = 0;
  const auto gather_from = [&](Table* table, const int64_t* of, const char* are,
                               const void* gradients, RowsForUpdate out,
                               const Execution& on) {
    TableUpdate update;
    update.table = table;
    update.ids = {of, n};
    update.gradients = gradients;
    const auto allocate = [&](int64_t count, RowsForUpdate* to) {
      gathered = count;
      *to = out;
      return Status();
    };
    return table->GatherForUpdate(
        update, {reinterpret_cast<const bool*>(are), n}, unfused, allocate, on);
  };
  const auto assign_to = [&](Table* table, const RowsForUpdate& rows,
                             bool* changed, const Execution& on) {
    return table->AssignIfUnchanged({{rows.ids, gathered},
                                     {rows.shared, gathered},
                                     {rows.versions, gathered},
                                     rows.gradients,
                                     rows.slots},
                                    unfused, -1, changed, on);
  };
  const auto gather = [&](Tables* tables, const DeviceStream& on) {
    return gather_from(tables->device.get(), device_ids.data(),
                       device_own.data(), device_floats.data(),
                       device_rows.out(), on);
  };
  const auto host_gather = [&](EmbeddingStore* host) {
    return gather_from(host, ids.data(), own.data(), floats.data(),
                       host_rows.out(), {});
  };
  const DeviceBuffer<char> device_changed(n);
  const auto assign = [&](Tables* tables, const DeviceStream& on) {
    const int64_t left = allocations_left;
    allocations_left = -1;
    ExpectOk(gather(tables, on), "gather");
    ExpectOk(host_gather(tables->host.get()), "gather");
    allocations_left = left;
    return assign_to(tables->device.get(), device_rows.out(),
                     reinterpret_cast<bool*>(device_changed.data()), on);
  };
  const auto host_assign = [&](EmbeddingStore* host) {
    std::vector<char> changed(n);
    return assign_to(host, host_rows.out(),
                     reinterpret_cast<bool*>(changed.data()), {});
  };
  const Call calls[] = {
      {"gathering", none, true, gather, host_gather},
      {"gathering with shared rows", shared, true, gather, host_gather},
      {"assignment of gathered rows", shared, true, assign, host_assign},
      {"lookup", none, true, lookup, host_lookup},
      {"lookup under a cap", cap, false, lookup, host_lookup},
      {"lookup with a minimum count", min_count, true, counting_lookup,
       host_counting_lookup},
      {"lookup with a sketch", sketch, true, counting_lookup,
       host_counting_lookup},
      {"update", none, true, update, host_update},
      {"update with shared rows", shared, true, update, host_update},
      {"update with a minimum count", min_count, true, update, host_update},
      {"assignment", none, true,
       [&](Tables* tables, const DeviceStream& on) {
         return tables->device->InsertOrAssign({device_ids.data(), n},
                                               device_floats.data(), on);
       },
       [&](EmbeddingStore* host) {
         return host->InsertOrAssign(ids, floats.data(), nullptr);
       }},
      {"import", none, true,
       [&](Tables* tables, const DeviceStream& on) {
         return tables->device->Import(view, on);
       },
       [&](EmbeddingStore* host) { return host->Import(view, nullptr); }},
      {"eviction", none, false,
       [&](Tables* tables, const DeviceStream& on) {
         return tables->device->Evict(evict, &rows, on);
       },
       [&](EmbeddingStore* host) {
         return host->Evict(evict, &rows, nullptr);
       }},
      {"eviction with copies", none, false,
       [&](Tables* tables, const DeviceStream& on) {
         return tables->device->EvictRows(evict, copies, &rows, on);
       },
       [&](EmbeddingStore* host) {
         return host->EvictRows(evict, copies, &rows, nullptr);
       }}};
  for (const Call& call : calls) {
    int64_t errors = 0;
    bool failed = true;
    for (int64_t failures = 0; failed; ++failures) {
      const std::string what =
          StrCat(call.name, ", allocation ", failures, " fails");
      CudaAllocator cuda;
      FailingAllocator allocator(&cuda);
      Tables tables(kWidth, RowType::kFloat32, "normal", call.policies,
                    &allocator);
      FailingAllocator memory(tables.memory.get());
      const DeviceStream on = {tables.stream, &memory};
      tables.FindOrInsert(old_ids, true, true, what);
      // The ids that a call evicts are noted for the next snapshot.
      if (!call.on_both) tables.device->SetBase("base", tables.on);
      tables.SetStep(3);
      Status status;
      host_fails = call.on_both;
      allocations_left = failures;
      try {
        status = call.on_device(&tables, on);
      } catch (const std::bad_alloc&) {
        status = Status(StatusCode::kResourceExhausted, "out of memory");
      }
      failed = allocations_left < 0;
      allocations_left = -1;
      host_fails = false;
      REQUIRE_CUDA(cudaStreamSynchronize(tables.stream));
      // The standard library may do without a buffer.
      if (failed && !status.ok()) {
        ++errors;
        Expect(status.code() == StatusCode::kResourceExhausted,
               what + ": an error");
        tables.ExpectSameTable(what);
        status = call.on_device(&tables, on);
        REQUIRE_CUDA(cudaStreamSynchronize(tables.stream));
      }
      ExpectOk(status, what);
      ExpectOk(call.on_host(tables.host.get()), what);
      tables.ExpectSameTable(what + ", repeated");
    }
    Expect(errors > 1, std::string(call.name) + ": allocations failed");
  }
}

// An update of two tables changes both or none, whether one is full or an
// allocation fails.
void TestTwoTables(Random* random) {
  constexpr int kWidth = 4;
  const std::vector<float> numbers = {0.1f, 0.0f, 1e-7f};
  const std::vector<float> inits = {0.1f};
  const Ids ids = UniqueOf(SomeIds(random, 300, 200));
  const int64_t n = static_cast<int64_t>(ids.size());
  Ids others(100);
  for (size_t i = 0; i < others.size(); ++i) others[i] = 100000 + i;
  const DeviceBuffer<int64_t> device_ids(ids);
  const std::vector<float> gradients(n * kWidth, 0.5f);
  const DeviceBuffer<float> device_gradients(gradients);
  TablePolicies full;
  full.eviction.max_rows = n - 1;
  full.eviction.raise_when_full = true;
  SparseOptimizer adagrad;
  ExpectOk(SparseOptimizer::Create("adagrad", numbers, &adagrad), "adagrad");
  const auto update = [&](Tables* first, Tables* second, int64_t of_second,
                          const DeviceStream& on, int64_t* failed) {
    TableUpdate updates[] = {
        first->UpdateOf(device_ids.data(), n, device_gradients.data()),
        second->UpdateOf(device_ids.data(), of_second,
                         device_gradients.data())};
    for (TableUpdate& of_table : updates) {
      of_table.optimizer = "adagrad";
      of_table.hyperparameters = numbers;
      of_table.slot_inits = inits;
      of_table.create_missing = true;
      of_table.next_step = -1;
    }
    return first->device->Update({updates, 2}, on, failed);
  };
  const auto on_host = [&](Tables* tables, int64_t count) {
    ExpectOk(tables->host->Apply({ids.data(), count}, gradients.data(),
                                 "adagrad", adagrad, inits, true, -1, nullptr),
             "on the host");
  };
  // Tables are locked in the order of their addresses.
  for (const bool full_first : {false, true}) {
    Tables one(kWidth, RowType::kFloat32, "normal",
               full_first ? full : TablePolicies());
    Tables two(kWidth, RowType::kFloat32, "normal",
               full_first ? TablePolicies() : full);
    Tables* const open = full_first ? &two : &one;
    Tables* const closed = full_first ? &one : &two;
    int64_t failed = -1;
    ExpectError(update(open, closed, n, one.on, &failed),
                StatusCode::kFailedPrecondition, "is full");
    Expect(failed == 1, "the second table is full");
    one.ExpectSameTable("full");
    two.ExpectSameTable("full");
    ExpectOk(update(open, closed, n - 1, one.on, &failed), "room");
    on_host(open, n);
    on_host(closed, n - 1);
    one.ExpectSameTable("room");
    two.ExpectSameTable("room");
  }
  TablePolicies cap;
  cap.eviction.max_rows = n + 50;
  for (const bool evicts : {false, true}) {
    int64_t errors = 0;
    bool fails = true;
    for (int64_t failures = 0; fails; ++failures) {
      const std::string what = StrCat(evicts ? "eviction from " : "",
                                      "two tables, allocation ", failures);
      const TablePolicies policies = evicts ? cap : TablePolicies();
      CudaAllocator cuda;
      FailingAllocator allocator(&cuda);
      Tables one(kWidth, RowType::kFloat32, "normal", policies, &allocator);
      Tables two(kWidth, RowType::kFloat32, "normal", policies, &allocator);
      for (Tables* const tables : {&one, &two}) {
        if (!evicts) continue;
        tables->FindOrInsert(others, true, true, what);
        // An optimizer that is attached later would end the marking.
        tables->Apply(others, "adagrad", numbers, inits, false, random, what);
        tables->device->SetBase("base", tables->on);
        tables->SetStep(3);
      }
      FailingAllocator memory(one.memory.get());
      const DeviceStream on = {one.stream, &memory};
      int64_t failed = -1;
      // The emulation of a sort allocates host memory.
      host_fails = !evicts;
      allocations_left = failures;
      Status status = update(&one, &two, n, on, &failed);
      fails = allocations_left < 0;
      allocations_left = -1;
      host_fails = false;
      if (!status.ok()) {
        ++errors;
        one.ExpectSameTable(what);
        two.ExpectSameTable(what);
        status = update(&one, &two, n, on, &failed);
      }
      ExpectOk(status, what);
      on_host(&one, n);
      on_host(&two, n);
      one.ExpectSameTable(what + ", repeated");
      two.ExpectSameTable(what + ", repeated");
    }
    Expect(errors > 1, "two tables: allocations failed");
  }
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  using namespace lodestar;
  return RunTests(
      argc, argv,
      {{"allocations", TestEachAllocation}, {"two tables", TestTwoTables}});
}
