// DeviceStore: updates by an optimizer.

#include <algorithm>
#include <utility>

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

}  // namespace

Status DeviceStore::PrepareLocked(const DeviceStream& on,
                                  const Update& update) {
  AttachedOptimizer optimizer;
  int64_t wanted = -1;
  VisitRules([&](auto rule) {
    using Rule = decltype(rule);
    if (update.name != Rule::kName) return;
    wanted = kHyperparameters<Rule>;
    optimizer.slot_names.assign(Rule::kSlots.begin(), Rule::kSlots.end());
  });
  if (wanted < 0) {
    return InvalidArgument("unknown optimizer '", update.name, "'.");
  }
  if (update.hyperparameters.size() != wanted) {
    return InvalidArgument("optimizer '", update.name, "' takes ", wanted,
                           " hyperparameters, got ",
                           update.hyperparameters.size(), ".");
  }
  if (update.slot_inits.size() !=
      static_cast<int64_t>(optimizer.slot_names.size())) {
    return InvalidArgument("`slot_inits` has ", update.slot_inits.size(),
                           " elements, but '", update.name, "' has ",
                           optimizer.slot_names.size(), " optimizer slots.");
  }
  optimizer.name = update.name;
  optimizer.slot_inits.assign(update.slot_inits.begin(),
                              update.slot_inits.end());
  LODESTAR_RETURN_IF_ERROR(CheckOptimizerLocked(optimizer));
  if (update.create_missing) {
    LODESTAR_RETURN_IF_ERROR(ReserveMore(on, update.unique_ids));
  }
  LODESTAR_RETURN_IF_ERROR(AttachLocked(on, std::move(optimizer)));
  if (!update.create_missing) return Status();
  InsertOptions options;
  options.count_events = false;
  options.by_lookup = false;
  options.skipped = update.skipped;
  return InsertUnderCap(on, update.unique_ids, options, {}, {});
}

Status DeviceStore::Prepare(const DeviceStream& on, const Update& update) {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(PrepareLocked(on, update));
  return turn.End();
}

Status DeviceStore::UpdateRows(const DeviceStream& on, const Update& update) {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(UpdateLocked(on, update));
  return turn.End();
}

Status DeviceStore::Apply(const DeviceStream& on, const Update& update) {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(PrepareLocked(on, update));
  LODESTAR_RETURN_IF_ERROR(UpdateLocked(on, update));
  return turn.End();
}

Status DeviceStore::UpdateLocked(const DeviceStream& on, const Update& update) {
  // Another optimizer may have been attached since PrepareLocked.
  if (optimizer_.name != update.name) {
    AttachedOptimizer applied;
    applied.name = update.name;
    return OtherOptimizerError(optimizer_, applied);
  }
  UpdateCall call = {};
  call.index = index();
  call.rows = rows();
  call.state = state_.data();
  call.ids = update.unique_ids;
  call.dim = dim();
  call.skipped = update.skipped;
  const int64_t numbers = 16 / SizeOf(ComputeType(type()));
  call.lane_bits = LaneBits(DivideUp(dim(), numbers));
  call.whole_packs =
      dim() % numbers == 0 && UnitBytes(16, update.gradients) == 16;
  cudaError_t launched = cudaSuccess;
  VisitRules([&](auto rule) {
    using Rule = decltype(rule);
    if (update.name != Rule::kName) return;
    launched = LaunchUpdate<Rule>(on, type(), call, update.hyperparameters,
                                  update.gradients);
  });
  LODESTAR_CUDA_TRY(launched);
  MoveStep(update.next_step);
  return Status();
}

}  // namespace lodestar
