// Contracts: tf_ops/ops/serving/snapshot_follower_ops.cc.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/util/device_name_utils.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/serving/snapshot_follower.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/base/variant_handle.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"
#include "tf_ops/kernels/embedding/table_reference.h"
#include "tf_ops/kernels/lookup/id_table_resource.h"
#include "tf_ops/kernels/serving/served_version.h"

namespace lodestar {
namespace {

using tensorflow::ResourceHandle;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;
using tensorflow::lookup::LookupInterface;

constexpr char kFolderVariable[] = "LODESTAR_SNAPSHOTS";
// Longer times would overflow the clock's.
constexpr float kMaxPollSeconds = 1e6f;

struct OwnWeight {
  DataType dtype;
  TensorShape shape;
};

std::string DtypeName(DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_FLOAT:
      return "float32";
    case tensorflow::DT_DOUBLE:
      return "float64";
    case tensorflow::DT_HALF:
      return "float16";
    default:
      return DataTypeString(dtype);
  }
}

// Returns the name of the first CPU of the task of `ctx`.
std::string CpuOf(OpKernelContext* ctx) {
  using tensorflow::DeviceNameUtils;
  DeviceNameUtils::ParsedName cpu = ctx->device()->parsed_name();
  cpu.type = tensorflow::DEVICE_CPU;
  cpu.id = 0;
  return DeviceNameUtils::ParsedNameToString(cpu);
}

// Finds a table by its handle, or by the output of SnapshotTable.
absl::Status FindTable(OpKernelContext* ctx, const Tensor& handle,
                       RefCountPtr<TableReference>* table) {
  if (handle.flat<ResourceHandle>()(0).GetResource<TableReference>().ok()) {
    return FindResource(ctx, handle, table);
  }
  table->reset(new TableReference());
  (*table)->device = CpuOf(ctx);
  return FindResource(ctx, handle, &(*table)->variable);
}

// Returns a handle that owns a resource.
template <typename Resource>
Tensor HandleOf(Resource* resource, const std::string& device) {
  Tensor handle(tensorflow::DT_RESOURCE, TensorShape({}));
  handle.scalar<ResourceHandle>()() =
      ResourceHandle::MakeRefCountingHandle(resource, device);
  return handle;
}

class FollowerResource : public tensorflow::ResourceBase {
 public:
  // `model` has the names of everything, and all of vocabularies and schema.
  FollowerResource(const std::string& folder, TableCopies copies,
                   double poll_seconds, FollowingModel model)
      : poll_seconds_(poll_seconds),
        model_(std::move(model)),
        follower_(folder, copies) {}

  ~FollowerResource() override { Stop(); }

  std::string DebugString() const override { return "SnapshotFollower"; }

  int64_t size() const {
    return static_cast<int64_t>(model_.tables.size() + model_.weights.size() +
                                model_.id_tables.size());
  }
  FollowerStats stats() const { return follower_.stats(); }
  bool polls() const {
    MutexLock lock(&mutex_);
    return poller_.joinable();
  }

  // Ends the thread, after the update in progress, and starts none again.
  void Stop() {
    std::thread poller;
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
      changed_.NotifyAll();
      poller.swap(poller_);
    }
    if (poller.joinable()) poller.join();
  }

  // Returns the version that calls read: version 0, the own content, until one
  // is loaded. `handles` are the own resources.
  absl::Status GetServed(OpKernelContext* ctx, const OpInputList& handles,
                         std::shared_ptr<const ServedVersion>* served) {
    *served = this->served();
    if (*served != nullptr) return absl::OkStatus();
    auto own = std::make_shared<Own>();
    LODESTAR_TRY(ReadOwn(ctx, handles, own.get()));
    MutexLock lock(&mutex_);
    // If another call was first, `own` may mix versions.
    if (own_ == nullptr) {
      served_ = own->content;
      own_ = std::move(own);
    }
    *served = served_;
    return absl::OkStatus();
  }

  // Loads the newest version; *version is the served one. `handles` are the own
  // resources.
  absl::Status Refresh(OpKernelContext* ctx, const OpInputList& handles,
                       int64_t* version) {
    std::shared_ptr<const ServedVersion> served;
    LODESTAR_TRY(GetServed(ctx, handles, &served));
    {
      MutexLock lock(&refresh_mutex_);
      const ParallelFor parallel = OwnThreads(ctx);
      LODESTAR_TRY(LoadNewest(&parallel, version));
    }
    MutexLock lock(&mutex_);
    if (poll_seconds_ == 0 || poller_.joinable() || stopped_) {
      return absl::OkStatus();
    }
    try {
      poller_ = std::thread([this] { Poll(); });
    } catch (const std::system_error& error) {
      return ToTensorFlow(ResourceExhausted(
          "cannot start the thread that polls for snapshots: ", error.what()));
    }
    return absl::OkStatus();
  }

  // Serves `version` until it is 0. `handles` are the own resources.
  absl::Status Pin(OpKernelContext* ctx, const OpInputList& handles,
                   int64_t version) {
    if (version == 0) {
      follower_.Unpin();
      return absl::OkStatus();
    }
    std::shared_ptr<const ServedVersion> served;
    LODESTAR_TRY(GetServed(ctx, handles, &served));
    MutexLock lock(&refresh_mutex_);
    const std::shared_ptr<const Own> own = this->own();
    const ParallelFor parallel = OwnThreads(ctx);
    return ToTensorFlow(
        follower_.Pin(version, Model(*own), &parallel, Installer(*own)));
  }

 private:
  // The model's own resources.
  struct Own {
    std::vector<RefCountPtr<TableReference>> tables;
    std::vector<OwnWeight> weights;
    std::vector<DataType> key_dtypes;
    // Their content as version 0. Its tables are those of `tables` before any
    // version replaced them there.
    std::shared_ptr<ServedVersion> content = std::make_shared<ServedVersion>();
    std::string device;
  };

  std::shared_ptr<const ServedVersion> served() const {
    MutexLock lock(&mutex_);
    return served_;
  }

  std::shared_ptr<const Own> own() const {
    MutexLock lock(&mutex_);
    return own_;
  }

  absl::Status ReadOwn(OpKernelContext* ctx, const OpInputList& handles,
                       Own* own) const {
    own->device = CpuOf(ctx);
    ServedVersion* const content = own->content.get();
    int handle = 0;
    for (size_t t = 0; t < model_.tables.size(); ++t) {
      RefCountPtr<TableReference>& found = own->tables.emplace_back();
      LODESTAR_TRY(FindTable(ctx, handles[handle++], &found));
      content->handles.push_back(
          ServedHandle(*found, found->variable->table()));
    }
    for (const FollowingModel::Weight& weight : model_.weights) {
      content->handles.push_back(handles[handle]);
      RefCountPtr<Var> found;
      LODESTAR_TRY(FindResource(ctx, handles[handle++], &found));
      const tensorflow::tf_shared_lock lock(*found->mu());
      if (!found->is_initialized) {
        return ToTensorFlow(FailedPrecondition("the weight '", weight.path,
                                               "' is not initialized."));
      }
      own->weights.push_back(
          {found->tensor()->dtype(), found->tensor()->shape()});
    }
    for (size_t i = 0; i < model_.id_tables.size(); ++i) {
      content->handles.push_back(handles[handle]);
      RefCountPtr<LookupInterface> found;
      LODESTAR_TRY(FindResource(ctx, handles[handle++], &found));
      own->key_dtypes.push_back(found->key_dtype());
      content->id_tables.emplace_back();
    }
    return absl::OkStatus();
  }

  // Returns the model with what the own resources have now.
  FollowingModel Model(const Own& own) const {
    FollowingModel model = model_;
    for (size_t t = 0; t < own.tables.size(); ++t) {
      const TableReference* const table = own.tables[t].get();
      model.tables[t].like = table->variable->table();
      model.tables[t].on = [table](const ParallelFor* parallel) {
        return table->On(parallel);
      };
    }
    for (size_t w = 0; w < own.weights.size(); ++w) {
      model.weights[w].dtype = DtypeName(own.weights[w].dtype);
      for (const auto& dim : own.weights[w].shape) {
        model.weights[w].shape.push_back(dim.size);
      }
    }
    for (size_t i = 0; i < own.key_dtypes.size(); ++i) {
      model.id_tables[i].key_dtype = DtypeName(own.key_dtypes[i]);
    }
    return model;
  }

  absl::Status LoadNewest(const ParallelFor* parallel, int64_t* version)
      LODESTAR_REQUIRES(refresh_mutex_) {
    const std::shared_ptr<const Own> own = this->own();
    follower_.Refresh(Model(*own), parallel, Installer(*own));
    *version = served()->version;
    return absl::OkStatus();
  }

  SnapshotFollower::Install Installer(const Own& own) {
    return [this, &own](const FollowedContent& content) {
      refresh_mutex_.AssertHeld();
      const absl::Status status = Serve(own, content);
      return Status(static_cast<StatusCode>(status.code()),
                    std::string(status.message()));
    };
  }

  absl::Status Serve(const Own& own, const FollowedContent& content)
      LODESTAR_REQUIRES(refresh_mutex_) {
    const std::shared_ptr<const ServedVersion> before = served();
    auto made = std::make_shared<ServedVersion>();
    LODESTAR_TRY(MakeHandles(own, content, *before, made.get()));
    // Frees the own rows, which calls that began before still hold.
    for (size_t t = 0; t < own.tables.size(); ++t) {
      own.tables[t]->variable->Replace(content.tables[t]);
    }
    // The old version may be freed after the lock.
    std::shared_ptr<const ServedVersion> next = std::move(made);
    MutexLock lock(&mutex_);
    served_.swap(next);
    return absl::OkStatus();
  }

  static Tensor ServedHandle(const TableReference& own,
                             std::shared_ptr<Table> table) {
    return HandleOf(
        new EmbeddingResource(std::move(table), own.variable->name()),
        own.device);
  }

  absl::Status MakeHandles(const Own& own, const FollowedContent& content,
                           const ServedVersion& before,
                           ServedVersion* served) const
      LODESTAR_REQUIRES(refresh_mutex_) {
    served->version = content.manifest.id.version;
    served->id_tables = content.id_tables;
    const auto add = [&](auto* resource) {
      served->handles.push_back(HandleOf(resource, own.device));
    };
    for (size_t t = 0; t < own.tables.size(); ++t) {
      served->handles.push_back(
          ServedHandle(*own.tables[t], content.tables[t]));
    }
    for (size_t w = 0; w < own.weights.size(); ++w) {
      Tensor value(own.weights[w].dtype, own.weights[w].shape);
      const std::string& bytes = content.weights[w];
      std::memcpy(value.data(), bytes.data(), bytes.size());
      auto* const variable = new Var(value.dtype());
      *variable->tensor() = std::move(value);
      variable->is_initialized = true;
      add(variable);
    }
    for (size_t i = 0; i < own.key_dtypes.size(); ++i) {
      const size_t handle = served->handles.size();
      const std::shared_ptr<const FollowedIds>& ids = content.id_tables[i];
      if (ids == nullptr) {
        served->handles.push_back(own.content->handles[handle]);
      } else if (before.id_tables[i] == ids) {
        served->handles.push_back(before.handles[handle]);
      } else {
        RefCountPtr<LookupInterface> table(
            NewIdTable(own.key_dtypes[i], /*is_mutable=*/true));
        const absl::Status imported =
            ImportIds(*ids, own.key_dtypes[i], table.get());
        if (!imported.ok()) {
          return absl::Status(imported.code(),
                              StrCat("the id table '", model_.id_tables[i].name,
                                     "': ", std::string(imported.message())));
        }
        add(table.release());
      }
    }
    return absl::OkStatus();
  }

  static absl::Status ImportIds(const FollowedIds& ids, DataType key_dtype,
                                LookupInterface* table) {
    const int64_t count =
        static_cast<int64_t>(ids.ids.bytes.size() / sizeof(int64_t));
    Tensor keys(key_dtype, {count});
    Tensor values(tensorflow::DT_INT64, {count});
    std::memcpy(values.data(), ids.ids.bytes.data(), ids.ids.bytes.size());
    if (key_dtype == tensorflow::DT_STRING) {
      const char* bytes = ids.keys.bytes.data();
      for (int64_t i = 0; i < count; ++i) {
        int64_t length = 0;
        std::memcpy(&length, ids.lengths.bytes.data() + i * sizeof(length),
                    sizeof(length));
        keys.vec<tstring>()(i).assign(bytes, length);
        bytes += length;
      }
    } else {
      std::memcpy(keys.data(), ids.keys.bytes.data(), ids.keys.bytes.size());
    }
    return table->ImportValues(nullptr, keys, values);
  }

  void Poll() {
    const std::chrono::duration<double> pause(poll_seconds_);
    MutexLock lock(&mutex_);
    while (!stopped_) {
      const auto deadline =
          std::chrono::steady_clock::now() +
          std::chrono::duration_cast<std::chrono::steady_clock::duration>(
              pause);
      while (!stopped_ && changed_.WaitUntil(&mutex_, deadline)) {
      }
      if (stopped_) return;
      mutex_.unlock();
      {
        MutexLock refresh(&refresh_mutex_);
        int64_t version = 0;
        // Out of memory; the next poll tries again.
        WithoutBadAlloc([&] {
          refresh_mutex_.AssertHeld();
          return LoadNewest(nullptr, &version);
        }).IgnoreError();
      }
      mutex_.lock();
    }
  }

  const double poll_seconds_;
  const FollowingModel model_;
  SnapshotFollower follower_;

  Mutex refresh_mutex_;  // taken before mutex_

  mutable Mutex mutex_;
  ConditionVariable changed_;
  bool stopped_ LODESTAR_GUARDED_BY(mutex_) = false;
  // Null before the first call.
  std::shared_ptr<const Own> own_ LODESTAR_GUARDED_BY(mutex_);
  std::shared_ptr<const ServedVersion> served_ LODESTAR_GUARDED_BY(mutex_);
  std::thread poller_ LODESTAR_GUARDED_BY(mutex_);
};

class SnapshotFollowerOp : public Kernel {
 public:
  explicit SnapshotFollowerOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("folder", &folder_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("poll_seconds", &poll_seconds_));
    std::string copies;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("copies", &copies));
    if (copies == "one") copies_ = TableCopies::kOne;
    std::string schema;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("schema", &schema));
    model_.schema = ReadMeanings(schema);
    const std::vector<std::string> tables = Strings(ctx, "tables");
    std::vector<int> parts;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("parts", &parts));
    OP_REQUIRES(
        ctx, parts.empty() || parts.size() == tables.size(),
        InvalidArgumentError("`parts` must have the length of "
                             "`tables`, ",
                             tables.size(), ", got ", parts.size(), "."));
    for (size_t t = 0; t < tables.size(); ++t) {
      const uint32_t count = parts.empty() ? 1 : std::max(1, parts[t]);
      for (uint32_t number = 0; number < count; ++number) {
        model_.tables.push_back({tables[t], nullptr, {number, count}, nullptr});
      }
    }
    for (const std::string& path : Strings(ctx, "weights")) {
      model_.weights.push_back({path, "", {}});
    }
    for (const std::string& name : Strings(ctx, "id_tables")) {
      model_.id_tables.push_back({name, ""});
    }
    const std::vector<std::string> digests = Strings(ctx, "digests");
    const std::vector<std::string> names = Strings(ctx, "vocabularies");
    OP_REQUIRES(
        ctx, digests.size() == names.size(),
        InvalidArgumentError("`digests` must have the length of "
                             "`vocabularies`, ",
                             names.size(), ", got ", digests.size(), "."));
    for (size_t v = 0; v < names.size(); ++v) {
      model_.vocabularies.push_back({names[v], digests[v]});
    }
    bool overridable = true;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("overridable", &overridable));
    const char* const folder = std::getenv(kFolderVariable);
    if (overridable && folder != nullptr && folder[0] != '\0') {
      folder_ = folder;
    }
    OP_REQUIRES(
        ctx, 0 <= poll_seconds_ && poll_seconds_ <= kMaxPollSeconds,
        InvalidArgumentError("`poll_seconds` must be in [0, ", kMaxPollSeconds,
                             "], got ", poll_seconds_, "."));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    return OutputResource<FollowerResource>(
        ctx, *this,
        [&](FollowerResource** created) {
          *created =
              new FollowerResource(folder_, copies_, poll_seconds_, model_);
          return absl::OkStatus();
        },
        [](const FollowerResource&, const std::string&) {
          return absl::OkStatus();
        });
  }

 private:
  static std::vector<std::string> Strings(OpKernelConstruction* ctx,
                                          const char* attribute) {
    std::vector<std::string> strings;
    ctx->SetStatus(ctx->GetAttr(attribute, &strings));
    return strings;
  }

  std::string folder_;
  TableCopies copies_ = TableCopies::kTwo;
  float poll_seconds_ = 0;
  FollowingModel model_;
};

// Finds the follower and reads the own resources.
absl::Status FindFollower(OpKernelContext* ctx,
                          RefCountPtr<FollowerResource>* follower,
                          OpInputList* own) {
  LODESTAR_TRY(FindResource(ctx, ctx->input(0), follower));
  LODESTAR_TRY(ctx->input_list("own", own));
  const int64_t size = (*follower)->size();
  if (own->size() == size) return absl::OkStatus();
  return InvalidArgumentError("`own` must have the ", size,
                              " resources of the follower, got ", own->size(),
                              ".");
}

absl::Status RunSnapshotFollowerRefresh(OpKernelContext* ctx) {
  RefCountPtr<FollowerResource> follower;
  OpInputList own;
  LODESTAR_TRY(FindFollower(ctx, &follower, &own));
  int64_t version = 0;
  LODESTAR_TRY(follower->Refresh(ctx, own, &version));
  return OutputScalar(ctx, 0, version);
}

absl::Status RunSnapshotFollowerResources(OpKernelContext* ctx) {
  RefCountPtr<FollowerResource> follower;
  OpInputList own;
  LODESTAR_TRY(FindFollower(ctx, &follower, &own));
  std::shared_ptr<const ServedVersion> served;
  LODESTAR_TRY(follower->GetServed(ctx, own, &served));
  const int count = static_cast<int>(served->handles.size());
  for (int i = 0; i < count; ++i) ctx->set_output(i, served->handles[i]);
  return OutputHandle(ctx, count, std::move(served));
}

absl::Status RunSnapshotFollowerPin(OpKernelContext* ctx) {
  RefCountPtr<FollowerResource> follower;
  OpInputList own;
  LODESTAR_TRY(FindFollower(ctx, &follower, &own));
  return follower->Pin(ctx, own, ctx->input(1).scalar<int64_t>()());
}

absl::Status RunSnapshotFollowerStop(OpKernelContext* ctx) {
  RefCountPtr<FollowerResource> follower;
  LODESTAR_TRY(FindResource(ctx, ctx->input(0), &follower));
  follower->Stop();
  return absl::OkStatus();
}

absl::Status RunSnapshotFollowerStats(OpKernelContext* ctx) {
  RefCountPtr<FollowerResource> follower;
  LODESTAR_TRY(FindResource(ctx, ctx->input(0), &follower));
  const FollowerStats stats = follower->stats();
  absl::Status status;
  int output = 0;
  const auto add = [&](const auto& value) {
    status.Update(OutputScalar(ctx, output++, value));
  };
  add(stats.version);
  add(stats.step);
  add(tstring(stats.time));
  add(stats.seconds_since_update);
  add(stats.updates);
  add(stats.full_updates);
  add(stats.failures);
  add(tstring(stats.last_error));
  add(stats.newest_version);
  add(stats.lag_versions);
  add(stats.pinned);
  add(follower->polls());
  add(stats.polls);
  add(stats.rows_written);
  add(stats.rows_removed);
  add(stats.bytes);
  add(stats.last_update_seconds);
  add(tstring(stats.metadata));
  add(tstring(stats.model_error));
  status.Update(OutputVector(ctx, output, stats.idle_bytes));
  return status;
}

LODESTAR_REGISTER(SnapshotFollower);
LODESTAR_REGISTER_FUNCTION(SnapshotFollowerRefresh);
LODESTAR_REGISTER_FUNCTION(SnapshotFollowerPin);
LODESTAR_REGISTER_FUNCTION(SnapshotFollowerStop);
LODESTAR_REGISTER_FUNCTION(SnapshotFollowerResources);
LODESTAR_REGISTER_FUNCTION(SnapshotFollowerStats);

}  // namespace
}  // namespace lodestar
