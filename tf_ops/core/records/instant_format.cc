#include "tf_ops/core/records/instant_format.h"

#include <cstring>
#include <string>
#include <utility>

#include "tf_ops/core/base/value_limit.h"

namespace lodestar {
namespace {

constexpr int64_t kCountBytes = 2;
constexpr int64_t kBatchSizeBytes = 8;

// The position of a slot's values in a sample.
struct SlotPlace {
  const char* values = nullptr;
  int64_t num_values = 0;
  const char* end = nullptr;  // of the slot
  bool is_truncated = false;  // more bytes are needed
};

std::string Where(const ColumnSpec& spec, int64_t byte) {
  return StrCat("slot '", spec.name, "' at its byte ", byte, ": ");
}

// Finds the values of the slot at `p` of the record that begins at `record`.
// Does not read beyond `end`. Returns false, after setting *why unless it is
// null, if the count is wrong or the record is truncated.
bool FindSlot(const ColumnSpec& spec, bool has_batch_size, const char* record,
              const char* p, const char* end, SlotPlace* place, Status* why) {
  const auto is_whole = [&](int64_t bytes) {
    place->is_truncated = end - p < bytes;
    if (place->is_truncated && why != nullptr) {
      *why = InvalidArgument(Where(spec, p - record), "found ", end - p,
                             " bytes, expected ", bytes,
                             ": the file is truncated");
    }
    return !place->is_truncated;
  };
  if (!is_whole(kCountBytes)) return false;
  uint16_t count;  // of values and batch sizes
  std::memcpy(&count, p, sizeof(count));
  place->num_values = count - (has_batch_size ? 1 : 0);
  if (place->num_values < 1 ||
      (spec.size >= 0 && place->num_values != spec.size)) {
    if (why != nullptr) {
      const std::string wanted =
          spec.size < 0
              ? StrCat("1 or more")
              : StrCat(spec.size + (has_batch_size ? 1 : 0),
                       has_batch_size ? ", including a batch size" : "");
      *why = InvalidArgument(Where(spec, p - record), "count is ", count,
                             ", expected ", wanted,
                             "; check the slots and their order");
    }
    return false;
  }
  const int64_t before = kCountBytes + (has_batch_size ? kBatchSizeBytes : 0);
  const int64_t value_bytes = spec.is_float ? sizeof(float) : sizeof(int64_t);
  const int64_t bytes = before + place->num_values * value_bytes;
  place->values = p + before;
  place->end = p + bytes;
  return is_whole(bytes);
}

// Appends `count` values. Returns the index of the first one that is not below
// the limit, or -1.
template <typename T>
int64_t Append(const char* from, int64_t count, int64_t limit,
               std::vector<T>* to) {
  const size_t before = to->size();
  to->resize(before + count);
  T* const values = to->data() + before;
  std::memcpy(values, from, count * sizeof(T));
  for (int64_t i = 0; limit > 0 && i < count; ++i) {
    if (!WithinLimit(values[i], limit)) return i;
  }
  return -1;
}

template <typename T>
std::string ValueAt(const char* values, int64_t i) {
  T value;
  std::memcpy(&value, values + i * sizeof(T), sizeof(T));
  return StrCat(value);
}

class InstantCutter : public RecordCutter {
 public:
  InstantCutter(const std::vector<ColumnSpec>& specs,
                const std::vector<bool>& batch_sizes)
      : specs_(specs), batch_sizes_(batch_sizes) {}

  Status Next(const char* begin, const char* end, bool at_end,
              RecordCut* cut) override {
    *cut = RecordCut();
    const char* p = begin;
    while (p < end) {
      bool is_bad = false;
      const char* const next = NextRecord(p, end, at_end, &is_bad);
      if (is_bad && cut->records == 0) {
        // Parse() finds the error again; the next record is unknown.
        cut->bytes = end - begin;
        cut->records = 1;
        cut->last = true;
        has_records_ = true;
        return Status();
      }
      if (next == nullptr) break;
      p = next;
      ++cut->records;
    }
    cut->bytes = p - begin;
    has_records_ |= cut->records > 0;
    if (at_end && !has_records_) {
      return InvalidArgument("the file has no records");
    }
    return Status();
  }

 private:
  // Returns the end of the record at `p`, or null if it is bad or not yet in
  // the buffer.
  const char* NextRecord(const char* p, const char* end, bool at_end,
                         bool* is_bad) const {
    SlotPlace place;
    const char* const record = p;
    for (size_t c = 0; c < specs_.size(); ++c) {
      if (!FindSlot(specs_[c], batch_sizes_[c], record, p, end, &place,
                    /*why=*/nullptr)) {
        *is_bad = at_end || !place.is_truncated;
        return nullptr;
      }
      p = place.end;
    }
    return p;
  }

  const std::vector<ColumnSpec>& specs_;
  const std::vector<bool>& batch_sizes_;
  bool has_records_ = false;
};

}  // namespace

InstantFormat::InstantFormat(std::vector<ColumnSpec> specs,
                             std::vector<bool> batch_sizes)
    : RecordFormat(std::move(specs)), batch_sizes_(std::move(batch_sizes)) {
  for (const ColumnSpec& spec : this->specs()) {
    checks_lengths_ |= spec.multiple > 1 || spec.weighs >= 0;
  }
}

std::unique_ptr<RecordCutter> InstantFormat::NewCutter() const {
  return std::make_unique<InstantCutter>(specs(), batch_sizes_);
}

Status InstantFormat::Parse(int64_t /*variant*/, const char* begin,
                            const char* end, SlotRows* rows,
                            BadRecord* bad) const {
  std::vector<int64_t> lengths;
  const int64_t num_slots = static_cast<int64_t>(specs().size());
  int64_t number = 0;
  for (const char* record = begin; record < end; ++number) {
    const char* p = record;
    Status status;
    SlotPlace place;
    bool is_found = true;
    lengths.clear();
    for (int64_t c = 0; c < num_slots && is_found; ++c) {
      const ColumnSpec& spec = specs()[c];
      is_found =
          FindSlot(spec, batch_sizes_[c], record, p, end, &place, &status);
      if (!is_found) break;
      SlotColumn* const to = rows->mutable_column(c);
      const int64_t wrong =
          spec.is_float
              ? Append(place.values, place.num_values, spec.limit, &to->floats)
              : Append(place.values, place.num_values, spec.limit, &to->ints);
      if (spec.used && spec.size < 0) {
        to->row_splits.push_back(to->row_splits.back() + place.num_values);
      }
      if (wrong >= 0 && status.ok()) {
        status = InvalidArgument(Where(spec, p - record), "value ", wrong + 1,
                                 " of ", place.num_values, " is ",
                                 spec.is_float
                                     ? ValueAt<float>(place.values, wrong)
                                     : ValueAt<int64_t>(place.values, wrong),
                                 ", expected ", WantedByLimit(spec.limit));
      }
      if (checks_lengths_) lengths.push_back(place.num_values);
      p = place.end;
    }
    if (status.ok() && checks_lengths_) {
      status = CheckLengths(specs(), lengths);
    }
    if (!status.ok()) {
      rows->TruncateTo(rows->num_rows());
      *bad = {number, record - begin, is_found ? p - begin : -1};
      return status;
    }
    rows->AddRows(1);
    // Estimates the rest from the first sample.
    if (rows->num_rows() == 1) rows->Reserve((end - begin) / (p - record) + 1);
    record = p;
  }
  return Status();
}

}  // namespace lodestar
