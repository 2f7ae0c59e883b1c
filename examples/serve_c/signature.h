// The signature of a SavedModel: which tensors of its graph are fed and
// fetched.
//
// The C API returns the model's MetaGraphDef as a serialized protocol buffer,
// and the caller must parse the signatures.

#ifndef EXAMPLES_SERVE_C_SIGNATURE_H_
#define EXAMPLES_SERVE_C_SIGNATURE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensorflow/c/tf_buffer.h"
#include "tensorflow/c/tf_datatype.h"
#include "tensorflow/c/tf_status.h"

#define MAX_RANK 8

// An input or output. An unknown `rank` or size is -1.
typedef struct {
  char* name;    // of the signature: ids_values
  char* tensor;  // of the graph: serving_default_ids_values:0
  TF_DataType dtype;
  int rank;
  int64_t sizes[MAX_RANK];
} Argument;

typedef struct {
  Argument* items;
  size_t count;
} Arguments;

typedef struct {
  Arguments inputs;
  Arguments outputs;
} Signature;

// Reads the signature `name` of a serialized MetaGraphDef.
//
// The error for an unknown name lists the known ones.
bool read_signature(const TF_Buffer* meta_graph, const char* name,
                    Signature* signature, TF_Status* status);

void free_signature(Signature* signature);

#endif  // EXAMPLES_SERVE_C_SIGNATURE_H_
