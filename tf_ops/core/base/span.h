// Span<T>: a pointer and a length, as std::span of C++20.

#ifndef LODESTAR_TF_OPS_CORE_BASE_SPAN_H_
#define LODESTAR_TF_OPS_CORE_BASE_SPAN_H_

#include <cstdint>
#include <type_traits>
#include <vector>

namespace lodestar {

template <typename T>
class Span {
 public:
  Span() = default;
  Span(T* data, int64_t size) : data_(data), size_(size) {}
  // Converts from a vector of T or of a less qualified T.
  template <typename U, typename = std::enable_if_t<
                            std::is_convertible_v<U (*)[], T (*)[]>>>
  Span(const Span<U>& other) : data_(other.data()), size_(other.size()) {}
  template <typename U = std::remove_const_t<T>,
            typename = std::enable_if_t<std::is_const_v<T>, U>>
  Span(const std::vector<U>& v)
      : data_(v.data()), size_(static_cast<int64_t>(v.size())) {}
  Span(std::vector<std::remove_const_t<T>>& v)
      : data_(v.data()), size_(static_cast<int64_t>(v.size())) {}

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](int64_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  Span subspan(int64_t offset, int64_t count) const {
    return Span(data_ + offset, count);
  }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_SPAN_H_
