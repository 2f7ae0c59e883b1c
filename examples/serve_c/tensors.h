// Tensors from the text of the command line, and back to text.

#ifndef EXAMPLES_SERVE_C_TENSORS_H_
#define EXAMPLES_SERVE_C_TENSORS_H_

#include <stdbool.h>
#include <stdio.h>

#include "examples/serve_c/signature.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_tensor.h"

// Makes the tensor that `text` says for the input `argument`; NULL on error.
//
// `text` holds values between commas, none if it is empty: 1,2,3. A string's
// own comma and backslash have a backslash before them. The shape is that of
// the signature, its one unknown size from the number of values; if more sizes
// are unknown, `text` begins with the shape: [2,3]1,2,3,4,5,6.
TF_Tensor* parse_tensor(const Argument* argument, const char* text,
                        TF_Status* status);

// Frees a tensor of parse_tensor; NULL is allowed.
void free_parsed_tensor(TF_Tensor* tensor);

// Whether print_tensor can write values of this type.
bool is_printable(TF_DataType dtype);

// Writes a line to `out`: name [sizes] values. Floating-point numbers have as
// many digits as it takes to read the same bits again.
void print_tensor(const char* name, const TF_Tensor* tensor, FILE* out);

#endif  // EXAMPLES_SERVE_C_TENSORS_H_
