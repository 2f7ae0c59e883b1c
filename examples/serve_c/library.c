#include "examples/serve_c/library.h"

#include <elf.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "examples/serve_c/error.h"

// Whether a 64-bit shared object contains its last table.
//
// The loader accepts a truncated file, and the process dies of a bus error. It
// reports all other errors itself.
static bool is_whole(const char* path) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return true;
  Elf64_Ehdr header;
  bool whole = true;
  if (fread(&header, sizeof(header), 1, file) == 1 &&
      memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
      header.e_ident[EI_CLASS] == ELFCLASS64 && fseek(file, 0, SEEK_END) == 0) {
    const Elf64_Off table = (Elf64_Off)header.e_shentsize * header.e_shnum;
    const Elf64_Off size = (Elf64_Off)ftell(file);
    whole = header.e_shoff <= size && table <= size - header.e_shoff;
  }
  fclose(file);
  return whole;
}

TF_Library* load_ops(const char* path, TF_Status* status) {
  if (!is_whole(path)) {
    fail(status, "%s is truncated", path);
    return NULL;
  }
  TF_Library* library = TF_LoadLibrary(path, status);
  if (!is_ok(status)) return NULL;
  if (TF_GetOpList(library).length == 0) {
    fail(status, "%s contains no TensorFlow ops", path);
    TF_DeleteLibraryHandle(library);
    return NULL;
  }
  return library;
}
