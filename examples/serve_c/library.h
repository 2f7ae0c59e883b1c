// Loads a library of custom ops.

#ifndef EXAMPLES_SERVE_C_LIBRARY_H_
#define EXAMPLES_SERVE_C_LIBRARY_H_

#include "tensorflow/c/c_api.h"

// Registers the ops and kernels of the shared object at `path`. Returns NULL on
// error, including a library without ops. The caller deletes the handle; the
// ops stay registered.
TF_Library* load_ops(const char* path, TF_Status* status);

#endif  // EXAMPLES_SERVE_C_LIBRARY_H_
