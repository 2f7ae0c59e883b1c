// The attribute by which an op says what MultiSlot lines begin with.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_LINE_FIELDS_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_LINE_FIELDS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/records/multislot_format.h"

namespace lodestar {

// Of the attribute line_fields; an error goes to `ctx`.
inline LineFields LineFieldsOf(tensorflow::OpKernelConstruction* ctx) {
  std::vector<std::string> names;
  const absl::Status status = ctx->GetAttr("line_fields", &names);
  if (!status.ok()) ctx->SetStatus(status);
  const auto has = [&names](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  LineFields fields;
  fields.ins_id = has("ins_id");
  fields.content = has("content");
  fields.logkey = has("logkey");
  return fields;
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_LINE_FIELDS_H_
