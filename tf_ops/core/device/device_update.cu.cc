// DeviceStore: updates by an optimizer.

#include <algorithm>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/device/batch/device_batch.h"
#include "tf_ops/core/device/batch/device_gradient.h"
#include "tf_ops/core/device/device_checked_gradients.h"
#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/device/row_transfer.h"
#include "tf_ops/core/rows/optimizer_rules.h"
#include "tf_ops/core/rows/square_sums.h"
#include "tf_ops/core/rows/stochastic_rounding.h"
#include "tf_ops/core/rows/table_policies.h"

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
  const bool* reads;  // ids that train a shared row; null: none
  // For an update of shared rows: gradient i is of row keys[i] if trains[i].
  const uint32_t* keys;
  const bool* trains;
  StochasticRounding rounding;

  // Returns true if id i has a row to update, and its number.
  __device__ bool FindRow(int64_t i, int64_t* number) const {
    if (keys == nullptr) return index.Find(ids.data[i], number) >= 0;
    *number = keys[i];
    return trains[i];
  }
  // Finds the values and slots of the row of id i, if it has one to update, and
  // its word for rounding, and counts the others. All threads of a block must
  // call this.
  __device__ void Find(int64_t i, bool has_slots, char** value, char** slots,
                       uint32_t* word) const {
    const bool mine = i < SizeOf(ids);
    const bool skip = mine && skipped != nullptr && skipped[i];
    int64_t number = 0;
    if (mine && !skip && FindRow(i, &number)) {
      *value = rows.values(static_cast<uint32_t>(number));
      if (has_slots) *slots = rows.slot(static_cast<uint32_t>(number), 0);
      if (rounding.enabled) {
        *word = rounding.WordOf(keys == nullptr ? ids.data[i] : number);
      }
    }
    const bool elsewhere =
        keys != nullptr || (mine && reads != nullptr && reads[i]);
    CountBlock(mine && !skip && *value == nullptr && !elsewhere,
               &state->events[Event::kGradientsDropped]);
  }
  template <typename T>
  __device__ T Round(float x, uint32_t word, int64_t column) const {
    if constexpr (kIsHalf<T>) {
      if (rounding.enabled) x = RoundStochastically<T>(x, word, column);
    }
    return RoundTo<T>(x);
  }
};

template <typename Rule>
struct Hyperparameters {
  float h[kHyperparameters<Rule>];
};

// One thread per id finds its row, then the warp updates the rows it found. A
// row is processed in packs, which may extend past its end into the padding
// before the next row.
template <typename Rule, typename T>
__global__ void __launch_bounds__(kBlock)
    UpdateKernel(UpdateCall call, Hyperparameters<Rule> hyperparameters,
                 const float* gradients) {
  constexpr int kPack = 4;
  constexpr int kSlots = kRuleSlots<Rule>;
  constexpr int kAtOnce = 2;
  const int64_t i = ThreadNumber();
  char* value = nullptr;
  char* slots = nullptr;
  uint32_t word = 0;
  call.Find(i, kSlots > 0, &value, &slots, &word);
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
    uint32_t words[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int row = begin + k * step;
      at[k] = __shfl_sync(kWholeWarp, SourceOf(value), row % kWarp);
      slots_at[k] = kSlots == 0
                        ? 0
                        : __shfl_sync(kWholeWarp, SourceOf(slots), row % kWarp);
      words[k] = kIsHalf<T> ? __shfl_sync(kWholeWarp, word, row % kWarp) : 0;
      if (row >= kWarp) at[k] = 0;
    }
    for (int64_t p = lane & (lanes - 1); p < packs; p += lanes) {
      Pack<float, kPack> g[kAtOnce];
      Pack<T, kPack> w[kAtOnce];
      Pack<float, kPack> s[kAtOnce][kSlots > 0 ? kSlots : 1];
      Pack<T, kPack>* value_at[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (at[k] == 0) continue;
        const float* const gradient =
            gradients + (first + begin + k * step) * call.dim;
        if (call.whole_packs) {
          g[k] = reinterpret_cast<const Pack<float, kPack>*>(gradient)[p];
        } else {
#pragma unroll
          for (int c = 0; c < kPack; ++c) {
            const int64_t column = p * kPack + c;
            g[k].at[c] = column < call.dim ? gradient[column] : 0.0f;
          }
        }
        value_at[k] = reinterpret_cast<Pack<T, kPack>*>(at[k]) + p;
        w[k] = *value_at[k];
#pragma unroll
        for (int n = 0; n < kSlots; ++n) {
          s[k][n] = reinterpret_cast<const Pack<float, kPack>*>(
              slots_at[k] + n * call.rows.slot_stride)[p];
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (at[k] == 0) continue;
#pragma unroll
        for (int c = 0; c < kPack; ++c) {
          float x = ToCompute(w[k].at[c]);
          float slot[kSlots > 0 ? kSlots : 1];
          for (int n = 0; n < kSlots; ++n) slot[n] = s[k][n].at[c];
          if (h[1] != 0.0f) x -= x * h[1] * h[0];
          Rule::Update(h, g[k].at[c], x, slot);
          w[k].at[c] = call.template Round<T>(x, words[k], p * kPack + c);
          for (int n = 0; n < kSlots; ++n) s[k][n].at[c] = slot[n];
        }
        *value_at[k] = w[k];
#pragma unroll
        for (int n = 0; n < kSlots; ++n) {
          reinterpret_cast<Pack<float, kPack>*>(
              slots_at[k] + n * call.rows.slot_stride)[p] = s[k][n];
        }
      }
    }
  }
}

// For row-wise rules: kSquareSums lanes per row, with one partial sum of
// SquareSums each.
template <typename Rule, typename T>
__global__ void __launch_bounds__(kBlock)
    RowWiseUpdateKernel(UpdateCall call, Hyperparameters<Rule> hyperparameters,
                        const float* gradients) {
  constexpr int kRows = kWarp / kSquareSums;
  const int64_t i = ThreadNumber();
  char* found = nullptr;
  char* found_slots = nullptr;
  uint32_t own_word = 0;
  call.Find(i, true, &found, &found_slots, &own_word);
  const int lane = threadIdx.x % kWarp;
  const int own = lane % kSquareSums;
  const auto& h = hyperparameters.h;
  for (int row = lane / kSquareSums; row < kWarp; row += kRows) {
    const uint64_t at = __shfl_sync(kWholeWarp, SourceOf(found), row);
    const uint64_t slots_at =
        __shfl_sync(kWholeWarp, SourceOf(found_slots), row);
    const uint32_t word = __shfl_sync(kWholeWarp, own_word, row);
    const float* const gradient = gradients + (i - lane + row) * call.dim;
    float sum = 0;
    for (int64_t c = own; at != 0 && c < call.dim; c += kSquareSums) {
      sum += gradient[c] * gradient[c];
    }
    for (int half = kSquareSums / 2; half > 0; half /= 2) {
      sum += __shfl_sync(kWholeWarp, sum, lane ^ half);
    }
    float rate = 0;
    if (at != 0 && own == 0) {
      rate = Rule::UpdateSlots(h, sum / static_cast<float>(call.dim),
                               reinterpret_cast<float*>(slots_at));
    }
    rate = __shfl_sync(kWholeWarp, rate, lane - own);
    T* const value = reinterpret_cast<T*>(at);
    for (int64_t c = own; at != 0 && c < call.dim; c += kSquareSums) {
      float x = ToCompute(value[c]);
      if (h[1] != 0.0f) x -= x * h[1] * h[0];
      Rule::UpdateColumn(rate, gradient[c], x);
      value[c] = call.template Round<T>(x, word, c);
    }
  }
}

template <typename Rule, typename T>
constexpr auto* UpdateKernelOf() {
  if constexpr (kIsRowWise<Rule>) {
    return RowWiseUpdateKernel<Rule, T>;
  } else {
    return UpdateKernel<Rule, T>;
  }
}

template <typename Rule>
cudaError_t LaunchUpdate(const DeviceStream& on, RowType type,
                         const UpdateCall& call, Span<const float> numbers,
                         const void* gradients) {
  return VisitRowType(type, [&](auto zero) {
    using T = decltype(zero);
    Hyperparameters<Rule> hyperparameters;
    std::copy(numbers.begin(), numbers.end(), hyperparameters.h);
    return Launch(UpdateKernelOf<Rule, T>(), call.ids.size, on.stream, call,
                  hyperparameters, static_cast<const float*>(gradients));
  });
}

__global__ void ListReadersKernel(DeviceIndex index, DeviceStore::Ids ids,
                                  int64_t num_shared, const bool* shared,
                                  const bool* skipped, uint32_t* keys,
                                  uint32_t* order) {
  const int64_t i = ThreadNumber();
  if (i >= ids.size) return;
  int64_t row = 0;
  uint32_t key = DeviceStore::kNoRow;
  if (i < SizeOf(ids) && !(skipped != nullptr && skipped[i])) {
    const int64_t id = ids.data[i];
    if (shared != nullptr && shared[i]) {
      if (id >= 0 && id < num_shared) key = static_cast<uint32_t>(id);
    } else if (index.Find(id, &row) < 0) {
      key = SharedRowOf(id, num_shared);
    }
  }
  keys[i] = key;
  order[i] = static_cast<uint32_t>(i);
}

__global__ void MarkReadersKernel(DeviceIndex index, DeviceStore::Ids ids,
                                  const uint32_t* keys, const uint32_t* order,
                                  const bool* skipped, bool* reads) {
  const int64_t k = ThreadNumber();
  if (k >= ids.size || keys[k] == DeviceStore::kNoRow) return;
  const int64_t i = order[k];
  int64_t row = 0;
  reads[i] =
      !(skipped != nullptr && skipped[i]) && index.Find(ids.data[i], &row) < 0;
}

// One warp per place.
__global__ void SumReadersKernel(ReadersCall call, const bool* reads,
                                 float* sums, bool* trains) {
  const int64_t first = ThreadNumber() / kWarp;
  if (first >= call.count) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t end = call.EndOf(first);
  bool any = false;
  for (int64_t k = first; k < end; ++k) any = any || reads[call.order[k]];
  if (lane == 0) trains[first] = any;
  for (int64_t c = lane; any && c < call.dim; c += kWarp) {
    sums[first * call.dim + c] =
        call.Sum(first, end, c, [&](int64_t i) { return reads[i]; });
  }
}

// added = rows, or zeros for missing ids, plus sums. One warp per id.
__global__ void AddToRowsKernel(DeviceIndex index, DeviceRows rows,
                                DeviceStore::Ids ids, int64_t dim,
                                const float* sums, float* added) {
  const int64_t i = ThreadNumber() / kWarp;
  if (i >= SizeOf(ids)) return;
  int64_t row = 0;
  const float* const values = index.Find(ids.data[i], &row) < 0
                                  ? nullptr
                                  : reinterpret_cast<const float*>(rows.values(
                                        static_cast<uint32_t>(row)));
  for (int64_t c = threadIdx.x % kWarp; c < dim; c += kWarp) {
    added[i * dim + c] =
        (values == nullptr ? 0.0f : values[c]) + sums[i * dim + c];
  }
}

// Flags all readers of a row if the sum of those without a flag is not finite.
// exempt: readers that are neither summed nor flagged; null: none. result: the
// number of new flags and the first such row.
__global__ void CheckReadersKernel(ReadersCall call, const bool* exempt,
                                   bool* flags, unsigned long long* result) {
  const int64_t first = ThreadNumber() / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t end = first < call.count ? call.EndOf(first) : first;
  const auto is_exempt = [&](int64_t i) {
    return exempt != nullptr && exempt[i];
  };
  bool bad = false;
  for (int64_t c = lane; first < end && c < call.dim; c += kWarp) {
    const float sum = call.Sum(
        first, end, c, [&](int64_t i) { return !flags[i] && !is_exempt(i); });
    bad = bad || sum - sum != 0.0f;
  }
  if (__ballot_sync(kWholeWarp, bad) == 0) return;
  if (lane == 0) {
    atomicMin(result + 1, static_cast<unsigned long long>(call.keys[first]));
  }
  for (int64_t k = first + lane; k < end; k += kWarp) {
    const int64_t i = call.order[k];
    if (flags[i] || is_exempt(i)) continue;
    atomicAdd(result, 1ull);
    flags[i] = true;
  }
}

}  // namespace

Status DeviceStore::ListReaders(const DeviceStream& on, const Ids& ids,
                                const bool* shared, const bool* skipped,
                                SharedReaders* readers) const {
  constexpr const char* kFor = "gradients of shared rows";
  LODESTAR_RETURN_IF_ERROR(readers->keys.Allocate(on.memory, ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(readers->order.Allocate(on.memory, ids.size, kFor));
  LODESTAR_CUDA_TRY(Launch(ListReadersKernel, ids.size, on.stream, index(), ids,
                           num_shared(), shared, skipped, readers->keys.data(),
                           readers->order.data()));
  return SortPairs(on, ids.size, 32, &readers->keys, &readers->order);
}

Status DeviceStore::FindReaders(const DeviceStream& on, const Ids& ids,
                                const bool* shared,
                                SharedReaders* readers) const {
  constexpr const char* kFor = "gradients of shared rows";
  const int64_t n = ids.size;
  const int64_t bytes = dim() * sizeof(float);
  LODESTAR_RETURN_IF_ERROR(readers->reads.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(readers->trains.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(readers->sums.Allocate(on.memory, n * bytes, kFor));
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(ListReaders(on, ids, shared, nullptr, readers));
  return turn.End();
}

Status DeviceStore::CheckedGradients::Init(const DeviceStream& on,
                                           const TableUpdate& update,
                                           Nonfinite nonfinite,
                                           const bool* shared) {
  LODESTAR_RETURN_IF_ERROR(Sum(on, update));
  const DeviceStore& store = static_cast<const DeviceStore&>(*update.table);
  any_shared_ = store.num_shared() > 0;
  if (any_shared_) {
    LODESTAR_RETURN_IF_ERROR(store.FindReaders(on, ids_, shared, &readers_));
  }
  if (nonfinite == Nonfinite::kPass) return Status();
  int64_t first_id = 0;
  LODESTAR_RETURN_IF_ERROR(
      nonfinite_.Find(on, sums_, ids_, store.dim(), shared));
  LODESTAR_RETURN_IF_ERROR(nonfinite_.Count(on, &num_skipped_, &first_id));
  if (num_skipped_ > 0 && nonfinite == Nonfinite::kRaise) {
    return NonfiniteGradient(first_id);
  }
  if (!any_shared_) return Status();
  int64_t first_row = 0;
  const int64_t before = num_skipped_;
  LODESTAR_RETURN_IF_ERROR(CheckShared(on, store, shared, &first_row));
  if (num_skipped_ == before || nonfinite == Nonfinite::kSkip) {
    return Status();
  }
  return NonfiniteSharedRow(first_row);
}

Status DeviceStore::CheckedGradients::Sum(const DeviceStream& on,
                                          const TableUpdate& update) {
  ids_ = {update.ids.data(), update.ids.size(), nullptr};
  sums_ = update.gradients;
  if (update.plan != nullptr) return Status();
  const int64_t n = ids_.size;
  const int64_t dim = update.table->dim();
  LODESTAR_RETURN_IF_ERROR(batch_.Unique(on, ids_, nullptr));
  LODESTAR_RETURN_IF_ERROR(memory_.Allocate(on.memory, n * dim * sizeof(float),
                                            "the sums of gradients"));
  ids_ = batch_.ids();
  sums_ = memory_.data();
  return SumByPosition(on, RowType::kFloat32, update.gradients,
                       batch_.positions(), n, n, dim, memory_.data());
}

Status DeviceStore::CheckedGradients::CheckShared(const DeviceStream& on,
                                                  const DeviceStore& store,
                                                  const bool* shared,
                                                  int64_t* first_row) {
  constexpr const char* kFor = "the check of gradients";
  DeviceArray<unsigned long long> result;
  LODESTAR_RETURN_IF_ERROR(result.Allocate(on.memory, 2, kFor));
  unsigned long long found[2] = {};
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(result.data(), 0, sizeof(found[0]), on.stream));
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(result.data() + 1, 0xff, sizeof(found[1]), on.stream));
  const ReadersCall call = {readers_.keys.data(), readers_.order.data(),
                            ids_.size, static_cast<const float*>(sums_),
                            store.dim()};
  LODESTAR_RETURN_IF_ERROR(
      CudaStatus(Launch(CheckReadersKernel, ids_.size * kWarp, on.stream, call,
                        shared, nonfinite_.flags(), result.data()),
                 kFor));
  LODESTAR_RETURN_IF_ERROR(CopyToHost(on, result.data(), sizeof(found), found));
  num_skipped_ += static_cast<int64_t>(found[0]);
  *first_row = static_cast<int64_t>(found[1]);
  return Status();
}

struct DeviceStore::PlannedUpdate {
  PlannedInsert insert;
  PlannedAttach attach;
};

Status DeviceStore::PlanUpdate(const DeviceStream& on,
                               const TableUpdate& update,
                               const UniqueUpdate& unique,
                               PlannedUpdate* plan) {
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
  LODESTAR_RETURN_IF_ERROR(CheckOptimizerLocked(optimizer));
  if (update.create_missing) {
    InsertOptions options;
    options.count_events = false;
    // The replica that computed the gradient has already counted the ids.
    options.admission = options.count_frequency = admission_.any();
    options.count_resident = false;
    options.skipped = unique.skipped;
    LODESTAR_RETURN_IF_ERROR(
        PlanInsert(on, unique.ids, options, &plan->insert));
  }
  return PlanAttach(std::move(optimizer), &plan->attach);
}

Status DeviceStore::CommitUpdate(const DeviceStream& on,
                                 const TableUpdate& update,
                                 const UniqueUpdate& unique,
                                 PlannedUpdate* plan) {
  LODESTAR_RETURN_IF_ERROR(CommitAttach(on, &plan->attach));
  if (update.create_missing) {
    LODESTAR_RETURN_IF_ERROR(CommitInsert(on, plan->insert, {}, {}));
  }
  return UpdateRows(on, update, unique);
}

Status DeviceStore::SumReaders(const DeviceStream& on,
                               const UniqueUpdate& unique) {
  const SharedReaders& readers = *unique.readers;
  const int64_t n = unique.ids.size;
  LODESTAR_RETURN_IF_ERROR(readers.reads.Fill(on, 0));
  LODESTAR_CUDA_TRY(Launch(MarkReadersKernel, n, on.stream, index(), unique.ids,
                           readers.keys.data(), readers.order.data(),
                           unique.skipped, readers.reads.data()));
  const ReadersCall call = {readers.keys.data(), readers.order.data(), n,
                            static_cast<const float*>(unique.sums), dim()};
  return CudaStatus(Launch(SumReadersKernel, n * kWarp, on.stream, call,
                           static_cast<const bool*>(readers.reads.data()),
                           reinterpret_cast<float*>(readers.sums.data()),
                           readers.trains.data()),
                    "gradients of shared rows");
}

Status DeviceStore::UpdateRows(const DeviceStream& on,
                               const TableUpdate& update,
                               const UniqueUpdate& unique) {
  const int64_t now = step();
  LODESTAR_RETURN_IF_ERROR(BeforeWrite(on, unique.ids));
  UpdateCall call = {};
  call.index = index();
  call.rows = rows();
  call.state = state_.data();
  call.ids = unique.ids;
  call.dim = dim();
  call.skipped = unique.skipped;
  call.rounding = rounding(now, /*shared=*/false);
  constexpr int64_t numbers = 16 / sizeof(float);
  call.lane_bits = LaneBits(DivideUp(dim(), numbers));
  call.whole_packs = dim() % numbers == 0 && UnitBytes(16, unique.sums) == 16;
  const auto launch = [&](const UpdateCall& update_call, const void* sums) {
    cudaError_t launched = cudaSuccess;
    VisitRules([&](auto rule) {
      using Rule = decltype(rule);
      if (update.optimizer != Rule::kName) return;
      launched = LaunchUpdate<Rule>(on, type(), update_call,
                                    update.hyperparameters, sums);
    });
    return CudaStatus(launched, "update");
  };
  if (unique.readers != nullptr) {
    UpdateCall shared = call;
    shared.rows = shared_rows();
    shared.ids = {unique.ids.data, unique.ids.size, nullptr};
    shared.whole_packs = dim() % numbers == 0;
    shared.skipped = nullptr;
    shared.rounding = rounding(now, /*shared=*/true);
    shared.keys = unique.readers->keys.data();
    shared.trains = unique.readers->trains.data();
    LODESTAR_RETURN_IF_ERROR(SumReaders(on, unique));
    LODESTAR_RETURN_IF_ERROR(launch(shared, unique.readers->sums.data()));
    call.reads = unique.readers->reads.data();
  }
  return launch(call, unique.sums);
}

Status DeviceStore::Update(Span<const TableUpdate> updates,
                           const Execution& execution, int64_t* failed) try {
  const DeviceStream& on = execution.stream();
  const int64_t count = updates.size();
  std::vector<CheckedGradients> gradients(count);
  std::vector<UniqueUpdate> unique(count);
  std::vector<NextStep> steps(count);
  std::vector<PlannedUpdate> plans(count);
  std::vector<DeviceStore*> stores;
  const auto store = [&](int64_t u) {
    *failed = u;
    return static_cast<DeviceStore*>(updates[u].table);
  };
  for (int64_t u = 0; u < count; ++u) {
    steps[u] = {store(u), updates[u].next_step};
    LODESTAR_RETURN_IF_ERROR(
        gradients[u].Init(on, updates[u], updates[u].nonfinite));
    unique[u] = {gradients[u].ids(), gradients[u].sums(),
                 gradients[u].skipped(), gradients[u].readers()};
  }
  for (int64_t u = 0; u < count; ++u) stores.push_back(store(u));
  {
    WriteTurns turns;
    LODESTAR_RETURN_IF_ERROR(turns.Begin(on, std::move(stores)));
    for (int64_t u = 0; u < count; ++u) {
      LODESTAR_RETURN_IF_ERROR(
          store(u)->PlanUpdate(on, updates[u], unique[u], &plans[u]));
    }
    for (int64_t u = 0; u < count; ++u) {
      LODESTAR_RETURN_IF_ERROR(
          store(u)->CommitUpdate(on, updates[u], unique[u], &plans[u]));
      store(u)->CountNonfiniteGradients(gradients[u].num_skipped());
    }
    LODESTAR_RETURN_IF_ERROR(turns.End());
  }
  return MoveSteps(Span<NextStep>(steps), execution);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of a batch.");
}

Status DeviceStore::CheckUpdate(const TableUpdate& update,
                                const AttachedOptimizer& optimizer,
                                int64_t additions,
                                const Execution& execution) const {
  const DeviceStream& on = execution.stream();
  NonfiniteRows large;
  int64_t num_large = 0;
  int64_t first_id = 0;
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(optimizer));
  if (additions > 0) {
    LODESTAR_RETURN_IF_ERROR(CheckAccumulates(type()));
    const int64_t n = update.ids.size();
    LODESTAR_RETURN_IF_ERROR(large.Find(on, update.gradients,
                                        {update.ids.data(), n, nullptr}, dim(),
                                        nullptr, LimitOfTerms(n, additions)));
    LODESTAR_RETURN_IF_ERROR(large.Count(on, &num_large, &first_id));
    if (num_large == 0) return Status();
  }
  CheckedGradients summed;
  LODESTAR_RETURN_IF_ERROR(summed.Init(on, update, Nonfinite::kRaise));
  if (additions == 0) return Status();
  // Check that these sums stay finite under later additions within the limit.
  const Ids ids = summed.ids();
  DeviceArray<char> added;
  LODESTAR_RETURN_IF_ERROR(added.Allocate(on.memory, ids.size * row_bytes(),
                                          "the check of gradients"));
  {
    MutexLock lock(&mutex_);
    StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
    LODESTAR_RETURN_IF_ERROR(turn.begun());
    LODESTAR_CUDA_TRY(Launch(AddToRowsKernel, ids.size * kWarp, on.stream,
                             index(), rows(), ids, int64_t{dim()},
                             static_cast<const float*>(summed.sums()),
                             reinterpret_cast<float*>(added.data())));
    LODESTAR_RETURN_IF_ERROR(turn.End());
  }
  LODESTAR_RETURN_IF_ERROR(large.Find(on, added.data(), ids, dim(), nullptr,
                                      std::numeric_limits<float>::max() / 2));
  LODESTAR_RETURN_IF_ERROR(large.Count(on, &num_large, &first_id));
  return num_large == 0 ? Status() : SumOutOfRange(first_id);
}

}  // namespace lodestar
