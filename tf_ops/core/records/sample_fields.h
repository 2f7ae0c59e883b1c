// SampleFields: one sample of HugeCTR's Norm and Raw files,
//
//   labels | dense values | for each slot of keys: [int32 nnz] keys
//
// Values take 4 bytes, keys 4 or 8; little-endian, without padding. Columns may
// be declared in any order. In the file all labels come first, then all dense
// columns, then all columns of keys, each kind in the declared order.
//
// Several samples are read at once, column by column. This writes the values of
// a column contiguously, and lets the processor read a sample before the length
// of the previous one is known.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_FIELDS_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_FIELDS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

// Loads a value from `p`, which need not be aligned.
template <typename T>
T Load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

enum class FieldKind { kLabel, kDense, kKeys };

// A value of 4 bytes: float32, int32, or an int32 x that float columns store as
// log(x + 1) in float32, and integer columns as x.
enum class NumberType { kFloat, kInt, kLogOfInt };

enum class KeyType { kUint32, kInt32, kInt64 };

inline int64_t KeyBytes(KeyType type) {
  return type == KeyType::kInt64 ? 8 : 4;
}

struct SampleLayout {
  std::vector<FieldKind> kinds = {};  // one per column
  KeyType key = KeyType::kUint32;
  NumberType label = NumberType::kFloat;
  NumberType dense = NumberType::kFloat;
  // Whether an nnz precedes each slot's keys.
  bool counted = true;
  // If not counted: the number of keys of every sample, per slot of keys.
  std::vector<int64_t> nnz = {};
  // Offsets added to the keys, per slot of keys; may be empty.
  std::vector<int64_t> key_offsets = {};
};

class SampleFields {
 public:
  // Maximum number of samples per call of ReadSamples().
  static constexpr int64_t kSamplesAtOnce = 64;
  // Upper bound of a sample's size. A larger size means that the data is
  // corrupt.
  static constexpr int64_t kMaxBytes = 64 << 20;

  // Scratch space of ReadSamples(), reused to avoid allocations.
  struct Scratch {
    std::vector<const char*> at;
    std::vector<int64_t> lengths;  // of each sample, by column
  };

  // Returns kInvalidArgument with the reason if samples of this layout cannot
  // hold `specs`: a label that is not one value, a dense column without a fixed
  // size, keys that are floats or have a fixed size other than one, more values
  // than kMaxBytes allows, or, if not counted, an nnz that is negative or
  // missing.
  static Status Check(const std::vector<ColumnSpec>& specs,
                      const SampleLayout& layout);

  // `specs` must outlive this object. Requires: Check(*specs, layout).
  SampleFields(const std::vector<ColumnSpec>* specs, SampleLayout layout);

  const SampleLayout& layout() const { return layout_; }
  int64_t label_dim() const { return label_dim_; }
  int64_t dense_dim() const { return dense_dim_; }
  int64_t num_key_slots() const { return static_cast<int64_t>(keys_.size()); }
  // The minimum size of a sample; if not counted, the size of every sample.
  int64_t min_bytes() const { return min_bytes_; }

  // Returns the size of the sample at `begin` in bytes; if it extends beyond
  // `end`, any number greater than end - begin; -1 if an nnz is negative.
  int64_t Size(const char* begin, const char* end) const;

  // Appends `count` samples; sample r is [begins[r], ends[r]). Returns false,
  // without adding samples, if one of them is bad, and sets *why to the error
  // (kInvalidArgument) unless it is null. Does not read beyond the samples.
  // Requires: count <= kSamplesAtOnce; count is 1 if `why` is not null.
  bool ReadSamples(const char* const* begins, const char* const* ends,
                   int64_t count, Scratch* scratch, SlotRows* rows,
                   Status* why = nullptr) const;

 private:
  // ReadSamples() except for the number of rows.
  bool ReadColumns(const char* const* begins, const char* const* ends,
                   int64_t count, Scratch* scratch, SlotRows* rows,
                   Status* why) const;
  bool ReadNumbers(int64_t column, int64_t offset, int64_t size,
                   NumberType type, const char* const* begins, int64_t count,
                   SlotColumn* to) const;
  template <typename Key>
  bool ReadKeys(int64_t slot, const char* const* ends, int64_t count,
                Scratch* scratch, SlotColumn* to, Status* why) const;

  // Returns the error of a column at `p` that ReadNumbers() rejects.
  Status ExplainNumbers(int64_t column, NumberType type, const char* p) const;
  // Returns the error of an nnz that ReadKeys() rejects. `left` bytes follow
  // it; < 0: it is truncated.
  Status ExplainNnz(const ColumnSpec& spec, int64_t nnz, int64_t left) const;

  const std::vector<ColumnSpec>& specs_;
  const SampleLayout layout_;
  const int64_t key_bytes_;
  // Columns of each kind, in file order.
  std::vector<int64_t> labels_;
  std::vector<int64_t> dense_;
  std::vector<int64_t> keys_;
  int64_t label_dim_ = 0;
  int64_t dense_dim_ = 0;
  int64_t min_bytes_ = 0;
  bool checks_lengths_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_FIELDS_H_
