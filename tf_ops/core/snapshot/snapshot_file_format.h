// The headers of snapshot files, shared by writer and reader.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FILE_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FILE_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {

// Files are little-endian, and are read and written without conversion.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

constexpr uint32_t kSnapshotFormatVersion = 2;
constexpr char kSnapshotFileMagic[8] = {'L', 'O', 'D', 'E', 'S', 'N', 'A', 'P'};
constexpr uint32_t kSnapshotBlockMagic = 0x4b42534c;  // "LSBK"

struct SnapshotFileHeader {
  static SnapshotFileHeader Create() {
    SnapshotFileHeader header = {};
    std::memcpy(header.magic, kSnapshotFileMagic, sizeof(header.magic));
    header.version = kSnapshotFormatVersion;
    header.crc = header.Crc();
    return header;
  }

  char magic[8];
  uint32_t version;
  uint32_t crc;  // of the preceding fields

  uint32_t Crc() const {
    return Crc32c(this, offsetof(SnapshotFileHeader, crc));
  }
};
static_assert(sizeof(SnapshotFileHeader) == SnapshotFileReader::kFirstBlock);

struct SnapshotBlockHeader {
  static SnapshotBlockHeader Create(BlockKind kind, int64_t count,
                                    int64_t bytes, uint32_t payload_crc) {
    SnapshotBlockHeader header = {};
    header.magic = kSnapshotBlockMagic;
    header.kind = static_cast<uint16_t>(kind);
    header.count = count;
    header.bytes = bytes;
    header.payload_crc = payload_crc;
    header.crc = header.Crc();
    return header;
  }

  uint32_t magic;
  uint16_t kind;
  uint16_t zero;
  uint64_t count;
  uint64_t bytes;
  uint32_t payload_crc;
  uint32_t crc;  // of the preceding fields

  uint32_t Crc() const {
    return Crc32c(this, offsetof(SnapshotBlockHeader, crc));
  }
};
static_assert(sizeof(SnapshotBlockHeader) == SnapshotFileReader::kBlockHeader);

// Payloads are padded with zeros to a multiple of this.
constexpr int64_t kSnapshotPadding = 8;
constexpr int64_t PaddingOf(int64_t bytes) {
  return -bytes & (kSnapshotPadding - 1);
}

// Extends the file checksum `crc` by a block.
inline uint32_t CrcWithBlock(uint32_t crc, const SnapshotBlockHeader& header) {
  constexpr char kPadding[kSnapshotPadding] = {};
  const int64_t bytes = static_cast<int64_t>(header.bytes);
  crc = Crc32c(&header, sizeof(header), crc);
  crc = JoinCrc32c(crc, header.payload_crc, bytes);
  return Crc32c(kPadding, PaddingOf(bytes), crc);
}

// Properties of each kind of block, from kTable on.
struct SnapshotBlockTraits {
  const char* name;
  // Size of a record, or 0 if it varies.
  int64_t record_bytes;
  // The total that counts its records, if any.
  int64_t SnapshotTotals::* total;
};
constexpr SnapshotBlockTraits kSnapshotBlockTraits[] = {
    {"TABLE", 0, nullptr},
    {"ROWS", 0, &SnapshotTotals::rows},
    {"REMOVED", 8, &SnapshotTotals::removed},
    {"PENDING", 24, &SnapshotTotals::pending},
    {"SKETCH", 1, &SnapshotTotals::sketch},
    {"SHARED_ROWS", 0, &SnapshotTotals::shared_rows},
    {"BLOB", 1, &SnapshotTotals::blobs},
    {"END", 8, nullptr},
    {"LABEL", 1, nullptr},
};
constexpr const SnapshotBlockTraits& TraitsOf(BlockKind kind) {
  return kSnapshotBlockTraits[static_cast<int>(kind) -
                              static_cast<int>(BlockKind::kTable)];
}
constexpr int64_t RecordBytesOf(BlockKind kind) {
  return TraitsOf(kind).record_bytes;
}

// Number of values in the payload of END.
constexpr int64_t kSnapshotTotals = 6;
static_assert(sizeof(SnapshotTotals) == kSnapshotTotals * sizeof(int64_t));

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FILE_FORMAT_H_
