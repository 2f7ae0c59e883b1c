// DeviceBlock: several arrays in one allocation, copied to the device and freed
// together.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BLOCK_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BLOCK_H_

#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// Call Reserve for each piece, then Allocate once; at(piece) is its address.
class DeviceBlock {
 public:
  // `size` elements of T at byte `offset` of the block.
  template <typename T>
  struct Piece {
    int64_t offset = 0;
    int64_t size = 0;
  };
  // Alignment of pieces: one sector of GPU memory.
  static constexpr int64_t kAlignment = 32;

  // Returns FailedPrecondition if the block is already allocated, and
  // InvalidArgument for a negative size or a block of 2^62 bytes or more.
  template <typename T>
  Status Reserve(int64_t size, Piece<T>* piece) {
    constexpr int64_t kMost = int64_t{1} << 62;
    if (allocated_) {
      return FailedPrecondition("cannot add a piece to an allocated block of ",
                                bytes_, " bytes.");
    }
    if (size < 0 || size > (kMost - bytes_) / static_cast<int64_t>(sizeof(T)) -
                               kAlignment) {
      return InvalidArgument(
          "a piece of ", size,
          " elements does not fit into a block of 2^62 bytes.");
    }
    *piece = {bytes_, size};
    const int64_t end = bytes_ + size * static_cast<int64_t>(sizeof(T));
    bytes_ = (end + kAlignment - 1) / kAlignment * kAlignment;
    return Status();
  }

  // Allocates all reserved pieces. `allocator` must outlive the block. Returns
  // FailedPrecondition if already allocated, and ResourceExhausted if out of
  // memory; the call may be repeated then.
  Status Allocate(DeviceAllocator* allocator, const char* what) {
    if (allocated_) {
      return FailedPrecondition("the block of ", bytes_,
                                " bytes is already allocated.");
    }
    LODESTAR_RETURN_IF_ERROR(memory_.Allocate(allocator, bytes_, what));
    allocated_ = true;
    return Status();
  }

  // Total size of all pieces, rounded up.
  int64_t bytes() const { return bytes_; }
  char* data() const { return memory_.data(); }
  template <typename T>
  T* at(const Piece<T>& piece) const {
    return At(memory_.data(), piece);
  }
  // Address of a piece in a copy of the block.
  template <typename T>
  static T* At(char* memory, const Piece<T>& piece) {
    return reinterpret_cast<T*>(memory + piece.offset);
  }

 private:
  int64_t bytes_ = 0;
  bool allocated_ = false;
  DeviceArray<char> memory_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BLOCK_H_
