#include "tf_ops/core/sparse_optimizer.h"

#include <algorithm>
#include <cmath>

namespace lodestar {
namespace {

struct Definition {
  const char* name;
  int hyperparameters;
  std::vector<std::string> slots;
};

// In the order of SparseOptimizer::Kind.
const std::vector<Definition>& Definitions() {
  static const auto* const definitions = new std::vector<Definition>{
      {"sgd", 2, {}},
      {"sgd_momentum", 4, {"momentum"}},
      {"adagrad", 3, {"accumulator"}},
      {"adam", 6, {"momentum", "velocity"}},
      {"ftrl", 7, {"accumulator", "linear"}},
  };
  return *definitions;
}

float Power(float x, float y) {
  return y == 0.5f ? std::sqrt(x) : std::pow(x, y);
}

}  // namespace

Status SparseOptimizer::Create(const std::string& name,
                               Span<const float> hyperparameters,
                               SparseOptimizer* out) {
  const std::vector<Definition>& definitions = Definitions();
  for (size_t i = 0; i < definitions.size(); ++i) {
    const Definition& definition = definitions[i];
    if (name != definition.name) continue;
    if (hyperparameters.size() != definition.hyperparameters) {
      return InvalidArgument(
          "optimizer '", name, "' takes ", definition.hyperparameters,
          " hyperparameters, found ", hyperparameters.size());
    }
    out->kind_ = static_cast<Kind>(i);
    out->num_slots_ = static_cast<int>(definition.slots.size());
    out->h_.assign(hyperparameters.begin(), hyperparameters.end());
    return Status();
  }
  return InvalidArgument("unknown optimizer '", name,
                         "', wanted sgd, sgd_momentum, adagrad, adam or ftrl");
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
  const float* h = h_.data();
  const float lr = h[0];
  if (h[1] != 0.0f) {
    for (int c = 0; c < dim; ++c) value[c] -= value[c] * h[1] * lr;
  }
  switch (kind_) {
    case Kind::kSgd:
      for (int c = 0; c < dim; ++c) value[c] -= gradient[c] * lr;
      break;
    case Kind::kSgdMomentum: {
      const float momentum = h[2];
      const bool nesterov = h[3] != 0.0f;
      float* m = slots[0];
      for (int c = 0; c < dim; ++c) {
        const float step = gradient[c] * lr;
        m[c] = m[c] * momentum - step;
        value[c] += nesterov ? m[c] * momentum - step : m[c];
      }
      break;
    }
    case Kind::kAdagrad: {
      const float epsilon = h[2];
      float* accumulator = slots[0];
      for (int c = 0; c < dim; ++c) {
        accumulator[c] += gradient[c] * gradient[c];
        value[c] -= lr * gradient[c] / std::sqrt(accumulator[c] + epsilon);
      }
      break;
    }
    case Kind::kAdam: {
      const float rest_1 = h[2];
      const float rest_2 = h[3];
      const float epsilon = h[4];
      const float alpha = h[5];
      float* m = slots[0];
      float* v = slots[1];
      for (int c = 0; c < dim; ++c) {
        const float g = gradient[c];
        m[c] += (g - m[c]) * rest_1;
        v[c] += (g * g - v[c]) * rest_2;
        value[c] -= m[c] * alpha / (std::sqrt(v[c]) + epsilon);
      }
      break;
    }
    case Kind::kFtrl: {
      const float power = -h[2];
      const float l1 = h[3];
      const float l2 = h[4] + h[6] / (2.0f * lr);
      const float shrinkage = h[5];
      float* accumulator = slots[0];
      float* linear = slots[1];
      for (int c = 0; c < dim; ++c) {
        const float g = gradient[c];
        const float grown = accumulator[c] + g * g;
        const float root = Power(grown, power);
        const float sigma = (root - Power(accumulator[c], power)) / lr;
        linear[c] += g + 2.0f * shrinkage * value[c] - sigma * value[c];
        const float quadratic = root / lr + 2.0f * l2;
        const float clipped = std::min(std::max(linear[c], -l1), l1);
        value[c] = (clipped - linear[c]) / quadratic;
        accumulator[c] = grown;
      }
      break;
    }
  }
}

}  // namespace lodestar
