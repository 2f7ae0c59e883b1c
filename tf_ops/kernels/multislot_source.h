// MultiSlotSource: threads that read and parse MultiSlot files ahead of the
// one caller that takes the parsed pieces.
//
// Ordered: a thread takes the next piece of text of the current file under one
// lock, puts a place for it into the queue, and parses it outside the lock. So
// pieces of one big file, or of several small ones, are parsed at the same
// time and leave in the order of files and lines.
// Unordered: each thread owns a file at a time and queues pieces when parsed.

#ifndef LODESTAR_TF_OPS_KERNELS_MULTISLOT_SOURCE_H_
#define LODESTAR_TF_OPS_KERNELS_MULTISLOT_SOURCE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/status.h"
#include "tf_ops/core/multislot_parser.h"
#include "tf_ops/kernels/text_file_reader.h"

namespace lodestar {

// A parsed piece. Where `status` is an error, `rows` holds the samples before
// it, and nothing follows.
struct MultiSlotBlock {
  int64_t file = 0;
  int64_t first_line = 0;  // of rows, from 0
  SlotRows rows;
  absl::Status status;
  bool ready = false;
};

class MultiSlotSource {
 public:
  struct Options {
    std::vector<std::string> files;
    int64_t num_threads = 1;
    bool ordered = true;
    // Where to begin; only if ordered.
    int64_t first_file = 0;
    int64_t first_line = 0;
  };
  using StartThread = std::function<std::unique_ptr<tensorflow::Thread>(
      const std::string& name, std::function<void()> body)>;

  // `parser` must outlive the source.
  MultiSlotSource(const MultiSlotParser* parser, Options options,
                  const StartThread& start_thread);
  // Stops the threads and waits for them.
  ~MultiSlotSource();

  // The next piece; null at the end of the last file. Cancelled after Cancel().
  absl::Status Next(std::unique_ptr<MultiSlotBlock>* block);

  // Wakes and stops everything; may be called from any thread.
  void Cancel();

 private:
  void RunOrdered();
  void RunUnordered();
  // Reads the next piece of the current file, moving from file to file. False
  // at the end. REQUIRES: reading_mutex_ is held.
  bool ReadOrdered(std::string* text, MultiSlotBlock* block);
  void Parse(const std::string& text, MultiSlotBlock* block) const;
  // Waits until the queue has room. False if cancelled.
  bool WaitForRoom(std::unique_lock<std::mutex>* lock);

  const MultiSlotParser* const parser_;
  const Options options_;
  const size_t max_queued_;

  std::mutex reading_mutex_;  // taken before mutex_; guards the next three
  std::unique_ptr<TextFileReader> reader_;
  int64_t next_file_;
  bool first_open_ = true;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<MultiSlotBlock>> queue_;
  int64_t running_;
  bool stop_reading_ = false;  // an error ends the stream
  bool cancelled_ = false;

  std::vector<std::unique_ptr<tensorflow::Thread>> threads_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_MULTISLOT_SOURCE_H_
