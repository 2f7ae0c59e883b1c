// The id table as a TensorFlow look-up resource.

#ifndef LODESTAR_TF_OPS_KERNELS_ID_TABLE_RESOURCE_H_
#define LODESTAR_TF_OPS_KERNELS_ID_TABLE_RESOURCE_H_

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/bucket_hash.h"
#include "tf_ops/core/integer_map.h"
#include "tf_ops/core/string_map.h"
#include "tf_ops/kernels/parallel_util.h"
#include "tf_ops/kernels/status_util.h"
#include "tf_ops/kernels/tensor_util.h"

namespace lodestar {

// What our own ops need beyond TensorFlow's interface.
class IdTableResource : public tensorflow::lookup::LookupInterface {
 public:
  // REQUIRES: keys are of key_dtype, values int64 of the keys' shape.
  virtual absl::Status FindOrHash(tensorflow::OpKernelContext* ctx,
                                  const tensorflow::Tensor& keys,
                                  int64_t num_oov_buckets,
                                  const BucketHash& hash,
                                  tensorflow::Tensor* values) = 0;
};

// K: int32_t, int64_t or tensorflow::tstring.
//
// Readers take the whole content as one pointer, and an import replaces that
// pointer, so an immutable table is read without a lock. Inserts and removals
// of a mutable table hold the content's lock against its readers.
template <typename K>
class IdTableOf final : public IdTableResource {
 public:
  explicit IdTableOf(bool is_mutable) : mutable_(is_mutable) {
    if (mutable_) content_ = std::make_shared<Content>();
  }

  std::string DebugString() const override {
    return StrCat("IdTable(size=", size(), ")");
  }

  size_t size() const override {
    const std::shared_ptr<Content> content = Load();
    if (content == nullptr) return 0;
    const ReadLock lock = LockForRead(*content);
    return content->map.size();
  }

  absl::Status Find(tensorflow::OpKernelContext* ctx,
                    const tensorflow::Tensor& keys, tensorflow::Tensor* values,
                    const tensorflow::Tensor& default_value) override {
    const int64_t missing = default_value.flat<int64_t>()(0);
    int64_t* out = values->flat<int64_t>().data();
    return FindEach(ctx, keys,
                    [=](const Content&, int64_t i, const Key&, uint64_t,
                        const int64_t* value) {
                      out[i] = value != nullptr ? *value : missing;
                    });
  }

  absl::Status FindOrHash(tensorflow::OpKernelContext* ctx,
                          const tensorflow::Tensor& keys,
                          int64_t num_oov_buckets, const BucketHash& hash,
                          tensorflow::Tensor* values) override {
    int64_t* out = values->flat<int64_t>().data();
    const uint64_t buckets = static_cast<uint64_t>(num_oov_buckets);
    return FindEach(
        ctx, keys,
        [=, &hash](const Content& content, int64_t i, const Key& key,
                   uint64_t key_hash, const int64_t* value) {
          if (value != nullptr) {
            out[i] = *value;
            return;
          }
          // A string's place in the map is found by the fast hash already.
          const uint64_t word =
              kIsString && hash.is_fast() ? key_hash : hash(key);
          out[i] = content.map.size() + static_cast<int64_t>(word % buckets);
        });
  }

  absl::Status Insert(tensorflow::OpKernelContext*,
                      const tensorflow::Tensor& keys,
                      const tensorflow::Tensor& values) override {
    TF_RETURN_IF_ERROR(CheckMutable("insert into"));
    const auto key = keys.flat<K>();
    const auto value = values.flat<int64_t>();
    const std::shared_ptr<Content> content = Load();
    const std::unique_lock<std::shared_mutex> lock(content->mutex);
    for (int64_t i = 0; i < key.size(); ++i) {
      content->map.Assign(Key(key(i)), value(i));
    }
    return absl::OkStatus();
  }

  absl::Status Remove(tensorflow::OpKernelContext*,
                      const tensorflow::Tensor& keys) override {
    TF_RETURN_IF_ERROR(CheckMutable("remove from"));
    const auto key = keys.flat<K>();
    const std::shared_ptr<Content> content = Load();
    const std::unique_lock<std::shared_mutex> lock(content->mutex);
    for (int64_t i = 0; i < key.size(); ++i) content->map.Remove(Key(key(i)));
    return absl::OkStatus();
  }

  absl::Status ImportValues(tensorflow::OpKernelContext*,
                            const tensorflow::Tensor& keys,
                            const tensorflow::Tensor& values) override {
    const auto key = keys.flat<K>();
    const auto value = values.flat<int64_t>();
    auto content = std::make_shared<Content>();
    try {
      content->map.Reserve(key.size());
      for (int64_t i = 0; i < key.size(); ++i) {
        const Key k(key(i));
        const auto there = content->map.Find(k);
        if (there && *there != value(i)) {
          return InvalidArgumentError(
              "key ", Text(k), " has two values: ", *there, " and ", value(i));
        }
        if (!there) content->map.Assign(k, value(i));
      }
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(
          StrCat("out of memory while ", key.size(), " keys are imported"));
    }
    std::atomic_store(&content_, std::move(content));
    return absl::OkStatus();
  }

  // Outputs `keys` and `values`, in ascending order of (value, key).
  absl::Status ExportValues(tensorflow::OpKernelContext* ctx) override {
    const std::shared_ptr<Content> content = Load();
    std::vector<std::pair<int64_t, Key>> entries;
    ReadLock lock;
    if (content != nullptr) {
      lock = LockForRead(*content);
      entries.reserve(content->map.size());
      content->map.ForEach([&](const Key& key, int64_t value) {
        entries.emplace_back(value, key);
      });
    }
    std::sort(entries.begin(), entries.end());
    const int64_t n = static_cast<int64_t>(entries.size());
    tensorflow::Tensor* keys = nullptr;
    tensorflow::Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output("keys", {n}, &keys));
    TF_RETURN_IF_ERROR(ctx->allocate_output("values", {n}, &values));
    auto key_out = keys->flat<K>();
    auto value_out = values->flat<int64_t>();
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (kIsString) {
        key_out(i).assign(entries[i].second.data(), entries[i].second.size());
      } else {
        key_out(i) = static_cast<K>(entries[i].second);
      }
      value_out(i) = entries[i].first;
    }
    return absl::OkStatus();
  }

  tensorflow::DataType key_dtype() const override {
    return tensorflow::DataTypeToEnum<K>::v();
  }
  tensorflow::DataType value_dtype() const override {
    return tensorflow::DT_INT64;
  }
  tensorflow::TensorShape key_shape() const final { return {}; }
  tensorflow::TensorShape value_shape() const override { return {}; }

 private:
  static constexpr bool kIsString = std::is_same_v<K, tensorflow::tstring>;
  using Map = std::conditional_t<kIsString, StringMap, IntegerMap>;
  using Key = typename Map::Key;
  using ReadLock = std::shared_lock<std::shared_mutex>;

  struct Content {
    Map map;
    mutable std::shared_mutex mutex;
  };

  static std::string Text(const Key& key) {
    if constexpr (kIsString) {
      return StrCat("'", key, "'");
    } else {
      return StrCat(key);
    }
  }

  std::shared_ptr<Content> Load() const { return std::atomic_load(&content_); }

  // Holds nothing where nobody can write.
  ReadLock LockForRead(const Content& content) const {
    return mutable_ ? ReadLock(content.mutex) : ReadLock();
  }

  absl::Status CheckMutable(const char* verb) const {
    if (mutable_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        StrCat("cannot ", verb, " an id table that is not mutable"));
  }

  // visit(content, i, key, hash, value or nullptr) for every key; the hash is
  // that of strings.
  template <typename Visit>
  absl::Status FindEach(tensorflow::OpKernelContext* ctx,
                        const tensorflow::Tensor& keys,
                        const Visit& visit) const {
    const std::shared_ptr<Content> content = Load();
    if (content == nullptr) {
      return absl::FailedPreconditionError(
          "the id table was not initialized: nothing was imported into it");
    }
    const auto flat = keys.flat<K>();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    const ReadLock lock = LockForRead(*content);
    RunParallel(
        &parallel, flat.size(), kIsString ? 60 : 12,
        [&](int64_t begin, int64_t end) {
          const auto key = [&](int64_t i) { return Key(flat(begin + i)); };
          if constexpr (kIsString) {
            content->map.FindBatch(end - begin, key,
                                   [&](int64_t i, uint64_t hash,
                                       const std::optional<int64_t>& value) {
                                     visit(*content, begin + i, key(i), hash,
                                           value ? &*value : nullptr);
                                   });
          } else {
            content->map.FindBatch(
                end - begin, key, [&](int64_t i, const int64_t* value) {
                  visit(*content, begin + i, key(i), 0, value);
                });
          }
        });
    return absl::OkStatus();
  }

  const bool mutable_;
  std::shared_ptr<Content> content_;  // nullptr: not initialized
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_ID_TABLE_RESOURCE_H_
