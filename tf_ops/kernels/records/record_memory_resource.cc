#include "tf_ops/kernels/records/record_memory_resource.h"

#include <new>
#include <utility>

#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/platform/errors.h"
#include "tf_ops/core/records/sample_bytes.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/records/registry.h"

namespace lodestar {
namespace {

std::unique_ptr<tensorflow::Thread> StartThread(const std::string& name,
                                                std::function<void()> body) {
  return std::unique_ptr<tensorflow::Thread>(
      tensorflow::Env::Default()->StartThread({}, name, std::move(body)));
}

}  // namespace

// Samples that a thread reads.
struct RecordMemoryResource::Reading {
  Reading(const RecordFormat* format, const RecordMemory* memory,
          RecordSource::Options options)
      : load(memory),
        source(format, std::move(options), StartThread),
        thread(StartThread("lodestar_load", [this] { status = ReadAll(); })) {}
  // Stops the thread.
  ~Reading() { source.Cancel(); }

  absl::Status ReadAll() {
    try {
      std::unique_ptr<ParsedPiece> parsed;
      do {
        LODESTAR_TRY(source.Next(&parsed));
        if (parsed == nullptr) break;
        LODESTAR_TRY(parsed->status);
        load.Add(parsed->rows);
      } while (true);
      return absl::OkStatus();
    } catch (const std::bad_alloc&) {
      return ToTensorFlow(ResourceExhausted("out of memory after loading ",
                                            load.num_samples(), " samples."));
    }
  }

  RecordMemory::Load load;
  RecordSource source;
  absl::Status status;
  std::unique_ptr<tensorflow::Thread> thread;  // uses the members above
};

RecordMemoryResource::RecordMemoryResource(RecordMemory::Options options,
                                           std::unique_ptr<RecordFormat> format,
                                           int64_t id_column)
    : format_(std::move(format)),
      memory_(std::move(options)),
      id_column_(id_column) {}

RecordMemoryResource::~RecordMemoryResource() = default;

absl::Status RecordMemoryResource::Find(
    const std::string& name, std::shared_ptr<RecordMemoryResource>* resource) {
  *resource = Registry<RecordMemoryResource>::Global().Find(name);
  if (*resource != nullptr) return absl::OkStatus();
  return tensorflow::errors::NotFound("the InMemoryDataset '", name,
                                      "' no longer exists in this process. "
                                      "Keep it while its datasets are used.");
}

std::unique_ptr<RecordMemoryResource::Reading>
RecordMemoryResource::StartReading(RecordSource::Options options) const {
  return std::make_unique<Reading>(format_.get(), &memory_, std::move(options));
}

absl::Status RecordMemoryResource::Join(OpKernelContext* ctx,
                                        std::unique_ptr<Reading> reading) {
  std::function<void()> deregister;
  LODESTAR_TRY(tensorflow::RegisterCancellationCallback(
      ctx->cancellation_manager(), [&reading] { reading->source.Cancel(); },
      &deregister));
  reading->thread.reset();  // waits
  deregister();
  LODESTAR_TRY(reading->status);
  memory_.Join(reading->load);
  return absl::OkStatus();
}

absl::Status RecordMemoryResource::Load(OpKernelContext* ctx,
                                        RecordSource::Options options) {
  return Join(ctx, StartReading(std::move(options)));
}

absl::Status RecordMemoryResource::StartPreload(RecordSource::Options options) {
  MutexLock lock(&mutex_);
  if (preload_ != nullptr) {
    return ToTensorFlow(FailedPrecondition(
        "a preload is already running. Call wait_preload() first."));
  }
  preload_ = StartReading(std::move(options));
  return absl::OkStatus();
}

absl::Status RecordMemoryResource::WaitPreload(OpKernelContext* ctx) {
  std::unique_ptr<Reading> preload;
  {
    MutexLock lock(&mutex_);
    preload.swap(preload_);
  }
  if (preload == nullptr) {
    return ToTensorFlow(FailedPrecondition(
        "there is no preload to wait for. Call preload(files) first."));
  }
  return Join(ctx, std::move(preload));
}

absl::Status RecordMemoryResource::Receive(
    Span<const tensorflow::tstring> pieces) {
  const std::vector<ColumnSpec>& specs = memory_.options().specs;
  MutexLock lock(&received_mutex_);
  arranged_ = nullptr;
  if (received_ == nullptr) {
    received_ = std::make_unique<RecordMemory::Load>(&memory_);
  }
  for (const tensorflow::tstring& piece : pieces) {
    SlotRows rows;
    LODESTAR_TRY(ToTensorFlow(DecodeSamples(
        specs, piece.data(), static_cast<int64_t>(piece.size()), &rows)));
    received_->Add(rows);
  }
  return absl::OkStatus();
}

absl::Status RecordMemoryResource::Arrange(Span<const int64_t> order) {
  MutexLock lock(&received_mutex_);
  const int64_t count = received_ == nullptr ? 0 : received_->num_samples();
  std::vector<bool> seen(count, false);
  bool fits = order.size() == count;
  for (int64_t i = 0; i < order.size() && fits; ++i) {
    fits = order[i] >= 0 && order[i] < count && !seen[order[i]];
    if (fits) seen[order[i]] = true;
  }
  if (!fits) {
    return InvalidArgumentError("`order` must contain each of ", count,
                                " samples exactly once.");
  }
  const RecordMemory::Load none(&memory_);
  arranged_ = memory_.Arrange(received_ == nullptr ? none : *received_, order);
  received_ = nullptr;
  return absl::OkStatus();
}

absl::Status RecordMemoryResource::Commit() {
  MutexLock lock(&received_mutex_);
  if (arranged_ == nullptr) {
    return ToTensorFlow(
        FailedPrecondition("no samples were received and arranged."));
  }
  memory_.Replace(std::move(arranged_));
  arranged_ = nullptr;
  return absl::OkStatus();
}

void RecordMemoryResource::Discard() {
  MutexLock lock(&received_mutex_);
  received_ = nullptr;
  arranged_ = nullptr;
}

}  // namespace lodestar
