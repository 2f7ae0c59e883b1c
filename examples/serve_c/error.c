#include "examples/serve_c/error.h"

#include <stdarg.h>
#include <stdio.h>

bool fail(TF_Status* status, const char* format, ...) {
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  TF_SetStatus(status, TF_INVALID_ARGUMENT, message);
  return false;
}

bool is_ok(const TF_Status* status) { return TF_GetCode(status) == TF_OK; }
