#include "tf_ops/core/snapshot/host_table.h"

#include "tf_ops/core/table/embedding_rows.h"

namespace lodestar {

Status MakeHostTable(const Table& table, const Execution& on,
                     std::unique_ptr<EmbeddingStore>* out) {
  constexpr int64_t kShards = 16;
  EmbeddingRows state;
  LODESTAR_RETURN_IF_ERROR(table.ExportState(&state, on));
  std::unique_ptr<EmbeddingStore> empty;
  LODESTAR_RETURN_IF_ERROR(
      EmbeddingStore::Create(table.dim(), kShards, table.initializer(), &empty,
                             table.policies(), table.type()));
  return EmbeddingStore::CreateFrom(View(state), *empty, {}, out);
}

}  // namespace lodestar
