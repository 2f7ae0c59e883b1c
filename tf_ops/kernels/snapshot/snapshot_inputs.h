// Reading of the inputs of snapshot kernels: strings, bytes and tables.

#ifndef LODESTAR_TF_OPS_KERNELS_SNAPSHOT_SNAPSHOT_INPUTS_H_
#define LODESTAR_TF_OPS_KERNELS_SNAPSHOT_SNAPSHOT_INPUTS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/snapshot/restored_records.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/table_reference.h"

namespace lodestar {

// The system would truncate a path at a NUL byte.
inline absl::Status CheckString(const tstring& text, const char* name) {
  const std::string value = text;
  if (value.find('\0') == std::string::npos) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` contains a NUL byte.");
}

// Reads a scalar string, an input called `name`.
inline absl::Status ReadString(const Tensor& tensor, const char* name,
                               std::string* text) {
  LODESTAR_TRY(CheckRank(tensor, name, 0));
  const tstring& value = tensor.scalar<tstring>()();
  LODESTAR_TRY(CheckString(value, name));
  *text = value;
  return absl::OkStatus();
}

// Reads a vector of strings.
inline absl::Status ReadStrings(const Tensor& tensor, const char* name,
                                std::vector<std::string>* texts) {
  LODESTAR_TRY(CheckRank(tensor, name, 1));
  const auto values = tensor.vec<tstring>();
  for (int64_t i = 0; i < values.size(); ++i) {
    LODESTAR_TRY(CheckString(values(i), name));
    texts->push_back(values(i));
  }
  return absl::OkStatus();
}

// Returns the strings of a tensor, which may contain any bytes.
inline std::vector<std::string> BytesOf(const Tensor& tensor) {
  const auto values = tensor.flat<tstring>();
  return {values.data(), values.data() + values.size()};
}

// Returns a part, or InvalidArgument for numbers in `name` that are none.
inline absl::Status MakePart(const char* name, int64_t number, int64_t count,
                             TablePart* part) {
  if (number < 0 || number >= count ||
      count > std::numeric_limits<int32_t>::max()) {
    return InvalidArgumentError("`", name, "` has part ", number, " of ", count,
                                ", expected 0 <= part < count");
  }
  *part = {static_cast<uint32_t>(number), static_cast<uint32_t>(count)};
  return absl::OkStatus();
}

// A snapshot file of a part of a table.
struct FileInput {
  int64_t table = 0;
  TablePart part;
  ListedFile file;
};

// Reads files and what is known of them, inputs called `files` and `listed`.
inline absl::Status ReadFiles(const Tensor& paths, const Tensor& listed,
                              std::vector<FileInput>* files) {
  std::vector<std::string> names;
  LODESTAR_TRY(ReadStrings(paths, "files", &names));
  const int64_t count = static_cast<int64_t>(names.size());
  if (listed.shape() != TensorShape({count, 6})) {
    return InvalidArgumentError("`listed` has shape ",
                                listed.shape().DebugString(), ", expected [",
                                count, ",6]");
  }
  const auto numbers = listed.matrix<int64_t>();
  for (int64_t f = 0; f < count; ++f) {
    FileInput& input = files->emplace_back();
    input.table = numbers(f, 0);
    LODESTAR_TRY(MakePart("listed", numbers(f, 1), numbers(f, 2), &input.part));
    input.file.path = names[f];
    const int64_t crc = numbers(f, 3);
    if (crc < 0) continue;
    input.file.content = {static_cast<uint32_t>(crc), numbers(f, 4),
                          numbers(f, 5)};
  }
  return absl::OkStatus();
}

// Reads the files of `tables` tables, each of which needs some.
inline absl::Status ReadFiles(const Tensor& paths, const Tensor& listed,
                              size_t tables,
                              std::vector<std::vector<FileInput>>* files) {
  std::vector<FileInput> all;
  LODESTAR_TRY(ReadFiles(paths, listed, &all));
  files->resize(tables);
  for (FileInput& input : all) {
    if (input.table < 0 || input.table >= static_cast<int64_t>(tables)) {
      return InvalidArgumentError("`listed` has table ", input.table,
                                  ", expected 0 to ",
                                  static_cast<int64_t>(tables) - 1);
    }
    (*files)[input.table].push_back(std::move(input));
  }
  for (size_t t = 0; t < tables; ++t) {
    if (!(*files)[t].empty()) continue;
    return InvalidArgumentError("`listed` has no file of table ", t);
  }
  return absl::OkStatus();
}

// Reads the part that each table is, an input called `parts`.
inline absl::Status ReadParts(const Tensor& tensor, size_t tables,
                              std::vector<TablePart>* parts) {
  if (tensor.shape() != TensorShape({static_cast<int64_t>(tables), 2})) {
    return InvalidArgumentError("`parts` has shape ",
                                tensor.shape().DebugString(), ", expected [",
                                tables, ",2]");
  }
  const auto numbers = tensor.matrix<int64_t>();
  parts->resize(tables);
  for (size_t t = 0; t < tables; ++t) {
    LODESTAR_TRY(MakePart("parts", numbers(t, 0), numbers(t, 1), &(*parts)[t]));
  }
  return absl::OkStatus();
}

// An embedding variable, and its table when the kernel started.
struct TableInput {
  tensorflow::core::RefCountPtr<TableReference> reference;
  std::shared_ptr<Table> table;
};

// Reads the input list `tables`. Returns InvalidArgument if a table occurs
// twice.
inline absl::Status ReadTables(OpKernelContext* ctx,
                               std::vector<TableInput>* tables) {
  OpInputList references;
  LODESTAR_TRY(ctx->input_list("tables", &references));
  tables->resize(references.size());
  for (int t = 0; t < references.size(); ++t) {
    TableInput& input = (*tables)[t];
    LODESTAR_TRY(CheckRank(references[t], "tables", 0));
    LODESTAR_TRY(FindResource(ctx, references[t], &input.reference));
    const EmbeddingResource& variable = *input.reference->variable;
    input.table = variable.table();
    for (int u = 0; u < t; ++u) {
      if ((*tables)[u].reference->variable.get() != &variable) continue;
      return InvalidArgumentError("`tables[", u, "]` and `tables[", t,
                                  "]` are the same table.");
    }
  }
  return absl::OkStatus();
}

inline StepGates GatesOf(const std::vector<TableInput>& tables) {
  std::vector<std::shared_ptr<StepGate>> gates;
  for (const TableInput& table : tables) {
    gates.push_back(table.reference->variable->gate());
  }
  return StepGates(std::move(gates));
}

// Returns InvalidArgument unless an input called `name` has one item per table.
inline absl::Status CheckPerTable(const char* name, int64_t found,
                                  int64_t tables) {
  if (found == tables) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` has ", found, " items, but there ",
                              tables == 1 ? "is " : "are ", tables,
                              tables == 1 ? " table" : " tables");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SNAPSHOT_SNAPSHOT_INPUTS_H_
