// Functions of this program report errors in a TF_Status.

#ifndef EXAMPLES_SERVE_C_ERROR_H_
#define EXAMPLES_SERVE_C_ERROR_H_

#include <stdbool.h>

#include "tensorflow/c/tf_status.h"

// Sets `status` to a message formatted as by printf; returns false.
bool fail(TF_Status* status, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// Whether `status` is OK.
bool is_ok(const TF_Status* status);

#endif  // EXAMPLES_SERVE_C_ERROR_H_
