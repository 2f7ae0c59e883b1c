// DeviceBlock: several arrays in one block of memory, which cross to a device,
// and are freed, together.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BLOCK_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_BLOCK_H_

#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// Reserve each piece, Allocate once, then at(piece) is where it lies.
class DeviceBlock {
 public:
  // `size` Ts of a block, `offset` bytes behind its begin.
  template <typename T>
  struct Piece {
    int64_t offset = 0;
    int64_t size = 0;
  };
  // Pieces begin at multiples of so many bytes, a sector of a GPU's memory.
  static constexpr int64_t kAlignment = 32;

  // FailedPrecondition: the block is allocated. InvalidArgument: a negative
  // size, or a block of 2^62 bytes.
  template <typename T>
  Status Reserve(int64_t size, Piece<T>* piece) {
    constexpr int64_t kMost = int64_t{1} << 62;
    if (allocated_) {
      return FailedPrecondition("a block that is allocated, of ", bytes_,
                                " bytes, takes no further piece");
    }
    if (size < 0 || size > (kMost - bytes_) / static_cast<int64_t>(sizeof(T)) -
                               kAlignment) {
      return InvalidArgument("a piece of a block has ", size,
                             " items; wanted 0 or more, and all in 2^62 bytes");
    }
    *piece = {bytes_, size};
    const int64_t end = bytes_ + size * static_cast<int64_t>(sizeof(T));
    bytes_ = (end + kAlignment - 1) / kAlignment * kAlignment;
    return Status();
  }

  // All pieces that are reserved; `allocator` outlives the block.
  // FailedPrecondition: they are allocated. ResourceExhausted: out of memory;
  // another try may follow.
  Status Allocate(DeviceAllocator* allocator, const char* what) {
    if (allocated_) {
      return FailedPrecondition("a block of ", bytes_,
                                " bytes is allocated twice");
    }
    LODESTAR_RETURN_IF_ERROR(memory_.Allocate(allocator, bytes_, what));
    allocated_ = true;
    return Status();
  }

  // Of all pieces, rounded up.
  int64_t bytes() const { return bytes_; }
  char* data() const { return memory_.data(); }
  template <typename T>
  T* at(const Piece<T>& piece) const {
    return At(memory_.data(), piece);
  }
  // Of a copy of the block.
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
