// Update rules of row-wise optimizers, one column at a time, shared by CPU and
// GPU. The formulas follow keras.optimizers operation by operation.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_OPTIMIZER_RULES_H_
#define LODESTAR_TF_OPS_CORE_ROWS_OPTIMIZER_RULES_H_

#include <array>
#include <cmath>
#include <type_traits>

#include "tf_ops/core/base/host_device.h"

// Always inlined, so the enclosing loop is compiled for its own instruction
// set.
#define LODESTAR_RULE_OF(Result) \
  LODESTAR_HOST_DEVICE static inline __attribute__((always_inline)) Result
#define LODESTAR_RULE LODESTAR_RULE_OF(void)

namespace lodestar {

// A rule has
//   kName     name of the optimizer
//   kNumbers  names of its hyperparameters after learning_rate and
//             weight_decay, which come first in every rule
//   kSlots    names of its optimizer slots
//   Update(h, g, w, s)  updates one column: hyperparameters, gradient, value,
//                       slots
//
// The slots of a RowWiseRule have one value per row. In place of Update it has
//   UpdateSlots(h, mean_square, s)  updates the slots from the mean of the
//                                   squared gradient; returns the row's rate
//   UpdateColumn(rate, g, w)        updates one column
//
// On the CPU the loop over columns must vectorize: no data-dependent branches
// and no calls except std::sqrt (and std::pow where Keras uses it).
//
// Values that depend on the step alone are passed in: alpha is
// lr sqrt(1 - beta_2^t) / (1 - beta_1^t), u_product is u_1 ... u_t. Differences
// such as 1 - beta_1 are passed in as Keras rounds them, from float64 or
// float32.

using Text = const char*;

struct Sgd {
  static constexpr Text kName = "sgd";
  static constexpr std::array<Text, 0> kNumbers = {};
  static constexpr std::array<Text, 0> kSlots = {};
  LODESTAR_RULE Update(const float (&h)[2], float g, float& w, float*) {
    const auto& [lr, decay] = h;
    w -= g * lr;
  }
};

struct SgdMomentum {
  static constexpr Text kName = "sgd_momentum";
  static constexpr std::array<Text, 2> kNumbers = {"momentum", "nesterov"};
  static constexpr std::array<Text, 1> kSlots = {"momentum"};
  LODESTAR_RULE Update(const float (&h)[4], float g, float& w, float* s) {
    const auto& [lr, decay, momentum, nesterov] = h;
    const float step = g * lr;
    const float moved = s[0] * momentum - step;
    s[0] = moved;
    w += nesterov != 0.0f ? moved * momentum - step : moved;
  }
};

struct Adagrad {
  static constexpr Text kName = "adagrad";
  static constexpr std::array<Text, 1> kNumbers = {"epsilon"};
  static constexpr std::array<Text, 1> kSlots = {"accumulator"};
  LODESTAR_RULE Update(const float (&h)[3], float g, float& w, float* s) {
    const auto& [lr, decay, epsilon] = h;
    const float sum = s[0] + g * g;
    s[0] = sum;
    w -= lr * g / std::sqrt(sum + epsilon);
  }
};

// Base of the rules of row-wise slots.
struct RowWiseRule {};
template <typename Rule>
constexpr bool kIsRowWise = std::is_base_of_v<RowWiseRule, Rule>;

// Exact row-wise Adagrad of FBGEMM and DLRM.
struct RowWiseAdagrad : RowWiseRule {
  static constexpr Text kName = "row_wise_adagrad";
  static constexpr std::array<Text, 1> kNumbers = {"epsilon"};
  static constexpr std::array<Text, 1> kSlots = {"accumulator"};
  LODESTAR_RULE_OF(float)
  UpdateSlots(const float (&h)[3], float mean_square, float* s) {
    const auto& [lr, decay, epsilon] = h;
    const float sum = s[0] + mean_square;
    s[0] = sum;
    return lr / (std::sqrt(sum) + epsilon);
  }
  LODESTAR_RULE UpdateColumn(float rate, float g, float& w) { w -= rate * g; }
};

template <bool kAmsgrad>
struct Adam {
  static constexpr Text kName = kAmsgrad ? "adam_amsgrad" : "adam";
  static constexpr std::array<Text, 4> kNumbers = {"1 - beta_1", "1 - beta_2",
                                                   "epsilon", "alpha"};
  static constexpr auto kSlots = [] {
    if constexpr (kAmsgrad) {
      return std::array<Text, 3>{"momentum", "velocity", "velocity_hat"};
    } else {
      return std::array<Text, 2>{"momentum", "velocity"};
    }
  }();
  LODESTAR_RULE Update(const float (&h)[6], float g, float& w, float* s) {
    const auto& [lr, decay, rest_1, rest_2, epsilon, alpha] = h;
    const float m = s[0] + (g - s[0]) * rest_1;
    float v = s[1] + (g * g - s[1]) * rest_2;
    s[0] = m;
    s[1] = v;
    if constexpr (kAmsgrad) {
      v = s[2] < v ? v : s[2];
      s[2] = v;
    }
    w -= m * alpha / (std::sqrt(v) + epsilon);
  }
};

template <bool kMomentum, bool kCentered>
struct RmsProp {
  static constexpr Text kName =
      kMomentum ? (kCentered ? "rmsprop_momentum_centered" : "rmsprop_momentum")
                : (kCentered ? "rmsprop_centered" : "rmsprop");
  static constexpr std::array<Text, 4> kNumbers = {"rho", "1 - rho", "epsilon",
                                                   "momentum"};
  static constexpr auto kSlots = [] {
    if constexpr (kMomentum && kCentered) {
      return std::array<Text, 3>{"velocity", "momentum", "average_gradient"};
    } else if constexpr (kMomentum) {
      return std::array<Text, 2>{"velocity", "momentum"};
    } else if constexpr (kCentered) {
      return std::array<Text, 2>{"velocity", "average_gradient"};
    } else {
      return std::array<Text, 1>{"velocity"};
    }
  }();
  LODESTAR_RULE Update(const float (&h)[6], float g, float& w, float* s) {
    const auto& [lr, decay, rho, rest, epsilon, momentum] = h;
    const float v = rho * s[0] + rest * (g * g);
    s[0] = v;
    float denominator = v;
    if constexpr (kCentered) {
      const float mean = rho * s[1 + kMomentum] + rest * g;
      s[1 + kMomentum] = mean;
      denominator -= mean * mean;
    }
    float step = lr * g / std::sqrt(denominator + epsilon);
    if constexpr (kMomentum) {
      step += momentum * s[1];
      s[1] = step;
    }
    w -= step;
  }
};

struct Adadelta {
  static constexpr Text kName = "adadelta";
  static constexpr std::array<Text, 3> kNumbers = {"rho", "1 - rho", "epsilon"};
  static constexpr std::array<Text, 2> kSlots = {"accumulated_grad",
                                                 "accumulated_delta_var"};
  LODESTAR_RULE Update(const float (&h)[5], float g, float& w, float* s) {
    const auto& [lr, decay, rho, rest, epsilon] = h;
    const float squares = rho * s[0] + rest * (g * g);
    s[0] = squares;
    const float delta =
        -(std::sqrt(s[1] + epsilon) * g / std::sqrt(squares + epsilon));
    s[1] = rho * s[1] + rest * (delta * delta);
    w += lr * delta;
  }
};

struct Adamax {
  static constexpr Text kName = "adamax";
  static constexpr std::array<Text, 4> kNumbers = {"1 - beta_1", "beta_2",
                                                   "epsilon", "1 - beta_1^t"};
  static constexpr std::array<Text, 2> kSlots = {"momentum", "norm"};
  LODESTAR_RULE Update(const float (&h)[6], float g, float& w, float* s) {
    const auto& [lr, decay, rest_1, beta_2, epsilon, correction] = h;
    const float m = s[0] + (g - s[0]) * rest_1;
    const float faded = beta_2 * s[1];
    const float size = std::fabs(g);
    const float u = faded < size ? size : faded;
    s[0] = m;
    s[1] = u;
    w -= lr * m / (correction * (u + epsilon));
  }
};

struct Nadam {
  static constexpr Text kName = "nadam";
  static constexpr std::array<Text, 7> kNumbers = {
      "1 - beta_1", "1 - beta_2", "epsilon",  "1 - beta_2^t",
      "u_t",        "u_(t+1)",    "u_product"};
  static constexpr std::array<Text, 2> kSlots = {"momentum", "velocity"};
  LODESTAR_RULE Update(const float (&h)[9], float g, float& w, float* s) {
    const auto& [lr, decay, rest_1, rest_2, epsilon, correction, u, next,
                 product] = h;
    const float m = s[0] + (g - s[0]) * rest_1;
    const float v = s[1] + (g * g - s[1]) * rest_2;
    s[0] = m;
    s[1] = v;
    const float m_hat =
        next * m / (1.0f - product * next) + (1.0f - u) * g / (1.0f - product);
    w -= m_hat * lr / (std::sqrt(v / correction) + epsilon);
  }
};

struct Lion {
  static constexpr Text kName = "lion";
  static constexpr std::array<Text, 4> kNumbers = {"beta_1", "1 - beta_1",
                                                   "beta_2", "1 - beta_2"};
  static constexpr std::array<Text, 1> kSlots = {"momentum"};
  LODESTAR_RULE Update(const float (&h)[6], float g, float& w, float* s) {
    const auto& [lr, decay, beta_1, rest_1, beta_2, rest_2] = h;
    const float x = s[0] * beta_1 + g * rest_1;
    const float sign =
        static_cast<float>(x > 0.0f) - static_cast<float>(x < 0.0f);
    w -= lr * (x == x ? sign : x);  // NaN stays NaN
    s[0] = s[0] * beta_2 + g * rest_2;
  }
};

// kSqrt: learning_rate_power is -0.5.
template <bool kSqrt>
struct FtrlPower {
  LODESTAR_RULE Update(const float (&h)[7], float g, float& w, float* s) {
    const auto& [lr, decay, power, l1, own_l2, shrinkage, beta] = h;
    const float l2 = own_l2 + beta / (2.0f * lr);
    const float grown = s[0] + g * g;
    const float root = kSqrt ? std::sqrt(grown) : std::pow(grown, -power);
    const float before = kSqrt ? std::sqrt(s[0]) : std::pow(s[0], -power);
    const float sigma = (root - before) / lr;
    const float z = s[1] + (g + 2.0f * shrinkage * w - sigma * w);
    s[1] = z;
    const float quadratic = root / lr + 2.0f * l2;
    const float above = z < -l1 ? -l1 : z;
    const float clipped = l1 < above ? l1 : above;
    w = (clipped - z) / quadratic;
    s[0] = grown;
  }
};

struct Ftrl {
  static constexpr Text kName = "ftrl";
  static constexpr std::array<Text, 5> kNumbers = {
      "learning_rate_power", "l1", "l2", "l2_shrinkage", "beta"};
  static constexpr std::array<Text, 2> kSlots = {"accumulator", "linear"};
  LODESTAR_RULE Update(const float (&h)[7], float g, float& w, float* s) {
    if (h[2] == -0.5f) {
      FtrlPower<true>::Update(h, g, w, s);
    } else {
      FtrlPower<false>::Update(h, g, w, s);
    }
  }
};

// Number of hyperparameters of a rule.
template <typename Rule>
constexpr int kHyperparameters = static_cast<int>(Rule::kNumbers.size()) + 2;
template <typename Rule>
constexpr int kRuleSlots = static_cast<int>(Rule::kSlots.size());

// Calls visit(Rule()) for every rule.
template <typename Visit>
void VisitRules(const Visit& visit) {
  visit(Sgd());
  visit(SgdMomentum());
  visit(Adagrad());
  visit(RowWiseAdagrad());
  visit(Adam<false>());
  visit(Adam<true>());
  visit(RmsProp<false, false>());
  visit(RmsProp<true, false>());
  visit(RmsProp<false, true>());
  visit(RmsProp<true, true>());
  visit(Adadelta());
  visit(Adamax());
  visit(Nadam());
  visit(Lion());
  visit(Ftrl());
}

}  // namespace lodestar

#undef LODESTAR_RULE
#undef LODESTAR_RULE_OF

#endif  // LODESTAR_TF_OPS_CORE_ROWS_OPTIMIZER_RULES_H_
