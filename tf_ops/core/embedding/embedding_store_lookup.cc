#include <algorithm>
#include <cstring>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/embedding/embedding_store_run.h"

namespace lodestar {

namespace {

// What ForEachRun loads.
void LoadMeta(const RowStore&, const RowRef& ref) {
  __builtin_prefetch(ref.meta);
}

void LoadRow(const RowStore& rows, const RowRef& ref) {
  rows.Prefetch(ref.meta);
}

}  // namespace

void EmbeddingStore::FindEach(Span<const int64_t> ids,
                              Span<RowRef> refs) const {
  ForEachRun(ids, LoadMeta,
             [&](int64_t first, Span<const int64_t> run, Probe* probes) {
               for (int i = 0; i < run.size(); ++i) {
                 refs[first + i] = Confirm(run[i], probes + i);
               }
             });
}

void EmbeddingStore::FindAll(Span<const int64_t> ids, Span<RowRef> refs,
                             const ParallelFor* parallel) const {
  RunParallel(parallel, ids.size(), kFindCost, [&](int64_t begin, int64_t end) {
    FindEach(ids.subspan(begin, end - begin), refs.subspan(begin, end - begin));
  });
}

void EmbeddingStore::ReadMissing(int64_t id, const Missing& missing,
                                 void* row) const {
  switch (missing.kind) {
    case Missing::Kind::kZeros:
      std::memset(row, 0, row_bytes_);
      return;
    case Missing::Kind::kInitial:
      DrawRow(id, row);
      return;
    case Missing::Kind::kVector:
      std::memcpy(row, missing.vector, row_bytes_);
      return;
    case Missing::Kind::kShared:
      if (shared_ == nullptr) {
        std::memset(row, 0, row_bytes_);
      } else {
        shared_rows().Read(SharedRowOf(id), SharedRowOf(id), row);
      }
      return;
  }
}

void EmbeddingStore::DrawRow(int64_t id, void* row) const {
  VisitRowType(type_, [&](auto zero) {
    initializer_.Draw(id, dim_, static_cast<decltype(zero)*>(row));
  });
}

bool EmbeddingStore::ReadAgain(const Shard& shard, int64_t id,
                               void* row) const {
  while (true) {
    const uint32_t again = FindRow(shard, PlaceOf(id).tag, id);
    if (again == LeafIndex::kNoRow) return false;
    if (shard.rows.Read(again, id, row)) return true;
  }
}

void EmbeddingStore::ReadRows(Span<const int64_t> ids,
                              Span<const int64_t> positions,
                              Span<const RowRef> refs, int64_t begin,
                              int64_t end, const Missing& missing,
                              void* rows) const {
  char* row = static_cast<char*>(rows);
  for (int64_t i = begin; i < end; ++i, row += row_bytes_) {
    const int64_t ahead = i + kAhead;
    if (ahead < positions.size() && positions[ahead] != kNoPosition) {
      const RowRef& next = refs[positions[ahead]];
      if (next.found()) shards_[next.shard]->rows.Prefetch(next.meta);
    }
    if (positions[i] == kNoPosition) {
      std::memset(row, 0, row_bytes_);
      continue;
    }
    const RowRef& ref = refs[positions[i]];
    bool read = false;
    if (ref.found()) {
      const Shard& shard = *shards_[ref.shard];
      read = shard.rows.Read(ref.meta, ids[i], row);
      if (!read) {
        EpochDomain::Guard guard(&epochs_);
        read = ReadAgain(shard, ids[i], row);
      }
    }
    if (!read) ReadMissing(ids[i], missing, row);
  }
}

void EmbeddingStore::Find(Span<const int64_t> ids, const int64_t* padding_id,
                          const Missing& missing, void* rows, bool* found,
                          const ParallelFor* parallel) const {
  const auto visit = [&](int64_t first, Span<const int64_t> run,
                         Probe* probes) {
    for (int i = 0; i < run.size(); ++i) {
      Probe& probe = probes[i];
      char* row = static_cast<char*>(rows) + (first + i) * row_bytes_;
      bool is_found = false;
      if (padding_id != nullptr && run[i] == *padding_id) {
        std::memset(row, 0, row_bytes_);
      } else {
        const bool any = probe.ref.found();
        while (probe.ref.found() && !(is_found = probe.shard->rows.Read(
                                          probe.ref.meta, run[i], row))) {
          Advance(&probe);
        }
        if (any && !is_found) is_found = ReadAgain(*probe.shard, run[i], row);
        if (!is_found) ReadMissing(run[i], missing, row);
      }
      if (found != nullptr) found[first + i] = is_found;
    }
  };
  RunParallel(
      parallel, ids.size(), RowCost(dim_), [&](int64_t begin, int64_t end) {
        ForEachRun(ids.subspan(begin, end - begin), LoadRow,
                   [&](int64_t first, Span<const int64_t> run, Probe* probes) {
                     visit(begin + first, run, probes);
                   });
      });
}

void EmbeddingStore::Frequency(Span<const int64_t> ids,
                               Span<int64_t> frequencies,
                               const ParallelFor* parallel) const {
  RunParallel(parallel, ids.size(), kFindCost, [&](int64_t begin, int64_t end) {
    ForEachRun(ids.subspan(begin, end - begin), LoadMeta,
               [&](int64_t first, Span<const int64_t> run, Probe* probes) {
                 for (int i = 0; i < run.size(); ++i) {
                   RowRef ref = Confirm(run[i], probes + i);
                   uint32_t frequency = 0;
                   while (ref.found() && !RowStore::ReadFrequency(
                                             ref.meta, run[i], &frequency)) {
                     ref = Confirm(run[i], probes + i);
                   }
                   frequencies[begin + first + i] = ref.found() ? frequency : 0;
                 }
               });
  });
}

}  // namespace lodestar
