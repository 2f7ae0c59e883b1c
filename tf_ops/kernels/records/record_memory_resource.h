// RecordMemoryResource: samples in memory and the thread that preloads more.
// Process-global by name, like SkipLog, so that TensorFlow can rebuild the
// graph of a dataset when it optimizes it.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_MEMORY_RESOURCE_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_MEMORY_RESOURCE_H_

#include <functional>
#include <memory>
#include <string>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/tstring.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/records/record_memory.h"
#include "tf_ops/kernels/records/record_source.h"

namespace lodestar {

// Thread-safe.
class RecordMemoryResource {
 public:
  // `id_column`: the column of ids to merge by, or -1.
  RecordMemoryResource(RecordMemory::Options options,
                       std::unique_ptr<RecordFormat> format, int64_t id_column);
  // Stops a preload.
  ~RecordMemoryResource();

  // Returns NotFound if the name was released and no dataset uses it any
  // longer.
  static absl::Status Find(const std::string& name,
                           std::shared_ptr<RecordMemoryResource>* resource);

  RecordMemory* memory() { return &memory_; }
  int64_t id_column() const { return id_column_; }

  // Reads files and appends their samples, atomically. Cancelled by `ctx`.
  absl::Status Load(tensorflow::OpKernelContext* ctx,
                    RecordSource::Options options);
  // Reads files on a thread. Returns FailedPrecondition while a preload is
  // running.
  absl::Status StartPreload(RecordSource::Options options);
  // Waits for the preload and appends its samples, or returns its error.
  absl::Status WaitPreload(tensorflow::OpKernelContext* ctx);

  // Receives samples of other processes that replace the current ones.
  // Receive() adds the output of EncodeSamples(); the first call after
  // Discard() or Commit() starts again. Arrange() sets their order: sample i is
  // the order[i]-th that was received. After that, Commit() cannot fail.
  absl::Status Receive(Span<const tensorflow::tstring> pieces);
  absl::Status Arrange(Span<const int64_t> order);
  // Returns FailedPrecondition unless the samples were arranged.
  absl::Status Commit();
  void Discard();

 private:
  struct Reading;

  std::unique_ptr<Reading> StartReading(RecordSource::Options options) const;
  // Waits for the samples and appends them. Cancelled by `ctx`.
  absl::Status Join(tensorflow::OpKernelContext* ctx,
                    std::unique_ptr<Reading> reading);

  const std::unique_ptr<RecordFormat> format_;
  RecordMemory memory_;
  const int64_t id_column_;

  Mutex mutex_;
  std::unique_ptr<Reading> preload_ LODESTAR_GUARDED_BY(mutex_);

  Mutex received_mutex_;
  std::unique_ptr<RecordMemory::Load> received_
      LODESTAR_GUARDED_BY(received_mutex_);
  std::shared_ptr<const RecordMemory::Contents> arranged_
      LODESTAR_GUARDED_BY(received_mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_MEMORY_RESOURCE_H_
