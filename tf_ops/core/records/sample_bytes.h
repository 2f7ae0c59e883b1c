// Serialization of samples between processes.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_BYTES_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

// Requires: `rows` was constructed from `specs`.
std::string EncodeSamples(const std::vector<ColumnSpec>& specs,
                          const SlotRows& rows);

// Sets `rows` to the samples in the bytes. Returns InvalidArgument if the bytes
// are not samples or have other slots, DataLoss if they are damaged.
Status DecodeSamples(const std::vector<ColumnSpec>& specs, const char* data,
                     int64_t size, SlotRows* rows);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_SAMPLE_BYTES_H_
