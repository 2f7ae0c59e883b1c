#include "tf_ops/kernels/multislot_source.h"

#include <utility>

#include "tensorflow/core/platform/errors.h"
#include "tf_ops/kernels/status_util.h"

namespace lodestar {

MultiSlotSource::MultiSlotSource(const MultiSlotParser* parser, Options options,
                                 const StartThread& start_thread)
    : parser_(parser),
      options_(std::move(options)),
      // Enough that a caller that takes a batch at a time does not stop the
      // threads; bounds memory to some pieces of text each.
      max_queued_(2 * options_.num_threads + 2),
      next_file_(options_.first_file),
      running_(options_.num_threads) {
  for (int64_t i = 0; i < options_.num_threads; ++i) {
    threads_.push_back(start_thread("lodestar_multislot", [this] {
      if (options_.ordered) {
        RunOrdered();
      } else {
        RunUnordered();
      }
      std::lock_guard<std::mutex> lock(mutex_);
      --running_;
      changed_.notify_all();
    }));
  }
}

MultiSlotSource::~MultiSlotSource() {
  Cancel();
  threads_.clear();  // joins
}

void MultiSlotSource::Cancel() {
  std::lock_guard<std::mutex> lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

absl::Status MultiSlotSource::Next(std::unique_ptr<MultiSlotBlock>* block) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] {
    return cancelled_ ||
           (queue_.empty() ? running_ == 0 : queue_.front()->ready);
  });
  if (cancelled_) {
    return tensorflow::errors::Cancelled("reading MultiSlot was cancelled");
  }
  block->reset();
  if (!queue_.empty()) {
    *block = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
  }
  return absl::OkStatus();
}

bool MultiSlotSource::WaitForRoom(std::unique_lock<std::mutex>* lock) {
  changed_.wait(*lock, [this] {
    return cancelled_ || stop_reading_ || queue_.size() < max_queued_;
  });
  return !cancelled_ && !stop_reading_;
}

void MultiSlotSource::Parse(const std::string& text,
                            MultiSlotBlock* block) const {
  block->rows = SlotRows(parser_->specs());
  int64_t bad_line = 0;
  const Status status = parser_->ParseText(
      text.data(), text.data() + text.size(), &block->rows, &bad_line);
  if (!status.ok()) {
    block->status = tensorflow::errors::InvalidArgument(
        options_.files[block->file], ":", block->first_line + bad_line + 1,
        ": ", status.message());
  }
}

bool MultiSlotSource::ReadOrdered(std::string* text, MultiSlotBlock* block) {
  text->clear();
  while (block->status.ok()) {
    if (reader_ == nullptr) {
      if (next_file_ >= static_cast<int64_t>(options_.files.size())) {
        return false;
      }
      block->status = TextFileReader::Open(
          tensorflow::Env::Default(), options_.files[next_file_], &reader_);
      if (block->status.ok() && first_open_) {
        block->status = reader_->SkipTo(options_.first_line);
      }
      first_open_ = false;
      ++next_file_;
      continue;
    }
    block->status = reader_->Read(text, &block->first_line);
    if (!text->empty()) break;
    reader_.reset();
  }
  block->file = next_file_ - 1;
  return true;
}

void MultiSlotSource::RunOrdered() {
  std::string text;
  while (true) {
    MultiSlotBlock* block = nullptr;
    {
      std::lock_guard<std::mutex> reading(reading_mutex_);
      {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!WaitForRoom(&lock)) return;
      }
      auto next = std::make_unique<MultiSlotBlock>();
      if (!ReadOrdered(&text, next.get())) return;
      block = next.get();
      std::lock_guard<std::mutex> lock(mutex_);
      if (!block->status.ok()) stop_reading_ = true;
      queue_.push_back(std::move(next));
    }
    // Nobody takes a block that is not ready, so it stays ours until then.
    if (block->status.ok()) Parse(text, block);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!block->status.ok()) stop_reading_ = true;
    block->ready = true;
    changed_.notify_all();
  }
}

void MultiSlotSource::RunUnordered() {
  std::string text;
  std::unique_ptr<TextFileReader> reader;
  int64_t file = 0;
  while (true) {
    auto block = std::make_unique<MultiSlotBlock>();
    if (reader == nullptr) {
      {
        std::lock_guard<std::mutex> reading(reading_mutex_);
        if (next_file_ >= static_cast<int64_t>(options_.files.size())) return;
        file = next_file_++;
      }
      block->status = TextFileReader::Open(tensorflow::Env::Default(),
                                           options_.files[file], &reader);
    }
    block->file = file;
    if (block->status.ok()) {
      block->status = reader->Read(&text, &block->first_line);
      if (block->status.ok()) {
        if (text.empty()) {
          reader.reset();
          continue;
        }
        Parse(text, block.get());
      }
    }
    block->ready = true;
    const bool failed = !block->status.ok();
    std::unique_lock<std::mutex> lock(mutex_);
    if (!WaitForRoom(&lock)) return;
    if (failed) stop_reading_ = true;
    queue_.push_back(std::move(block));
    changed_.notify_all();
    if (failed) return;
  }
}

}  // namespace lodestar
