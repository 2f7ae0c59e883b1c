// Resident memory of this process.

#ifndef LODESTAR_TESTS_CORE_EMBEDDING_RESIDENT_BYTES_H_
#define LODESTAR_TESTS_CORE_EMBEDDING_RESIDENT_BYTES_H_

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace lodestar {

inline int64_t ResidentBytes() {
  long pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
  std::fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_EMBEDDING_RESIDENT_BYTES_H_
