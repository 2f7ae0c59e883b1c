#include "tf_ops/core/rows/sparse_optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lodestar {
namespace {

// Every loop must vectorise: no branch that depends on a number of the row, no
// call but std::sqrt (and std::pow where Keras has it), and __restrict, since
// the rows of one id never overlap. Hyperparameters are in the order of
// Definitions().

template <typename C>
LODESTAR_INLINE void DecayWeights(C lr, C decay, int dim, C* w) {
  for (int c = 0; c < dim; ++c) w[c] -= w[c] * decay * lr;
}

struct Sgd {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 2>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const*) {
    const auto [lr, decay] = h;
    for (int c = 0; c < dim; ++c) w[c] -= g[c] * lr;
  }
};

struct SgdMomentum {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 4>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const* slots) {
    const auto [lr, decay, momentum, nesterov_number] = h;
    const bool nesterov = nesterov_number != C{0};
    C* __restrict m = slots[0];
    for (int c = 0; c < dim; ++c) {
      const C step = g[c] * lr;
      const C moved = m[c] * momentum - step;
      m[c] = moved;
      w[c] += nesterov ? moved * momentum - step : moved;
    }
  }
};

struct Adagrad {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 3>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const* slots) {
    const auto [lr, decay, epsilon] = h;
    C* __restrict accumulator = slots[0];
    for (int c = 0; c < dim; ++c) {
      const C sum = accumulator[c] + g[c] * g[c];
      accumulator[c] = sum;
      w[c] -= lr * g[c] / std::sqrt(sum + epsilon);
    }
  }
};

template <bool kAmsgrad>
struct Adam {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 6>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const* slots) {
    const auto [lr, decay, rest_1, rest_2, epsilon, alpha] = h;
    C* __restrict momentum = slots[0];
    C* __restrict velocity = slots[1];
    C* __restrict velocity_hat = kAmsgrad ? slots[2] : nullptr;
    for (int c = 0; c < dim; ++c) {
      const C m = momentum[c] + (g[c] - momentum[c]) * rest_1;
      C v = velocity[c] + (g[c] * g[c] - velocity[c]) * rest_2;
      momentum[c] = m;
      velocity[c] = v;
      if (kAmsgrad) {
        v = std::max(velocity_hat[c], v);
        velocity_hat[c] = v;
      }
      w[c] -= m * alpha / (std::sqrt(v) + epsilon);
    }
  }
};

template <bool kMomentum, bool kCentered>
struct RmsProp {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 6>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const* slots) {
    const auto [lr, decay, rho, rest, epsilon, momentum] = h;
    C* __restrict velocity = slots[0];
    C* __restrict moved = kMomentum ? slots[1] : nullptr;
    C* __restrict average = kCentered ? slots[1 + kMomentum] : nullptr;
    for (int c = 0; c < dim; ++c) {
      const C v = rho * velocity[c] + rest * (g[c] * g[c]);
      velocity[c] = v;
      C denominator = v;
      if (kCentered) {
        const C mean = rho * average[c] + rest * g[c];
        average[c] = mean;
        denominator -= mean * mean;
      }
      C step = lr * g[c] / std::sqrt(denominator + epsilon);
      if (kMomentum) {
        step += momentum * moved[c];
        moved[c] = step;
      }
      w[c] -= step;
    }
  }
};

struct Adadelta {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 5>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const* slots) {
    const auto [lr, decay, rho, rest, epsilon] = h;
    C* __restrict gradients = slots[0];
    C* __restrict deltas = slots[1];
    for (int c = 0; c < dim; ++c) {
      const C squares = rho * gradients[c] + rest * (g[c] * g[c]);
      gradients[c] = squares;
      const C delta = -(std::sqrt(deltas[c] + epsilon) * g[c] /
                        std::sqrt(squares + epsilon));
      deltas[c] = rho * deltas[c] + rest * (delta * delta);
      w[c] += lr * delta;
    }
  }
};

struct Adamax {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 6>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const* slots) {
    const auto [lr, decay, rest_1, beta_2, epsilon, correction] = h;
    C* __restrict momentum = slots[0];
    C* __restrict norm = slots[1];
    for (int c = 0; c < dim; ++c) {
      const C m = momentum[c] + (g[c] - momentum[c]) * rest_1;
      const C u = std::max(beta_2 * norm[c], std::fabs(g[c]));
      momentum[c] = m;
      norm[c] = u;
      w[c] -= lr * m / (correction * (u + epsilon));
    }
  }
};

struct Nadam {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 9>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const* slots) {
    const auto [lr, decay, rest_1, rest_2, epsilon, correction, u, next,
                product] = h;
    const C left = C{1} - u;
    const C product_left = C{1} - product;
    const C next_product_left = C{1} - product * next;
    C* __restrict momentum = slots[0];
    C* __restrict velocity = slots[1];
    for (int c = 0; c < dim; ++c) {
      const C m = momentum[c] + (g[c] - momentum[c]) * rest_1;
      const C v = velocity[c] + (g[c] * g[c] - velocity[c]) * rest_2;
      momentum[c] = m;
      velocity[c] = v;
      const C m_hat = next * m / next_product_left + left * g[c] / product_left;
      w[c] -= m_hat * lr / (std::sqrt(v / correction) + epsilon);
    }
  }
};

struct Lion {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 6>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const* slots) {
    const auto [lr, decay, beta_1, rest_1, beta_2, rest_2] = h;
    C* __restrict momentum = slots[0];
    for (int c = 0; c < dim; ++c) {
      const C x = momentum[c] * beta_1 + g[c] * rest_1;
      const C sign = static_cast<C>(x > C{0}) - static_cast<C>(x < C{0});
      w[c] -= lr * (x == x ? sign : x);  // a NaN stays one
      momentum[c] = momentum[c] * beta_2 + g[c] * rest_2;
    }
  }
};

template <bool kSqrt>
struct FtrlPower {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 7>& h,
                                     const C* __restrict g, int dim,
                                     C* __restrict w, C* const* slots) {
    const auto [lr, decay, power, l1, own_l2, shrinkage, beta] = h;
    const C exponent = -power;
    const C l2 = own_l2 + beta / (C{2} * lr);
    const auto raise = [exponent](C x) {
      return kSqrt ? std::sqrt(x) : std::pow(x, exponent);
    };
    C* __restrict accumulator = slots[0];
    C* __restrict linear = slots[1];
    for (int c = 0; c < dim; ++c) {
      const C grown = accumulator[c] + g[c] * g[c];
      const C root = raise(grown);
      const C sigma = (root - raise(accumulator[c])) / lr;
      const C z = linear[c] + (g[c] + C{2} * shrinkage * w[c] - sigma * w[c]);
      linear[c] = z;
      const C quadratic = root / lr + C{2} * l2;
      const C clipped = std::min(std::max(z, -l1), l1);
      w[c] = (clipped - z) / quadratic;
      accumulator[c] = grown;
    }
  }
};

struct Ftrl {
  template <typename C>
  LODESTAR_INLINE static void Update(const std::array<C, 7>& h, const C* g,
                                     int dim, C* w, C* const* slots) {
    if (h[2] == C{-0.5}) {
      FtrlPower<true>::Update(h, g, dim, w, slots);
    } else {
      FtrlPower<false>::Update(h, g, dim, w, slots);
    }
  }
};

template <typename Rule, size_t kNumbers, typename C>
LODESTAR_INLINE void DecayAndUpdate(const float* numbers, const C* g, int dim,
                                    C* w, C* const* slots) {
  std::array<C, kNumbers> h;
  std::copy_n(numbers, kNumbers, h.begin());
  if (h[1] != C{0}) DecayWeights<C>(h[0], h[1], dim, w);
  Rule::Update(h, g, dim, w, slots);
}

// The rules are inlined into these, each for its instruction set.
template <typename Rule, size_t kNumbers, typename C>
void Baseline(const float* h, const C* g, int dim, C* w, C* const* slots) {
  DecayAndUpdate<Rule, kNumbers>(h, g, dim, w, slots);
}

template <typename Rule, size_t kNumbers, typename C>
LODESTAR_TARGET_AVX2 void Avx2(const float* h, const C* g, int dim, C* w,
                               C* const* slots) {
  DecayAndUpdate<Rule, kNumbers>(h, g, dim, w, slots);
}

}  // namespace

struct SparseOptimizer::Definition {
  const char* name;
  std::vector<std::string> hyperparameters;
  std::vector<std::string> slots;
  Updates updates[kIsas];
};

template <typename Rule, size_t kNumbers>
SparseOptimizer::Definition SparseOptimizer::Define(
    const char* name, const std::array<const char*, kNumbers>& numbers,
    std::vector<std::string> slots) {
  constexpr size_t kAll = kNumbers + 2;
  Definition definition = {
      name,
      {"learning_rate", "weight_decay"},
      std::move(slots),
      {{Baseline<Rule, kAll, float>, Baseline<Rule, kAll, double>},
       {Avx2<Rule, kAll, float>, Avx2<Rule, kAll, double>}}};
  definition.hyperparameters.insert(definition.hyperparameters.end(),
                                    numbers.begin(), numbers.end());
  return definition;
}

// What depends on the step alone comes in computed: alpha is
// lr sqrt(1 - beta_2^t) / (1 - beta_1^t), u_product is u_1 ... u_t. Differences
// such as 1 - beta_1 come in as Keras rounds them, from float64 or float32.
const std::vector<SparseOptimizer::Definition>& SparseOptimizer::Definitions() {
  constexpr std::array kAdam = {"1 - beta_1", "1 - beta_2", "epsilon", "alpha"};
  constexpr std::array kRmsProp = {"rho", "1 - rho", "epsilon", "momentum"};
  static const auto* const definitions = new std::vector<Definition>{
      Define<Sgd, 0>("sgd", {}, {}),
      Define<SgdMomentum, 2>("sgd_momentum", {"momentum", "nesterov"},
                             {"momentum"}),
      Define<Adagrad, 1>("adagrad", {"epsilon"}, {"accumulator"}),
      Define<Adam<false>, 4>("adam", kAdam, {"momentum", "velocity"}),
      Define<Adam<true>, 4>("adam_amsgrad", kAdam,
                            {"momentum", "velocity", "velocity_hat"}),
      Define<RmsProp<false, false>, 4>("rmsprop", kRmsProp, {"velocity"}),
      Define<RmsProp<true, false>, 4>("rmsprop_momentum", kRmsProp,
                                      {"velocity", "momentum"}),
      Define<RmsProp<false, true>, 4>("rmsprop_centered", kRmsProp,
                                      {"velocity", "average_gradient"}),
      Define<RmsProp<true, true>, 4>(
          "rmsprop_momentum_centered", kRmsProp,
          {"velocity", "momentum", "average_gradient"}),
      Define<Adadelta, 3>("adadelta", {"rho", "1 - rho", "epsilon"},
                          {"accumulated_grad", "accumulated_delta_var"}),
      Define<Adamax, 4>("adamax",
                        {"1 - beta_1", "beta_2", "epsilon", "1 - beta_1^t"},
                        {"momentum", "norm"}),
      Define<Nadam, 7>("nadam",
                       {"1 - beta_1", "1 - beta_2", "epsilon", "1 - beta_2^t",
                        "u_t", "u_(t+1)", "u_product"},
                       {"momentum", "velocity"}),
      Define<Lion, 4>("lion", {"beta_1", "1 - beta_1", "beta_2", "1 - beta_2"},
                      {"momentum"}),
      Define<Ftrl, 5>(
          "ftrl", {"learning_rate_power", "l1", "l2", "l2_shrinkage", "beta"},
          {"accumulator", "linear"}),
  };
  return *definitions;
}

Status SparseOptimizer::Create(const std::string& name,
                               Span<const float> hyperparameters,
                               SparseOptimizer* out, Isa isa) {
  for (const Definition& definition : Definitions()) {
    if (name != definition.name) continue;
    const std::vector<std::string>& wanted = definition.hyperparameters;
    if (hyperparameters.size() != static_cast<int64_t>(wanted.size())) {
      return InvalidArgument("optimizer '", name, "' takes ", wanted.size(),
                             " hyperparameters, found ", hyperparameters.size(),
                             ", wanted ", Join(wanted));
    }
    out->updates_ = definition.updates[static_cast<int>(isa)];
    out->num_slots_ = static_cast<int>(definition.slots.size());
    out->h_.assign(hyperparameters.begin(), hyperparameters.end());
    return Status();
  }
  std::vector<std::string> known;
  for (const Definition& definition : Definitions()) {
    known.push_back(definition.name);
  }
  return InvalidArgument("unknown optimizer '", name, "', wanted one of ",
                         Join(known));
}

bool SparseOptimizer::SlotNames(const std::string& name,
                                std::vector<std::string>* slots) {
  for (const Definition& definition : Definitions()) {
    if (name != definition.name) continue;
    *slots = definition.slots;
    return true;
  }
  return false;
}

void SparseOptimizer::Update(const float* gradient, int dim, float* value,
                             float* const* slots) const {
  updates_.of_float(h_.data(), gradient, dim, value, slots);
}

void SparseOptimizer::Update(const double* gradient, int dim, double* value,
                             double* const* slots) const {
  updates_.of_double(h_.data(), gradient, dim, value, slots);
}

}  // namespace lodestar
