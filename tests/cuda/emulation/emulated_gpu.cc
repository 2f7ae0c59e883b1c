// A TensorFlow plugin (StreamExecutor C API) that adds devices of type GPU over
// the emulated CUDA of this folder, so that DEVICE_GPU kernels can be tested
// without a GPU in a TensorFlow build without CUDA. LODESTAR_EMULATED_GPUS sets
// the number of devices.

#include <cstdint>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tests/cuda/emulation/cuda_runtime.h"

namespace {

using Device = const SP_Device*;
using Memory = SP_DeviceMemoryBase;
using Status = TF_Status*;

cudaStream_t Of(SP_Stream stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}
cudaEvent_t Of(SP_Event event) { return reinterpret_cast<cudaEvent_t>(event); }

void Report(cudaError_t error, Status status) {
  if (error == cudaSuccess) return;
  TF_SetStatus(status, TF_INTERNAL, cudaGetErrorString(error));
}

void SetMemory(SP_StreamExecutor* executor) {
  executor->allocate = [](Device, uint64_t size, int64_t, Memory* made) {
    made->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
    made->opaque = nullptr;
    made->size = cudaMalloc(&made->opaque, size) == cudaSuccess ? size : 0;
  };
  executor->deallocate = [](Device, Memory* memory) {
    cudaFree(memory->opaque);
  };
  executor->host_memory_allocate = [](Device, uint64_t size) {
    void* made = nullptr;
    return cudaMallocHost(&made, size) == cudaSuccess ? made : nullptr;
  };
  executor->host_memory_deallocate = [](Device, void* memory) {
    cudaFreeHost(memory);
  };
  // TensorFlow's pool keeps its own statistics.
  executor->get_allocator_stats = [](Device, SP_AllocatorStats*) -> TF_Bool {
    return false;
  };
  executor->device_memory_usage = [](Device, int64_t* free,
                                     int64_t* total) -> TF_Bool {
    *free = *total = int64_t{1} << 34;
    return true;
  };
}

void SetCopies(SP_StreamExecutor* executor) {
  static constexpr cudaMemcpyKind kKind = cudaMemcpyDeviceToDevice;
  executor->memcpy_dtoh = [](Device, SP_Stream stream, void* to,
                             const Memory* from, uint64_t size, Status status) {
    Report(cudaMemcpyAsync(to, from->opaque, size, kKind, Of(stream)), status);
  };
  executor->memcpy_htod = [](Device, SP_Stream stream, Memory* to,
                             const void* from, uint64_t size, Status status) {
    Report(cudaMemcpyAsync(to->opaque, from, size, kKind, Of(stream)), status);
  };
  executor->memcpy_dtod = [](Device, SP_Stream stream, Memory* to,
                             const Memory* from, uint64_t size, Status status) {
    Report(cudaMemcpyAsync(to->opaque, from->opaque, size, kKind, Of(stream)),
           status);
  };
  executor->sync_memcpy_dtoh = [](Device, void* to, const Memory* from,
                                  uint64_t size, Status status) {
    Report(cudaMemcpy(to, from->opaque, size, kKind), status);
  };
  executor->sync_memcpy_htod = [](Device, Memory* to, const void* from,
                                  uint64_t size, Status status) {
    Report(cudaMemcpy(to->opaque, from, size, kKind), status);
  };
  executor->memset = [](Device, SP_Stream stream, Memory* to, uint8_t byte,
                        uint64_t size, Status status) {
    Report(cudaMemsetAsync(to->opaque, byte, size, Of(stream)), status);
  };
  executor->mem_zero = [](Device, SP_Stream stream, Memory* to, uint64_t size,
                          Status status) {
    Report(cudaMemsetAsync(to->opaque, 0, size, Of(stream)), status);
  };
  // TensorFlow requires this function.
  executor->memset32 = [](Device, SP_Stream, Memory*, uint32_t, uint64_t,
                          Status status) {
    TF_SetStatus(status, TF_UNIMPLEMENTED, "memset32");
  };
}

void SetStreams(SP_StreamExecutor* executor) {
  executor->create_stream = [](Device, SP_Stream* made, Status status) {
    Report(cudaStreamCreate(reinterpret_cast<cudaStream_t*>(made)), status);
  };
  executor->destroy_stream = [](Device, SP_Stream stream) {
    cudaStreamDestroy(Of(stream));
  };
  executor->create_stream_dependency = [](Device, SP_Stream, SP_Stream,
                                          Status) {
    // Nothing to wait for: work is done when it is queued.
  };
  executor->get_stream_status = [](Device, SP_Stream stream, Status status) {
    Report(cudaStreamSynchronize(Of(stream)), status);
  };
  executor->synchronize_all_activity = [](Device, Status status) {
    Report(cudaDeviceSynchronize(), status);
  };
  executor->host_callback = [](Device, SP_Stream, SE_StatusCallbackFn fn,
                               void* argument) -> TF_Bool {
    Status status = TF_NewStatus();
    fn(argument, status);
    TF_DeleteStatus(status);
    return true;
  };
}

void SetEvents(SP_StreamExecutor* executor) {
  executor->create_event = [](Device, SP_Event* made, Status status) {
    Report(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(made),
                                    cudaEventDisableTiming),
           status);
  };
  executor->destroy_event = [](Device, SP_Event event) {
    cudaEventDestroy(Of(event));
  };
  executor->get_event_status = [](Device, SP_Event event) {
    return cudaEventSynchronize(Of(event)) == cudaSuccess ? SE_EVENT_COMPLETE
                                                          : SE_EVENT_ERROR;
  };
  executor->record_event = [](Device, SP_Stream stream, SP_Event event,
                              Status status) {
    Report(cudaEventRecord(Of(event), Of(stream)), status);
  };
  executor->wait_for_event = [](Device, SP_Stream stream, SP_Event event,
                                Status status) {
    Report(cudaStreamWaitEvent(Of(stream), Of(event), 0), status);
  };
  executor->block_host_for_event = [](Device, SP_Event event, Status status) {
    Report(cudaEventSynchronize(Of(event)), status);
  };
}

}  // namespace

// The linker calls __wrap_x in place of x, which it calls __real_x. Emulated
// kernels take precedence over the kernels of an absent GPU.
using KernelBuilder = tensorflow::KernelDefBuilder;
extern "C" const tensorflow::KernelDef*
__real__ZN10tensorflow16KernelDefBuilder5BuildEv(KernelBuilder* builder);
extern "C" const tensorflow::KernelDef*
__wrap__ZN10tensorflow16KernelDefBuilder5BuildEv(KernelBuilder* builder) {
  return __real__ZN10tensorflow16KernelDefBuilder5BuildEv(
      &builder->Priority(1));
}

extern "C" __attribute__((visibility("default"))) void SE_InitPlugin(
    SE_PlatformRegistrationParams* params, TF_Status*) {
  params->platform->name = "EMULATED";
  params->platform->type = "GPU";
  // Use TensorFlow's pool, as on a real GPU. It grows on demand.
  params->platform->use_bfc_allocator = true;
  params->platform->force_memory_growth = true;
  params->destroy_platform = [](SP_Platform*) {};
  params->destroy_platform_fns = [](SP_PlatformFns*) {};

  SP_PlatformFns* functions = params->platform_fns;
  functions->get_device_count = [](const SP_Platform*, int* count, Status) {
    cudaGetDeviceCount(count);
  };
  functions->create_device = [](const SP_Platform*, SE_CreateDeviceParams* made,
                                Status) {
    made->device->ordinal = made->ordinal;
  };
  functions->destroy_device = [](const SP_Platform*, SP_Device*) {};
  functions->create_device_fns = [](const SP_Platform*,
                                    SE_CreateDeviceFnsParams*, Status) {};
  functions->destroy_device_fns = [](const SP_Platform*, SP_DeviceFns*) {};
  functions->create_stream_executor =
      [](const SP_Platform*, SE_CreateStreamExecutorParams* made, Status) {
        SetMemory(made->stream_executor);
        SetCopies(made->stream_executor);
        SetStreams(made->stream_executor);
        SetEvents(made->stream_executor);
      };
  functions->destroy_stream_executor = [](const SP_Platform*,
                                          SP_StreamExecutor*) {};
}
