#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("IndexText")
    .Inputs("filename: string", "block_bytes: int64", "delimiter: string",
            "quote: string", "skip_lines: int64", "num_fields: int64")
    .Outputs("offsets: int64", "records: int64", "size: int64",
             "ends_with_newline: bool")
    .Stateful(Shapes("[], [], [], [], [], [] -> [?], [?], [], []"))
    .Doc(R"doc(
Finds where a text file, such as CSV, can be cut into independent blocks.

Follows pyarrow.csv with newlines_in_values, double_quote and
ignore_empty_lines. A record ends at LF, CR LF or CR outside quotes, a quote
opens only at the start of a field and must close before a delimiter or a line
end, and empty lines are not records. A UTF-8 byte order mark at the start of
the file is not part of a field.

filename: Scalar; a file whose name ends in ".gz" is decompressed.
block_bytes: Scalar, 1 or more. A block ends at the first line end that makes it
  at least this long.
delimiter: Scalar, one ASCII character other than NUL, CR and LF.
quote: Scalar, another such character, or empty if no character quotes.
skip_lines: Scalar, 0 or more, the number of lines before the first record.
num_fields: Scalar. If it is not 0, a record that spans lines is an error if
  each of its lines has this number of fields without quoting.
offsets: [G + 1], the first byte of each of G blocks, then `size`. Bytes are
  counted in the decompressed file.
records: [G], the number of records in each block. It is 0 for a block that has
  only empty lines.
size: Scalar, the number of bytes in the decompressed file.
ends_with_newline: Scalar, whether the last record ends with a line end. True if
  the file has no records.
INVALID_ARGUMENT, with the file and the line (from 1), if quotes are not closed,
close before other text or have two readings; INVALID_ARGUMENT, with the file,
if a ".gz" file is damaged; NOT_FOUND and similar errors, with the file, if it
cannot be read; FAILED_PRECONDITION, with the file, if it changes while it is
read.
)doc");

}  // namespace lodestar
