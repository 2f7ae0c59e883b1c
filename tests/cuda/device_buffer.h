// Device memory for tests, with guard zones on both sides.

#ifndef LODESTAR_TESTS_CUDA_DEVICE_BUFFER_H_
#define LODESTAR_TESTS_CUDA_DEVICE_BUFFER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace lodestar {

// Ends the process, because results are meaningless after a CUDA error.
inline void Require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define REQUIRE_CUDA(call) Require(call, #call)

template <typename T>
class DeviceBuffer {
 public:
  // Starts `shift` elements after the allocation, so that wide loads are not
  // possible.
  explicit DeviceBuffer(int64_t size, int64_t shift = 0)
      : size_(size), shift_(shift) {
    REQUIRE_CUDA(cudaMalloc(&memory_, Bytes()));
    REQUIRE_CUDA(cudaMemset(memory_, kPattern, Bytes()));
  }
  explicit DeviceBuffer(const std::vector<T>& values, int64_t shift = 0)
      : DeviceBuffer(static_cast<int64_t>(values.size()), shift) {
    REQUIRE_CUDA(cudaMemcpy(data(), values.data(), size_ * sizeof(T),
                            cudaMemcpyHostToDevice));
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(memory_); }

  T* data() const { return reinterpret_cast<T*>(memory_ + kZone) + shift_; }

  std::vector<T> Download() const {
    std::vector<T> values(size_);
    REQUIRE_CUDA(cudaMemcpy(values.data(), data(), size_ * sizeof(T),
                            cudaMemcpyDeviceToHost));
    return values;
  }

  bool ZonesAreIntact() const {
    std::vector<char> bytes(Bytes());
    REQUIRE_CUDA(
        cudaMemcpy(bytes.data(), memory_, Bytes(), cudaMemcpyDeviceToHost));
    const int64_t begin = kZone + shift_ * static_cast<int64_t>(sizeof(T));
    const int64_t end = begin + size_ * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < Bytes(); ++i) {
      if ((i < begin || i >= end) && bytes[i] != kPattern) return false;
    }
    return true;
  }

 private:
  static constexpr char kPattern = 0x5a;
  static constexpr int64_t kZone = 1024;

  int64_t Bytes() const {
    return 2 * kZone + (size_ + shift_) * static_cast<int64_t>(sizeof(T));
  }

  int64_t size_;
  int64_t shift_;
  char* memory_ = nullptr;
};

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CUDA_DEVICE_BUFFER_H_
