// Op registrations, and the shape functions and attributes that they share.
// Includes TensorFlow's op.h and shape_inference.h.

#ifndef LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_
#define LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_

#include <cctype>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/errors.h"

namespace lodestar {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Registers Lodestar>name, as REGISTER_OP does, with lists of inputs, outputs
// and attributes.
#define LODESTAR_OP(name) TF_NEW_ID_FOR_INIT(LODESTAR_OP_OF_ID, name)
#define LODESTAR_OP_OF_ID(id, name)                                         \
  [[maybe_unused]] static const ::tensorflow::InitOnStartupMarker op_##id = \
      ::tensorflow::InitOnStartupMarker{}                                   \
      << ::lodestar::OpBuilder("Lodestar>" name)

class OpBuilder {
 public:
  explicit OpBuilder(const char* name) : op_(name) {}

  template <typename... Specs>
  OpBuilder& Inputs(const Specs&... specs) {
    (op_.Input(specs), ...);
    return *this;
  }
  template <typename... Specs>
  OpBuilder& Outputs(const Specs&... specs) {
    (op_.Output(specs), ...);
    return *this;
  }
  template <typename... Specs>
  OpBuilder& Attrs(const Specs&... specs) {
    (op_.Attr(specs), ...);
    return *this;
  }
  // Sets the shape function of an op that graph optimizers must not drop, fold
  // or merge with an equal one.
  OpBuilder& Stateful(tensorflow::OpShapeInferenceFn shape) {
    op_.SetIsStateful();
    return Stateless(std::move(shape));
  }
  // Sets the shape function of an op that only depends on its inputs.
  OpBuilder& Stateless(tensorflow::OpShapeInferenceFn shape) {
    op_.SetShapeFn(std::move(shape));
    return *this;
  }
  OpBuilder& Doc(const char* text) {
    op_.Doc(text);
    return *this;
  }
  tensorflow::InitOnStartupMarker operator()() { return op_(); }

 private:
  tensorflow::register_op::OpDefBuilderWrapper op_;
};

// The dtypes of ops that compute with floats, that compute with any number, and
// that move rows unchanged.
constexpr char kFloatAttr[] = "T: {half, bfloat16, float, double}";
constexpr char kNumberAttr[] =
    "T: {half, bfloat16, float, double, int32, int64}";
constexpr char kMovedAttr[] =
    "T: {half, bfloat16, float, double, int8, int16, int32, int64, uint8, "
    "uint16, uint32, uint64, bool, string}";

// The dtypes of table rows. Their updates and optimizer slots are float.
constexpr char kRowDtype[] = "dtype: {float, half, bfloat16} = DT_FLOAT";

// Checks that inputs 0, 1, ... have these ranks. kAnyRank, and inputs after the
// last one, are not checked.
constexpr int kAnyRank = -1;
inline absl::Status CheckRanks(InferenceContext* c,
                               const std::vector<int>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    ShapeHandle unused;
    if (ranks[i] == kAnyRank) continue;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), ranks[i], &unused));
  }
  return absl::OkStatus();
}

// Shape function for inputs of these ranks (0 for handles) and scalar outputs.
inline tensorflow::OpShapeInferenceFn ScalarOutputs(std::vector<int> ranks) {
  return [ranks = std::move(ranks)](InferenceContext* c) {
    TF_RETURN_IF_ERROR(CheckRanks(c, ranks));
    for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Scalar());
    return absl::OkStatus();
  };
}

// Sets the shapes of outputs to the attribute `output_shapes`.
inline absl::Status OutputsOfAttribute(InferenceContext* c) {
  std::vector<tensorflow::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(c->GetAttr("output_shapes", &shapes));
  if (static_cast<int>(shapes.size()) != c->num_outputs()) {
    return tensorflow::errors::InvalidArgument(
        "`output_shapes` must have ", c->num_outputs(),
        " shapes, one for each output, got ", shapes.size(), ".");
  }
  for (int i = 0; i < c->num_outputs(); ++i) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    c->set_output(i, shape);
  }
  return absl::OkStatus();
}

// Sets the output to [count] + the shape of `rows` without its first dimension.
inline absl::Status ReplaceFirst(InferenceContext* c, ShapeHandle rows,
                                 DimensionHandle count, int output) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(rows, 1, &rows));
  TF_RETURN_IF_ERROR(c->ReplaceDim(rows, 0, count, &shape));
  c->set_output(output, shape);
  return absl::OkStatus();
}

// Shape function of a signature such as "[n, ...x], [b + 1], * -> [b, ...x],
// []". A dimension is a number, the value of an attribute (@size), unknown (?),
// or a name for equal dimensions. "...x" is any number of dimensions; in an
// input it must be the last. "*", and inputs after the last one, are not
// checked.
class Shapes {
 public:
  explicit Shapes(const std::string& signature) {
    const size_t arrow = signature.find("->");
    inputs_ = Parse(signature.substr(0, arrow));
    if (arrow != signature.npos) outputs_ = Parse(signature.substr(arrow));
  }

  absl::Status operator()(InferenceContext* c) const {
    Values values;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i] == Terms{"*"}) continue;
      TF_RETURN_IF_ERROR(Read(c, inputs_[i], c->input(i), &values));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(Make(c, outputs_[i], &values, &shape));
      c->set_output(i, shape);
    }
    return absl::OkStatus();
  }

 private:
  using Terms = std::vector<std::string>;
  // The dimensions and the lists of dimensions with a name.
  struct Values {
    std::map<std::string, DimensionHandle> dims;
    std::map<std::string, ShapeHandle> lists;
  };

  static std::vector<Terms> Parse(const std::string& text) {
    std::vector<Terms> shapes;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '*') shapes.push_back({"*"});
      if (text[i] != '[') continue;
      shapes.emplace_back();
      for (size_t end; text[i] != ']'; i = end) {
        i = text.find_first_not_of(", ", i + 1);
        end = text.find_first_of(",]", i);
        if (end > i) shapes.back().push_back(text.substr(i, end - i));
      }
    }
    return shapes;
  }
  static bool IsList(const std::string& term) { return term[0] == '.'; }
  // Returns whether `term` is "name + 1", and removes the sum.
  static bool TakeSum(std::string* term) {
    const size_t sum = term->find(" + 1");
    if (sum == term->npos) return false;
    term->resize(sum);
    return true;
  }

  static absl::Status Read(InferenceContext* c, const Terms& terms,
                           ShapeHandle shape, Values* values) {
    const bool has_list = !terms.empty() && IsList(terms.back());
    const int dims = static_cast<int>(terms.size()) - has_list;
    TF_RETURN_IF_ERROR(has_list ? c->WithRankAtLeast(shape, dims, &shape)
                                : c->WithRank(shape, dims, &shape));
    for (int d = 0; d < dims; ++d) {
      std::string term = terms[d];
      DimensionHandle dim = c->Dim(shape, d);
      if (TakeSum(&term)) TF_RETURN_IF_ERROR(c->Subtract(dim, 1, &dim));
      DimensionHandle wanted;
      TF_RETURN_IF_ERROR(Find(c, term, values, &wanted));
      TF_RETURN_IF_ERROR(c->Merge(dim, wanted, &values->dims[term]));
    }
    if (!has_list) return absl::OkStatus();
    TF_RETURN_IF_ERROR(c->Subshape(shape, dims, &shape));
    ShapeHandle& list =
        values->lists.emplace(terms.back(), shape).first->second;
    return c->Merge(list, shape, &list);
  }

  static absl::Status Make(InferenceContext* c, const Terms& terms,
                           Values* values, ShapeHandle* shape) {
    *shape = c->Scalar();
    for (std::string term : terms) {
      ShapeHandle next;
      if (IsList(term)) {
        next = values->lists.at(term);
      } else {
        const bool is_sum = TakeSum(&term);
        DimensionHandle dim;
        TF_RETURN_IF_ERROR(Find(c, term, values, &dim));
        if (is_sum) TF_RETURN_IF_ERROR(c->Add(dim, 1, &dim));
        next = c->Vector(dim);
      }
      TF_RETURN_IF_ERROR(c->Concatenate(*shape, next, shape));
    }
    return absl::OkStatus();
  }

  static absl::Status Find(InferenceContext* c, const std::string& term,
                           Values* values, DimensionHandle* dim) {
    if (term[0] == '@') {
      int64_t value = 0;
      TF_RETURN_IF_ERROR(c->GetAttr(term.substr(1), &value));
      *dim = c->MakeDim(value);
    } else if (std::isdigit(static_cast<unsigned char>(term[0]))) {
      *dim = c->MakeDim(std::stoll(term));
    } else if (term == "?") {
      *dim = c->UnknownDim();
    } else {
      *dim = values->dims.emplace(term, c->UnknownDim()).first->second;
    }
    return absl::OkStatus();
  }

  std::vector<Terms> inputs_;
  std::vector<Terms> outputs_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_
