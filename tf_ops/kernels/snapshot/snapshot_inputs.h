// The inputs of the kernels of snapshots: texts and bytes.

#ifndef LODESTAR_TF_OPS_KERNELS_SNAPSHOT_SNAPSHOT_INPUTS_H_
#define LODESTAR_TF_OPS_KERNELS_SNAPSHOT_SNAPSHOT_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {

// The system would take a path with a zero byte for a shorter one.
inline absl::Status CheckText(const tstring& text, const char* name) {
  const std::string value = text;
  if (value.find('\0') == std::string::npos) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` holds a zero byte");
}

// A scalar string, an input called `name`.
inline absl::Status ReadText(const Tensor& tensor, const char* name,
                             std::string* text) {
  LODESTAR_TRY(CheckRank(tensor, name, 0));
  const tstring& value = tensor.scalar<tstring>()();
  LODESTAR_TRY(CheckText(value, name));
  *text = value;
  return absl::OkStatus();
}

// A vector of them.
inline absl::Status ReadTexts(const Tensor& tensor, const char* name,
                              std::vector<std::string>* texts) {
  LODESTAR_TRY(CheckRank(tensor, name, 1));
  const auto values = tensor.vec<tstring>();
  for (int64_t i = 0; i < values.size(); ++i) {
    LODESTAR_TRY(CheckText(values(i), name));
    texts->push_back(values(i));
  }
  return absl::OkStatus();
}

// The strings of a tensor, whatever bytes they hold.
inline std::vector<std::string> BytesOf(const Tensor& tensor) {
  const auto values = tensor.flat<tstring>();
  return {values.data(), values.data() + values.size()};
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SNAPSHOT_SNAPSHOT_INPUTS_H_
