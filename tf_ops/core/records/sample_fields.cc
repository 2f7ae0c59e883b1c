#include "tf_ops/core/records/sample_fields.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "tf_ops/core/base/value_limit.h"

namespace lodestar {
namespace {

constexpr int64_t kNumberBytes = 4;
constexpr int64_t kNnzBytes = 4;

bool Convert(float from, float* to) {
  *to = from;
  return true;
}

// Returns false unless `from` is an integer in the range of int64.
bool Convert(float from, int64_t* to) {
  constexpr float kEnd = 9223372036854775808.0f;  // 2^63
  if (!(from >= -kEnd && from < kEnd) || IsSubnormal(from)) return false;
  *to = static_cast<int64_t>(from);
  return static_cast<float>(*to) == from;
}

// Returns false unless a float holds `from`.
bool Convert(int32_t from, float* to) {
  *to = static_cast<float>(from);
  return static_cast<int64_t>(*to) == from;
}

bool Convert(int32_t from, int64_t* to) {
  *to = from;
  return true;
}

// A table of the logarithms of small counts; others are computed.
struct LogTable {
  static constexpr int32_t kSize = 1024;
  LogTable() {
    for (int32_t x = 0; x < kSize; ++x) {
      values[x] = std::log(static_cast<float>(x) + 1.0f);
    }
  }
  float values[kSize];
};

bool LogOf(int32_t from, float* to) {
  static const LogTable table;
  if (static_cast<uint32_t>(from) < LogTable::kSize) {
    *to = table.values[from];
    return true;
  }
  *to = from < 0 ? 0 : std::log(static_cast<float>(from) + 1.0f);
  return from >= 0;
}

template <NumberType kType, typename T>
bool ReadNumber(const char* p, T* value) {
  if constexpr (kType == NumberType::kFloat) {
    return Convert(Load<float>(p), value);
  } else if constexpr (kType == NumberType::kInt || std::is_integral_v<T>) {
    return Convert(Load<int32_t>(p), value);
  } else {
    return LogOf(Load<int32_t>(p), value);
  }
}

// Writes `size` values of each sample to `to`. Returns false if one is bad.
template <NumberType kType, typename T>
bool ReadNumbersAs(const char* const* begins, int64_t count, int64_t offset,
                   int64_t size, int64_t limit, T* to) {
  if (kType == NumberType::kFloat && std::is_same_v<T, float> && limit == 0) {
    for (int64_t r = 0; r < count; ++r, to += size) {
      std::memcpy(to, begins[r] + offset, size * kNumberBytes);
    }
    return true;
  }
  bool good = true;
  for (int64_t r = 0; r < count; ++r) {
    const char* p = begins[r] + offset;
    for (int64_t i = 0; i < size; ++i, p += kNumberBytes, ++to) {
      good &= ReadNumber<kType>(p, to);
      if (limit > 0) good &= WithinLimit(*to, limit);
    }
  }
  return good;
}

template <typename T>
bool ReadNumbersOf(NumberType type, const char* const* begins, int64_t count,
                   int64_t offset, int64_t size, int64_t limit,
                   std::vector<T>* values) {
  const size_t before = values->size();
  values->resize(before + count * size);
  T* const to = values->data() + before;
  switch (type) {
    case NumberType::kFloat:
      return ReadNumbersAs<NumberType::kFloat>(begins, count, offset, size,
                                               limit, to);
    case NumberType::kInt:
      return ReadNumbersAs<NumberType::kInt>(begins, count, offset, size, limit,
                                             to);
    case NumberType::kLogOfInt:
      return ReadNumbersAs<NumberType::kLogOfInt>(begins, count, offset, size,
                                                  limit, to);
  }
  return false;
}

bool KeyIsGood(int64_t key, int64_t limit) {
  return limit <= 0 || WithinLimit(key, limit);
}

}  // namespace

Status SampleFields::Check(const std::vector<ColumnSpec>& specs,
                           const SampleLayout& layout) {
  if (layout.kinds.size() != specs.size()) {
    return InvalidArgument("found kinds for ", layout.kinds.size(),
                           " slots, expected ", specs.size());
  }
  // Bounds the sum, and its product with a number of samples.
  constexpr int64_t kMaxValues = kMaxBytes / 4;
  int64_t values = 0;
  size_t keys = 0;
  const auto add = [&](const std::string& name, int64_t size) {
    if (size < 0 || size > kMaxValues - values) {
      return InvalidArgument("slot '", name, "': found ", size,
                             " values in a sample, expected 0 to ",
                             kMaxValues - values);
    }
    values += size;
    return Status();
  };
  for (size_t c = 0; c < specs.size(); ++c) {
    const ColumnSpec& spec = specs[c];
    if (layout.kinds[c] == FieldKind::kKeys) {
      if (spec.is_float) {
        return InvalidArgument("slot '", spec.name,
                               "': found floats, but the file has keys here");
      }
      if (spec.size != -1 && spec.size != 1) {
        return InvalidArgument("slot '", spec.name, "': found a size of ",
                               spec.size, ", expected one key or any number");
      }
      if (!layout.counted) {
        if (keys >= layout.nnz.size()) {
          ++keys;
          continue;
        }
        const int64_t nnz = layout.nnz[keys];
        if (spec.size == 1 && nnz != 1) {
          return InvalidArgument("slot '", spec.name, "': found ", nnz,
                                 " keys in a sample, expected 1");
        }
        LODESTAR_RETURN_IF_ERROR(add(spec.name, nnz));
      }
      ++keys;
      continue;
    }
    if (spec.size < 0) {
      return InvalidArgument("slot '", spec.name,
                             "': found any number of values, expected a fixed "
                             "number: only slots of keys may vary");
    }
    const bool is_label = layout.kinds[c] == FieldKind::kLabel;
    if (is_label && spec.size != 1) {
      return InvalidArgument("slot '", spec.name, "': found ", spec.size,
                             " values in a label, expected 1");
    }
    LODESTAR_RETURN_IF_ERROR(add(spec.name, spec.size));
  }
  if (!layout.counted && layout.nnz.size() != keys) {
    return InvalidArgument("found nnz for ", layout.nnz.size(),
                           " slots, expected ", keys);
  }
  if (!layout.counted && values == 0) {
    return InvalidArgument("found samples of 0 bytes, expected 1 or more");
  }
  if (!layout.key_offsets.empty() && layout.key_offsets.size() != keys) {
    return InvalidArgument("found key offsets for ", layout.key_offsets.size(),
                           " slots, expected ", keys);
  }
  return Status();
}

SampleFields::SampleFields(const std::vector<ColumnSpec>* specs,
                           SampleLayout layout)
    : specs_(*specs),
      layout_(std::move(layout)),
      key_bytes_(KeyBytes(layout_.key)) {
  for (size_t c = 0; c < specs_.size(); ++c) {
    const ColumnSpec& spec = specs_[c];
    checks_lengths_ |= spec.multiple > 1 || spec.weighs >= 0;
    switch (layout_.kinds[c]) {
      case FieldKind::kLabel:
        labels_.push_back(c);
        label_dim_ += spec.size;
        break;
      case FieldKind::kDense:
        dense_.push_back(c);
        dense_dim_ += spec.size;
        break;
      case FieldKind::kKeys:
        keys_.push_back(c);
        break;
    }
  }
  min_bytes_ = kNumberBytes * (label_dim_ + dense_dim_);
  for (size_t s = 0; s < keys_.size(); ++s) {
    const int64_t nnz = layout_.counted
                            ? std::max<int64_t>(specs_[keys_[s]].size, 0)
                            : layout_.nnz[s];
    min_bytes_ += nnz * key_bytes_ + (layout_.counted ? kNnzBytes : 0);
  }
}

int64_t SampleFields::Size(const char* begin, const char* end) const {
  if (!layout_.counted) return min_bytes_;
  const int64_t bytes = end - begin;
  int64_t size = kNumberBytes * (label_dim_ + dense_dim_);
  const int64_t size_of_one = kNnzBytes + key_bytes_;
  for (size_t s = 0; s < keys_.size(); ++s) {
    if (bytes < size + kNnzBytes) return size + kNnzBytes;
    const int32_t nnz = Load<int32_t>(begin + size);
    // A branch instead of a product: most slots have one key, and a predicted
    // branch lets the next nnz be loaded before this one has arrived.
    if (__builtin_expect(nnz == 1, 1)) {
      size += size_of_one;
    } else {
      if (nnz < 0) return -1;
      size += kNnzBytes + nnz * key_bytes_;
    }
  }
  return size;
}

bool SampleFields::ReadNumbers(int64_t c, int64_t offset, int64_t size,
                               NumberType type, const char* const* begins,
                               int64_t count, SlotColumn* to) const {
  const ColumnSpec& spec = specs_[c];
  return spec.is_float ? ReadNumbersOf(type, begins, count, offset, size,
                                       spec.limit, &to->floats)
                       : ReadNumbersOf(type, begins, count, offset, size,
                                       spec.limit, &to->ints);
}

template <typename Key>
bool SampleFields::ReadKeys(int64_t slot, const char* const* ends,
                            int64_t count, Scratch* scratch, SlotColumn* to,
                            Status* why) const {
  constexpr int64_t kBytes = sizeof(Key);
  const int64_t c = keys_[slot];
  const ColumnSpec& spec = specs_[c];
  const char** const at = scratch->at.data();
  int64_t nnz[kSamplesAtOnce];
  int64_t total = 0;
  bool all_one = true;
  if (layout_.counted) {
    for (int64_t r = 0; r < count; ++r) {
      const int64_t left = ends[r] - at[r] - kNnzBytes;
      nnz[r] = left < 0 ? -1 : Load<int32_t>(at[r]);
      if (nnz[r] < 0 || nnz[r] * kBytes > left ||
          (spec.size >= 0 && nnz[r] != spec.size)) {
        if (why != nullptr) *why = ExplainNnz(spec, nnz[r], left);
        return false;
      }
      at[r] += kNnzBytes;
      total += nnz[r];
      all_one &= nnz[r] == 1;
    }
  } else {
    // The samples' sizes guarantee that the keys are there.
    std::fill(nnz, nnz + count, layout_.nnz[slot]);
    total = layout_.nnz[slot] * count;
    all_one = layout_.nnz[slot] == 1;
  }
  if (spec.size < 0 && spec.used) {
    std::vector<int64_t>& splits = to->row_splits;
    const size_t before = splits.size();
    splits.resize(before + count);
    int64_t* const next = splits.data() + before;
    int64_t split = next[-1];
    for (int64_t r = 0; r < count; ++r) next[r] = split += nnz[r];
  }
  if (checks_lengths_) {
    for (int64_t r = 0; r < count; ++r) {
      scratch->lengths[r * specs_.size() + c] = nnz[r];
    }
  }

  const size_t before = to->ints.size();
  to->ints.resize(before + total);
  int64_t* out = to->ints.data() + before;
  const uint64_t offset =
      layout_.key_offsets.empty() ? 0 : layout_.key_offsets[slot];
  bool good = true;
  const auto read = [&](const char* p) {
    const int64_t key = Load<Key>(p);
    good &= KeyIsGood(key, spec.limit);
    // Unsigned, because the sum with an offset may wrap.
    *out++ = static_cast<int64_t>(static_cast<uint64_t>(key) + offset);
  };
  if (all_one) {
    for (int64_t r = 0; r < count; ++r) {
      read(at[r]);
      at[r] += kBytes;
    }
  } else {
    for (int64_t r = 0; r < count; ++r) {
      const char* p = at[r];
      for (int64_t i = 0; i < nnz[r]; ++i, p += kBytes) read(p);
      at[r] = p;
    }
  }
  if (!good && why != nullptr) {
    const char* const keys = at[0] - nnz[0] * kBytes;
    int64_t i = 0;
    while (KeyIsGood(Load<Key>(keys + i * kBytes), spec.limit)) ++i;
    const int64_t key = Load<Key>(keys + i * kBytes);
    *why =
        InvalidArgument("slot '", spec.name, "': value ", i + 1, " of ", nnz[0],
                        " is ", key, ", expected ", WantedByLimit(spec.limit));
  }
  return good;
}

bool SampleFields::ReadSamples(const char* const* begins,
                               const char* const* ends, int64_t count,
                               Scratch* scratch, SlotRows* rows,
                               Status* why) const {
  const int64_t first = rows->num_rows();
  const bool good = ReadColumns(begins, ends, count, scratch, rows, why);
  if (good) {
    rows->AddRows(count);
  } else {
    rows->TruncateTo(first);
  }
  return good;
}

bool SampleFields::ReadColumns(const char* const* begins,
                               const char* const* ends, int64_t count,
                               Scratch* scratch, SlotRows* rows,
                               Status* why) const {
  const auto refuse = [why](const auto&... message) {
    if (why != nullptr) *why = InvalidArgument(message...);
    return false;
  };
  scratch->at.resize(kSamplesAtOnce);
  if (checks_lengths_) {
    scratch->lengths.clear();
    for (int64_t r = 0; r < count; ++r) {
      for (const ColumnSpec& spec : specs_) {
        scratch->lengths.push_back(spec.size);
      }
    }
  }
  const int64_t number_bytes = kNumberBytes * (label_dim_ + dense_dim_);
  const int64_t needed = layout_.counted ? number_bytes : min_bytes_;
  for (int64_t r = 0; r < count; ++r) {
    if (ends[r] - begins[r] < needed) {
      return refuse("found ", ends[r] - begins[r], " bytes, expected ", needed,
                    layout_.counted ? " or more" : "",
                    "; check the slots and that the file is complete");
    }
    scratch->at[r] = begins[r] + number_bytes;
  }
  int64_t offset = 0;
  for (const auto& [columns, type] : {std::make_pair(&labels_, layout_.label),
                                      std::make_pair(&dense_, layout_.dense)}) {
    for (const int64_t c : *columns) {
      const int64_t size = specs_[c].size;
      if (!ReadNumbers(c, offset, size, type, begins, count,
                       rows->mutable_column(c))) {
        if (why != nullptr) *why = ExplainNumbers(c, type, begins[0] + offset);
        return false;
      }
      offset += kNumberBytes * size;
    }
  }
  for (int64_t s = 0; s < num_key_slots(); ++s) {
    SlotColumn* const to = rows->mutable_column(keys_[s]);
    bool good = false;
    switch (layout_.key) {
      case KeyType::kUint32:
        good = ReadKeys<uint32_t>(s, ends, count, scratch, to, why);
        break;
      case KeyType::kInt32:
        good = ReadKeys<int32_t>(s, ends, count, scratch, to, why);
        break;
      case KeyType::kInt64:
        good = ReadKeys<int64_t>(s, ends, count, scratch, to, why);
        break;
    }
    if (!good) return false;
  }
  for (int64_t r = 0; r < count; ++r) {
    if (scratch->at[r] != ends[r]) {
      return refuse("its slots take ", scratch->at[r] - begins[r],
                    " bytes, found ", ends[r] - begins[r],
                    ": check the key type and the slots");
    }
  }
  const int64_t num_columns = static_cast<int64_t>(specs_.size());
  for (int64_t r = 0; r < count && checks_lengths_; ++r) {
    const auto begin = scratch->lengths.begin() + r * num_columns;
    const Status status = CheckLengths(specs_, {begin, begin + num_columns});
    if (!status.ok()) return refuse(status.message());
  }
  return true;
}

Status SampleFields::ExplainNumbers(int64_t c, NumberType type,
                                    const char* p) const {
  const ColumnSpec& spec = specs_[c];
  SlotColumn one;
  int64_t i = 0;
  while (ReadNumbers(c, kNumberBytes * i, 1, type, &p, 1, &one)) ++i;
  p += kNumberBytes * i;
  const int32_t bits = Load<int32_t>(p);
  const float value = Load<float>(p);
  const std::string found =
      type != NumberType::kFloat ? StrCat(bits)
      : IsSubnormal(value) ? StrCat("the int32 ", bits, " in a float's place")
                           : StrCat(value);
  return InvalidArgument("slot '", spec.name, "': value ", i + 1, " of ",
                         spec.size, " is ", found, ", expected ",
                         spec.limit > 0 ? WantedByLimit(spec.limit)
                         : type == NumberType::kLogOfInt
                             ? "0 or more, because it is read as log(x + 1)"
                         : type == NumberType::kInt
                             ? "an integer that float32 holds"
                             : "an integer");
}

Status SampleFields::ExplainNnz(const ColumnSpec& spec, int64_t nnz,
                                int64_t left) const {
  if (left < 0) {
    return InvalidArgument(
        "slot '", spec.name, "': found ", left + kNnzBytes, " bytes, expected ",
        kNnzBytes,
        " for its nnz; check the key type and that the file is complete");
  }
  const std::string found = StrCat("slot '", spec.name, "': nnz is ", nnz);
  if (nnz < 0 || nnz * key_bytes_ > kMaxBytes) {
    return InvalidArgument(found, ", expected 0 to ", kMaxBytes / key_bytes_,
                           "; check the key type and the slots");
  }
  if (nnz * key_bytes_ > left) {
    return InvalidArgument(
        found, ", expected 0 to ", left / key_bytes_, " because ", left,
        " bytes are left; check the key type and that the file is complete");
  }
  return InvalidArgument(found, ", expected ", spec.size);
}

}  // namespace lodestar
