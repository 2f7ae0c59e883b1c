// PipeCommand: a command through which files are read. Each file has its own
// process, whose stdout is read.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_PIPE_STREAM_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_PIPE_STREAM_H_

#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/platform/status.h"
#include "tf_ops/kernels/records/byte_stream.h"

namespace lodestar {

// Thread-safe.
class PipeCommand {
 public:
  // Runs `argv` without a shell. The first word is searched in PATH. Requires:
  // it is not empty.
  explicit PipeCommand(std::vector<std::string> argv);
  ~PipeCommand();

  // Starts a process with the bytes of `input` as stdin. Errors contain `path`.
  // Returns FailedPrecondition if the command cannot be run.
  //
  // The stream ends without an error when the process has exited with code 0
  // and its stdout is closed. The process need not read all of its stdin.
  // Read() returns FailedPrecondition, with the end of stderr, if
  //   the process exits with another code or by a signal, or other code of this
  //   process reaps it;
  //   only one of the two has happened, exit or end of stdout, and 10 seconds
  //   pass without any input or output. Otherwise a background process
  //   could block the reader forever.
  // Destroying a stream before its end kills the process and its process group.
  // In any case the process is waited for. Requires: the stream is destroyed
  // before the command.
  absl::Status Run(const std::string& path, std::unique_ptr<ByteStream> input,
                   std::unique_ptr<ByteStream>* stream) const;

  // Like Run(), for a process that reads the file itself: it has no stdin, and
  // each "{path}" in its arguments is replaced by `path`. The output is
  // decompressed if the path ends in ".gz". Returns InvalidArgument if the path
  // contains a NUL.
  absl::Status Open(const std::string& path,
                    std::unique_ptr<ByteStream>* stream) const;

  // Makes every current and later Read() return Cancelled.
  void Cancel();

  // The words, formatted like a Python list.
  const std::string& text() const { return text_; }

 private:
  absl::Status Start(const std::vector<std::string>& argv,
                     const std::string& path, std::unique_ptr<ByteStream> input,
                     std::unique_ptr<ByteStream>* stream) const;

  const std::vector<std::string> argv_;
  const std::string text_;
  const int cancelled_;  // eventfd, readable once cancelled
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_PIPE_STREAM_H_
