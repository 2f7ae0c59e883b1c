// Updates of a pair of tables that are computed outside of them.

#ifndef LODESTAR_TESTS_CUDA_OUTSIDE_UPDATE_H_
#define LODESTAR_TESTS_CUDA_OUTSIDE_UPDATE_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_tables.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

inline AttachedOptimizer Unfused(int num_slots) {
  AttachedOptimizer optimizer;
  optimizer.name = "replay:test";
  for (int s = 0; s < num_slots; ++s) {
    optimizer.slot_names.push_back("slot" + std::to_string(s));
    optimizer.slot_inits.push_back(0.25f * static_cast<float>(s));
  }
  return optimizer;
}

// The memory of gathered rows on the host or the device.
template <template <typename> class Memory>
struct GatheredRows {
  GatheredRows(int64_t count, int64_t dim, int64_t num_slots)
      : ids(count),
        shared(count),
        gradients(count * dim),
        values(count * dim),
        slots(num_slots * count * dim),
        versions(count) {}
  RowsForUpdate out() {
    return {ids.data(),       reinterpret_cast<bool*>(shared.data()),
            gradients.data(), values.data(),
            slots.data(),     versions.data()};
  }
  Memory<int64_t> ids;
  Memory<char> shared;
  Memory<float> gradients;
  Memory<float> values;
  Memory<float> slots;
  Memory<int64_t> versions;
};
template <typename T>
using HostMemory = std::vector<T>;

// Rows of both tables between gathering and assigning.
class OutsideUpdate {
 public:
  OutsideUpdate(Tables* tables, const AttachedOptimizer& optimizer)
      : tables_(*tables), optimizer_(optimizer) {}

  // Gathers rows on both sides, and compares them.
  void Gather(const Ids& ids, const std::vector<char>& shared,
              const std::vector<float>& gradients, Nonfinite nonfinite,
              const std::string& what) {
    const int64_t n = static_cast<int64_t>(ids.size());
    const DeviceBuffer<int64_t> device_ids(ids);
    const DeviceBuffer<char> device_shared(shared);
    const DeviceBuffer<float> device_gradients(gradients);
    const int64_t dim = tables_.dim;
    const int64_t slots = static_cast<int64_t>(optimizer_.slot_names.size());
    TableUpdate update;
    update.table = tables_.device.get();
    update.ids = {device_ids.data(), n};
    update.gradients = device_gradients.data();
    update.nonfinite = nonfinite;
    const Status on_device = tables_.device->GatherForUpdate(
        update, {reinterpret_cast<const bool*>(device_shared.data()), n},
        optimizer_,
        [&](int64_t count, RowsForUpdate* out) {
          device_ =
              std::make_unique<GatheredRows<DeviceBuffer>>(count, dim, slots);
          *out = device_->out();
          return Status();
        },
        tables_.on);
    REQUIRE_CUDA(cudaStreamSynchronize(tables_.stream));
    update.table = tables_.host.get();
    update.ids = ids;
    update.gradients = gradients.data();
    const Status on_host = tables_.host->GatherForUpdate(
        update, {reinterpret_cast<const bool*>(shared.data()), n}, optimizer_,
        [&](int64_t count, RowsForUpdate* out) {
          host_ = std::make_unique<GatheredRows<HostMemory>>(count, dim, slots);
          *out = host_->out();
          return Status();
        },
        nullptr);
    Expect(on_device.message() == on_host.message(),
           what + ": '" + on_device.message() + "', wanted '" +
               on_host.message() + "'");
    status = on_host;
    if (!status.ok()) return;
    Expect(device_->ids.Download() == host_->ids, what + ": gathered ids");
    Expect(device_->shared.Download() == host_->shared,
           what + ": which are shared");
    Expect(Same(device_->gradients.Download(), host_->gradients),
           what + ": gathered gradients");
    Expect(Same(device_->values.Download(), host_->values),
           what + ": gathered rows");
    Expect(Same(device_->slots.Download(), host_->slots),
           what + ": gathered slots");
    Expect(device_->ids.ZonesAreIntact() && device_->shared.ZonesAreIntact() &&
               device_->gradients.ZonesAreIntact() &&
               device_->values.ZonesAreIntact() &&
               device_->slots.ZonesAreIntact() &&
               device_->versions.ZonesAreIntact(),
           what + ": writes outside its outputs");
  }
  void Gather(const Ids& ids, Random* random, const std::string& what) {
    std::vector<float> gradients(ids.size() * tables_.dim);
    std::normal_distribution<double> normal;
    for (float& g : gradients) g = static_cast<float>(normal(*random));
    Gather(ids, std::vector<char>(ids.size(), 0), gradients, Nonfinite::kPass,
           what);
  }

  // Computes new rows and assigns them on both sides, which must find the same
  // rows changed. Returns their indices.
  std::vector<int64_t> Assign(const std::string& what) {
    std::vector<float> values = host_->values;
    std::vector<float> slots = host_->slots;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = values[i] / 2 + host_->gradients[i];
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i] += host_->gradients[i % values.size()];
    }
    const int64_t count = static_cast<int64_t>(host_->ids.size());
    const DeviceBuffer<float> device_values(values);
    const DeviceBuffer<float> device_slots(slots);
    const DeviceBuffer<char> device_changed(count);
    const RowsForUpdate on_device = device_->out();
    ExpectOk(tables_.device->AssignIfUnchanged(
                 {{on_device.ids, count},
                  {on_device.shared, count},
                  {on_device.versions, count},
                  device_values.data(),
                  device_slots.data()},
                 optimizer_, -1, reinterpret_cast<bool*>(device_changed.data()),
                 tables_.on),
             what);
    REQUIRE_CUDA(cudaStreamSynchronize(tables_.stream));
    std::vector<char> changed(count);
    const RowsForUpdate on_host = host_->out();
    ExpectOk(
        tables_.host->AssignIfUnchanged(
            {{on_host.ids, count},
             {on_host.shared, count},
             {on_host.versions, count},
             values.data(),
             slots.data()},
            optimizer_, -1, reinterpret_cast<bool*>(changed.data()), nullptr),
        what + " on the host");
    Expect(device_changed.Download() == changed, what + ": changed rows");
    Expect(device_changed.ZonesAreIntact(),
           what + ": writes outside its outputs");
    std::vector<int64_t> left;
    for (int64_t k = 0; k < count; ++k) {
      if (changed[k]) left.push_back(k);
    }
    return left;
  }
  // Gathers and assigns rows until none are left.
  void Finish(const std::string& what) {
    for (std::vector<int64_t> left = Assign(what); !left.empty();
         left = Assign(what + ", again")) {
      Ids ids;
      std::vector<char> shared;
      std::vector<float> gradients;
      for (const int64_t k : left) {
        ids.push_back(host_->ids[k]);
        shared.push_back(host_->shared[k]);
        const auto row = host_->gradients.begin() + k * tables_.dim;
        gradients.insert(gradients.end(), row, row + tables_.dim);
      }
      Gather(ids, shared, gradients, Nonfinite::kPass, what + ", again");
    }
  }

  Status status;  // of the last Gather

 private:
  // Bit by bit, because NaN is not equal to itself.
  static bool Same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  Tables& tables_;
  const AttachedOptimizer optimizer_;
  std::unique_ptr<GatheredRows<HostMemory>> host_;
  std::unique_ptr<GatheredRows<DeviceBuffer>> device_;
};

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CUDA_OUTSIDE_UPDATE_H_
