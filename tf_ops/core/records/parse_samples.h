// ParseSamples: parses the samples of a piece of a file with SampleFields.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_PARSE_SAMPLES_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_PARSE_SAMPLES_H_

#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/records/record_format.h"
#include "tf_ops/core/records/sample_fields.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

// A record. [begin, end) is its sample, without the frame.
struct SampleFrame {
  const char* begin = nullptr;
  const char* end = nullptr;
  const char* next = nullptr;  // the next record; null: unknown
};

// Implements RecordFormat::Parse(). `find(p, end, &frame)` finds the record at
// p. It returns false if the record is bad, after setting frame.next if that is
// known; then `explain(p, end)` returns the error, or if that is OK the sample
// [p, end) is bad.
template <typename Find, typename Explain>
Status ParseSamples(const SampleFields& fields, const char* begin,
                    const char* end, const Find& find, const Explain& explain,
                    SlotRows* rows, BadRecord* bad) {
  constexpr int64_t kAtOnce = SampleFields::kSamplesAtOnce;
  const char* begins[kAtOnce];
  const char* ends[kAtOnce];
  const char* records[kAtOnce + 1];
  SampleFields::Scratch scratch;
  const auto refuse = [&](int64_t record, const char* at, const char* next) {
    *bad = {record, at - begin, next == nullptr ? -1 : next - begin};
  };
  int64_t number = 0;
  for (const char* p = begin; p < end; p = records[0]) {
    int64_t count = 0;
    bool found = true;
    SampleFrame frame;
    records[0] = p;
    while (count < kAtOnce && records[count] < end) {
      frame = SampleFrame();
      found = find(records[count], end, &frame);
      if (!found) break;
      begins[count] = frame.begin;
      ends[count] = frame.end;
      records[++count] = frame.next;
    }
    Status why;
    if (!fields.ReadSamples(begins, ends, count, &scratch, rows)) {
      int64_t r = 0;
      while (
          fields.ReadSamples(begins + r, ends + r, 1, &scratch, rows, &why)) {
        ++r;
      }
      refuse(number + r, records[r], records[r + 1]);
      return why;
    }
    number += count;
    if (!found) {
      refuse(number, records[count], frame.next);
      why = explain(records[count], end);
      if (why.ok()) {
        fields.ReadSamples(&records[count], &end, 1, &scratch, rows, &why);
      }
      return why;
    }
    // Estimates the rest from the first samples.
    if (p == begin && rows->num_rows() == count) {
      rows->Reserve((end - begin) / (records[count] - begin) + 1);
    }
    records[0] = records[count];
  }
  return Status();
}

// As above, without `explain`.
template <typename Find>
Status ParseSamples(const SampleFields& fields, const char* begin,
                    const char* end, const Find& find, SlotRows* rows,
                    BadRecord* bad) {
  return ParseSamples(
      fields, begin, end, find,
      [](const char*, const char*) { return Status(); }, rows, bad);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_PARSE_SAMPLES_H_
