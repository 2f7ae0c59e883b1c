#include "tf_ops/ops/shape_fns.h"

#define LODESTAR_KEY_TYPES \
  "{string, int8, int16, int32, int64, uint8, uint16, uint32, uint64}"

namespace lodestar {
namespace {

// Output 0 has the shape of the keys.
absl::Status ValuesOfKeys(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
  c->set_output(0, c->input(1));
  return absl::OkStatus();
}

absl::Status KeysAndValues(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
  ShapeHandle unused;
  return c->Merge(c->input(1), c->input(2), &unused);
}

}  // namespace

REGISTER_OP("Lodestar>IdTable")
    .Output("handle: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("key_dtype: " LODESTAR_KEY_TYPES)
    .Attr("mutable: bool = false")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Creates a table from keys to int64 ids, or finds the one with this name.

handle: Scalar handle of a LookupInterface, also accepted by TensorFlow's lookup
  ops.
key_dtype: The dtype of keys. uint64 keys are stored as the int64 with the same
  bits.
mutable: Whether insert and remove are allowed after the import.
INVALID_ARGUMENT if the table with this name has another key_dtype.
)doc");

REGISTER_OP("Lodestar>IdTableFind")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Input("default_value: int64")
    .Output("values: int64")
    .Attr("Tin: " LODESTAR_KEY_TYPES)
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0, kAnyRank, 0}));
      return ValuesOfKeys(c);
    })
    .Doc(R"doc(
Returns the ids of keys.

keys: Any shape.
default_value: Scalar, the id of missing keys.
values: keys.shape.
FAILED_PRECONDITION before the first import into the table.
INVALID_ARGUMENT if keys are not of the table's key_dtype.
)doc");

REGISTER_OP("Lodestar>IdTableFindOrHash")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Output("values: int64")
    .Attr("Tin: " LODESTAR_KEY_TYPES)
    .Attr("num_oov_buckets: int >= 1")
    .Attr("first_bucket: int >= -1 = -1")
    .Attr("hasher: {'fasthash', 'stronghash', 'legacy'} = 'fasthash'")
    .Attr("hasher_key: list(int) >= 0 = []")
    .SetIsStateful()
    .SetShapeFn(ValuesOfKeys)
    .Doc(R"doc(
Returns the ids of keys, and buckets for missing keys.

keys: Any shape.
values: keys.shape; first_bucket + hash(key) % num_oov_buckets for a missing
  key. An integer key is hashed as its decimal string.
first_bucket: The id of the first bucket; -1 for the table's size.
hasher: TensorFlow's to_hash_bucket_fast, _strong or to_hash_bucket.
hasher_key: Two words for 'stronghash', else empty.
FAILED_PRECONDITION before the first import into the table.
INVALID_ARGUMENT if keys are not of the table's key_dtype.
)doc");

REGISTER_OP("Lodestar>IdTableInsert")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Input("values: int64")
    .Attr("Tin: " LODESTAR_KEY_TYPES)
    .SetIsStateful()
    .SetShapeFn(KeysAndValues)
    .Doc(R"doc(
Inserts keys into a mutable table, or changes their ids.

keys: Any shape; the last of equal keys wins.
values: keys.shape.
FAILED_PRECONDITION if the table is not mutable.
RESOURCE_EXHAUSTED if out of memory; the table is not changed then.
INVALID_ARGUMENT if keys are not of the table's key_dtype, or the shapes differ.
)doc");

REGISTER_OP("Lodestar>IdTableRemove")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Attr("Tin: " LODESTAR_KEY_TYPES)
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Removes keys from a mutable table.

keys: Any shape; missing keys are ignored.
FAILED_PRECONDITION if the table is not mutable.
INVALID_ARGUMENT if keys are not of the table's key_dtype.
)doc");

REGISTER_OP("Lodestar>IdTableImport")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Input("values: int64")
    .Attr("Tin: " LODESTAR_KEY_TYPES)
    .SetIsStateful()
    .SetShapeFn(KeysAndValues)
    .Doc(R"doc(
Replaces the contents of the table.

keys: Any shape; a key may be repeated with the same id.
values: keys.shape.
INVALID_ARGUMENT, with the key, if it has two ids; the table is not changed
then.
RESOURCE_EXHAUSTED if out of memory; the table is not changed then.
)doc");

REGISTER_OP("Lodestar>IdTableImportFile")
    .Input("handle: resource")
    .Input("path: string")
    .Attr("key_column: int >= -2 = -2")
    .Attr("value_column: int >= -2 = -1")
    .Attr("delimiter: string = '\t'")
    .Attr("vocab_size: int >= -1 = -1")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 0}))
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

REGISTER_OP("Lodestar>IdTableExport")
    .Input("handle: resource")
    .Output("keys: Tkeys")
    .Output("values: int64")
    .Attr("Tkeys: " LODESTAR_KEY_TYPES)
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      const DimensionHandle n = c->UnknownDim();
      c->set_output(0, c->Vector(n));
      c->set_output(1, c->Vector(n));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns all keys and ids.

keys: [N], in ascending order of their ids; empty before the first import.
values: [N].
INVALID_ARGUMENT if Tkeys is not the table's key_dtype.
)doc");

REGISTER_OP("Lodestar>IdTableSize")
    .Input("handle: resource")
    .Output("size: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the number of keys.
)doc");

}  // namespace lodestar

#undef LODESTAR_KEY_TYPES
