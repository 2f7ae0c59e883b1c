#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("ParseExamples")
    .Inputs("data: string", "offset: int64", "names: string", "kinds: int64",
            "nested: bool")
    .Outputs("row_splits: num_columns * int64",
             "list_splits: num_columns * int64",
             "value_splits: num_columns * int64", "values: num_columns * uint8",
             "found_kinds: int64", "bad_rows: int64", "faults: string")
    .Attrs("num_columns: int >= 0")
    .Stateless([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0, 0, 1, 1, 1}));
      for (int i = 0; i < c->num_outputs(); ++i) {
        c->set_output(i, c->UnknownShapeOfRank(1));
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Parses the records of a TFRecord block to columns.

data: [], the bytes of a block of Lodestar>IndexExamples.
offset: [], the first byte of the block in its file, for errors.
names: [C], distinct names of features.
kinds: [C], how each feature is stored, as in Lodestar>IndexExamples; if 0, the
  first value determines the kind.
nested: [C], whether each row is a list of lists, read from a feature list.
row_splits: Per column [B + 1], where each row begins in the values, or if
  nested in the lists.
list_splits: Per column where each list begins in the values, if nested.
value_splits: Per column where each value begins in the bytes, if the kind is 1.
values: Per column the bytes of the values: text for kind 1, float for kind 2,
  int64 for kind 3.
found_kinds: [C], the kind of each column; 0 without a value.
bad_rows: [E], ascending, the rows that cannot be parsed. They have no values in
  some columns.
faults: [E], the error of each bad row.
DATA_LOSS if the data are not whole records.
)doc");

}  // namespace lodestar
