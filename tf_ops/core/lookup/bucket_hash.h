// Hashes of byte strings with the same bits as TensorFlow's string hash ops, so
// a key keeps its bucket when a model is migrated:
//
//   fast    FarmHash Fingerprint64          tf.strings.to_hash_bucket_fast
//   strong  SipHash-2-4 with a 128-bit key  tf.strings.to_hash_bucket_strong
//   legacy  MurmurHash64A, seed 0xdecafcaffe  tf.strings.to_hash_bucket

#ifndef LODESTAR_TF_OPS_CORE_LOOKUP_BUCKET_HASH_H_
#define LODESTAR_TF_OPS_CORE_LOOKUP_BUCKET_HASH_H_

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/decimal_hash.h"

namespace lodestar {

uint64_t Fingerprint64(std::string_view bytes);
uint64_t SipHash24(uint64_t key_0, uint64_t key_1, std::string_view bytes);
uint64_t MurmurHash64A(uint64_t seed, std::string_view bytes);

// Computes remainders of division by a constant divisor.
class Remainder {
 public:
  // Requires: divisor > 0.
  explicit Remainder(uint64_t divisor)
      : divisor_(divisor), reciprocal_(~uint64_t{0} / divisor) {}

  // Returns n % divisor.
  uint64_t operator()(uint64_t n) const {
    // The quotient or one less: reciprocal_ is less than 2^64 / divisor by at
    // most 1, so the product is less by under 1.
    const uint64_t quotient = static_cast<uint64_t>(
        (static_cast<unsigned __int128>(n) * reciprocal_) >> 64);
    const uint64_t rest = n - quotient * divisor_;
    return rest >= divisor_ ? rest - divisor_ : rest;
  }

 private:
  uint64_t divisor_;
  uint64_t reciprocal_;
};

class BucketHash {
 public:
  // name: fast, strong (key: two words) or legacy. Returns
  // InvalidArgument for another name or a key that does not match it.
  static Status Create(const std::string& name, Span<const int64_t> key,
                       BucketHash* out);

  uint64_t operator()(std::string_view bytes) const;
  // Hashes the decimal representation of an integer.
  uint64_t operator()(int64_t number) const {
    if (is_fast()) return FingerprintOfDecimal(number);
    char text[20];  // as long as -2^63
    const char* const end = std::to_chars(text, text + 20, number).ptr;
    return (*this)(std::string_view(text, end - text));
  }

  bool is_fast() const { return kind_ == Kind::kFast; }

 private:
  enum class Kind { kFast, kStrong, kLegacy };

  Kind kind_ = Kind::kFast;
  uint64_t key_0_ = 0;  // of kStrong
  uint64_t key_1_ = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOOKUP_BUCKET_HASH_H_
