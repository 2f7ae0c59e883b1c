// The inputs of the kernels of snapshots: texts, bytes and tables.

#ifndef LODESTAR_TF_OPS_KERNELS_SNAPSHOT_SNAPSHOT_INPUTS_H_
#define LODESTAR_TF_OPS_KERNELS_SNAPSHOT_SNAPSHOT_INPUTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"

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

// An embedding variable, and the store that it had when the kernel began.
struct TableInput {
  tensorflow::core::RefCountPtr<EmbeddingResource> resource;
  std::shared_ptr<EmbeddingStore> store;
};

// The input list `handles`. InvalidArgument: a table twice.
inline absl::Status ReadTables(OpKernelContext* ctx,
                               std::vector<TableInput>* tables) {
  OpInputList handles;
  LODESTAR_TRY(ctx->input_list("handles", &handles));
  tables->resize(handles.size());
  for (int t = 0; t < handles.size(); ++t) {
    TableInput& table = (*tables)[t];
    LODESTAR_TRY(CheckRank(handles[t], "handles", 0));
    LODESTAR_TRY(FindResource(ctx, handles[t], &table.resource));
    table.store = table.resource->store();
    for (int u = 0; u < t; ++u) {
      if ((*tables)[u].resource.get() != table.resource.get()) continue;
      return InvalidArgumentError("`handles[", u, "]` and `handles[", t,
                                  "]` are one table");
    }
  }
  return absl::OkStatus();
}

// InvalidArgument unless an input called `name` has an item for each table.
inline absl::Status CheckPerTable(const char* name, int64_t found,
                                  int64_t tables) {
  if (found == tables) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` has ", found, " items, but there ",
                              tables == 1 ? "is " : "are ", tables,
                              tables == 1 ? " table" : " tables");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SNAPSHOT_SNAPSHOT_INPUTS_H_
