#include "examples/serve_c/tensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "examples/serve_c/error.h"
#include "tensorflow/c/tf_tstring.h"

// 0 if this program does not support the type.
static size_t size_of(TF_DataType dtype) {
  switch (dtype) {
    case TF_FLOAT:
    case TF_INT32:
      return 4;
    case TF_DOUBLE:
    case TF_INT64:
      return 8;
    case TF_BOOL:
      return 1;
    case TF_STRING:
      return sizeof(TF_TString);
    default:
      return 0;
  }
}

bool is_printable(TF_DataType dtype) { return size_of(dtype) != 0; }

static const char* name_of(TF_DataType dtype) {
  switch (dtype) {
    case TF_FLOAT:
      return "a float";
    case TF_DOUBLE:
      return "a double";
    case TF_INT32:
      return "an int32";
    case TF_INT64:
      return "an int64";
    case TF_BOOL:
      return "0 or 1";
    default:
      return "a string";
  }
}

static size_t count_values(const char* text) {
  if (*text == '\0') return 0;
  size_t count = 1;
  for (; *text != '\0'; ++text) {
    if (*text == '\\' && text[1] != '\0') {
      ++text;
    } else if (*text == ',') {
      ++count;
    }
  }
  return count;
}

// Copies the value at `*text` without its backslashes to `value`, which must be
// large enough, and moves `*text` past the comma. Returns the length.
static size_t next_value(const char** text, char* value) {
  size_t length = 0;
  while (**text != '\0' && **text != ',') {
    if (**text == '\\' && (*text)[1] != '\0') ++*text;
    value[length++] = *(*text)++;
  }
  value[length] = '\0';
  if (**text == ',') ++*text;
  return length;
}

// Writes `value` to element `i` of `data`; false if it does not fit `dtype`.
static bool store_value(TF_DataType dtype, const char* value, size_t length,
                        void* data, size_t i) {
  char* end = NULL;
  errno = 0;
  switch (dtype) {
    case TF_STRING:
      TF_StringCopy((TF_TString*)data + i, value, length);
      return true;
    case TF_FLOAT:
      ((float*)data)[i] = strtof(value, &end);
      break;
    case TF_DOUBLE:
      ((double*)data)[i] = strtod(value, &end);
      break;
    default: {
      const long long number = strtoll(value, &end, 10);
      if (dtype == TF_INT64) {
        ((int64_t*)data)[i] = number;
      } else if (dtype == TF_INT32) {
        if (number < INT32_MIN || number > INT32_MAX) return false;
        ((int32_t*)data)[i] = (int32_t)number;
      } else {
        if (number < 0 || number > 1) return false;
        ((unsigned char*)data)[i] = (unsigned char)number;
      }
    }
  }
  return end != value && *end == '\0' && errno != ERANGE;
}

// Reads a shape such as [2,3] at `*text`; without one, sets `rank` to -1.
static bool parse_shape(const char** text, int* rank, int64_t* sizes) {
  *rank = -1;
  if (**text != '[') return true;
  ++*text;
  for (*rank = 0; **text != ']'; ++*rank) {
    char* end;
    if (*rank == MAX_RANK) return false;
    errno = 0;
    sizes[*rank] = strtoll(*text, &end, 10);
    if (end == *text || errno != 0 || sizes[*rank] < 0) return false;
    if (*end == ',') ++end;
    *text = end;
  }
  ++*text;
  return true;
}

// Computes the unknown size, of which there is at most one, from `count`.
static bool complete_shape(int rank, int64_t* sizes, size_t count) {
  uint64_t known = 1;
  int unknown = -1;
  for (int axis = 0; axis < rank; ++axis) {
    if (sizes[axis] < 0) {
      unknown = axis;
    } else if (sizes[axis] != 0 && known > count / (uint64_t)sizes[axis]) {
      known = count + 1;  // Too many, whatever the others are.
    } else {
      known *= (uint64_t)sizes[axis];
    }
  }
  if (unknown >= 0) {
    sizes[unknown] = known == 0 ? 0 : (int64_t)(count / known);
    known *= (uint64_t)sizes[unknown];
  }
  return known == count;
}

// Whether a tensor of these sizes matches the signature.
static bool fits(const Argument* argument, int rank, const int64_t* sizes) {
  if (argument->rank < 0) return true;
  if (argument->rank != rank) return false;
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t wanted = argument->sizes[axis];
    if (wanted >= 0 && wanted != sizes[axis]) return false;
  }
  return true;
}

static bool find_shape(const Argument* argument, const char** text, int* rank,
                       int64_t* sizes, TF_Status* status) {
  const char* name = argument->name;
  if (!parse_shape(text, rank, sizes)) {
    return fail(status, "the shape of `%s` must look like [2,3]", name);
  }
  if (*rank < 0) {
    int unknown = argument->rank < 0 ? 2 : 0;
    for (int axis = 0; axis < argument->rank; ++axis) {
      unknown += argument->sizes[axis] < 0;
    }
    if (unknown > 1) {
      return fail(status,
                  "the model does not fix the shape of `%s`; put it before "
                  "the values, as in [2,3]1,2,3,4,5,6",
                  name);
    }
    *rank = argument->rank;
    memcpy(sizes, argument->sizes, sizeof(argument->sizes));
  } else if (!fits(argument, *rank, sizes)) {
    return fail(status, "`%s` has a shape that the signature does not allow",
                name);
  }
  const size_t count = count_values(*text);
  if (!complete_shape(*rank, sizes, count)) {
    return fail(status, "`%s` has %zu values, which do not fill its shape",
                name, count);
  }
  return true;
}

TF_Tensor* parse_tensor(const Argument* argument, const char* text,
                        TF_Status* status) {
  const TF_DataType dtype = argument->dtype;
  if (size_of(dtype) == 0) {
    fail(status,
         "`%s` has values of TF_DataType %d, which this program "
         "cannot read",
         argument->name, (int)dtype);
    return NULL;
  }
  int rank;
  int64_t sizes[MAX_RANK];
  if (!find_shape(argument, &text, &rank, sizes, status)) return NULL;
  const size_t count = count_values(text);
  char* value = malloc(strlen(text) + 1);
  TF_Tensor* tensor = value == NULL ? NULL
                                    : TF_AllocateTensor(dtype, sizes, rank,
                                                        count * size_of(dtype));
  if (tensor == NULL) {
    free(value);
    fail(status, "out of memory");
    return NULL;
  }
  void* data = TF_TensorData(tensor);
  if (dtype == TF_STRING) {
    for (size_t i = 0; i < count; ++i) TF_StringInit((TF_TString*)data + i);
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t length = next_value(&text, value);
    if (store_value(dtype, value, length, data, i)) continue;
    fail(status, "value %zu of `%s` must be %s, got '%s'", i, argument->name,
         name_of(dtype), value);
    free_parsed_tensor(tensor);
    tensor = NULL;
    break;
  }
  free(value);
  return tensor;
}

void free_parsed_tensor(TF_Tensor* tensor) {
  if (tensor == NULL) return;
  if (TF_TensorType(tensor) == TF_STRING) {
    TF_TString* strings = TF_TensorData(tensor);
    for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i) {
      TF_StringDealloc(&strings[i]);
    }
  }
  TF_DeleteTensor(tensor);
}

void print_tensor(const char* name, const TF_Tensor* tensor, FILE* out) {
  fprintf(out, "%s [", name);
  for (int axis = 0; axis < TF_NumDims(tensor); ++axis) {
    fprintf(out, "%s%" PRId64, axis == 0 ? "" : ",", TF_Dim(tensor, axis));
  }
  fprintf(out, "]");
  const void* data = TF_TensorData(tensor);
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i) {
    switch (TF_TensorType(tensor)) {
      case TF_FLOAT:
        fprintf(out, " %.9g", ((const float*)data)[i]);
        break;
      case TF_DOUBLE:
        fprintf(out, " %.17g", ((const double*)data)[i]);
        break;
      case TF_INT32:
        fprintf(out, " %" PRId32, ((const int32_t*)data)[i]);
        break;
      case TF_INT64:
        fprintf(out, " %" PRId64, ((const int64_t*)data)[i]);
        break;
      case TF_BOOL:
        fprintf(out, " %d", ((const unsigned char*)data)[i]);
        break;
      default: {
        const TF_TString* text = (const TF_TString*)data + i;
        fprintf(out, " %.*s", (int)TF_StringGetSize(text),
                TF_StringGetDataPointer(text));
      }
    }
  }
  fprintf(out, "\n");
}
