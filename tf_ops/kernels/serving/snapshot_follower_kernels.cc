// Contracts: tf_ops/ops/serving/snapshot_follower_ops.cc.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/util/device_name_utils.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/serving/snapshot_follower.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"

namespace lodestar {
namespace {

using tensorflow::ResourceHandle;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;

constexpr char kFolderVariable[] = "LODESTAR_SNAPSHOTS";

// The handles of a version own its tables and variables.
struct ServedVersion {
  int64_t version = 0;
  std::string root;
  std::vector<Tensor> handles;
};

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

class FollowerResource : public tensorflow::ResourceBase {
 public:
  FollowerResource(const std::string& folder, double poll_seconds,
                   std::vector<std::string> tables,
                   std::vector<std::string> weights, std::string schema)
      : poll_seconds_(poll_seconds),
        table_names_(std::move(tables)),
        weight_paths_(std::move(weights)),
        schema_(std::move(schema)),
        follower_(folder) {}

  ~FollowerResource() override {
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
      changed_.NotifyAll();
    }
    if (poller_.joinable()) poller_.join();
  }

  std::string DebugString() const override { return "SnapshotFollower"; }

  int64_t size() const {
    return static_cast<int64_t>(table_names_.size() + weight_paths_.size());
  }
  // Returns null before a version is loaded.
  std::shared_ptr<const ServedVersion> served() const {
    MutexLock lock(&mutex_);
    return served_;
  }
  FollowerStats stats() const { return follower_.stats(); }

  // Loads the newest version; *version is the served one. `handles` are the own
  // tables and weights.
  absl::Status Refresh(OpKernelContext* ctx, const OpInputList& handles,
                       int64_t* version) {
    {
      MutexLock lock(&refresh_mutex_);
      if (device_.empty()) LODESTAR_TRY(ReadOwn(ctx, handles));
      const ParallelFor parallel = OwnThreads(ctx);
      LODESTAR_TRY(LoadNewest(&parallel, version));
    }
    MutexLock lock(&mutex_);
    if (poll_seconds_ > 0 && !poller_.joinable()) {
      poller_ = std::thread([this] { Poll(); });
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadOwn(OpKernelContext* ctx, const OpInputList& handles)
      LODESTAR_REQUIRES(refresh_mutex_) {
    const int64_t num_tables = static_cast<int64_t>(table_names_.size());
    std::vector<RefCountPtr<EmbeddingResource>> tables(num_tables);
    for (int64_t t = 0; t < num_tables; ++t) {
      LODESTAR_TRY(FindResource(ctx, handles[t], &tables[t]));
      std::shared_ptr<EmbeddingStore> store;
      LODESTAR_TRY(ToTensorFlow(Prefixed(tables[t]->GetStore(&store),
                                         "the table '", table_names_[t],
                                         "' cannot follow snapshots: ")));
    }
    std::vector<OwnWeight> weights;
    for (size_t w = 0; w < weight_paths_.size(); ++w) {
      RefCountPtr<Var> variable;
      LODESTAR_TRY(FindResource(ctx, handles[num_tables + w], &variable));
      const tensorflow::tf_shared_lock lock(*variable->mu());
      if (!variable->is_initialized) {
        return ToTensorFlow(FailedPrecondition("the weight '", weight_paths_[w],
                                               "' is not initialized."));
      }
      weights.push_back(
          {variable->tensor()->dtype(), variable->tensor()->shape()});
    }
    tables_ = std::move(tables);
    weights_ = std::move(weights);
    device_ = CpuOf(ctx);
    return absl::OkStatus();
  }

  absl::Status LoadNewest(const ParallelFor* parallel, int64_t* version)
      LODESTAR_REQUIRES(refresh_mutex_) {
    FollowingModel model;
    model.schema = schema_;
    for (size_t t = 0; t < tables_.size(); ++t) {
      model.tables.push_back({table_names_[t], tables_[t]->table()});
    }
    for (size_t w = 0; w < weights_.size(); ++w) {
      FollowingModel::Weight& weight = model.weights.emplace_back();
      weight.path = weight_paths_[w];
      weight.dtype = DtypeName(weights_[w].dtype);
      for (const auto& dim : weights_[w].shape) {
        weight.shape.push_back(dim.size);
      }
    }
    follower_.Refresh(model, parallel);
    const std::shared_ptr<const FollowedContent> content = follower_.current();
    *version = content == nullptr ? 0 : content->manifest.version;
    const std::shared_ptr<const ServedVersion> before = served();
    if (content == nullptr ||
        (before != nullptr && before->version == *version &&
         before->root == content->manifest.root)) {
      return absl::OkStatus();
    }
    std::shared_ptr<const ServedVersion> next = MakeServed(*content);
    for (size_t t = 0; t < tables_.size(); ++t) {
      tables_[t]->Replace(content->tables[t]);
    }
    // The old version may be freed after the lock.
    MutexLock lock(&mutex_);
    served_.swap(next);
    return absl::OkStatus();
  }

  std::shared_ptr<const ServedVersion> MakeServed(
      const FollowedContent& content) const LODESTAR_REQUIRES(refresh_mutex_) {
    auto served = std::make_shared<ServedVersion>();
    served->version = content.manifest.version;
    served->root = content.manifest.root;
    const auto add = [&](auto* resource) {
      Tensor handle(tensorflow::DT_RESOURCE, TensorShape({}));
      handle.scalar<ResourceHandle>()() =
          ResourceHandle::MakeRefCountingHandle(resource, device_);
      served->handles.push_back(std::move(handle));
    };
    for (size_t t = 0; t < tables_.size(); ++t) {
      add(new EmbeddingResource(content.tables[t], tables_[t]->name()));
    }
    for (size_t w = 0; w < weights_.size(); ++w) {
      Tensor value(weights_[w].dtype, weights_[w].shape);
      const std::string& bytes = content.weights[w];
      std::memcpy(value.data(), bytes.data(), bytes.size());
      auto* const variable = new Var(value.dtype());
      *variable->tensor() = std::move(value);
      variable->is_initialized = true;
      add(variable);
    }
    return served;
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
  const std::vector<std::string> table_names_;
  const std::vector<std::string> weight_paths_;
  const std::string schema_;
  SnapshotFollower follower_;

  Mutex refresh_mutex_;  // taken before mutex_
  std::vector<RefCountPtr<EmbeddingResource>> tables_
      LODESTAR_GUARDED_BY(refresh_mutex_);
  std::vector<OwnWeight> weights_ LODESTAR_GUARDED_BY(refresh_mutex_);
  std::string device_ LODESTAR_GUARDED_BY(refresh_mutex_);

  mutable Mutex mutex_;
  ConditionVariable changed_;
  bool stopped_ LODESTAR_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const ServedVersion> served_ LODESTAR_GUARDED_BY(mutex_);
  std::thread poller_;
};

class SnapshotFollowerOp : public Kernel {
 public:
  explicit SnapshotFollowerOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("folder", &folder_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("poll_seconds", &poll_seconds_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("tables", &tables_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("weights", &weights_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("schema", &schema_));
    const char* const folder = std::getenv(kFolderVariable);
    if (folder != nullptr && folder[0] != '\0') folder_ = folder;
    OP_REQUIRES(ctx, poll_seconds_ >= 0 && std::isfinite(poll_seconds_),
                InvalidArgumentError("`poll_seconds` must be a finite number "
                                     "of 0 or more, got ",
                                     poll_seconds_, "."));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    return OutputResource<FollowerResource>(
        ctx, *this,
        [&](FollowerResource** created) {
          *created = new FollowerResource(folder_, poll_seconds_, tables_,
                                          weights_, schema_);
          return absl::OkStatus();
        },
        [](const FollowerResource&, const std::string&) {
          return absl::OkStatus();
        });
  }

 private:
  std::string folder_;
  float poll_seconds_ = 0;
  std::vector<std::string> tables_;
  std::vector<std::string> weights_;
  std::string schema_;
};

absl::Status FindFollower(OpKernelContext* ctx,
                          RefCountPtr<FollowerResource>* follower) {
  LODESTAR_TRY(FindResource(ctx, ctx->input(0), follower));
  const int64_t size = (*follower)->size();
  if (ctx->num_inputs() == 1 || ctx->num_inputs() == size + 1) {
    return absl::OkStatus();
  }
  return InvalidArgumentError("`own` must have the ", size,
                              " tables and weights of the follower, got ",
                              ctx->num_inputs() - 1, ".");
}

absl::Status RunSnapshotFollowerRefresh(OpKernelContext* ctx) {
  RefCountPtr<FollowerResource> follower;
  LODESTAR_TRY(FindFollower(ctx, &follower));
  OpInputList own;
  LODESTAR_TRY(ctx->input_list("own", &own));
  int64_t version = 0;
  LODESTAR_TRY(follower->Refresh(ctx, own, &version));
  return OutputScalar(ctx, 0, version);
}

absl::Status RunSnapshotFollowerResources(OpKernelContext* ctx) {
  RefCountPtr<FollowerResource> follower;
  LODESTAR_TRY(FindFollower(ctx, &follower));
  const std::shared_ptr<const ServedVersion> served = follower->served();
  for (int i = 0; i < ctx->num_outputs(); ++i) {
    ctx->set_output(i,
                    served == nullptr ? ctx->input(i + 1) : served->handles[i]);
  }
  return absl::OkStatus();
}

absl::Status RunSnapshotFollowerStats(OpKernelContext* ctx) {
  RefCountPtr<FollowerResource> follower;
  LODESTAR_TRY(FindFollower(ctx, &follower));
  const FollowerStats stats = follower->stats();
  LODESTAR_TRY(OutputScalar(ctx, 0, stats.version));
  LODESTAR_TRY(OutputScalar(ctx, 1, stats.step));
  LODESTAR_TRY(OutputScalar(ctx, 2, tstring(stats.time)));
  LODESTAR_TRY(OutputScalar(ctx, 3, stats.seconds_since_update));
  LODESTAR_TRY(OutputScalar(ctx, 4, stats.updates));
  LODESTAR_TRY(OutputScalar(ctx, 5, stats.full_updates));
  LODESTAR_TRY(OutputScalar(ctx, 6, stats.failures));
  return OutputScalar(ctx, 7, tstring(stats.last_error));
}

LODESTAR_REGISTER(SnapshotFollower);
LODESTAR_REGISTER_FUNCTION(SnapshotFollowerRefresh);
LODESTAR_REGISTER_FUNCTION(SnapshotFollowerResources);
LODESTAR_REGISTER_FUNCTION(SnapshotFollowerStats);

}  // namespace
}  // namespace lodestar
