#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

// `list`, a scalar, is the name of a file list of this process.

LODESTAR_OP("FileListPut")
    .Inputs("list: string", "filenames: string", "seed: int64")
    .Stateful(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Creates a file list, or replaces its files.

filenames: [F].
seed: Seed of the shuffles, if the list is new.
)doc");

LODESTAR_OP("FileListNext")
    .Inputs("list: string")
    .Outputs("filenames: string")
    .Attrs("shuffle: bool")
    .Stateful(Shapes("[] -> [?]"))
    .Doc(R"doc(
Returns the files of the next epoch. NOT_FOUND if the list was removed.

shuffle: Whether to shuffle the files for this epoch.
)doc");

LODESTAR_OP("FileListForget")
    .Inputs("list: string")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Removes a file list.
)doc");

}  // namespace lodestar
