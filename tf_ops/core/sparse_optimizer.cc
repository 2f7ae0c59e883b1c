#include "tf_ops/core/sparse_optimizer.h"

#include <algorithm>
#include <cmath>

namespace lodestar {
namespace {

// Every loop must vectorise: no branch that depends on a number of the row, no
// call but std::sqrt (and std::pow where Keras has it), and __restrict, since
// the rows of one id never overlap. h[0] is the learning rate.

void DecayWeights(float lr, float decay, int dim, float* w) {
  for (int c = 0; c < dim; ++c) w[c] -= w[c] * decay * lr;
}

void Sgd(const float* h, const float* __restrict g, int dim,
         float* __restrict w, float* const*) {
  const float lr = h[0];
  for (int c = 0; c < dim; ++c) w[c] -= g[c] * lr;
}

void SgdMomentum(const float* h, const float* __restrict g, int dim,
                 float* __restrict w, float* const* slots) {
  const float lr = h[0];
  const float momentum = h[2];
  const bool nesterov = h[3] != 0.0f;
  float* __restrict m = slots[0];
  for (int c = 0; c < dim; ++c) {
    const float step = g[c] * lr;
    const float moved = m[c] * momentum - step;
    m[c] = moved;
    w[c] += nesterov ? moved * momentum - step : moved;
  }
}

void Adagrad(const float* h, const float* __restrict g, int dim,
             float* __restrict w, float* const* slots) {
  const float lr = h[0];
  const float epsilon = h[2];
  float* __restrict accumulator = slots[0];
  for (int c = 0; c < dim; ++c) {
    const float sum = accumulator[c] + g[c] * g[c];
    accumulator[c] = sum;
    w[c] -= lr * g[c] / std::sqrt(sum + epsilon);
  }
}

template <bool kAmsgrad>
void Adam(const float* h, const float* __restrict g, int dim,
          float* __restrict w, float* const* slots) {
  const float rest_1 = h[2];
  const float rest_2 = h[3];
  const float epsilon = h[4];
  const float alpha = h[5];
  float* __restrict momentum = slots[0];
  float* __restrict velocity = slots[1];
  float* __restrict velocity_hat = kAmsgrad ? slots[2] : nullptr;
  for (int c = 0; c < dim; ++c) {
    const float m = momentum[c] + (g[c] - momentum[c]) * rest_1;
    float v = velocity[c] + (g[c] * g[c] - velocity[c]) * rest_2;
    momentum[c] = m;
    velocity[c] = v;
    if (kAmsgrad) {
      v = std::max(velocity_hat[c], v);
      velocity_hat[c] = v;
    }
    w[c] -= m * alpha / (std::sqrt(v) + epsilon);
  }
}

template <bool kMomentum, bool kCentered>
void RmsProp(const float* h, const float* __restrict g, int dim,
             float* __restrict w, float* const* slots) {
  const float lr = h[0];
  const float rho = h[2];
  const float rest = h[3];
  const float epsilon = h[4];
  const float momentum = h[5];
  float* __restrict velocity = slots[0];
  float* __restrict moved = kMomentum ? slots[1] : nullptr;
  float* __restrict average = kCentered ? slots[1 + kMomentum] : nullptr;
  for (int c = 0; c < dim; ++c) {
    const float v = rho * velocity[c] + rest * (g[c] * g[c]);
    velocity[c] = v;
    float denominator = v;
    if (kCentered) {
      const float mean = rho * average[c] + rest * g[c];
      average[c] = mean;
      denominator -= mean * mean;
    }
    float step = lr * g[c] / std::sqrt(denominator + epsilon);
    if (kMomentum) {
      step += momentum * moved[c];
      moved[c] = step;
    }
    w[c] -= step;
  }
}

void Adadelta(const float* h, const float* __restrict g, int dim,
              float* __restrict w, float* const* slots) {
  const float lr = h[0];
  const float rho = h[2];
  const float rest = h[3];
  const float epsilon = h[4];
  float* __restrict gradients = slots[0];
  float* __restrict deltas = slots[1];
  for (int c = 0; c < dim; ++c) {
    const float squares = rho * gradients[c] + rest * (g[c] * g[c]);
    gradients[c] = squares;
    const float delta =
        -(std::sqrt(deltas[c] + epsilon) * g[c] / std::sqrt(squares + epsilon));
    deltas[c] = rho * deltas[c] + rest * (delta * delta);
    w[c] += lr * delta;
  }
}

void Adamax(const float* h, const float* __restrict g, int dim,
            float* __restrict w, float* const* slots) {
  const float lr = h[0];
  const float rest_1 = h[2];
  const float beta_2 = h[3];
  const float epsilon = h[4];
  const float correction = h[5];
  float* __restrict momentum = slots[0];
  float* __restrict norm = slots[1];
  for (int c = 0; c < dim; ++c) {
    const float m = momentum[c] + (g[c] - momentum[c]) * rest_1;
    const float u = std::max(beta_2 * norm[c], std::fabs(g[c]));
    momentum[c] = m;
    norm[c] = u;
    w[c] -= lr * m / (correction * (u + epsilon));
  }
}

void Nadam(const float* h, const float* __restrict g, int dim,
           float* __restrict w, float* const* slots) {
  const float lr = h[0];
  const float rest_1 = h[2];
  const float rest_2 = h[3];
  const float epsilon = h[4];
  const float correction = h[5];
  const float next = h[7];
  const float left = 1.0f - h[6];
  const float product_left = 1.0f - h[8];
  const float next_product_left = 1.0f - h[8] * next;
  float* __restrict momentum = slots[0];
  float* __restrict velocity = slots[1];
  for (int c = 0; c < dim; ++c) {
    const float m = momentum[c] + (g[c] - momentum[c]) * rest_1;
    const float v = velocity[c] + (g[c] * g[c] - velocity[c]) * rest_2;
    momentum[c] = m;
    velocity[c] = v;
    const float m_hat =
        next * m / next_product_left + left * g[c] / product_left;
    w[c] -= m_hat * lr / (std::sqrt(v / correction) + epsilon);
  }
}

void Lion(const float* h, const float* __restrict g, int dim,
          float* __restrict w, float* const* slots) {
  const float lr = h[0];
  const float beta_1 = h[2];
  const float rest_1 = h[3];
  const float beta_2 = h[4];
  const float rest_2 = h[5];
  float* __restrict momentum = slots[0];
  for (int c = 0; c < dim; ++c) {
    const float x = momentum[c] * beta_1 + g[c] * rest_1;
    const float sign =
        static_cast<float>(x > 0.0f) - static_cast<float>(x < 0.0f);
    w[c] -= lr * (x == x ? sign : x);  // a NaN stays one
    momentum[c] = momentum[c] * beta_2 + g[c] * rest_2;
  }
}

template <bool kSqrt>
void FtrlPower(const float* h, const float* __restrict g, int dim,
               float* __restrict w, float* const* slots) {
  const float lr = h[0];
  const float power = -h[2];
  const float l1 = h[3];
  const float l2 = h[4] + h[6] / (2.0f * lr);
  const float shrinkage = h[5];
  const auto raise = [power](float x) {
    return kSqrt ? std::sqrt(x) : std::pow(x, power);
  };
  float* __restrict accumulator = slots[0];
  float* __restrict linear = slots[1];
  for (int c = 0; c < dim; ++c) {
    const float grown = accumulator[c] + g[c] * g[c];
    const float root = raise(grown);
    const float sigma = (root - raise(accumulator[c])) / lr;
    const float z = linear[c] + (g[c] + 2.0f * shrinkage * w[c] - sigma * w[c]);
    linear[c] = z;
    const float quadratic = root / lr + 2.0f * l2;
    const float clipped = std::min(std::max(z, -l1), l1);
    w[c] = (clipped - z) / quadratic;
    accumulator[c] = grown;
  }
}

void Ftrl(const float* h, const float* g, int dim, float* w,
          float* const* slots) {
  (h[2] == -0.5f ? FtrlPower<true> : FtrlPower<false>)(h, g, dim, w, slots);
}

}  // namespace

struct SparseOptimizer::Definition {
  const char* name;
  int hyperparameters;
  std::vector<std::string> slots;
  UpdateRow update;
};

const std::vector<SparseOptimizer::Definition>& SparseOptimizer::Definitions() {
  static const auto* const definitions = new std::vector<Definition>{
      {"sgd", 2, {}, Sgd},
      {"sgd_momentum", 4, {"momentum"}, SgdMomentum},
      {"adagrad", 3, {"accumulator"}, Adagrad},
      {"adam", 6, {"momentum", "velocity"}, Adam<false>},
      {"adam_amsgrad", 6, {"momentum", "velocity", "velocity_hat"}, Adam<true>},
      {"rmsprop", 6, {"velocity"}, RmsProp<false, false>},
      {"rmsprop_momentum", 6, {"velocity", "momentum"}, RmsProp<true, false>},
      {"rmsprop_centered",
       6,
       {"velocity", "average_gradient"},
       RmsProp<false, true>},
      {"rmsprop_momentum_centered",
       6,
       {"velocity", "momentum", "average_gradient"},
       RmsProp<true, true>},
      {"adadelta", 5, {"accumulated_grad", "accumulated_delta_var"}, Adadelta},
      {"adamax", 6, {"momentum", "norm"}, Adamax},
      {"nadam", 9, {"momentum", "velocity"}, Nadam},
      {"lion", 6, {"momentum"}, Lion},
      {"ftrl", 7, {"accumulator", "linear"}, Ftrl},
  };
  return *definitions;
}

Status SparseOptimizer::Create(const std::string& name,
                               Span<const float> hyperparameters,
                               SparseOptimizer* out) {
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
    out->update_ = definition.update;
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
  if (h_[1] != 0.0f) DecayWeights(h_[0], h_[1], dim, value);
  update_(h_.data(), gradient, dim, value, slots);
}

}  // namespace lodestar
