// PipeCommand: a command that files go through or come from, each by a process
// of its own: its stdout is what is read.

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
  // `argv` is run as it is, without a shell; its first word is looked up in
  // PATH. REQUIRES: it is not empty.
  explicit PipeCommand(std::vector<std::string> argv);
  ~PipeCommand();

  // Starts a process that the file at `path`, which errors name, goes through:
  // its stdin has the bytes of `input`. FailedPrecondition if the command
  // cannot be run.
  //
  // The stream ends well where the process has ended with exit code 0 and
  // nobody holds its stdout any more; it need not read all of its stdin.
  // Its Read() is FailedPrecondition, with the last of its stderr, if
  //   the process ends with another code or of a signal, or its exit code is
  //   taken by other code of this process;
  //   one of the two, the process or its stdout, has ended, and for 10 seconds
  //   neither does the other nor is a byte read or written: a process that is
  //   left behind would else be waited for forever.
  // A stream that is destroyed before its end kills the process and all that is
  // in its process group. In any case the process is waited for.
  // REQUIRES: the stream is destroyed before the command.
  absl::Status Run(const std::string& path, std::unique_ptr<ByteStream> input,
                   std::unique_ptr<ByteStream>* stream) const;

  // As Run(), of a process that the file comes from: it has no stdin, and
  // `path` in its words in the place of each "{path}". What it writes is
  // decompressed if the path ends in ".gz". InvalidArgument if the path holds a
  // NUL.
  absl::Status Open(const std::string& path,
                    std::unique_ptr<ByteStream>* stream) const;

  // Makes every Read() that waits, and all later ones, return Cancelled.
  void Cancel();

  // The words as Python writes a list of them.
  const std::string& text() const { return text_; }

 private:
  absl::Status Start(const std::vector<std::string>& argv,
                     const std::string& path, std::unique_ptr<ByteStream> input,
                     std::unique_ptr<ByteStream>* stream) const;

  const std::vector<std::string> argv_;
  const std::string text_;
  const int cancelled_;  // an eventfd: readable once cancelled
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_PIPE_STREAM_H_
