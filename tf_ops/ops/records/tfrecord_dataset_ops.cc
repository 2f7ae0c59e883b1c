#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>TfrecordDataset")
    .Input("filename: string")
    .Output("handle: variant")
    .SetDoNotOptimize()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Reads the records of a TFRecord file as a dataset of scalar strings.

filename: [], of any scheme that TensorFlow's file systems know; a name that
  ends in ".gz" is decompressed.

DATA_LOSS "path: record r at byte b: ..." if a checksum is wrong or the file ends
within a record, its header included; INVALID_ARGUMENT if a compressed file is
cut short; NOT_FOUND if the file is missing; FAILED_PRECONDITION if it is written
to while it is read, or has another size than when the iterator was saved.
)doc");

}  // namespace lodestar
