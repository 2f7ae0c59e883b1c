#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("TfrecordDataset")
    .Inputs("filename: string")
    .Outputs("handle: variant")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Reads the records of a TFRecord file as a dataset of scalar strings.

filename: [], of any scheme of TensorFlow's file systems; a name that ends in
  ".gz" is decompressed.

DATA_LOSS "path: record r at byte b: ..." if a checksum is wrong or the file
ends within a record, including its header; INVALID_ARGUMENT if a compressed
file is truncated; NOT_FOUND if the file is missing; FAILED_PRECONDITION if it
is modified while it is read, or its size has changed since the iterator was
saved.
)doc");

}  // namespace lodestar
