// DeviceStore: updates by an optimizer.

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/device/device_batch.h"
#include "tf_ops/core/device/device_gradient.h"
#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/device/row_transfer.h"
#include "tf_ops/core/rows/optimizer_rules.h"

namespace lodestar {
namespace {

struct UpdateCall {
  DeviceIndex index;
  DeviceRows rows;
  DeviceTableState* state;
  DeviceStore::Ids ids;
  int64_t dim;
  int lane_bits;
  bool whole_packs;  // gradients can be loaded in packs
  const bool* skipped;
};

template <typename Rule, typename C>
struct Hyperparameters {
  C h[kHyperparameters<Rule>];
};

// One thread per id finds its row, then the warp updates the rows it found. A
// row is processed in packs, which may extend past its end into the padding
// before the next row.
template <typename Rule, typename T>
__global__ void __launch_bounds__(kBlock)
    UpdateKernel(UpdateCall call,
                 Hyperparameters<Rule, ComputeOf<T>> hyperparameters,
                 const ComputeOf<T>* gradients) {
  using C = ComputeOf<T>;
  constexpr int kPack = 16 / sizeof(C);
  constexpr int kSlots = kRuleSlots<Rule>;
  constexpr int kAtOnce = 2;
  const int64_t i = ThreadNumber();
  char* value = nullptr;
  char* slots = nullptr;
  const bool mine = i < SizeOf(call.ids);
  const bool skipped = mine && call.skipped != nullptr && call.skipped[i];
  int64_t number = 0;
  if (mine && !skipped && call.index.Find(call.ids.data[i], &number) >= 0) {
    value = call.rows.values(static_cast<uint32_t>(number));
    if (kSlots > 0) slots = call.rows.slot(static_cast<uint32_t>(number), 0);
  }
  CountBlock(mine && !skipped && value == nullptr,
             &call.state->events[Event::kGradientsDropped]);

  const int lane = threadIdx.x % kWarp;
  const int lanes = 1 << call.lane_bits;
  const int step = kWarp >> call.lane_bits;
  const int own = lane >> call.lane_bits;
  const int64_t first = i - lane;
  const int64_t packs = (call.dim + kPack - 1) / kPack;
  const auto& h = hyperparameters.h;
  for (int begin = own; begin < kWarp + own; begin += step * kAtOnce) {
    uint64_t at[kAtOnce];
    uint64_t slots_at[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int row = begin + k * step;
      at[k] = __shfl_sync(kWholeWarp, SourceOf(value), row % kWarp);
      slots_at[k] = kSlots == 0
                        ? 0
                        : __shfl_sync(kWholeWarp, SourceOf(slots), row % kWarp);
      if (row >= kWarp) at[k] = 0;
    }
    for (int64_t p = lane & (lanes - 1); p < packs; p += lanes) {
      Pack<C, kPack> g[kAtOnce];
      Pack<T, kPack> w[kAtOnce];
      Pack<C, kPack> s[kAtOnce][kSlots > 0 ? kSlots : 1];
      Pack<T, kPack>* value_at[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (at[k] == 0) continue;
        const C* const gradient =
            gradients + (first + begin + k * step) * call.dim;
        if (call.whole_packs) {
          g[k] = reinterpret_cast<const Pack<C, kPack>*>(gradient)[p];
        } else {
#pragma unroll
          for (int c = 0; c < kPack; ++c) {
            const int64_t column = p * kPack + c;
            g[k].at[c] = column < call.dim ? gradient[column] : C{0};
          }
        }
        value_at[k] = reinterpret_cast<Pack<T, kPack>*>(at[k]) + p;
        w[k] = *value_at[k];
#pragma unroll
        for (int n = 0; n < kSlots; ++n) {
          s[k][n] = reinterpret_cast<const Pack<C, kPack>*>(
              slots_at[k] + n * call.rows.slot_stride)[p];
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (at[k] == 0) continue;
#pragma unroll
        for (int c = 0; c < kPack; ++c) {
          C x = ToCompute(w[k].at[c]);
          C slot[kSlots > 0 ? kSlots : 1];
          for (int n = 0; n < kSlots; ++n) slot[n] = s[k][n].at[c];
          if (h[1] != C{0}) x -= x * h[1] * h[0];
          Rule::Update(h, g[k].at[c], x, slot);
          w[k].at[c] = RoundTo<T>(x);
          for (int n = 0; n < kSlots; ++n) s[k][n].at[c] = slot[n];
        }
        *value_at[k] = w[k];
#pragma unroll
        for (int n = 0; n < kSlots; ++n) {
          reinterpret_cast<Pack<C, kPack>*>(
              slots_at[k] + n * call.rows.slot_stride)[p] = s[k][n];
        }
      }
    }
  }
}

template <typename Rule>
cudaError_t LaunchUpdate(const DeviceStream& on, RowType type,
                         const UpdateCall& call, Span<const float> numbers,
                         const void* gradients) {
  return VisitRowType(type, [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeOf<T>;
    Hyperparameters<Rule, C> hyperparameters;
    std::copy(numbers.begin(), numbers.end(), hyperparameters.h);
    return Launch(UpdateKernel<Rule, T>, call.ids.size, on.stream, call,
                  hyperparameters, static_cast<const C*>(gradients));
  });
}

// The gradients of an update, summed by id and checked.
class CheckedGradients {
 public:
  // Waits unless non-finite gradients pass.
  Status Init(const DeviceStream& on, const TableUpdate& update,
              Nonfinite nonfinite) {
    LODESTAR_RETURN_IF_ERROR(Sum(on, update));
    if (nonfinite == Nonfinite::kPass) return Status();
    int64_t first_id = 0;
    LODESTAR_RETURN_IF_ERROR(nonfinite_.Find(on, update.table->type(), sums_,
                                             ids_, update.table->dim()));
    LODESTAR_RETURN_IF_ERROR(nonfinite_.Count(on, &num_skipped_, &first_id));
    if (num_skipped_ == 0 || nonfinite == Nonfinite::kSkip) return Status();
    return NonfiniteGradient(first_id);
  }

  DeviceStore::Ids ids() const { return ids_; }
  const void* sums() const { return sums_; }
  int64_t num_skipped() const { return num_skipped_; }
  // [U], the ids to skip; null: none.
  const bool* skipped() const {
    return num_skipped_ == 0 ? nullptr : nonfinite_.flags();
  }

 private:
  // Gradients of ids that are known to be unique are used as they are.
  Status Sum(const DeviceStream& on, const TableUpdate& update) {
    ids_ = {update.ids.data(), update.ids.size(), nullptr};
    sums_ = update.gradients;
    if (update.plan != nullptr) return Status();
    const int64_t n = ids_.size;
    const int64_t dim = update.table->dim();
    const RowType type = ComputeType(update.table->type());
    LODESTAR_RETURN_IF_ERROR(batch_.Unique(on, ids_, nullptr));
    LODESTAR_RETURN_IF_ERROR(memory_.Allocate(on.memory, n * dim * SizeOf(type),
                                              "the sums of gradients"));
    ids_ = batch_.ids();
    sums_ = memory_.data();
    return SumByPosition(on, type, update.gradients, batch_.positions(), n, n,
                         dim, memory_.data());
  }

  DeviceStore::Ids ids_;
  const void* sums_ = nullptr;
  int64_t num_skipped_ = 0;
  DeviceBatch batch_;
  DeviceArray<char> memory_;
  NonfiniteRows nonfinite_;
};

}  // namespace

Status DeviceStore::Prepare(const DeviceStream& on, const TableUpdate& update,
                            const UniqueUpdate& unique) {
  AttachedOptimizer optimizer;
  int64_t wanted = -1;
  VisitRules([&](auto rule) {
    using Rule = decltype(rule);
    if (update.optimizer != Rule::kName) return;
    wanted = kHyperparameters<Rule>;
    optimizer.slot_names.assign(Rule::kSlots.begin(), Rule::kSlots.end());
  });
  if (wanted < 0) {
    return InvalidArgument("unknown optimizer '", update.optimizer, "'.");
  }
  if (update.hyperparameters.size() != wanted) {
    return InvalidArgument("optimizer '", update.optimizer, "' takes ", wanted,
                           " hyperparameters, got ",
                           update.hyperparameters.size(), ".");
  }
  if (update.slot_inits.size() !=
      static_cast<int64_t>(optimizer.slot_names.size())) {
    return InvalidArgument("`slot_inits` has ", update.slot_inits.size(),
                           " elements, but '", update.optimizer, "' has ",
                           optimizer.slot_names.size(), " optimizer slots.");
  }
  optimizer.name = update.optimizer;
  optimizer.slot_inits.assign(update.slot_inits.begin(),
                              update.slot_inits.end());
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(CheckOptimizerLocked(optimizer));
  if (update.create_missing) {
    LODESTAR_RETURN_IF_ERROR(ReserveMore(on, unique.ids));
  }
  LODESTAR_RETURN_IF_ERROR(AttachLocked(on, std::move(optimizer)));
  if (update.create_missing) {
    InsertOptions options;
    options.count_events = false;
    options.by_lookup = false;
    options.skipped = unique.skipped;
    LODESTAR_RETURN_IF_ERROR(InsertUnderCap(on, unique.ids, options, {}, {}));
  }
  return turn.End();
}

Status DeviceStore::UpdateRows(const DeviceStream& on,
                               const TableUpdate& update,
                               const UniqueUpdate& unique) {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  // Another optimizer may have been attached since Prepare.
  if (optimizer_.name != update.optimizer) {
    AttachedOptimizer applied;
    applied.name = update.optimizer;
    return OtherOptimizerError(optimizer_, applied);
  }
  LODESTAR_RETURN_IF_ERROR(BeforeWrite(on, unique.ids));
  UpdateCall call = {};
  call.index = index();
  call.rows = rows();
  call.state = state_.data();
  call.ids = unique.ids;
  call.dim = dim();
  call.skipped = unique.skipped;
  const int64_t numbers = 16 / SizeOf(ComputeType(type()));
  call.lane_bits = LaneBits(DivideUp(dim(), numbers));
  call.whole_packs = dim() % numbers == 0 && UnitBytes(16, unique.sums) == 16;
  cudaError_t launched = cudaSuccess;
  VisitRules([&](auto rule) {
    using Rule = decltype(rule);
    if (update.optimizer != Rule::kName) return;
    launched = LaunchUpdate<Rule>(on, type(), call, update.hyperparameters,
                                  unique.sums);
  });
  LODESTAR_CUDA_TRY(launched);
  return turn.End();
}

Status DeviceStore::Update(Span<const TableUpdate> updates,
                           const Execution& execution, int64_t* failed) try {
  const DeviceStream& on = execution.stream();
  const int64_t count = updates.size();
  std::vector<CheckedGradients> gradients(count);
  std::vector<UniqueUpdate> unique(count);
  std::vector<NextStep> steps(count);
  const auto store = [&](int64_t u) {
    *failed = u;
    return static_cast<DeviceStore*>(updates[u].table);
  };
  for (int64_t u = 0; u < count; ++u) {
    steps[u] = {store(u), updates[u].next_step};
    LODESTAR_RETURN_IF_ERROR(
        gradients[u].Init(on, updates[u], updates[u].nonfinite));
    unique[u] = {gradients[u].ids(), gradients[u].sums(),
                 gradients[u].skipped()};
  }
  for (int64_t u = 0; u < count; ++u) {
    LODESTAR_RETURN_IF_ERROR(store(u)->Prepare(on, updates[u], unique[u]));
  }
  for (int64_t u = 0; u < count; ++u) {
    LODESTAR_RETURN_IF_ERROR(store(u)->UpdateRows(on, updates[u], unique[u]));
    store(u)->CountNonfiniteGradients(gradients[u].num_skipped());
  }
  MoveSteps(steps);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of a batch.");
}

Status DeviceStore::CheckUpdate(const TableUpdate& update,
                                const AttachedOptimizer& optimizer,
                                int64_t additions, const Execution& on) const {
  if (additions > 0) return UnsupportedOnGpu("gradient accumulation");
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(optimizer));
  return CheckedGradients().Init(on.stream(), update, Nonfinite::kRaise);
}

}  // namespace lodestar
