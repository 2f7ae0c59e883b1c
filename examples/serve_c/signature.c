// Field numbers are defined by meta_graph.proto and tensor_shape.proto in
// TensorFlow's tensorflow/core/protobuf and tensorflow/core/framework.

#include "examples/serve_c/signature.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/serve_c/error.h"

typedef struct {
  const unsigned char* at;
  const unsigned char* end;
} Bytes;

// A field: a number, or bytes; `number` is unused for bytes.
typedef struct {
  uint64_t id;
  uint64_t number;
  Bytes bytes;
} Field;

static bool read_varint(Bytes* in, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && in->at < in->end; shift += 7) {
    const unsigned char byte = *in->at++;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Returns false at the end of `in`, or if it is not a protocol buffer; in that
// case `in` is not empty.
static bool next_field(Bytes* in, Field* field) {
  if (in->at == in->end) return false;
  const Bytes before = *in;
  uint64_t key;
  uint64_t size = 0;
  bool ok = read_varint(in, &key);
  field->id = key >> 3;
  field->number = 0;
  switch (ok ? key & 7 : 7) {
    case 0:  // varint
      ok = read_varint(in, &field->number);
      break;
    case 1:
      size = 8;
      break;
    case 2:  // bytes behind their length
      ok = read_varint(in, &size);
      break;
    case 5:
      size = 4;
      break;
    default:
      ok = false;
  }
  if (!ok || size > (uint64_t)(in->end - in->at)) {
    *in = before;
    return false;
  }
  field->bytes.at = in->at;
  field->bytes.end = in->at += size;
  return true;
}

// The first field `id`; empty if it is missing.
static Bytes find_bytes(Bytes in, uint64_t id) {
  Field field;
  while (next_field(&in, &field)) {
    if (field.id == id) return field.bytes;
  }
  return (Bytes){in.end, in.end};
}

static uint64_t find_number(Bytes in, uint64_t id) {
  Field field;
  while (next_field(&in, &field)) {
    if (field.id == id) return field.number;
  }
  return 0;
}

static size_t length(Bytes bytes) { return bytes.end - bytes.at; }

static char* copy_text(Bytes bytes) {
  char* text = malloc(length(bytes) + 1);
  if (text == NULL) return NULL;
  if (length(bytes) > 0) memcpy(text, bytes.at, length(bytes));
  text[length(bytes)] = '\0';
  return text;
}

static bool equals(Bytes bytes, const char* text) {
  return length(bytes) == strlen(text) &&
         memcmp(bytes.at, text, length(bytes)) == 0;
}

// A TensorInfo: name 1, dtype 2, tensor_shape 3 {dim 2 {size 1}, unknown_rank
// 3}.
static bool read_argument(Bytes name, Bytes info, Argument* argument,
                          TF_Status* status) {
  argument->name = copy_text(name);
  argument->tensor = copy_text(find_bytes(info, 1));
  if (argument->name == NULL || argument->tensor == NULL) {
    return fail(status, "out of memory");
  }
  if (argument->tensor[0] == '\0') {
    return fail(status, "`%s` of the signature is not one dense tensor",
                argument->name);
  }
  argument->dtype = (TF_DataType)find_number(info, 2);
  Bytes shape = find_bytes(info, 3);
  argument->rank = find_number(shape, 3) ? -1 : 0;
  Field dim;
  while (argument->rank >= 0 && next_field(&shape, &dim)) {
    if (dim.id != 2) continue;
    if (argument->rank == MAX_RANK) {
      return fail(status, "`%s` of the signature has more than %d dimensions",
                  argument->name, MAX_RANK);
    }
    argument->sizes[argument->rank++] = (int64_t)find_number(dim.bytes, 1);
  }
  return true;
}

static int by_name(const void* left, const void* right) {
  return strcmp(((const Argument*)left)->name, ((const Argument*)right)->name);
}

// The entries of the map in field `id`, key 1 and value 2, in order of names.
static bool read_arguments(Bytes signature, uint64_t id, Arguments* arguments,
                           TF_Status* status) {
  Field field;
  while (next_field(&signature, &field)) {
    if (field.id != id) continue;
    Argument* items =
        realloc(arguments->items, (arguments->count + 1) * sizeof(*items));
    if (items == NULL) return fail(status, "out of memory");
    arguments->items = items;
    Argument* argument = &items[arguments->count++];
    memset(argument, 0, sizeof(*argument));
    if (!read_argument(find_bytes(field.bytes, 1), find_bytes(field.bytes, 2),
                       argument, status)) {
      return false;
    }
  }
  if (signature.at != signature.end) {
    return fail(status, "the signature is not a protocol buffer");
  }
  if (arguments->count > 1) {
    qsort(arguments->items, arguments->count, sizeof(Argument), by_name);
  }
  return true;
}

bool read_signature(const TF_Buffer* meta_graph, const char* name,
                    Signature* signature, TF_Status* status) {
  memset(signature, 0, sizeof(*signature));
  Bytes in = {meta_graph->data,
              (const unsigned char*)meta_graph->data + meta_graph->length};
  char names[512] = "";
  Field field;
  while (next_field(&in, &field)) {
    if (field.id != 5) continue;  // signature_def, a map
    const Bytes key = find_bytes(field.bytes, 1);
    const Bytes value = find_bytes(field.bytes, 2);
    if (equals(key, name)) {
      // SignatureDef: inputs 1, outputs 2, both maps.
      const bool ok = read_arguments(value, 1, &signature->inputs, status) &&
                      read_arguments(value, 2, &signature->outputs, status);
      if (!ok) free_signature(signature);
      return ok;
    }
    const size_t used = strlen(names);
    snprintf(names + used, sizeof(names) - used, "%s%.*s", used ? ", " : "",
             (int)length(key), (const char*)key.at);
  }
  if (in.at != in.end) {
    return fail(status, "the model's MetaGraphDef is not a protocol buffer");
  }
  return fail(status, "the model has no signature `%s`; it has: %s", name,
              names);
}

static void free_arguments(Arguments* arguments) {
  for (size_t i = 0; i < arguments->count; ++i) {
    free(arguments->items[i].name);
    free(arguments->items[i].tensor);
  }
  free(arguments->items);
  memset(arguments, 0, sizeof(*arguments));
}

void free_signature(Signature* signature) {
  free_arguments(&signature->inputs);
  free_arguments(&signature->outputs);
}
