#include "tf_ops/core/rows/sparse_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lodestar {
namespace {

// Every loop must vectorise: no branch that depends on a number of the row, no
// call but std::sqrt (and std::pow where Keras has it), and __restrict, since
// the rows of one id never overlap. h[0] is the learning rate.

template <typename C>
LODESTAR_INLINE void DecayWeights(C lr, C decay, int dim, C* w) {
  for (int c = 0; c < dim; ++c) w[c] -= w[c] * decay * lr;
}

struct Sgd {
  template <typename C>
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w, C* const*) {
    const C lr = h[0];
    for (int c = 0; c < dim; ++c) w[c] -= g[c] * lr;
  }
};

struct SgdMomentum {
  template <typename C>
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w,
                                     C* const* slots) {
    const C lr = h[0];
    const C momentum = h[2];
    const bool nesterov = h[3] != 0.0f;
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
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w,
                                     C* const* slots) {
    const C lr = h[0];
    const C epsilon = h[2];
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
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w,
                                     C* const* slots) {
    const C rest_1 = h[2];
    const C rest_2 = h[3];
    const C epsilon = h[4];
    const C alpha = h[5];
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
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w,
                                     C* const* slots) {
    const C lr = h[0];
    const C rho = h[2];
    const C rest = h[3];
    const C epsilon = h[4];
    const C momentum = h[5];
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
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w,
                                     C* const* slots) {
    const C lr = h[0];
    const C rho = h[2];
    const C rest = h[3];
    const C epsilon = h[4];
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
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w,
                                     C* const* slots) {
    const C lr = h[0];
    const C rest_1 = h[2];
    const C beta_2 = h[3];
    const C epsilon = h[4];
    const C correction = h[5];
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
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w,
                                     C* const* slots) {
    const C lr = h[0];
    const C rest_1 = h[2];
    const C rest_2 = h[3];
    const C epsilon = h[4];
    const C correction = h[5];
    const C next = h[7];
    const C left = C{1} - h[6];
    const C product_left = C{1} - h[8];
    const C next_product_left = C{1} - h[8] * next;
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
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w,
                                     C* const* slots) {
    const C lr = h[0];
    const C beta_1 = h[2];
    const C rest_1 = h[3];
    const C beta_2 = h[4];
    const C rest_2 = h[5];
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
  LODESTAR_INLINE static void Update(const float* h, const C* __restrict g,
                                     int dim, C* __restrict w,
                                     C* const* slots) {
    const C lr = h[0];
    const C power = -h[2];
    const C l1 = h[3];
    const C l2 = h[4] + h[6] / (C{2} * lr);
    const C shrinkage = h[5];
    const auto raise = [power](C x) {
      return kSqrt ? std::sqrt(x) : std::pow(x, power);
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
  LODESTAR_INLINE static void Update(const float* h, const C* g, int dim, C* w,
                                     C* const* slots) {
    if (h[2] == -0.5f) {
      FtrlPower<true>::Update(h, g, dim, w, slots);
    } else {
      FtrlPower<false>::Update(h, g, dim, w, slots);
    }
  }
};

template <typename Rule, typename C>
LODESTAR_INLINE void DecayAndUpdate(const float* h, const C* g, int dim, C* w,
                                    C* const* slots) {
  if (h[1] != 0.0f) DecayWeights<C>(h[0], h[1], dim, w);
  Rule::Update(h, g, dim, w, slots);
}

// The rules are inlined into these, each for its instruction set.
template <typename Rule, typename C>
void Baseline(const float* h, const C* g, int dim, C* w, C* const* slots) {
  DecayAndUpdate<Rule>(h, g, dim, w, slots);
}

template <typename Rule, typename C>
LODESTAR_TARGET_AVX2 void Avx2(const float* h, const C* g, int dim, C* w,
                               C* const* slots) {
  DecayAndUpdate<Rule>(h, g, dim, w, slots);
}

}  // namespace

struct SparseOptimizer::Definition {
  const char* name;
  int hyperparameters;
  std::vector<std::string> slots;
  Updates updates[kIsas];
};

template <typename Rule>
SparseOptimizer::Definition SparseOptimizer::Define(
    const char* name, int hyperparameters, std::vector<std::string> slots) {
  return {name,
          hyperparameters,
          std::move(slots),
          {{Baseline<Rule, float>, Baseline<Rule, double>},
           {Avx2<Rule, float>, Avx2<Rule, double>}}};
}

const std::vector<SparseOptimizer::Definition>& SparseOptimizer::Definitions() {
  static const auto* const definitions = new std::vector<Definition>{
      Define<Sgd>("sgd", 2, {}),
      Define<SgdMomentum>("sgd_momentum", 4, {"momentum"}),
      Define<Adagrad>("adagrad", 3, {"accumulator"}),
      Define<Adam<false>>("adam", 6, {"momentum", "velocity"}),
      Define<Adam<true>>("adam_amsgrad", 6,
                         {"momentum", "velocity", "velocity_hat"}),
      Define<RmsProp<false, false>>("rmsprop", 6, {"velocity"}),
      Define<RmsProp<true, false>>("rmsprop_momentum", 6,
                                   {"velocity", "momentum"}),
      Define<RmsProp<false, true>>("rmsprop_centered", 6,
                                   {"velocity", "average_gradient"}),
      Define<RmsProp<true, true>>("rmsprop_momentum_centered", 6,
                                  {"velocity", "momentum", "average_gradient"}),
      Define<Adadelta>("adadelta", 5,
                       {"accumulated_grad", "accumulated_delta_var"}),
      Define<Adamax>("adamax", 6, {"momentum", "norm"}),
      Define<Nadam>("nadam", 9, {"momentum", "velocity"}),
      Define<Lion>("lion", 6, {"momentum"}),
      Define<Ftrl>("ftrl", 7, {"accumulator", "linear"}),
  };
  return *definitions;
}

Status SparseOptimizer::Create(const std::string& name,
                               Span<const float> hyperparameters,
                               SparseOptimizer* out, Isa isa) {
  std::string known;
  for (const Definition& definition : Definitions()) {
    if (name != definition.name) {
      known += known.empty() ? "" : ", ";
      known += definition.name;
      continue;
    }
    if (hyperparameters.size() != definition.hyperparameters) {
      return InvalidArgument(
          "optimizer '", name, "' takes ", definition.hyperparameters,
          " hyperparameters, found ", hyperparameters.size());
    }
    out->updates_ = definition.updates[static_cast<int>(isa)];
    out->num_slots_ = static_cast<int>(definition.slots.size());
    out->h_.assign(hyperparameters.begin(), hyperparameters.end());
    return Status();
  }
  return InvalidArgument("unknown optimizer '", name, "', wanted one of ",
                         known);
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
