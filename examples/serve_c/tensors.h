// Conversion between strings of the command line and tensors.

#ifndef EXAMPLES_SERVE_C_TENSORS_H_
#define EXAMPLES_SERVE_C_TENSORS_H_

#include <stdbool.h>
#include <stdio.h>

#include "examples/serve_c/signature.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_tensor.h"

// Parses `text` into a tensor for the input `argument`; NULL on error.
//
// `text` is a comma-separated list of values, such as 1,2,3; it may be empty.
// In a string value, escape a comma or backslash with a backslash. The shape is
// the signature's; one unknown size follows from the number of values. If more
// sizes are unknown, `text` begins with the shape: [2,3]1,2,3,4,5,6.
TF_Tensor* parse_tensor(const Argument* argument, const char* text,
                        TF_Status* status);

// Frees a tensor of parse_tensor; NULL is allowed.
void free_parsed_tensor(TF_Tensor* tensor);

// Whether print_tensor can write values of this type.
bool is_printable(TF_DataType dtype);

// Writes a line to `out`: name [sizes] values. Floating-point numbers have
// enough digits to restore the same bits.
void print_tensor(const char* name, const TF_Tensor* tensor, FILE* out);

#endif  // EXAMPLES_SERVE_C_TENSORS_H_
