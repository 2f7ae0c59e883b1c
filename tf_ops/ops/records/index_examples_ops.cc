#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("IndexExamples")
    .Inputs("filename: string", "block_bytes: int64",
            "described_records: int64")
    .Outputs("offsets: int64", "records: int64", "names: string",
             "kinds: int64", "levels: int64", "described: int64")
    .Stateful(Shapes("[], [], [] -> [?], [?], [k], [k], [k], []"))
    .Doc(R"doc(
Finds where a TFRecord file of tf.Examples or tf.SequenceExamples can be cut into
independent blocks, and describes the features of the first ones.

filename: [], of any scheme of TensorFlow's file systems; a name that ends in
  ".gz" is decompressed.
block_bytes: [], 1 or more. A block ends at a record that makes it at least
  this long.
described_records: []. The features of this many records are described, rounded
  up to whole blocks.
offsets: [G + 1], the first byte of each of G blocks, then the end of the last
  one. Bytes are counted in the decompressed file.
records: [G], the number of records in each block, at least 1.
names: [K], the names of the features, sorted.
kinds: [K], how the first record with a value stores a feature: 1 (bytes_list),
  2 (float_list) or 3 (int64_list), or 0 without a value.
levels: [K], the levels of lists. 0: no record has several values. 1: a list, or
  a feature list in which each step has one value. 2: any other feature list.
described: [], the number of blocks that names, kinds and levels describe.

DATA_LOSS "path: record r at byte b: ..." if the checksum of a length is wrong or
the file ends within a record, including its header; INVALID_ARGUMENT if a
compressed file is truncated; NOT_FOUND if the file is missing;
FAILED_PRECONDITION if it is modified while it is read. Other checksums are
verified by Lodestar>ParseExamples.
)doc");

}  // namespace lodestar
