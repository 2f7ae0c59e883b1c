#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "tf_ops/core/records/text_index.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/byte_stream.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

// Sets *value to an ASCII character, or if `optional` possibly to kNoQuote.
absl::Status ReadCharacter(const Tensor& tensor, const char* name,
                           bool optional, char* value) {
  LODESTAR_TRY(CheckRank(tensor, name, 0));
  const std::string text(tensor.scalar<tstring>()());
  const int byte = text.empty() ? 0 : static_cast<uint8_t>(text[0]);
  *value = text.empty() ? TextLayout::kNoQuote : text[0];
  const bool is_valid = text.size() == 1 && byte > 0 && byte < 128 &&
                        byte != '\r' && byte != '\n';
  if (is_valid || (optional && text.empty())) return absl::OkStatus();
  // The text may not be printable.
  const std::string found =
      text.size() == 1 ? StrCat("byte ", byte) : StrCat(text.size(), " bytes");
  return InvalidArgumentError(
      "`", name, "` must be ", optional ? "empty or " : "",
      "one ASCII character other than NUL, CR and LF, got ", found);
}

// Sets *line to the line of the byte at `offset`, from 1.
absl::Status FindLine(tensorflow::Env* env, const std::string& path,
                      int64_t offset, char* chunk, int64_t* line) {
  std::unique_ptr<ByteStream> stream;
  LODESTAR_TRY(ByteStream::Open(env, path, &stream));
  *line = 1;
  char last = 0;
  int64_t read = kChunkBytes;
  for (; offset > 0 && read > 0; offset -= read) {
    LODESTAR_TRY(stream->Read(std::min(kChunkBytes, offset), chunk, &read));
    for (int64_t i = 0; i < read; ++i) {
      *line += chunk[i] == '\r' || (chunk[i] == '\n' && last != '\r');
      last = chunk[i];
    }
  }
  return absl::OkStatus();
}

absl::Status RunIndexText(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "filename", 0));
  const std::string path(ctx->input(0).scalar<tstring>()());
  int64_t block_bytes = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(1), "block_bytes", &block_bytes, 1));
  TextLayout layout;
  LODESTAR_TRY(
      ReadCharacter(ctx->input(2), "delimiter", false, &layout.delimiter));
  LODESTAR_TRY(ReadCharacter(ctx->input(3), "quote", true, &layout.quote));
  if (layout.delimiter == layout.quote) {
    return InvalidArgumentError(
        "`delimiter` and `quote` must be different, got '", layout.quote,
        "' for both");
  }
  LODESTAR_TRY(ReadScalar(ctx->input(4), "skip_lines", &layout.skip_lines, 0));
  LODESTAR_TRY(ReadScalar(ctx->input(5), "num_fields", &layout.num_fields, 0));

  std::unique_ptr<ByteStream> stream;
  LODESTAR_TRY(ByteStream::Open(ctx->env(), path, &stream));
  TextIndex index(block_bytes, layout);
  const std::unique_ptr<char[]> chunk(new char[kChunkBytes]);
  bool good = true;
  // A short read means the end. The stream then checks that the file is
  // unchanged.
  for (int64_t read = kChunkBytes; read == kChunkBytes && good;) {
    LODESTAR_TRY(stream->Read(kChunkBytes, chunk.get(), &read));
    good = index.Add(chunk.get(), chunk.get() + read);
  }
  if (!good || !index.Finish()) {
    absl::Status status;
    const Status found = index.Explain([&](int64_t offset, int64_t* line) {
      status.Update(FindLine(ctx->env(), path, offset, chunk.get(), line));
      return Status();
    });
    LODESTAR_TRY(status);
    LODESTAR_TRY(Prefixed(found, path, ": "));
  }
  LODESTAR_TRY(OutputVector(ctx, 0, index.offsets()));
  LODESTAR_TRY(OutputVector(ctx, 1, index.records()));
  LODESTAR_TRY(OutputScalar(ctx, 2, index.size()));
  return OutputScalar(ctx, 3, index.ends_with_newline());
}

LODESTAR_REGISTER_FUNCTION(IndexText);

}  // namespace
}  // namespace lodestar
