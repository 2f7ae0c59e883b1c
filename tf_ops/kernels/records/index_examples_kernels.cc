#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tf_ops/core/records/example_format.h"
#include "tf_ops/core/records/tfrecord_format.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/byte_stream.h"
#include "tf_ops/kernels/records/record_reader.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {
namespace {

// Adds the features of the valid records of a piece.
void Summarize(const RecordPiece& piece,
               std::map<std::string, FeatureSummary>* features) {
  std::string_view record;
  for (const char* p = piece.begin; p < piece.end;) {
    if (ReadTfrecord(p, &record, &p).ok()) SummarizeExample(record, features);
  }
}

absl::Status RunIndexExamples(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "filename", 0));
  const std::string path(ctx->input(0).scalar<tstring>()());
  int64_t block_bytes = 0;
  int64_t described_records = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(1), "block_bytes", &block_bytes, 1));
  LODESTAR_TRY(
      ReadScalar(ctx->input(2), "described_records", &described_records, 0));

  std::unique_ptr<ByteStream> stream;
  LODESTAR_TRY(ByteStream::Open(ctx->env(), path, &stream));
  RecordReader reader(path, std::move(stream),
                      std::make_unique<TfrecordCutter>(0, 0));
  std::vector<int64_t> offsets = {0};
  std::vector<int64_t> records;
  std::map<std::string, FeatureSummary> features;
  int64_t described = 0;
  RecordPiece piece;
  for (int64_t end = 0;;) {
    LODESTAR_TRY(reader.Read(&piece));
    if (piece.num_records == 0) break;
    if (records.empty() || end - offsets[records.size() - 1] >= block_bytes) {
      // This piece begins a block.
      if (piece.first_record < described_records) ++described;
      records.push_back(0);
      offsets.push_back(0);
    }
    if (described == static_cast<int64_t>(records.size())) {
      Summarize(piece, &features);
    }
    records.back() += piece.num_records;
    end = piece.offset + (piece.end - piece.begin);
    offsets.back() = end;
  }

  std::vector<std::string> names;
  std::vector<int64_t> kinds;
  std::vector<int64_t> levels;
  for (const auto& [name, summary] : features) {
    names.push_back(name);
    kinds.push_back(summary.kind);
    levels.push_back(summary.levels);
  }
  LODESTAR_TRY(OutputVector(ctx, 0, offsets));
  LODESTAR_TRY(OutputVector(ctx, 1, records));
  LODESTAR_TRY(OutputVector(ctx, 2, names));
  LODESTAR_TRY(OutputVector(ctx, 3, kinds));
  LODESTAR_TRY(OutputVector(ctx, 4, levels));
  return OutputScalar(ctx, 5, described);
}

LODESTAR_REGISTER_FUNCTION(IndexExamples);

}  // namespace
}  // namespace lodestar
