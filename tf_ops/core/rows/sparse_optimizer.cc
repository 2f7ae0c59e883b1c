#include "tf_ops/core/rows/sparse_optimizer.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "tf_ops/core/rows/optimizer_rules.h"

namespace lodestar {
namespace {

// __restrict: the arrays of one row never overlap.
template <typename Rule, int kSlots, int kNumbers>
LODESTAR_INLINE void UpdateColumns(const float (&h)[kNumbers],
                                   const float* __restrict g, int dim,
                                   float* __restrict w, float* const* slots) {
  float* __restrict s0 = kSlots > 0 ? slots[0] : nullptr;
  float* __restrict s1 = kSlots > 1 ? slots[1] : nullptr;
  float* __restrict s2 = kSlots > 2 ? slots[2] : nullptr;
  static_assert(kSlots <= 3);
  for (int c = 0; c < dim; ++c) {
    float s[3] = {};
    if constexpr (kSlots > 0) s[0] = s0[c];
    if constexpr (kSlots > 1) s[1] = s1[c];
    if constexpr (kSlots > 2) s[2] = s2[c];
    float value = w[c];
    Rule::Update(h, g[c], value, s);
    w[c] = value;
    if constexpr (kSlots > 0) s0[c] = s[0];
    if constexpr (kSlots > 1) s1[c] = s[1];
    if constexpr (kSlots > 2) s2[c] = s[2];
  }
}

LODESTAR_INLINE void Decay(const float* h, int dim, float* w) {
  if (h[1] == 0.0f) return;
  for (int c = 0; c < dim; ++c) w[c] -= w[c] * h[1] * h[0];
}

template <typename Rule>
LODESTAR_INLINE void DecayAndUpdate(const float* numbers, const float* g,
                                    int dim, float* w, float* const* slots) {
  constexpr int kSlots = kRuleSlots<Rule>;
  float h[kHyperparameters<Rule>];
  std::copy_n(numbers, kHyperparameters<Rule>, h);
  Decay(h, dim, w);
  if constexpr (std::is_same_v<Rule, Ftrl>) {
    // Tests the power outside of the loop.
    if (h[2] == -0.5f) {
      UpdateColumns<FtrlPower<true>, kSlots>(h, g, dim, w, slots);
    } else {
      UpdateColumns<FtrlPower<false>, kSlots>(h, g, dim, w, slots);
    }
  } else {
    UpdateColumns<Rule, kSlots>(h, g, dim, w, slots);
  }
}

template <typename Rule>
LODESTAR_INLINE void DecayAndApply(const float* numbers, float rate,
                                   const float* __restrict g, int dim,
                                   float* __restrict w) {
  float h[2];
  std::copy_n(numbers, 2, h);
  Decay(h, dim, w);
  for (int c = 0; c < dim; ++c) Rule::UpdateColumn(rate, g[c], w[c]);
}

// Scalar, so it needs no other instruction set.
template <typename Rule>
float Rate(const float* numbers, float mean_square, float* slots) {
  float h[kHyperparameters<Rule>];
  std::copy_n(numbers, kHyperparameters<Rule>, h);
  return Rule::UpdateSlots(h, mean_square, slots);
}

// One function per instruction set, with the rules inlined.
template <typename Rule>
void Baseline(const float* h, const float* g, int dim, float* w,
              float* const* slots) {
  DecayAndUpdate<Rule>(h, g, dim, w, slots);
}

template <typename Rule>
LODESTAR_TARGET_AVX2 void Avx2(const float* h, const float* g, int dim,
                               float* w, float* const* slots) {
  DecayAndUpdate<Rule>(h, g, dim, w, slots);
}

template <typename Rule>
void BaselineColumns(const float* h, float rate, const float* g, int dim,
                     float* w) {
  DecayAndApply<Rule>(h, rate, g, dim, w);
}

template <typename Rule>
LODESTAR_TARGET_AVX2 void Avx2Columns(const float* h, float rate,
                                      const float* g, int dim, float* w) {
  DecayAndApply<Rule>(h, rate, g, dim, w);
}

}  // namespace

struct SparseOptimizer::Definition {
  const char* name;
  std::vector<std::string> hyperparameters;
  std::vector<std::string> slots;
  bool row_wise;
  Updates updates[kIsas];
};

template <typename Rule>
SparseOptimizer::Updates SparseOptimizer::UpdatesFor(Isa isa) {
  const bool avx2 = isa == Isa::kAvx2;
  Updates updates;
  if constexpr (kIsRowWise<Rule>) {
    updates.rate = Rate<Rule>;
    updates.columns = avx2 ? Avx2Columns<Rule> : BaselineColumns<Rule>;
  } else {
    updates.row = avx2 ? Avx2<Rule> : Baseline<Rule>;
  }
  return updates;
}

const std::vector<SparseOptimizer::Definition>& SparseOptimizer::Definitions() {
  static const auto* const definitions = [] {
    auto* const all = new std::vector<Definition>();
    VisitRules([all](auto rule) {
      using Rule = decltype(rule);
      Definition definition = {Rule::kName,
                               {"learning_rate", "weight_decay"},
                               {Rule::kSlots.begin(), Rule::kSlots.end()},
                               kIsRowWise<Rule>,
                               {}};
      for (const Isa isa : {Isa::kBaseline, Isa::kAvx2}) {
        definition.updates[static_cast<int>(isa)] = UpdatesFor<Rule>(isa);
      }
      definition.hyperparameters.insert(definition.hyperparameters.end(),
                                        Rule::kNumbers.begin(),
                                        Rule::kNumbers.end());
      all->push_back(std::move(definition));
    });
    return all;
  }();
  return *definitions;
}

const SparseOptimizer::Definition* SparseOptimizer::Find(
    const std::string& name) {
  for (const Definition& definition : Definitions()) {
    if (name == definition.name) return &definition;
  }
  return nullptr;
}

Status SparseOptimizer::Create(const std::string& name,
                               Span<const float> hyperparameters,
                               SparseOptimizer* out, Isa isa) {
  if (const Definition* const found = Find(name)) {
    const std::vector<std::string>& wanted = found->hyperparameters;
    if (hyperparameters.size() != static_cast<int64_t>(wanted.size())) {
      return InvalidArgument("optimizer '", name, "' takes ", wanted.size(),
                             " hyperparameters (", Join(wanted), "), got ",
                             hyperparameters.size(), ".");
    }
    out->updates_ = found->updates[static_cast<int>(isa)];
    out->slots_ = {static_cast<int64_t>(found->slots.size()), found->row_wise};
    out->h_.assign(hyperparameters.begin(), hyperparameters.end());
    return Status();
  }
  std::vector<std::string> known;
  for (const Definition& definition : Definitions()) {
    known.push_back(definition.name);
  }
  return InvalidArgument("unknown optimizer '", name,
                         "'. Known optimizers: ", Join(known), ".");
}

bool SparseOptimizer::SlotNames(const std::string& name,
                                std::vector<std::string>* slots) {
  const Definition* const found = Find(name);
  if (found != nullptr) *slots = found->slots;
  return found != nullptr;
}

bool SparseOptimizer::IsRowWise(const std::string& name) {
  const Definition* const found = Find(name);
  return found != nullptr && found->row_wise;
}

void SparseOptimizer::Update(const float* gradient, int dim, float* value,
                             float* const* slots) const {
  updates_.row(h_.data(), gradient, dim, value, slots);
}

float SparseOptimizer::UpdateSlots(float mean_square, float* slots) const {
  return updates_.rate(h_.data(), mean_square, slots);
}

void SparseOptimizer::UpdateColumns(float rate, const float* gradient, int dim,
                                    float* value) const {
  updates_.columns(h_.data(), rate, gradient, dim, value);
}

}  // namespace lodestar
