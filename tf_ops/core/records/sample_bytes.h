// Samples as bytes, which another process makes the same samples of.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_BYTES_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

// REQUIRES: `rows` are of `specs`.
std::string EncodeSamples(const std::vector<ColumnSpec>& specs,
                          const SlotRows& rows);

// Sets `rows` to what was encoded, of the same `specs`. InvalidArgument if the
// bytes are of other slots or of none, DataLoss if they are not as written.
Status DecodeSamples(const std::vector<ColumnSpec>& specs, const char* data,
                     int64_t size, SlotRows* rows);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_BYTES_H_
