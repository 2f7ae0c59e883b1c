#include "tf_ops/core/records/record_memory.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/keyed_hash.h"
#include "tf_ops/core/base/permutation.h"

namespace lodestar {
namespace {

// Rows per chunk of new contents.
constexpr int64_t kChunkRows = 4096;

using Role = RecordMemory::Role;

// The standard library's hash of an integer has no key.
struct KeyedHasher {
  size_t operator()(uint64_t bits) const {
    return KeyedHash(bits, ProcessHashKey());
  }
};

uint64_t Combine(uint64_t hash, uint64_t word) {
  return Mix64((hash + kGoldenGamma) ^ word);
}

uint64_t HashValues(const SlotColumn& column, uint64_t hash) {
  for (const int64_t value : column.ints) {
    hash = Combine(hash, static_cast<uint64_t>(value));
  }
  for (const float value : column.floats) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    hash = Combine(hash, bits);
  }
  for (const char c : column.text) hash = Combine(hash, c);
  return hash;
}

uint64_t HashLengths(const SlotColumn& column, uint64_t hash) {
  for (size_t row = 1; row < column.row_splits.size(); ++row) {
    hash = Combine(hash, column.row_splits[row] - column.row_splits[row - 1]);
  }
  return hash;
}

std::string_view TextOf(const SlotRows& rows, int64_t column, int64_t row) {
  return std::string_view(rows.columns()[column].text)
      .substr(rows.ValueOffset(column, row), rows.Length(column, row));
}

// Appends value `from_value` of a column, which must not be of strings.
void AppendValue(const SlotColumn& from, int64_t from_value, SlotColumn* to) {
  if (from.floats.empty()) {
    to->ints.push_back(from.ints[from_value]);
  } else {
    to->floats.push_back(from.floats[from_value]);
  }
}

void AppendZero(const ColumnSpec& spec, SlotColumn* to) {
  if (spec.is_float) {
    to->floats.push_back(0);
  } else {
    to->ints.push_back(0);
  }
}

// Ends a row after the current values of `to`.
void EndRow(SlotColumn* to) {
  to->row_splits.push_back(
      static_cast<int64_t>(std::max(to->ints.size(), to->floats.size())));
}

}  // namespace

void RecordMemory::Contents::AddChunk(Chunk chunk) {
  const uint32_t number = static_cast<uint32_t>(chunks_.size());
  for (int64_t row = 0; row < chunk->num_rows(); ++row) {
    order_.push_back({number, static_cast<uint32_t>(row)});
  }
  chunks_.push_back(std::move(chunk));
}

int64_t RecordMemory::Contents::Bytes() const {
  int64_t bytes = static_cast<int64_t>(order_.capacity() * sizeof(Position));
  for (const Chunk& chunk : chunks_) {
    bytes += chunk->Bytes() + static_cast<int64_t>(sizeof(SlotRows));
  }
  return bytes;
}

void RecordMemory::Contents::Gather(const std::vector<int64_t>& samples,
                                    SlotBatch* batch) const {
  for (const int64_t sample : samples) {
    const Position position = order_[sample];
    batch->Add(chunks_[position.chunk], position.row, 1);
  }
}

RecordMemory::Load::Load(const RecordMemory* memory)
    : memory_(memory), hashes_(2 * memory->options_.specs.size()) {}

void RecordMemory::Load::Add(const SlotRows& rows) {
  if (rows.num_rows() == 0) return;
  Chunk chunk = memory_->Pack(rows);
  for (size_t c = 0; c < chunk->columns().size(); ++c) {
    const SlotColumn& column = chunk->columns()[c];
    hashes_[2 * c] = HashValues(column, hashes_[2 * c]);
    hashes_[2 * c + 1] = HashLengths(column, hashes_[2 * c + 1]);
  }
  num_samples_ += chunk->num_rows();
  chunks_.push_back(std::move(chunk));
}

uint64_t RecordMemory::Load::Fingerprint(uint64_t before) const {
  uint64_t fingerprint = Combine(before, num_samples_);
  for (const uint64_t hash : hashes_) fingerprint = Combine(fingerprint, hash);
  return fingerprint;
}

RecordMemory::RecordMemory(Options options)
    : options_(std::move(options)),
      partners_(options_.specs.size(), -1),
      current_(std::make_shared<Contents>()) {
  const std::vector<ColumnSpec>& specs = options_.specs;
  for (size_t c = 0; c < specs.size(); ++c) {
    const int64_t ids = specs[c].weighs;
    if (ids < 0 || !specs[c].used || !specs[ids].used) continue;
    partners_[c] = ids;
    partners_[ids] = static_cast<int64_t>(c);
  }
}

std::shared_ptr<const RecordMemory::Contents> RecordMemory::Current() const {
  MutexLock lock(&mutex_);
  return current_;
}

SlotRows RecordMemory::Copy(const Contents& contents,
                            Span<const int64_t> samples) const {
  SlotRows rows(options_.specs);
  for (const int64_t sample : samples) {
    const Contents::Position position = contents.order_[sample];
    rows.Append(*contents.chunks_[position.chunk], position.row, 1);
  }
  return rows;
}

std::shared_ptr<const RecordMemory::Contents> RecordMemory::Arrange(
    const Load& load, Span<const int64_t> order) const {
  Contents added;
  for (const Chunk& chunk : load.chunks_) added.AddChunk(chunk);
  auto contents = std::make_shared<Contents>();
  contents->chunks_ = std::move(added.chunks_);
  contents->order_.reserve(order.size());
  contents->fingerprint_ = load.Fingerprint(0);
  for (const int64_t sample : order) {
    contents->order_.push_back(added.order_[sample]);
    contents->fingerprint_ = Combine(contents->fingerprint_, sample);
  }
  return contents;
}

void RecordMemory::Replace(std::shared_ptr<const Contents> contents) {
  MutexLock changing(&change_mutex_);
  MutexLock lock(&mutex_);
  // The old contents are freed after the locks are released.
  current_.swap(contents);
}

void RecordMemory::Change(
    const std::function<std::shared_ptr<Contents>(const Contents&)>& make) {
  MutexLock changing(&change_mutex_);
  // The old contents are freed after the lock is released.
  std::shared_ptr<const Contents> contents = make(*Current());
  MutexLock lock(&mutex_);
  current_.swap(contents);
}

bool RecordMemory::IsZero(int64_t column, const SlotRows& rows,
                          int64_t value) const {
  const SlotColumn& from = rows.columns()[column];
  return options_.specs[column].is_float ? std::fabs(from.floats[value]) < 1e-6f
                                         : from.ints[value] == 0;
}

RecordMemory::Chunk RecordMemory::Pack(const SlotRows& rows) const {
  const std::vector<ColumnSpec>& specs = options_.specs;
  // A copy has no unused capacity.
  if (!options_.drop_zeros) return std::make_shared<const SlotRows>(rows);
  SlotRows kept(specs);
  for (size_t c = 0; c < specs.size(); ++c) {
    if (!specs[c].used) continue;
    if (options_.roles[c] != Role::kSparse) {
      kept.AppendColumn(c, rows, 0, rows.num_rows());
      continue;
    }
    const int64_t partner = partners_[c];
    SlotColumn* const to = kept.mutable_column(c);
    for (int64_t row = 0; row < rows.num_rows(); ++row) {
      const int64_t end = rows.ValueOffset(c, row + 1);
      bool is_empty = true;
      for (int64_t v = rows.ValueOffset(c, row); v < end; ++v) {
        // A row has as many weights as ids, so index v is valid in both.
        if (IsZero(c, rows, v) || (partner >= 0 && IsZero(partner, rows, v))) {
          continue;
        }
        AppendValue(rows.columns()[c], v, to);
        is_empty = false;
      }
      if (is_empty) AppendZero(specs[c], to);
      EndRow(to);
    }
  }
  kept.AddRows(rows.num_rows());
  return std::make_shared<const SlotRows>(kept);
}

void RecordMemory::Join(const Load& load) {
  Change([&](const Contents& now) {
    auto next = std::make_shared<Contents>();
    next->order_.reserve(now.num_samples() + load.num_samples_);
    next->chunks_ = now.chunks_;
    next->order_ = now.order_;
    next->fingerprint_ = load.Fingerprint(now.fingerprint_);
    for (const Chunk& chunk : load.chunks_) next->AddChunk(chunk);
    return next;
  });
}

void RecordMemory::Release() {
  Change([](const Contents&) { return std::make_shared<Contents>(); });
}

void RecordMemory::GlobalShuffle(uint64_t seed) {
  Change([seed](const Contents& now) {
    auto next = std::make_shared<Contents>();
    next->chunks_ = now.chunks_;
    next->order_.reserve(now.order_.size());
    const Permutation permutation(now.num_samples(), seed);
    for (int64_t i = 0; i < now.num_samples(); ++i) {
      next->order_.push_back(now.order_[permutation(i)]);
    }
    next->fingerprint_ = Combine(now.fingerprint_, seed);
    return next;
  });
}

void RecordMemory::SlotsShuffle(const std::vector<int64_t>& columns,
                                uint64_t seed) {
  std::vector<bool> moves(options_.specs.size(), false);
  for (const int64_t c : columns) {
    moves[c] = true;
    if (partners_[c] >= 0) moves[partners_[c]] = true;
  }
  Change([&](const Contents& now) {
    auto next = std::make_shared<Contents>();
    const int64_t num_samples = now.num_samples();
    const Permutation permutation(num_samples, seed);
    next->order_.reserve(num_samples);
    for (int64_t begin = 0; begin < num_samples; begin += kChunkRows) {
      const int64_t end = std::min(begin + kChunkRows, num_samples);
      SlotRows rows(options_.specs);
      for (size_t c = 0; c < moves.size(); ++c) {
        for (int64_t i = begin; i < end; ++i) {
          const auto from = now.order_[moves[c] ? permutation(i) : i];
          rows.AppendColumn(c, *now.chunks_[from.chunk], from.row, 1);
        }
      }
      rows.AddRows(end - begin);
      next->AddChunk(std::make_shared<const SlotRows>(rows));
    }
    next->fingerprint_ = Combine(now.fingerprint_, seed);
    for (const bool is_moved : moves) {
      next->fingerprint_ = Combine(next->fingerprint_, is_moved);
    }
    return next;
  });
}

// Builds merged samples.
class RecordMemory::Merger {
 public:
  Merger(const RecordMemory* memory, const Contents* from,
         bool erase_duplicates)
      : memory_(memory),
        from_(from),
        erase_duplicates_(erase_duplicates),
        rows_(memory->options_.specs) {}

  void Keep(int64_t sample) {
    const Row row = RowOf(sample);
    rows_.Append(*row.rows, row.row, 1);
    EndSample();
  }

  // Returns false if dense columns disagree.
  bool Merge(const int64_t* samples, int64_t count) {
    const Options& options = memory_->options_;
    std::vector<Row> group;
    for (int64_t i = 0; i < count; ++i) group.push_back(RowOf(samples[i]));
    std::vector<Row> chosen;  // of each column that is not sparse
    for (size_t c = 0; c < options.specs.size(); ++c) {
      chosen.push_back(group[0]);
      if (options.roles[c] == Role::kDense && options.specs[c].used &&
          !ChooseDense(c, group, &chosen.back()) && erase_duplicates_) {
        return false;
      }
    }
    for (size_t c = 0; c < options.specs.size(); ++c) {
      const ColumnSpec& spec = options.specs[c];
      if (!spec.used) continue;
      if (options.roles[c] != Role::kSparse) {
        rows_.AppendColumn(c, *chosen[c].rows, chosen[c].row, 1);
      } else if (spec.weighs < 0 || memory_->partners_[c] < 0) {
        ConcatenateSparse(c, group);
      }
    }
    rows_.AddRows(1);
    EndSample();
    return true;
  }

  std::shared_ptr<Contents> Finish() {
    EndChunk();
    return std::move(to_);
  }

 private:
  struct Row {
    const SlotRows* rows;
    int64_t row;
  };

  Row RowOf(int64_t sample) const {
    const Contents::Position position = from_->order_[sample];
    return {from_->chunks_[position.chunk].get(), position.row};
  }

  void EndSample() {
    if (rows_.num_rows() == kChunkRows) EndChunk();
  }

  void EndChunk() {
    if (rows_.num_rows() == 0) return;
    to_->AddChunk(std::make_shared<const SlotRows>(rows_));
    rows_ = SlotRows(memory_->options_.specs);
  }

  static int CompareBytes(const SlotColumn& a, int64_t a_begin,
                          const SlotColumn& b, int64_t b_begin, int64_t count) {
    if (count == 0) return 0;
    if (a.floats.empty()) {
      return std::memcmp(&a.ints[a_begin], &b.ints[b_begin],
                         count * sizeof(int64_t));
    }
    return std::memcmp(&a.floats[a_begin], &b.floats[b_begin],
                       count * sizeof(float));
  }

  bool IsAllZero(int64_t c, const Row& row) const {
    const SlotColumn& column = row.rows->columns()[c];
    const int64_t end = row.rows->ValueOffset(c, row.row + 1);
    for (int64_t v = row.rows->ValueOffset(c, row.row); v < end; ++v) {
      if (column.floats.empty() ? column.ints[v] != 0 : column.floats[v] != 0) {
        return false;
      }
    }
    return true;
  }

  // Sets *chosen to the first row whose values are not all 0, if any. Returns
  // false if a later one differs from it.
  bool ChooseDense(int64_t c, const std::vector<Row>& group,
                   Row* chosen) const {
    bool is_chosen = false;
    for (const Row& row : group) {
      if (IsAllZero(c, row)) continue;
      if (!is_chosen) {
        *chosen = row;
        is_chosen = true;
        continue;
      }
      const int64_t count = row.rows->Length(c, row.row);
      if (chosen->rows->Length(c, chosen->row) != count ||
          CompareBytes(chosen->rows->columns()[c],
                       chosen->rows->ValueOffset(c, chosen->row),
                       row.rows->columns()[c],
                       row.rows->ValueOffset(c, row.row), count) != 0) {
        return false;
      }
    }
    return true;
  }

  // Appends the group's values to sparse column `c` and to its weights.
  void ConcatenateSparse(int64_t c, const std::vector<Row>& group) {
    const Options& options = memory_->options_;
    const int64_t weights = memory_->partners_[c];
    SlotColumn* const to = rows_.mutable_column(c);
    SlotColumn* const to_weights =
        weights < 0 ? nullptr : rows_.mutable_column(weights);
    std::unordered_set<uint64_t, KeyedHasher> seen;
    bool is_empty = true;
    for (const Row& row : group) {
      const SlotColumn& column = row.rows->columns()[c];
      const int64_t begin = row.rows->ValueOffset(c, row.row);
      const int64_t end = row.rows->ValueOffset(c, row.row + 1);
      for (int64_t v = begin; v < end; ++v) {
        // Skip the placeholder of an empty slot.
        if (options.drop_zeros && memory_->IsZero(c, *row.rows, v)) continue;
        uint64_t bits = 0;
        if (column.floats.empty()) {
          std::memcpy(&bits, &column.ints[v], sizeof(int64_t));
        } else {
          std::memcpy(&bits, &column.floats[v], sizeof(float));
        }
        if (erase_duplicates_ && !seen.insert(bits).second) continue;
        AppendValue(column, v, to);
        if (weights >= 0) {
          AppendValue(row.rows->columns()[weights], v, to_weights);
        }
        is_empty = false;
      }
    }
    if (is_empty && options.drop_zeros) {
      AppendZero(options.specs[c], to);
      if (weights >= 0) AppendZero(options.specs[weights], to_weights);
    }
    EndRow(to);
    if (weights >= 0) EndRow(to_weights);
  }

  const RecordMemory* const memory_;
  const Contents* const from_;
  const bool erase_duplicates_;
  SlotRows rows_;
  std::shared_ptr<Contents> to_ = std::make_shared<Contents>();
};

RecordMemory::MergeCounts RecordMemory::MergeByText(int64_t id_column,
                                                    int64_t min_size,
                                                    bool keep_unmerged,
                                                    bool erase_duplicates) {
  MergeCounts counts;
  Change([&](const Contents& now) {
    const auto id_of = [&](int64_t sample) {
      const Contents::Position position = now.order_[sample];
      return TextOf(*now.chunks_[position.chunk], id_column, position.row);
    };
    std::vector<int64_t> samples(now.num_samples());
    std::iota(samples.begin(), samples.end(), int64_t{0});
    std::sort(samples.begin(), samples.end(), [&](int64_t a, int64_t b) {
      const int order = id_of(a).compare(id_of(b));
      return order < 0 || (order == 0 && a < b);
    });
    struct Group {
      int64_t begin;
      int64_t count;
    };
    std::vector<Group> groups;
    for (int64_t i = 0; i < now.num_samples(); ++i) {
      if (i == 0 || id_of(samples[i]) != id_of(samples[i - 1])) {
        groups.push_back({i, 0});
      }
      ++groups.back().count;
    }
    std::sort(groups.begin(), groups.end(),
              [&](const Group& a, const Group& b) {
                return samples[a.begin] < samples[b.begin];
              });
    Merger merger(this, &now, erase_duplicates);
    for (const Group& group : groups) {
      const int64_t* const first = &samples[group.begin];
      if (group.count < min_size) {
        if (!keep_unmerged) counts.too_few += group.count;
        for (int64_t i = 0; i < group.count && keep_unmerged; ++i) {
          merger.Keep(first[i]);
        }
      } else if (merger.Merge(first, group.count)) {
        counts.merged += group.count > 1;
      } else {
        counts.conflicting += group.count;
      }
    }
    std::shared_ptr<Contents> next = merger.Finish();
    next->fingerprint_ = now.fingerprint_;
    for (const int64_t word :
         {min_size, int64_t{keep_unmerged}, int64_t{erase_duplicates}}) {
      next->fingerprint_ = Combine(next->fingerprint_, word);
    }
    return next;
  });
  return counts;
}

}  // namespace lodestar
