// SampleFields: one sample of HugeCTR's Norm and Raw files,
//
//   labels | dense numbers | for each slot of keys: [int32 nnz] keys
//
// Numbers take 4 bytes, keys 4 or 8; little-endian, without padding. Columns
// may be declared in any order: in the file all labels come first, then all
// dense columns, then all columns of keys, each kind in the declared order.
//
// Some samples are read at once, a column at a time: so that a column's values
// are written one behind the other, and that what a sample takes to read does
// not wait for the length of the one before.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_FIELDS_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_FIELDS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

// The number at `p`, which need not be aligned.
template <typename T>
T Load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

enum class FieldKind { kLabel, kDense, kKeys };

// A number of 4 bytes: float32, int32, or an int32 x that float columns hold as
// the natural logarithm of x + 1 in float32, integer columns as x.
enum class NumberType { kFloat, kInt, kLogOfInt };

enum class KeyType { kUint32, kInt32, kInt64 };

inline int64_t KeyBytes(KeyType type) {
  return type == KeyType::kInt64 ? 8 : 4;
}

struct SampleLayout {
  std::vector<FieldKind> kinds;  // of each column
  KeyType key = KeyType::kUint32;
  NumberType label = NumberType::kFloat;
  NumberType dense = NumberType::kFloat;
  // Whether an nnz stands before each slot's keys.
  bool counted = true;
  // Unless counted: the keys of every sample in each slot of keys.
  std::vector<int64_t> nnz;
  // What is added to the keys of each slot of keys; may be empty.
  std::vector<int64_t> key_offsets;
};

class SampleFields {
 public:
  // Samples that ReadSamples() reads at most.
  static constexpr int64_t kSamplesAtOnce = 64;
  // More than a sample may take: what asks for more has lost its place.
  static constexpr int64_t kMaxBytes = 64 << 20;

  // Lent to ReadSamples(), so that it is not made anew for each call.
  struct Scratch {
    SlotColumn unused;
    std::vector<const char*> at;
    std::vector<int64_t> lengths;  // of each sample by column
  };

  // kInvalidArgument naming what samples of this layout cannot hold: a label
  // that is not one value, a dense column without a fixed size, keys that are
  // floats or neither one nor any number, more values than kMaxBytes hold, and
  // unless counted an nnz that is negative or not one for each slot of keys.
  static Status Check(const std::vector<ColumnSpec>& specs,
                      const SampleLayout& layout);

  // `specs` must outlive this. REQUIRES: Check(*specs, layout).
  SampleFields(const std::vector<ColumnSpec>* specs, SampleLayout layout);

  const SampleLayout& layout() const { return layout_; }
  int64_t label_dim() const { return label_dim_; }
  int64_t dense_dim() const { return dense_dim_; }
  int64_t num_key_slots() const { return static_cast<int64_t>(keys_.size()); }
  // Of a sample; unless counted, of every sample.
  int64_t min_bytes() const { return min_bytes_; }

  // Bytes of the sample at `begin`. Where it goes beyond `end`, any number
  // greater than end - begin; -1 if an nnz is negative.
  int64_t Size(const char* begin, const char* end) const;

  // Appends `count` samples, of which sample r takes [begins[r], ends[r]).
  // False if one of them is bad; then no sample was added. Reads nothing
  // beyond. REQUIRES: count <= kSamplesAtOnce.
  bool ReadSamples(const char* const* begins, const char* const* ends,
                   int64_t count, Scratch* scratch, SlotRows* rows) const;

  // What is wrong with a sample that ReadSamples() refuses: kInvalidArgument.
  Status Explain(const char* begin, const char* end) const;

 private:
  bool ReadNumbers(int64_t column, int64_t offset, NumberType type,
                   const char* const* begins, int64_t count,
                   SlotColumn* to) const;
  template <typename Key>
  bool ReadKeys(int64_t slot, const char* const* ends, int64_t count,
                Scratch* scratch, SlotColumn* to) const;
  bool LengthsAreGood(int64_t count, const Scratch& scratch) const;

  Status ExplainNumbers(const std::vector<int64_t>& columns, NumberType type,
                        const char** position) const;
  Status ExplainKeys(int64_t slot, const char** position, const char* end,
                     int64_t* nnz) const;

  const std::vector<ColumnSpec>& specs_;
  const SampleLayout layout_;
  const int64_t key_bytes_;
  // Columns of each kind, in the order of the file.
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
