// The id table (tf_ops/core/lookup/id_table.h) as a TensorFlow lookup resource.

#ifndef LODESTAR_TF_OPS_KERNELS_LOOKUP_ID_TABLE_RESOURCE_H_
#define LODESTAR_TF_OPS_KERNELS_LOOKUP_ID_TABLE_RESOURCE_H_

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/lookup_interface.h"
#include "tf_ops/core/lookup/bucket_hash.h"
#include "tf_ops/core/lookup/id_table.h"
#include "tf_ops/core/lookup/vocabulary_line.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/lookup/vocabulary_file.h"

namespace lodestar {

// Buckets for keys that are not in a table.
struct OovBuckets {
  BucketHash hash;
  int64_t count = 1;
  Remainder remainder{1};
  int64_t first = -1;  // id of the first bucket; -1: the table's size

  // Reads attributes num_oov_buckets, first_bucket, hasher and hasher_key.
  absl::Status Init(OpKernelConstruction* ctx) {
    std::string hasher;
    std::vector<int64_t> key;
    LODESTAR_TRY(ctx->GetAttr("num_oov_buckets", &count));
    if (count < 1) {
      return InvalidArgumentError("`num_oov_buckets` must be at least 1, got ",
                                  count, ".");
    }
    remainder = Remainder(count);
    LODESTAR_TRY(ctx->GetAttr("first_bucket", &first));
    LODESTAR_TRY(ctx->GetAttr("hasher", &hasher));
    LODESTAR_TRY(ctx->GetAttr("hasher_key", &key));
    return ToTensorFlow(BucketHash::Create(hasher, key, &hash));
  }
};

// Methods for Lodestar's ops, in addition to TensorFlow's interface.
class IdTableResource : public tensorflow::lookup::LookupInterface {
 public:
  // Requires: keys have key_dtype; values are int64 with the shape of keys.
  virtual absl::Status FindOrHash(OpKernelContext* ctx, const Tensor& keys,
                                  const OovBuckets& buckets,
                                  Tensor* values) = 0;

  // Replaces the content with a vocabulary file. Errors name the file and, if
  // applicable, the line.
  virtual absl::Status ImportFile(tensorflow::Env* env, const std::string& path,
                                  const VocabularyFormat& format) = 0;
};

// K: an integer type or tstring. A uint64 key is reinterpreted as int64, as in
// TensorFlow's tables.
template <typename K>
class IdTableOf final : public IdTableResource {
 public:
  explicit IdTableOf(bool is_mutable) : table_(is_mutable) {}

  std::string DebugString() const override {
    return StrCat("IdTable(size=", size(), ")");
  }
  size_t size() const override { return table_.size(); }
  int64_t MemoryUsed() const override { return table_.bytes(); }

  absl::Status Find(OpKernelContext* ctx, const Tensor& keys, Tensor* values,
                    const Tensor& default_value) override {
    const int64_t missing = default_value.flat<int64_t>()(0);
    int64_t* const out = values->flat<int64_t>().data();
    return FindInParallel(
        ctx, keys, [&](const Map& map, int64_t begin, int64_t end) {
          const auto key = KeyAt(keys, begin);
          int64_t* const part = out + begin;
          map.FindBatch(end - begin, key,
                        [=](int64_t i, uint64_t, const auto& value) {
                          part[i] = value ? *value : missing;
                        });
        });
  }

  absl::Status FindOrHash(OpKernelContext* ctx, const Tensor& keys,
                          const OovBuckets& buckets, Tensor* values) override {
    int64_t* const out = values->flat<int64_t>().data();
    return FindInParallel(
        ctx, keys, [&](const Map& map, int64_t begin, int64_t end) {
          const BucketHash& hash = buckets.hash;
          const int64_t first = buckets.first < 0 ? map.size() : buckets.first;
          // Collects missing keys before hashing them, because misses are
          // unpredictable and a branch for each would be slower.
          constexpr int64_t kIdsAtOnce = 512;
          int64_t misses[kIdsAtOnce];
          for (; begin < end; begin += kIdsAtOnce) {
            const int64_t count = std::min(kIdsAtOnce, end - begin);
            const auto key = KeyAt(keys, begin);
            int64_t* const part = out + begin;
            int64_t num_misses = 0;
            // `word` is the fast hash of a string.
            map.FindBatch(
                count, key, [&](int64_t i, uint64_t word, const auto& value) {
                  part[i] = value ? *value : static_cast<int64_t>(word);
                  misses[num_misses] = i;
                  num_misses += !value;
                });
            for (int64_t m = 0; m < num_misses; ++m) {
              const int64_t i = misses[m];
              const uint64_t word = kIsString && hash.is_fast()
                                        ? static_cast<uint64_t>(part[i])
                                        : hash(key(i));
              part[i] = first + static_cast<int64_t>(buckets.remainder(word));
            }
          }
        });
  }

  absl::Status Insert(OpKernelContext*, const Tensor& keys,
                      const Tensor& values) override {
    return ToTensorFlow(
        table_.Insert(keys.NumElements(), KeyAt(keys, 0), ValueAt(values)));
  }

  absl::Status Remove(OpKernelContext*, const Tensor& keys) override {
    return ToTensorFlow(table_.Remove(keys.NumElements(), KeyAt(keys, 0)));
  }

  absl::Status ImportValues(OpKernelContext*, const Tensor& keys,
                            const Tensor& values) override {
    return ToTensorFlow(
        table_.Import(keys.NumElements(), KeyAt(keys, 0), ValueAt(values)));
  }

  absl::Status ImportFile(tensorflow::Env* env, const std::string& path,
                          const VocabularyFormat& format) override {
    Map map;
    LODESTAR_TRY(ReadVocabulary<K>(env, path, format, &map));
    return ToTensorFlow(table_.Replace(std::move(map)));
  }

  // Outputs `keys` and `values` in ascending order of (value, key).
  absl::Status ExportValues(OpKernelContext* ctx) override {
    typename IdTable<Map>::View view;
    const bool imported = table_.Read(&view).ok();
    std::vector<std::pair<int64_t, Key>> entries;
    try {
      if (imported) entries = SortedEntries(view.map());
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(
          "out of memory while exporting an id table.");
    }
    const int64_t n = static_cast<int64_t>(entries.size());
    Tensor* keys = nullptr;
    Tensor* values = nullptr;
    LODESTAR_TRY(ctx->allocate_output("keys", {n}, &keys));
    LODESTAR_TRY(ctx->allocate_output("values", {n}, &values));
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

  DataType key_dtype() const override {
    return tensorflow::DataTypeToEnum<K>::v();
  }
  DataType value_dtype() const override { return tensorflow::DT_INT64; }
  TensorShape key_shape() const final { return {}; }
  TensorShape value_shape() const override { return {}; }

 private:
  static constexpr bool kIsString = std::is_same_v<K, tstring>;
  using Map = std::conditional_t<kIsString, StringMap, IntegerMap>;
  using Key = typename Map::Key;

  // The keys from index `begin` on.
  static auto KeyAt(const Tensor& keys, int64_t begin) {
    const K* const data = keys.flat<K>().data() + begin;
    return [data](int64_t i) { return static_cast<Key>(data[i]); };
  }
  static auto ValueAt(const Tensor& values) {
    const int64_t* const data = values.flat<int64_t>().data();
    return [data](int64_t i) { return data[i]; };
  }

  // Calls find(map, begin, end) for ranges of the keys on TensorFlow's threads.
  template <typename FindPart>
  absl::Status FindInParallel(OpKernelContext* ctx, const Tensor& keys,
                              const FindPart& find) const {
    typename IdTable<Map>::View view;
    LODESTAR_TRY(table_.Read(&view));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    RunParallel(
        &parallel, keys.NumElements(), kIsString ? 50 : 20,
        [&](int64_t begin, int64_t end) { find(view.map(), begin, end); });
    return absl::OkStatus();
  }

  IdTable<Map> table_;
};

// Creates a table of keys of a string or integer dtype.
inline IdTableResource* NewIdTable(DataType key_dtype, bool is_mutable) {
  IdTableResource* table = nullptr;
  const auto create = [&](auto... keys) {
    ((tensorflow::DataTypeToEnum<decltype(keys)>::v() == key_dtype
          ? void(table = new IdTableOf<decltype(keys)>(is_mutable))
          : void()),
     ...);
  };
  create(tstring(), int8_t(), int16_t(), int32_t(), int64_t(), uint8_t(),
         uint16_t(), uint32_t(), uint64_t());
  return table;
}

using IdTablePtr = tensorflow::core::RefCountPtr<IdTableResource>;

// Finds the table whose handle is input 0.
inline absl::Status FindTable(OpKernelContext* ctx, IdTablePtr* table) {
  tensorflow::core::RefCountPtr<tensorflow::lookup::LookupInterface> resource;
  LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
  table->reset(dynamic_cast<IdTableResource*>(resource.get()));
  if (*table == nullptr) {
    return InvalidArgumentError("the handle does not refer to an id table.");
  }
  static_cast<void>(resource.release());
  return absl::OkStatus();
}

// Finds the table and checks that input 1 has its key type.
inline absl::Status FindTableOfKeys(OpKernelContext* ctx, IdTablePtr* table) {
  LODESTAR_TRY(FindTable(ctx, table));
  const DataType found = ctx->input(1).dtype();
  const DataType wanted = (*table)->key_dtype();
  if (found == wanted) return absl::OkStatus();
  return InvalidArgumentError("`keys` has dtype ", DataTypeString(found),
                              ", but the table's keys are ",
                              DataTypeString(wanted), ".");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_LOOKUP_ID_TABLE_RESOURCE_H_
