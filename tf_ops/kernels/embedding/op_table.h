// OpTable: an embedding variable as an input of a custom op.
//
//   void Compute(tensorflow::OpKernelContext* ctx) override {
//     const lodestar::OpTable table(ctx, /*input=*/0);
//     if (!table.ok()) return;
//     ...
//     table.Check(table->FindRows(..., table.on()));
//
// Does not include TensorFlow. See docs/internals/custom_ops.md.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_OP_TABLE_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_OP_TABLE_H_

#include <memory>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/version.h"

namespace tensorflow {
class OpKernelContext;
}

namespace lodestar {

struct OpenedTable {
  std::shared_ptr<const Table> table;
  std::shared_ptr<const Execution> on;
};

// Exported by the library. Their signatures are the same in all versions, so
// that a library compiled with other headers gets an error.
//
// Sets the error of `ctx` and returns false unless the version is the
// library's and input `input` is the handle of an embedding variable on the
// kind of device that the kernel runs on.
extern "C" bool lodestar_open_table(const char* version,
                                    tensorflow::OpKernelContext* ctx, int input,
                                    OpenedTable* opened);
// Sets the error of `ctx`. Prefixes the message with the name of the variable.
extern "C" void lodestar_fail(tensorflow::OpKernelContext* ctx, int input,
                              int code, const char* message);

// Keeps the table alive. A table that is restored in the meantime is replaced
// by another one, which only a later OpTable sees.
class OpTable {
 public:
  OpTable(tensorflow::OpKernelContext* ctx, int input)
      : ctx_(ctx),
        input_(input),
        ok_(lodestar_open_table(LODESTAR_VERSION, ctx, input, &opened_)) {}
  OpTable(const OpTable&) = delete;
  OpTable& operator=(const OpTable&) = delete;

  // False: the kernel has an error and must return.
  bool ok() const { return ok_; }
  // Sets the kernel's error, with the name of the table, unless `status` is OK.
  // Returns whether it is OK.
  bool Check(const Status& status) const {
    if (!status.ok()) {
      lodestar_fail(ctx_, input_, static_cast<int>(status.code()),
                    status.message().c_str());
    }
    return status.ok();
  }

  // Requires: ok(). The table is const, because only the package's ops write
  // rows: they keep a step in one snapshot.
  const Table* operator->() const { return opened_.table.get(); }
  const Table& operator*() const { return *opened_.table; }
  // The last argument of the table's methods: the kernel's threads, or the
  // stream of its GPU.
  const Execution& on() const { return *opened_.on; }

 private:
  tensorflow::OpKernelContext* const ctx_;
  const int input_;
  OpenedTable opened_;
  const bool ok_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_OP_TABLE_H_
