// StreamOrder: orders work on one table that is queued on several streams.
//
// Writes run alone; reads may overlap each other. Each piece of work waits, on
// its stream, for the conflicting work queued before it, so effects have the
// order of the calls. No call blocks.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_STREAM_ORDER_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_STREAM_ORDER_H_

#include <cuda_runtime.h>

#include <map>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// Not thread-safe: hold the owner's mutex from Begin to End.
class StreamOrder {
 public:
  StreamOrder() = default;
  StreamOrder(const StreamOrder&) = delete;
  ~StreamOrder() {
    if (write_ != nullptr) cudaEventDestroy(write_);
    for (const auto& [stream, read] : reads_) cudaEventDestroy(read.event);
  }

  // Makes all allocations that may throw, because a call that fails later must
  // still end its turn.
  Status BeginRead(cudaStream_t stream) {
    reads_.try_emplace(stream);
    return WaitForWrite(stream);
  }
  Status EndRead(cudaStream_t stream) {
    Read& read = reads_.find(stream)->second;
    read.pending = true;
    return Record(stream, &read.event);
  }

  Status BeginWrite(cudaStream_t stream) {
    LODESTAR_RETURN_IF_ERROR(WaitForWrite(stream));
    for (auto& [reader, read] : reads_) {
      if (!read.pending) continue;
      if (reader != stream) {
        LODESTAR_CUDA_TRY(cudaStreamWaitEvent(stream, read.event, 0));
      }
      read.pending = false;
    }
    return Status();
  }
  Status EndWrite(cudaStream_t stream) {
    writer_ = stream;
    return Record(stream, &write_);
  }

 private:
  struct Read {
    cudaEvent_t event = nullptr;
    bool pending = false;  // no write has waited for it yet
  };

  Status WaitForWrite(cudaStream_t stream) const {
    if (write_ == nullptr || writer_ == stream) return Status();
    return CudaStatus(cudaStreamWaitEvent(stream, write_, 0),
                      "order of streams");
  }
  static Status Record(cudaStream_t stream, cudaEvent_t* event) {
    if (*event == nullptr) {
      LODESTAR_CUDA_TRY(
          cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    return CudaStatus(cudaEventRecord(*event, stream), "order of streams");
  }

  cudaEvent_t write_ = nullptr;
  cudaStream_t writer_ = nullptr;
  std::map<cudaStream_t, Read> reads_;
};

// Scope of a call's queued work; also ends the turn if the call fails. Must
// hold the owner's mutex.
class StreamTurn {
 public:
  enum Kind { kRead, kWrite };

  StreamTurn(StreamOrder* order, cudaStream_t stream, Kind kind)
      : order_(*order),
        stream_(stream),
        kind_(kind),
        begun_(kind == kWrite ? order->BeginWrite(stream)
                              : order->BeginRead(stream)) {}
  StreamTurn(const StreamTurn&) = delete;
  ~StreamTurn() {
    // The call reports its own error.
    if (!ended_) static_cast<void>(End());
  }

  const Status& begun() const { return begun_; }
  Status End() {
    ended_ = true;
    return kind_ == kWrite ? order_.EndWrite(stream_) : order_.EndRead(stream_);
  }

 private:
  StreamOrder& order_;
  const cudaStream_t stream_;
  const Kind kind_;
  const Status begun_;
  bool ended_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_STREAM_ORDER_H_
