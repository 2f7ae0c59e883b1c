// RecordMemoryResource: samples in memory and the thread that loads the next.
// Known by name to the whole process, as a SkipLog is: the graph of a dataset
// can then be made anew, as TensorFlow does to optimize it.

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
  // `id_column`: that of the ids to merge by, or -1.
  RecordMemoryResource(RecordMemory::Options options,
                       std::unique_ptr<RecordFormat> format, int64_t id_column);
  // Stops a preload.
  ~RecordMemoryResource();

  // Makes `name` stand for `resource`. InvalidArgument if it is taken.
  static absl::Status Register(const std::string& name,
                               std::shared_ptr<RecordMemoryResource> resource);
  // NotFound if it was forgotten and no dataset is left that reads it.
  static absl::Status Find(const std::string& name,
                           std::shared_ptr<RecordMemoryResource>* resource);
  // The name does not keep the samples any more; the datasets on them do.
  static void Forget(const std::string& name);

  RecordMemory* memory() { return &memory_; }
  int64_t id_column() const { return id_column_; }

  // Reads files and joins their samples; on error none. Cancelled by `ctx`.
  absl::Status Load(tensorflow::OpKernelContext* ctx,
                    RecordSource::Options options);
  // Reads files on a thread. FailedPrecondition while another one does.
  absl::Status StartPreload(RecordSource::Options options);
  // Waits for that and joins the samples, or returns its error.
  absl::Status WaitPreload(tensorflow::OpKernelContext* ctx);

  // Samples that come from other processes, to take the place of those there.
  // Receive() adds what EncodeSamples() has made; the first call behind a
  // Discard() or a Commit() begins anew. Arrange() puts them in an order: the
  // order[i]-th that came is sample i. Then Commit() cannot fail any more.
  absl::Status Receive(Span<const tensorflow::tstring> pieces);
  absl::Status Arrange(Span<const int64_t> order);
  // FailedPrecondition unless they were arranged.
  absl::Status Commit();
  void Discard();

 private:
  struct Preload {
    std::unique_ptr<RecordMemory::Load> load;
    std::unique_ptr<RecordSource> source;
    absl::Status status;
    bool done = false;
    std::unique_ptr<tensorflow::Thread> thread;  // first to be destroyed
  };

  static absl::Status ReadAll(RecordSource* source, RecordMemory::Load* load);
  std::unique_ptr<RecordSource> MakeSource(RecordSource::Options options) const;

  const std::unique_ptr<RecordFormat> format_;
  RecordMemory memory_;
  const int64_t id_column_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::unique_ptr<Preload> preload_ LODESTAR_GUARDED_BY(mutex_);

  Mutex received_mutex_;
  std::unique_ptr<RecordMemory::Load> received_
      LODESTAR_GUARDED_BY(received_mutex_);
  std::shared_ptr<const RecordMemory::Contents> arranged_
      LODESTAR_GUARDED_BY(received_mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_MEMORY_RESOURCE_H_
