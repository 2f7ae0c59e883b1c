#include "tf_ops/core/rows/sparse_optimizer.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "tf_ops/core/rows/optimizer_rules.h"

namespace lodestar {
namespace {

// __restrict: the arrays of one row never overlap.
template <typename Rule, int kSlots, int kNumbers, typename C>
LODESTAR_INLINE void UpdateColumns(const C (&h)[kNumbers],
                                   const C* __restrict g, int dim,
                                   C* __restrict w, C* const* slots) {
  C* __restrict s0 = kSlots > 0 ? slots[0] : nullptr;
  C* __restrict s1 = kSlots > 1 ? slots[1] : nullptr;
  C* __restrict s2 = kSlots > 2 ? slots[2] : nullptr;
  static_assert(kSlots <= 3);
  for (int c = 0; c < dim; ++c) {
    C s[3] = {};
    if constexpr (kSlots > 0) s[0] = s0[c];
    if constexpr (kSlots > 1) s[1] = s1[c];
    if constexpr (kSlots > 2) s[2] = s2[c];
    C value = w[c];
    Rule::Update(h, g[c], value, s);
    w[c] = value;
    if constexpr (kSlots > 0) s0[c] = s[0];
    if constexpr (kSlots > 1) s1[c] = s[1];
    if constexpr (kSlots > 2) s2[c] = s[2];
  }
}

template <typename C>
LODESTAR_INLINE void Decay(const C* h, int dim, C* w) {
  if (h[1] == C{0}) return;
  for (int c = 0; c < dim; ++c) w[c] -= w[c] * h[1] * h[0];
}

template <typename Rule, typename C>
LODESTAR_INLINE void DecayAndUpdate(const float* numbers, const C* g, int dim,
                                    C* w, C* const* slots) {
  constexpr int kSlots = kRuleSlots<Rule>;
  C h[kHyperparameters<Rule>];
  std::copy_n(numbers, kHyperparameters<Rule>, h);
  Decay(h, dim, w);
  if constexpr (std::is_same_v<Rule, Ftrl>) {
    // Tests the power outside of the loop.
    if (h[2] == C{-0.5}) {
      UpdateColumns<FtrlPower<true>, kSlots>(h, g, dim, w, slots);
    } else {
      UpdateColumns<FtrlPower<false>, kSlots>(h, g, dim, w, slots);
    }
  } else {
    UpdateColumns<Rule, kSlots>(h, g, dim, w, slots);
  }
}

template <typename Rule, typename C>
LODESTAR_INLINE void DecayAndApply(const float* numbers, C rate,
                                   const C* __restrict g, int dim,
                                   C* __restrict w) {
  C h[2];
  std::copy_n(numbers, 2, h);
  Decay(h, dim, w);
  for (int c = 0; c < dim; ++c) Rule::UpdateColumn(rate, g[c], w[c]);
}

// Scalar, so it needs no other instruction set.
template <typename Rule, typename C>
C Rate(const float* numbers, C mean_square, C* slots) {
  C h[kHyperparameters<Rule>];
  std::copy_n(numbers, kHyperparameters<Rule>, h);
  return Rule::UpdateSlots(h, mean_square, slots);
}

// One function per instruction set, with the rules inlined.
template <typename Rule, typename C>
void Baseline(const float* h, const C* g, int dim, C* w, C* const* slots) {
  DecayAndUpdate<Rule>(h, g, dim, w, slots);
}

template <typename Rule, typename C>
LODESTAR_TARGET_AVX2 void Avx2(const float* h, const C* g, int dim, C* w,
                               C* const* slots) {
  DecayAndUpdate<Rule>(h, g, dim, w, slots);
}

template <typename Rule, typename C>
void BaselineColumns(const float* h, C rate, const C* g, int dim, C* w) {
  DecayAndApply<Rule>(h, rate, g, dim, w);
}

template <typename Rule, typename C>
LODESTAR_TARGET_AVX2 void Avx2Columns(const float* h, C rate, const C* g,
                                      int dim, C* w) {
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

template <typename Rule, typename C>
SparseOptimizer::UpdatesOf<C> SparseOptimizer::UpdatesFor(Isa isa) {
  const bool avx2 = isa == Isa::kAvx2;
  UpdatesOf<C> updates;
  if constexpr (kIsRowWise<Rule>) {
    updates.rate = Rate<Rule, C>;
    updates.columns = avx2 ? Avx2Columns<Rule, C> : BaselineColumns<Rule, C>;
  } else {
    updates.row = avx2 ? Avx2<Rule, C> : Baseline<Rule, C>;
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
        definition.updates[static_cast<int>(isa)] = {
            UpdatesFor<Rule, float>(isa), UpdatesFor<Rule, double>(isa)};
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
  updates_.of_float.row(h_.data(), gradient, dim, value, slots);
}

void SparseOptimizer::Update(const double* gradient, int dim, double* value,
                             double* const* slots) const {
  updates_.of_double.row(h_.data(), gradient, dim, value, slots);
}

float SparseOptimizer::UpdateSlots(float mean_square, float* slots) const {
  return updates_.of_float.rate(h_.data(), mean_square, slots);
}

double SparseOptimizer::UpdateSlots(double mean_square, double* slots) const {
  return updates_.of_double.rate(h_.data(), mean_square, slots);
}

void SparseOptimizer::UpdateColumns(float rate, const float* gradient, int dim,
                                    float* value) const {
  updates_.of_float.columns(h_.data(), rate, gradient, dim, value);
}

void SparseOptimizer::UpdateColumns(double rate, const double* gradient,
                                    int dim, double* value) const {
  updates_.of_double.columns(h_.data(), rate, gradient, dim, value);
}

}  // namespace lodestar
