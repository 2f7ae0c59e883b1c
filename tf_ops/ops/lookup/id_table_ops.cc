#include "tf_ops/ops/shape_fns.h"

#define LODESTAR_KEY_TYPES \
  "{string, int8, int16, int32, int64, uint8, uint16, uint32, uint64}"

namespace lodestar {
LODESTAR_OP("IdTable")
    .Outputs("handle: resource")
    .Attrs("container: string = ''", "shared_name: string = ''",
           "key_dtype: " LODESTAR_KEY_TYPES, "mutable: bool = false")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Creates a table from keys to int64 ids, or finds the one with this name.

handle: Scalar handle of a LookupInterface, also accepted by TensorFlow's lookup
  ops.
key_dtype: The dtype of keys. uint64 keys are stored as the int64 with the same
  bits.
mutable: Whether insert and remove are allowed after the import.
INVALID_ARGUMENT if the table with this name has another key_dtype.
)doc");

LODESTAR_OP("IdTableFind")
    .Inputs("handle: resource", "keys: Tin", "default_value: int64")
    .Outputs("values: int64")
    .Attrs("Tin: " LODESTAR_KEY_TYPES)
    .Stateful(Shapes("[], [...k], [] -> [...k]"))
    .Doc(R"doc(
Returns the ids of keys.

keys: Any shape.
default_value: Scalar, the id of missing keys.
values: keys.shape.
FAILED_PRECONDITION before the first import into the table.
INVALID_ARGUMENT if keys are not of the table's key_dtype.
)doc");

LODESTAR_OP("IdTableFindOrHash")
    .Inputs("handle: resource", "keys: Tin")
    .Outputs("values: int64")
    .Attrs("Tin: " LODESTAR_KEY_TYPES, "num_oov_buckets: int >= 1",
           "first_bucket: int >= -1 = -1",
           "hasher: {'fast', 'strong', 'legacy'} = 'fast'",
           "hasher_key: list(int) >= 0 = []")
    .Stateful(Shapes("[], [...k] -> [...k]"))
    .Doc(R"doc(
Returns the ids of keys, and buckets for missing keys.

keys: Any shape.
values: keys.shape; first_bucket + hash(key) % num_oov_buckets for a missing
  key. An integer key is hashed as its decimal string.
first_bucket: The id of the first bucket; -1 for the table's size.
hasher: tf.strings.to_hash_bucket_fast, _strong or to_hash_bucket.
hasher_key: Two words for 'strong', else empty.
FAILED_PRECONDITION before the first import into the table.
INVALID_ARGUMENT if keys are not of the table's key_dtype.
)doc");

LODESTAR_OP("IdTableInsert")
    .Inputs("handle: resource", "keys: Tin", "values: int64")
    .Attrs("Tin: " LODESTAR_KEY_TYPES)
    .Stateful(Shapes("[], [...k], [...k]"))
    .Doc(R"doc(
Inserts keys into a mutable table, or changes their ids.

keys: Any shape; the last of equal keys wins.
values: keys.shape.
FAILED_PRECONDITION if the table is not mutable.
RESOURCE_EXHAUSTED if out of memory; the table is not changed then.
INVALID_ARGUMENT if keys are not of the table's key_dtype, or the shapes differ.
)doc");

LODESTAR_OP("IdTableRemove")
    .Inputs("handle: resource", "keys: Tin")
    .Attrs("Tin: " LODESTAR_KEY_TYPES)
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Removes keys from a mutable table.

keys: Any shape; missing keys are ignored.
FAILED_PRECONDITION if the table is not mutable.
INVALID_ARGUMENT if keys are not of the table's key_dtype.
)doc");

LODESTAR_OP("IdTableImport")
    .Inputs("handle: resource", "keys: Tin", "values: int64")
    .Attrs("Tin: " LODESTAR_KEY_TYPES)
    .Stateful(Shapes("[], [...k], [...k]"))
    .Doc(R"doc(
Replaces the contents of the table.

keys: Any shape; a key may be repeated with the same id.
values: keys.shape.
INVALID_ARGUMENT, with the key, if it has two ids; the table is not changed
then.
RESOURCE_EXHAUSTED if out of memory; the table is not changed then.
)doc");

LODESTAR_OP("IdTableImportFile")
    .Inputs("handle: resource", "path: string")
    .Attrs("key_column: int >= -2 = -2", "value_column: int >= -2 = -1",
           "delimiter: string = '\t'", "vocab_size: int >= -1 = -1")
    .Stateful(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Replaces the contents of the table by the keys of a text file.

path: Scalar; a name that ends in ".gz" is decompressed.
key_column: The column of the key, from 0; -2 for the whole line, -1 for the
  line number from 0.
value_column: The column of the id, an int64, like key_column.
delimiter: One character that separates columns.
vocab_size: The number of lines to read; -1 for all.
INVALID_ARGUMENT, with the file and the line, if a line is empty or has too few
columns, an id is not an integer, or a key has two ids; or if the file is empty
or has fewer lines than vocab_size. NOT_FOUND and similar errors, with the file,
if it cannot be read. RESOURCE_EXHAUSTED if out of memory. The table is not
changed after an error.
)doc");

LODESTAR_OP("IdTableExport")
    .Inputs("handle: resource")
    .Outputs("keys: Tkeys", "values: int64")
    .Attrs("Tkeys: " LODESTAR_KEY_TYPES)
    .Stateful(Shapes("[] -> [n], [n]"))
    .Doc(R"doc(
Returns all keys and ids.

keys: [N], in ascending order of their ids; empty before the first import.
values: [N].
INVALID_ARGUMENT if Tkeys is not the table's key_dtype.
)doc");

LODESTAR_OP("IdTableSize")
    .Inputs("handle: resource")
    .Outputs("size: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the number of keys.
)doc");

LODESTAR_OP("IdTableMemoryUsed")
    .Inputs("handle: resource")
    .Outputs("bytes: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the memory of the table's keys and ids, on the host and in the copy that
lookups on a GPU read.
)doc");

}  // namespace lodestar

#undef LODESTAR_KEY_TYPES
