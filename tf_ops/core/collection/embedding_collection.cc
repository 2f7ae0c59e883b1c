#include "tf_ops/core/collection/embedding_collection.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/hash.h"

namespace lodestar {
namespace {

// Ids and bags per task: enough to amortize its dispatch, few enough to balance
// a batch over threads.
constexpr int64_t kTaskItems = 1024;

}  // namespace

int64_t TableId(const CollectionFeature& feature, int64_t id) {
  if (!feature.salt.has_value()) return id;
  return static_cast<int64_t>(Mix64(static_cast<uint64_t>(id ^ *feature.salt)));
}

Status CollectionBatch::Init(const std::vector<CollectionFeature>& features,
                             const std::vector<FeatureTensors>& tensors,
                             int64_t num_tables, Ids ids,
                             const ParallelFor* parallel) {
  parts_.resize(features.size());
  num_ids_.assign(num_tables, 0);
  for (size_t f = 0; f < features.size(); ++f) {
    const CollectionFeature& feature = features[f];
    Part& part = parts_[f];
    part.feature = &feature;
    part.tensors = tensors[f];
    Bags& bags = part.bags;
    bags.ids = part.tensors.ids;
    if (feature.pooled) {
      bags.row_splits = part.tensors.row_splits;
      bags.weights = part.tensors.weights;
      bags.combiner = feature.combiner;
      LODESTAR_RETURN_IF_ERROR(InFeature(feature, CheckBags(bags)));
      if (feature.max_length > 0) Truncate(&part);
    }
    part.pooled = feature.pooled && !IsOneIdEach(part);
    if (feature.padding_id.has_value()) {
      part.padding_id = TableId(feature, *feature.padding_id);
      bags.padding_id = &part.padding_id;
    }
    if (feature.default_id.has_value()) {
      part.default_id = TableId(feature, *feature.default_id);
      bags.default_id = &part.default_id;
    }
    part.offset = num_ids_[feature.table];
    num_ids_[feature.table] += bags.ids.size();
  }
  MakeTasks();
  if (ids != Ids::kCount) TakeIds(ids, parallel);
  return Status();
}

void CollectionBatch::Truncate(Part* part) const {
  const int64_t limit = part->feature->max_length;
  const Span<const int64_t>& splits = part->tensors.row_splits;
  std::vector<int64_t> cut(splits.size(), 0);
  bool any = false;
  for (int64_t b = 0; b + 1 < splits.size(); ++b) {
    const int64_t length = splits[b + 1] - splits[b];
    any = any || length > limit;
    cut[b + 1] = cut[b] + std::min(length, limit);
  }
  if (!any) return;
  if (!part->tensors.weights.empty()) {
    part->weights.resize(cut.back());
    for (int64_t b = 0; b + 1 < splits.size(); ++b) {
      std::copy_n(part->tensors.weights.data() + splits[b], cut[b + 1] - cut[b],
                  part->weights.data() + cut[b]);
    }
    part->bags.weights = part->weights;
  }
  part->row_splits = std::move(cut);
  part->bags.row_splits = part->row_splits;
  part->bags.ids = part->bags.ids.subspan(0, part->row_splits.back());
}

bool CollectionBatch::IsOneIdEach(const Part& part) {
  const Bags& bags = part.bags;
  // Max pooling needs the winners, and a bag of padding is empty and may read
  // the default row.
  if (!bags.weights.empty() || bags.combiner == Combiner::kMax ||
      part.feature->default_id.has_value() ||
      part.tensors.default_row != nullptr || bags.size() != bags.ids.size()) {
    return false;
  }
  int64_t others = 0;
  for (int64_t b = 0; b < bags.size(); ++b) others |= bags.row_splits[b] ^ b;
  return others == 0;
}

void CollectionBatch::MakeTasks() {
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    const int64_t items = part.num_items();
    int64_t begin = 0;
    int64_t weight = 0;
    for (int64_t i = 0; i < items; ++i) {
      weight += 1;
      if (part.pooled) {
        weight += part.bags.row_splits[i + 1] - part.bags.row_splits[i];
      }
      if (weight >= kTaskItems || i + 1 == items) {
        tasks_.push_back({static_cast<int64_t>(p), begin, i + 1});
        begin = i + 1;
        weight = 0;
      }
    }
  }
}

void CollectionBatch::IdRange(const Part& part, const Task& task,
                              int64_t* begin, int64_t* end) {
  *begin = task.begin;
  *end = task.end;
  if (!part.pooled) return;
  *begin = part.bags.row_splits[task.begin];
  *end = part.bags.row_splits[task.end];
}

void CollectionBatch::CopyIds(const Task& task, int64_t* ids) const {
  const Part& part = parts_[task.part];
  const int64_t* from = part.tensors.ids.data();
  int64_t begin = 0;
  int64_t end = 0;
  IdRange(part, task, &begin, &end);
  if (part.truncated()) {
    for (int64_t b = task.begin; b < task.end; ++b) {
      std::copy_n(from + part.tensors.row_splits[b],
                  part.row_splits[b + 1] - part.row_splits[b],
                  ids + part.row_splits[b]);
    }
  } else {
    std::copy_n(from + begin, end - begin, ids + begin);
  }
  if (!part.feature->salt.has_value()) return;
  for (int64_t i = begin; i < end; ++i) ids[i] = TableId(*part.feature, ids[i]);
}

void CollectionBatch::TakeIds(Ids ids, const ParallelFor* parallel) {
  std::vector<int64_t> num_features(num_ids_.size(), 0);
  for (const Part& part : parts_) ++num_features[part.feature->table];
  std::vector<int64_t*> copies(parts_.size(), nullptr);
  table_ids_.resize(num_ids_.size());
  for (size_t p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[p];
    const int64_t table = part.feature->table;
    if (!part.truncated() && !part.feature->salt.has_value() &&
        (ids == Ids::kRead || num_features[table] == 1)) {
      continue;
    }
    if (table_ids_[table] == nullptr) {
      table_ids_[table].reset(new int64_t[num_ids_[table]]);
    }
    copies[p] = table_ids_[table].get() + part.offset;
    part.bags.ids = Span<const int64_t>(copies[p], part.bags.ids.size());
  }
  ForEachTask(2, parallel, [&](const Task& task) {
    if (copies[task.part] != nullptr) CopyIds(task, copies[task.part]);
  });
}

Status CollectionBatch::Deduplicate(std::vector<std::vector<int64_t>>* unique,
                                    const std::vector<Span<int64_t>>& positions,
                                    const ParallelFor* parallel) const try {
  const int64_t num_tables = static_cast<int64_t>(num_ids_.size());
  std::vector<std::vector<const Part*>> parts(num_tables);
  std::vector<char> padded(num_tables, 0);
  int64_t most = 0;
  for (const Part& part : parts_) {
    const int64_t table = part.feature->table;
    parts[table].push_back(&part);
    if (part.feature->padding_id.has_value()) padded[table] = 1;
    most = std::max(most, num_ids_[table]);
  }
  // Tables that read the same features, such as a wide and a deep one, have the
  // same unique ids. first[t]: the first of these tables, for the others.
  std::vector<int64_t> first(num_tables);
  std::vector<int64_t> of_first;
  std::vector<int64_t> others;
  std::multimap<const int64_t*, int64_t> by_ids;
  for (int64_t t = 0; t < num_tables; ++t) {
    if (parts[t].empty()) continue;
    const int64_t* const ids = parts[t][0]->tensors.ids.data();
    const auto [begin, end] = by_ids.equal_range(ids);
    const auto same = std::find_if(begin, end, [&](const auto& other) {
      return HaveSameIds(parts[other.second], parts[t]);
    });
    if (same != end) {
      first[t] = same->second;
      others.push_back(t);
    } else {
      by_ids.insert({ids, t});
      of_first.push_back(t);
    }
  }
  unique->resize(num_tables);
  LODESTAR_RETURN_IF_ERROR(RunAllocating(
      parallel, of_first.size(), 10 * most, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t t = of_first[i];
          DeduplicateTable(parts[t], num_ids_[t], padded[t] != 0, &(*unique)[t],
                           positions[t]);
        }
      }));
  return RunAllocating(
      parallel, others.size(), most / 8 + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t t = others[i];
          (*unique)[t] = (*unique)[first[t]];
          std::copy(positions[first[t]].begin(), positions[first[t]].end(),
                    positions[t].begin());
        }
      });
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the ids of a batch.");
}

bool CollectionBatch::HaveSameIds(const std::vector<const Part*>& a,
                                  const std::vector<const Part*>& b) {
  const auto same = [](const Part* x, const Part* y) {
    const CollectionFeature& f = *x->feature;
    const CollectionFeature& g = *y->feature;
    if (x->tensors.ids.data() != y->tensors.ids.data() ||
        x->bags.ids.size() != y->bags.ids.size() || f.salt != g.salt ||
        f.padding_id != g.padding_id || x->row_splits != y->row_splits) {
      return false;
    }
    // Bags of other lengths may be truncated to the same lengths.
    const Span<const int64_t>& p = x->tensors.row_splits;
    const Span<const int64_t>& q = y->tensors.row_splits;
    return !x->truncated() ||
           std::equal(p.begin(), p.end(), q.begin(), q.end());
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

void CollectionBatch::DeduplicateTable(const std::vector<const Part*>& parts,
                                       int64_t num_ids, bool padded,
                                       std::vector<int64_t>* unique,
                                       Span<int64_t> positions) {
  const Bags& first = parts[0]->bags;
  if (!padded || parts.size() == 1) {
    BatchUnique(Span<const int64_t>(first.ids.data(), num_ids),
                first.padding_id, unique, positions);
    return;
  }
  // Padding differs by feature: deduplicate the other ids, then map the
  // positions back to all ids.
  std::vector<int64_t> kept;
  kept.reserve(num_ids);
  for (const Part* part : parts) {
    for (int64_t id : part->bags.ids) {
      if (!part->bags.is_padding(id)) kept.push_back(id);
    }
  }
  std::vector<int64_t> kept_positions(kept.size());
  BatchUnique(kept, nullptr, unique, kept_positions);
  const int64_t* position = kept_positions.data();
  for (const Part* part : parts) {
    for (int64_t i = 0; i < part->bags.ids.size(); ++i) {
      positions[part->offset + i] =
          part->bags.is_padding(part->bags.ids[i]) ? kNoPosition : *position++;
    }
  }
}

void CollectionBatch::LookupRows(const Task& task, const Table& table,
                                 void* out, int64_t* winners) const {
  const Part& part = parts_[task.part];
  const int dim = table.dim();
  Span<const int64_t> positions;
  if (table.has_rows) positions = PositionsOf(part, table);
  char* rows =
      static_cast<char*>(out) + task.begin * dim * SizeOf(table.type());
  if (part.pooled) {
    Bags bags = part.bags;
    bags.row_splits =
        bags.row_splits.subspan(task.begin, task.end - task.begin + 1);
    if (winners != nullptr) winners += task.begin * dim;
    if (table.has_rows) {
      PoolFetched(table.fetched, bags, positions, table.reads,
                  part.tensors.default_row, rows, winners);
    } else {
      PoolFind(table.reads, bags, rows, winners);
    }
  } else if (table.has_rows) {
    table.fetched.Read(positions, task.begin, task.end, rows);
  } else {
    const EmbeddingStore& store = *table.reads.store;
    store.CountReads(store.Find(
        part.bags.ids.subspan(task.begin, task.end - task.begin),
        part.bags.padding_id, table.reads.missing, rows, nullptr, nullptr));
  }
}

int CollectionBatch::WidestOf(const std::vector<Table>& tables) {
  int widest = 0;
  for (const Table& table : tables) widest = std::max(widest, table.dim());
  return widest;
}

void CollectionBatch::Lookup(const std::vector<Table>& tables,
                             const std::vector<void*>& rows,
                             const std::vector<int64_t*>& winners,
                             const ParallelFor* parallel) const {
  ForEachTask(40 + 2 * WidestOf(tables), parallel, [&](const Task& task) {
    LookupRows(task, tables[parts_[task.part].feature->table], rows[task.part],
               winners[task.part]);
  });
}

void CollectionBatch::MakeTally(const std::vector<int64_t>& num_unique,
                                Tally* tally) const {
  tally->counts.resize(parts_.size());
  tally->seen.resize(parts_.size());
  for (size_t p = 0; p < parts_.size(); ++p) {
    tally->seen[p].resize(num_unique[parts_[p].feature->table] / 64 + 1);
  }
}

void CollectionBatch::Count(const std::vector<Span<const int64_t>>& positions,
                            const std::vector<std::vector<char>>& resident,
                            const ParallelFor* parallel, Tally* tally) const {
  int64_t ids = 0;
  for (int64_t count : num_ids_) ids += count;
  const int64_t num_parts = static_cast<int64_t>(parts_.size());
  RunParallel(parallel, num_parts, 2 * ids / num_parts + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t p = begin; p < end; ++p) {
                  const Part& part = parts_[p];
                  const int64_t table = part.feature->table;
                  const int64_t* part_positions =
                      positions[table].data() + part.offset;
                  const char* had_row = resident[table].data();
                  uint64_t* seen = tally->seen[p].data();
                  FeatureCounts count;
                  count.ids = part.bags.ids.size();
                  for (int64_t i = 0; i < count.ids; ++i) {
                    const int64_t position = part_positions[i];
                    if (position == kNoPosition) {
                      ++count.padding;
                      continue;
                    }
                    count.hits += had_row[position];
                    const uint64_t bit = uint64_t{1} << (position % 64);
                    count.unique += (seen[position / 64] & bit) == 0;
                    seen[position / 64] |= bit;
                  }
                  tally->counts[p] = count;
                }
              });
}

}  // namespace lodestar
