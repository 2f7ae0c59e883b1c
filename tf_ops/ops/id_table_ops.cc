// Ops of id tables.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Values of the keys' shape.
absl::Status ValuesOfKeys(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckHandle(c));
  c->set_output(0, c->input(1));
  return absl::OkStatus();
}

absl::Status KeysAndValues(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckHandle(c));
  ShapeHandle unused;
  return c->Merge(c->input(1), c->input(2), &unused);
}

}  // namespace

REGISTER_OP("Lodestar>IdTable")
    .Output("handle: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("key_dtype: {string, int32, int64}")
    .Attr("mutable: bool = false")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Creates a table of keys to int64 ids, or finds the one of this name.

handle: Handle of a LookupInterface, which TensorFlow's look-up ops take too.
mutable: Whether insert and remove are allowed after the import.
)doc");

REGISTER_OP("Lodestar>IdTableFind")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Input("default_value: int64")
    .Output("values: int64")
    .Attr("Tin: {string, int32, int64}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 0, &unused));
      return ValuesOfKeys(c);
    })
    .Doc(R"doc(
The ids of keys.

keys: Any shape.
default_value: Scalar, the id of a key that is not there.
values: keys.shape.
FAILED_PRECONDITION before the table has been imported into.
)doc");

REGISTER_OP("Lodestar>IdTableFindOrHash")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Output("values: int64")
    .Attr("Tin: {string, int32, int64}")
    .Attr("num_oov_buckets: int >= 1")
    .Attr("hasher: {'fasthash', 'stronghash', 'legacy'} = 'fasthash'")
    .Attr("hasher_key: list(int) >= 0 = []")
    .SetIsStateful()
    .SetShapeFn(ValuesOfKeys)
    .Doc(R"doc(
The ids of keys; a key that is not there is hashed to a bucket.

keys: Any shape.
values: keys.shape; a miss gives size + hash(key) % num_oov_buckets, where an
  integer key hashes as its decimal text.
hasher: TensorFlow's to_hash_bucket_fast, _strong or to_hash_bucket.
hasher_key: Two words for 'stronghash', else none.
FAILED_PRECONDITION before the table has been imported into.
)doc");

REGISTER_OP("Lodestar>IdTableInsert")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Input("values: int64")
    .Attr("Tin: {string, int32, int64}")
    .SetIsStateful()
    .SetShapeFn(KeysAndValues)
    .Doc(R"doc(
Adds keys to a mutable table, or gives them other ids.

keys: Any shape; the last of equal keys wins.
values: keys.shape.
FAILED_PRECONDITION if the table is not mutable.
)doc");

REGISTER_OP("Lodestar>IdTableRemove")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Attr("Tin: {string, int32, int64}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) { return CheckHandle(c); })
    .Doc(R"doc(
Removes keys from a mutable table.

keys: Any shape; keys that are not there are passed over.
FAILED_PRECONDITION if the table is not mutable.
)doc");

REGISTER_OP("Lodestar>IdTableImport")
    .Input("handle: resource")
    .Input("keys: Tin")
    .Input("values: int64")
    .Attr("Tin: {string, int32, int64}")
    .SetIsStateful()
    .SetShapeFn(KeysAndValues)
    .Doc(R"doc(
Makes these keys all that the table holds.

keys: [N]; a key may repeat with the same id.
values: [N].
INVALID_ARGUMENT, naming the key, if it has two ids; the table is as before.
)doc");

REGISTER_OP("Lodestar>IdTableExport")
    .Input("handle: resource")
    .Output("keys: Tkeys")
    .Output("values: int64")
    .Attr("Tkeys: {string, int32, int64}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckHandle(c));
      const DimensionHandle n = c->UnknownDim();
      c->set_output(0, c->Vector(n));
      c->set_output(1, c->Vector(n));
      return absl::OkStatus();
    })
    .Doc(R"doc(
All keys and ids.

keys: [N], in ascending order of their ids.
values: [N].
)doc");

REGISTER_OP("Lodestar>IdTableSize")
    .Input("handle: resource")
    .Output("size: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckHandle(c));
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
The number of keys.
)doc");

}  // namespace lodestar
