// How EmbeddingStore walks many ids: with memory on its way.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_RUN_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_RUN_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

// An id on its way to its row.
struct EmbeddingStore::Probe {
  uint32_t tag;
  RowRef ref;
  const Shard* shard;
  LeafIndex::Cursor cursor;  // behind ref's slot
};

// To the next row of its tag.
inline void EmbeddingStore::Advance(Probe* probe) {
  RowRef& ref = probe->ref;
  ref.row = LeafIndex::Next(probe->tag, &probe->cursor);
  if (ref.found()) ref.meta = probe->shard->rows.meta(ref.row);
}

// Where the id is, if anywhere.
inline RowRef EmbeddingStore::Confirm(int64_t id, Probe* probe) {
  RowRef& ref = probe->ref;
  const bool any = ref.found();
  while (ref.found() && !RowStore::Holds(ref.meta, id)) Advance(probe);
  if (any && !ref.found()) {
    // A stranger's row, or one that has moved.
    ref.row = FindRow(*probe->shard, probe->tag, id);
    if (ref.found()) ref.meta = probe->shard->rows.meta(ref.row);
  }
  return ref;
}

// visit(first, run, probes) for runs of ids from ids[first] on, with what
// `load(rows, ref)` asks for on its way for the first row of each id's tag; it
// may be another id's.
template <typename Load, typename Visit>
void EmbeddingStore::ForEachRun(Span<const int64_t> ids, const Load& load,
                                const Visit& visit) const {
  // Three runs are under way: one waits for its slots of the index, one for
  // its rows, one is visited.
  constexpr int kStages = 3;
  Probe probes[kStages][kRun];
  const auto run = [&](int64_t number) {
    const int64_t begin = number * kRun;
    return ids.subspan(begin, std::min<int64_t>(kRun, ids.size() - begin));
  };
  const int64_t runs = (ids.size() + kRun - 1) / kRun;
  EpochDomain::Guard guard(&epochs_);
  for (int64_t step = 0; step < runs + kStages - 1; ++step) {
    if (step < runs) {
      const Span<const int64_t> begun = run(step);
      for (int i = 0; i < begun.size(); ++i) {
        Probe& probe = probes[step % kStages][i];
        const Place place = PlaceOf(begun[i]);
        probe.tag = place.tag;
        probe.ref.shard = place.shard;
        probe.shard = shards_[place.shard].get();
        probe.cursor = probe.shard->index.Begin(place.tag);
        LeafIndex::Prefetch(probe.cursor);
      }
    }
    const int64_t second = step - 1;
    if (second >= 0 && second < runs) {
      for (int i = 0; i < run(second).size(); ++i) {
        Probe& probe = probes[second % kStages][i];
        Advance(&probe);
        if (probe.ref.found()) load(probe.shard->rows, probe.ref);
      }
    }
    const int64_t last = step - 2;
    if (last >= 0) visit(last * kRun, run(last), probes[last % kStages]);
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_STORE_RUN_H_
