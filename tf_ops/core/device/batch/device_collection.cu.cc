#include "tf_ops/core/device/batch/device_collection.h"

#include <algorithm>

#include "tf_ops/core/device/batch/device_gradient.h"
#include "tf_ops/core/device/device_launch.h"

namespace lodestar {
namespace {

struct CountCall {
  const int64_t* positions;
  int64_t num_ids;
  const bool* resident;
  uint32_t* seen;  // one bit per unique id
  unsigned long long* counts;
};

__global__ void __launch_bounds__(kBlock) CountKernel(CountCall call) {
  const int64_t i = ThreadNumber();
  const bool mine = i < call.num_ids;
  const int64_t position = mine ? call.positions[i] : -1;
  bool is_first = false;
  if (position >= 0) {
    const uint32_t bit = 1u << (position % 32);
    is_first = (atomicOr(call.seen + position / 32, bit) & bit) == 0;
  }
  CountBlock(mine, call.counts);
  CountBlock(mine && position < 0, call.counts + 1);
  CountBlock(is_first, call.counts + 2);
  CountBlock(position >= 0 && call.resident[position], call.counts + 3);
}

}  // namespace

Status DeviceCollection::Init(const DeviceStream& on,
                              const std::vector<Feature>& features,
                              int64_t num_tables, const ParallelFor* parallel) {
  on_ = on;
  parts_.resize(features.size());
  tables_ = std::vector<Table>(num_tables);
  for (size_t f = 0; f < features.size(); ++f) {
    tables_[features[f].table].features.push_back(static_cast<int>(f));
  }
  std::vector<DeviceCsr::Slot> slots;
  for (Table& table : tables_) {
    for (const int f : table.features) {
      Part& part = parts_[f];
      part.feature = features[f];
      const DeviceCsr::Slot& slot = features[f].slot;
      part.slot = static_cast<int>(slots.size());
      part.first = table.num_ids;
      part.num_ids = slot.ids.size();
      part.num_bags = slot.row_splits.empty() ? 0 : slot.row_splits.size() - 1;
      table.num_ids += part.num_ids;
      slots.push_back(slot);
    }
  }
  return csr_.Send(on, slots, parallel);
}

DeviceStore::Ids DeviceCollection::ids(int64_t table) const {
  const Table& of = tables_[table];
  if (of.features.empty()) return {};
  return {csr_.ids(parts_[of.features[0]].slot), of.num_ids, nullptr};
}

DeviceStore::Ids DeviceCollection::IdsOf(const Part& part) const {
  return {csr_.ids(part.slot), part.num_ids, nullptr};
}

DeviceStore::Bags DeviceCollection::BagsOf(const Part& part) const {
  DeviceStore::Bags bags;
  bags.row_splits = csr_.row_offsets(part.slot);
  bags.size = part.num_bags;
  bags.weights = csr_.weights(part.slot);
  bags.combiner = part.feature.combiner;
  bags.padding_id = part.feature.slot.padding_id;
  bags.default_id = part.feature.default_id;
  const Table& table = tables_[part.feature.table];
  if (table.refs.data() != nullptr) {
    bags.positions = table.batch.positions() + part.first;
    bags.refs = table.refs.data();
    bags.sources = sources_.data();
  }
  return bags;
}

DeviceStore::Bags DeviceCollection::BagsOf(const Part& part,
                                           const Fetched& from) const {
  DeviceStore::Bags bags = BagsOf(part);
  bags.positions = from.positions + part.first;
  bags.default_row = from.default_row;
  return bags;
}

Status DeviceCollection::Unique() {
  for (size_t t = 0; t < tables_.size(); ++t) {
    Table& table = tables_[t];
    const bool* const padded =
        table.features.empty() ? nullptr
                               : csr_.padded(parts_[table.features[0]].slot);
    LODESTAR_RETURN_IF_ERROR(table.batch.Unique(
        on_, ids(t), nullptr, DeviceBatch::Which::kFirst, padded));
  }
  for (Table& table : tables_) {
    LODESTAR_RETURN_IF_ERROR(
        table.batch.Count(on_, &table.num_unique, &table.num_padding));
  }
  return Status();
}

Status DeviceCollection::FindOrInsert(const std::vector<DeviceStore*>& stores,
                                      const LookupOptions& options) {
  std::vector<DeviceStore::TableInsert> inserts;
  int64_t most_ids = 1;
  int64_t most_unique = 1;
  for (const Part& part : parts_) most_ids = std::max(most_ids, part.num_ids);
  for (const Table& table : tables_) {
    most_unique = std::max(most_unique, table.num_unique);
  }
  LODESTAR_RETURN_IF_ERROR(
      sources_.Allocate(on_.memory, most_ids, "the rows of bags"));
  LODESTAR_RETURN_IF_ERROR(seen_.Allocate(on_.memory, most_unique / 32 + 1,
                                          "the counts of a feature"));
  for (size_t t = 0; t < tables_.size(); ++t) {
    Table& table = tables_[t];
    // At least one element, because a non-null array means that rows were
    // found.
    const int64_t size = table.num_unique + 1;
    LODESTAR_RETURN_IF_ERROR(
        table.refs.Allocate(on_.memory, size, "row locations"));
    LODESTAR_RETURN_IF_ERROR(
        table.resident.Allocate(on_.memory, size, "row locations"));
    if (stores[t]->counts_occurrences()) {
      LODESTAR_RETURN_IF_ERROR(table.batch.CountOccurrences(
          on_, table.num_unique, &table.occurrences));
    }
    inserts.push_back(
        {stores[t],
         {table.batch.ids().data, table.num_unique, nullptr},
         DeviceStore::InsertOptions(options, table.occurrences.data()),
         {table.refs.data(), table.resident.data(), nullptr}});
  }
  return DeviceStore::FindOrInsert(on_, inserts);
}

Status DeviceCollection::Lookup(int f, DeviceStore* store,
                                const Missing& missing, void* rows,
                                int64_t* winners) const {
  const Part& part = parts_[f];
  const DeviceStore::Bags bags = BagsOf(part);
  if (bags.row_splits != nullptr) {
    return store->Pool(on_, IdsOf(part), bags, missing, rows, winners);
  }
  if (bags.refs != nullptr) {
    return store->ReadRows(on_, IdsOf(part), bags.positions, bags.refs, missing,
                           rows);
  }
  const DeviceStore::Ids ids = IdsOf(part);
  return store->FindRows({ids.data, ids.size}, bags.padding_id, missing, rows,
                         nullptr, on_);
}

Status DeviceCollection::Lookup(int f, const Fetched& from, void* rows,
                                int64_t* winners) const {
  const Part& part = parts_[f];
  const DeviceStore::Bags bags = BagsOf(part, from);
  if (bags.row_splits == nullptr) {
    return DeviceStore::ReadRows(on_, from.rows, IdsOf(part), bags.positions,
                                 rows);
  }
  return DeviceStore::Pool(on_, from.rows, IdsOf(part), bags, rows, winners);
}

Status DeviceCollection::Count(int f, unsigned long long* counts) {
  const Part& part = parts_[f];
  const Table& table = tables_[part.feature.table];
  LODESTAR_RETURN_IF_ERROR(seen_.Fill(on_, 0));
  CountCall call = {};
  call.positions = table.batch.positions() + part.first;
  call.num_ids = part.num_ids;
  call.resident = table.resident.data();
  call.seen = seen_.data();
  call.counts = counts;
  return CudaStatus(Launch(CountKernel, part.num_ids, on_.stream, call),
                    "the counts of a feature");
}

Status DeviceCollection::SumGradients(
    int64_t table, RowType type, const std::vector<const void*>& gradients,
    const std::vector<const int64_t*>& winners, const int64_t* positions,
    int64_t num_unique, int64_t dim, void* sums) const {
  std::vector<SlotGradient> slots;
  for (const int f : tables_[table].features) {
    const Part& part = parts_[f];
    SlotGradient slot;
    slot.gradients = gradients[f];
    slot.num_ids = part.num_ids;
    slot.row_splits = csr_.row_offsets(part.slot);
    slot.num_bags = part.num_bags;
    slot.weights = csr_.weights(part.slot);
    slot.combiner = part.feature.combiner;
    slot.winners = winners[f];
    slots.push_back(slot);
  }
  return SumSlots(on_, type, slots, positions, num_unique, dim, sums);
}

}  // namespace lodestar
