// Pairs of device and host tables for tests.

#ifndef LODESTAR_TESTS_CUDA_DEVICE_TABLES_H_
#define LODESTAR_TESTS_CUDA_DEVICE_TABLES_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/random.h"
#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/sparse_optimizer.h"

namespace lodestar {

using Ids = std::vector<int64_t>;

// Allocates at most `allowed` bytes.
class LimitedAllocator final : public DeviceAllocator {
 public:
  explicit LimitedAllocator(int64_t allowed) : allowed_(allowed) {}
  void* Allocate(int64_t bytes) override {
    if (used_ + bytes > allowed_) return nullptr;
    void* const memory = cuda_.Allocate(bytes);
    if (memory != nullptr) {
      used_ += bytes;
      sizes_[memory] = bytes;
    }
    return memory;
  }
  void Free(void* memory) override {
    used_ -= sizes_[memory];
    cuda_.Free(memory);
  }
  void Allow(int64_t bytes) { allowed_ = bytes; }
  int64_t used() const { return used_; }

 private:
  CudaAllocator cuda_;
  int64_t allowed_;
  int64_t used_ = 0;
  std::map<void*, int64_t> sizes_;
};

// A stream, a table on the device and a table on the host.
struct Tables {
  Tables(int64_t dim, RowType type, const std::string& initializer,
         const TablePolicies& policies = TablePolicies(),
         DeviceAllocator* allocator = nullptr)
      : dim(dim), type(type) {
    REQUIRE_CUDA(cudaStreamCreate(&stream));
    memory = std::make_unique<StreamAllocator>(stream);
    on = {stream, memory.get()};
    DeviceStore::Options options;
    options.dim = dim;
    options.type = type;
    options.policies = policies;
    ExpectOk(RowInitializer::Create(initializer, -0.5f, 0.5f, 7, 3,
                                    &options.initializer),
             "initializer");
    ExpectOk(DeviceStore::Create(options,
                                 {std::shared_ptr<void>(),
                                  allocator == nullptr ? &cuda : allocator},
                                 on, &device),
             "create");
    ExpectOk(EmbeddingStore::Create(dim, 4, options.initializer, &host,
                                    options.policies, type),
             "create on the host");
  }
  ~Tables() {
    device.reset();
    cudaStreamDestroy(stream);
  }

  int64_t row_bytes() const { return dim * SizeOf(type); }

  void FindOrInsert(const Ids& unique, bool insert, bool count,
                    const std::string& what) {
    LookupOptions options;
    options.insert = insert;
    options.count_frequency = count;
    FindOrInsert(unique, options, what);
  }
  // occurrences: how often each id occurs; empty: count once per step.
  void FindOrInsert(const Ids& unique, const LookupOptions& options,
                    const std::string& what,
                    const std::vector<uint32_t>& occurrences = {}) {
    const bool count = options.count_frequency;
    const DeviceBuffer<int64_t> ids(unique);
    const DeviceBuffer<uint32_t> refs(unique.size());
    const DeviceBuffer<char> found(unique.size());
    const DeviceBuffer<char> rows(unique.size() * row_bytes(),
                                  count ? 0 : SizeOf(type));
    const DeviceBuffer<uint32_t> times(occurrences);
    ExpectOk(
        device->FindOrInsert(
            on, {ids.data(), static_cast<int64_t>(unique.size()), nullptr},
            DeviceStore::InsertOptions(
                options, occurrences.empty() ? nullptr : times.data()),
            {refs.data(), reinterpret_cast<bool*>(found.data()), rows.data()}),
        what);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    std::vector<RowRef> host_refs(unique.size());
    std::vector<char> resident(unique.size());
    ExpectOk(host->FindOrInsert(unique, options, host_refs, nullptr,
                                resident.data(), occurrences),
             what + " on the host");
    Expect(found.Download() == resident, what + ": which ids had rows");
    const std::vector<uint32_t> got = refs.Download();
    bool right = true;
    for (size_t i = 0; i < got.size(); ++i) {
      right = right && (got[i] != DeviceStore::kNoRow) == host_refs[i].found();
    }
    Expect(right, what + ": which ids have rows");
    if (options.insert) {
      std::vector<char> wanted(unique.size() * row_bytes());
      host->Find(unique, nullptr, Missing(), wanted.data(), nullptr, nullptr);
      Expect(rows.Download() == wanted, what + ": rows that came out");
    }
    Expect(refs.ZonesAreIntact() && found.ZonesAreIntact() &&
               rows.ZonesAreIntact(),
           what + ": writes outside its outputs");
  }

  // Expects bitwise equal rows of `ids` on both sides.
  void ExpectSameRows(const Ids& ids, const int64_t* padding_id,
                      Missing::Kind kind, const std::string& what,
                      int64_t shift = 0) {
    const int64_t n = static_cast<int64_t>(ids.size());
    const DeviceBuffer<int64_t> device_ids(ids);
    const DeviceBuffer<char> rows(n * row_bytes(), shift * SizeOf(type));
    const DeviceBuffer<char> found(n);
    std::vector<char> vector(row_bytes());
    for (size_t i = 0; i < vector.size(); ++i) {
      vector[i] = static_cast<char>(i % 50);
    }
    const DeviceBuffer<char> device_vector(vector);
    Missing missing;
    missing.kind = kind;
    missing.vector = device_vector.data();
    ExpectOk(device->FindRows({device_ids.data(), n}, padding_id, missing,
                              rows.data(),
                              reinterpret_cast<bool*>(found.data()), on),
             what);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    std::vector<char> wanted(n * row_bytes());
    std::vector<char> wanted_found(n);
    Missing host_missing;
    host_missing.kind = kind;
    host_missing.vector = vector.data();
    host->Find(ids, padding_id, host_missing, wanted.data(),
               reinterpret_cast<bool*>(wanted_found.data()), nullptr);
    Expect(rows.Download() == wanted, what + ": rows");
    Expect(found.Download() == wanted_found, what + ": which were found");
    Expect(rows.ZonesAreIntact() && found.ZonesAreIntact(),
           what + ": writes outside its outputs");
  }

  void ExpectSameTable(const std::string& what, double tolerance = 0) {
    EmbeddingRows got, wanted;
    ExpectOk(device->Export(true, &got, on), what + ": export");
    ExpectOk(host->Export(true, &wanted, nullptr), what + ": export");
    Expect(got.ids == wanted.ids, what + ": exported ids");
    Expect(got.frequencies == wanted.frequencies, what + ": frequencies");
    Expect(got.last_seen == wanted.last_seen, what + ": last seen");
    Expect(got.optimizer.name == wanted.optimizer.name &&
               got.optimizer.slot_names == wanted.optimizer.slot_names,
           what + ": optimizer");
    Expect(got.step == wanted.step, what + ": step");
    Expect(got.pending_ids == wanted.pending_ids &&
               got.pending_sightings == wanted.pending_sightings &&
               got.pending_last_seen == wanted.pending_last_seen,
           what + ": pending ids");
    Expect(got.sketch == wanted.sketch, what + ": sketch");
    Expect(got.shared_values == wanted.shared_values &&
               got.shared_slots == wanted.shared_slots,
           what + ": shared rows");
    if (tolerance == 0) {
      Expect(got.values == wanted.values, what + ": exported rows");
      Expect(got.slots == wanted.slots, what + ": exported slots");
    } else {
      ExpectNear(got.values, wanted.values, tolerance, what + ": rows");
      ExpectNear(got.slots, wanted.slots, tolerance, what + ": slots");
    }
  }

  static void ExpectNear(const Numbers& got, const Numbers& wanted,
                         double tolerance, const std::string& what) {
    Expect(got.size() == wanted.size() && got.type() == wanted.type(),
           what + ": sizes");
    if (got.size() != wanted.size()) return;
    VisitRowType(got.type(), [&](auto zero) {
      using T = decltype(zero);
      for (int64_t i = 0; i < got.size(); ++i) {
        const double g = ToCompute(got.as<T>()[i]);
        const double w = ToCompute(wanted.as<T>()[i]);
        if (std::fabs(g - w) <= tolerance * std::max(1.0, std::fabs(w))) {
          continue;
        }
        Expect(false, what + ": number " + std::to_string(i) + " is " +
                          std::to_string(g) + ", wanted " + std::to_string(w));
        return;
      }
    });
  }

  // Calls on both sides.

  void SetStep(int64_t step) {
    ExpectOk(host->SetStep(step), "step");
    ExpectOk(device->SetStep(step, on), "step");
  }
  void Assign(const Ids& ids, const std::vector<char>& rows) {
    const DeviceBuffer<int64_t> device_ids(ids);
    const DeviceBuffer<char> device_rows(rows);
    const int64_t n = static_cast<int64_t>(ids.size());
    ExpectOk(
        device->InsertOrAssign({device_ids.data(), n}, device_rows.data(), on),
        "assign");
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    ExpectOk(host->InsertOrAssign(ids, rows.data(), {}), "assign on the host");
  }
  void Assign(const Ids& ids, char byte) {
    Assign(ids, std::vector<char>(ids.size() * row_bytes(), byte));
  }
  void Remove(const Ids& ids) {
    const DeviceBuffer<int64_t> device_ids(ids);
    const int64_t n = static_cast<int64_t>(ids.size());
    int64_t removed = 0;
    int64_t wanted = 0;
    ExpectOk(device->Remove({device_ids.data(), n}, &removed, on), "remove");
    ExpectOk(host->Remove(ids, &wanted, {}), "remove on the host");
    Expect(removed == wanted, "number of removed rows");
  }
  void RemoveAll() {
    ExpectOk(device->RemoveAll(on), "remove all");
    ExpectOk(host->RemoveAll({}), "remove all on the host");
  }
  void Clear() {
    ExpectOk(device->Clear(on), "clear");
    ExpectOk(host->Clear({}), "clear on the host");
  }
  void Replace(const EmbeddingRowsView& view) {
    std::unique_ptr<Table> next_device, next_host;
    ExpectOk(device->CreateReplacement(view, on, &next_device), "replacement");
    ExpectOk(next_device->CopyLiveState(*device, view, on), "live state");
    ExpectOk(host->CreateReplacement(view, {}, &next_host),
             "replacement on the host");
    ExpectOk(next_host->CopyLiveState(*host, view, {}), "live state");
    device.reset(static_cast<DeviceStore*>(next_device.release()));
    host.reset(static_cast<EmbeddingStore*>(next_host.release()));
  }
  // Updates by gradients. The other members of `update` are set.
  void Update(TableUpdate update, const Ids& ids,
              const std::vector<float>& gradients, const std::string& what) {
    const DeviceBuffer<int64_t> device_ids(ids);
    const DeviceBuffer<float> device_gradients(gradients);
    update.table = host.get();
    update.ids = ids;
    update.gradients = gradients.data();
    int64_t failed = 0;
    const Status wanted = host->Update({&update, 1}, {}, &failed);
    update.table = device.get();
    update.ids = {device_ids.data(), static_cast<int64_t>(ids.size())};
    update.gradients = device_gradients.data();
    const Status got = UpdateDevice(on, update);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    Expect(got.code() == wanted.code() && got.message() == wanted.message(),
           what + ": " + std::string(got.message()));
  }
  void ExpectSameEvents(const std::string& what) {
    EmbeddingStats stats;
    ExpectOk(device->ReadStats(&stats, on), what);
    Expect(stats.events == host->Stats().events, what + ": events");
    Expect(stats.pending == host->Stats().pending,
           what + ": number of pending ids");
  }

  // An update of unique ids on the device.
  TableUpdate UpdateOf(const int64_t* unique_ids, int64_t count,
                       const void* gradients) const {
    static const LookupPlan unique;
    TableUpdate update;
    update.table = device.get();
    update.ids = {unique_ids, count};
    update.plan = &unique;
    update.gradients = gradients;
    update.nonfinite = Nonfinite::kPass;
    return update;
  }
  Status UpdateDevice(const DeviceStream& stream, const TableUpdate& update) {
    int64_t failed = 0;
    return device->Update({&update, 1}, stream, &failed);
  }
  void Apply(const Ids& unique, const std::string& name,
             const std::vector<float>& hyperparameters,
             const std::vector<float>& slot_inits, bool create_missing,
             Random* random, const std::string& what) {
    const int64_t u = static_cast<int64_t>(unique.size());
    std::vector<float> gradients(u * dim);
    std::normal_distribution<double> normal;
    for (float& g : gradients) g = static_cast<float>(normal(*random));
    const DeviceBuffer<int64_t> ids(unique);
    const DeviceBuffer<float> device_gradients(gradients);
    TableUpdate update = UpdateOf(ids.data(), u, device_gradients.data());
    update.optimizer = name;
    update.hyperparameters = hyperparameters;
    update.slot_inits = slot_inits;
    update.create_missing = create_missing;
    update.next_step = -1;
    ExpectOk(UpdateDevice(on, update), what);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    SparseOptimizer optimizer;
    ExpectOk(SparseOptimizer::Create(name, hyperparameters, &optimizer), what);
    ExpectOk(host->Apply(unique, gradients.data(), name, optimizer, slot_inits,
                         create_missing, -1, nullptr),
             what + " on the host");
  }

  const int64_t dim;
  const RowType type;
  cudaStream_t stream = nullptr;
  CudaAllocator cuda;
  std::unique_ptr<StreamAllocator> memory;
  DeviceStream on;
  std::unique_ptr<DeviceStore> device;
  std::unique_ptr<EmbeddingStore> host;
};

inline constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();

// Ids of which about half repeat, from the entire range or close together.
inline Ids SomeIds(Random* random, int64_t count, int64_t distinct) {
  Ids pool = {0, -1, 1, kLow, kHigh};
  while (static_cast<int64_t>(pool.size()) < distinct) {
    pool.push_back(Draw(random, 0, 1) == 0 ? Draw(random, kLow, kHigh)
                                           : Draw(random, -1000, 1000));
  }
  Ids ids(count);
  for (int64_t& id : ids) {
    id = pool[Draw(random, 0, static_cast<int64_t>(pool.size()) - 1)];
  }
  return ids;
}

inline Ids UniqueOf(const Ids& ids) {
  Ids unique;
  Ids positions(ids.size());
  BatchUnique(ids, nullptr, &unique, positions);
  return unique;
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CUDA_DEVICE_TABLES_H_
