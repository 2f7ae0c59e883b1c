#include "tf_ops/core/rows/row_images.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tf_ops/core/rows/step_gate.h"

namespace lodestar {

ImageBudget& ImageBudget::Global() {
  // Never destroyed, as the gate is not.
  static ImageBudget* const budget = new ImageBudget();
  return *budget;
}

void ImageBudget::RaiseLimit(int64_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  limit_ += bytes;
  OpenIfBelow(std::move(lock));
}

void ImageBudget::LowerLimit(int64_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  limit_ -= bytes;
  OpenIfBelow(std::move(lock));
}

void ImageBudget::Add(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  bytes_ += bytes;
  peak_ = std::max(peak_, bytes_);
  if (bytes_ <= limit_ || closed_) return;
  closed_ = true;
  // Before anyone can open it.
  StepGate::Global().Close();
}

void ImageBudget::Subtract(int64_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  bytes_ -= bytes;
  OpenIfBelow(std::move(lock));
}

void ImageBudget::OpenIfBelow(std::unique_lock<std::mutex> lock) {
  changed_.notify_all();
  const bool opens = closed_ && bytes_ <= limit_ / 2;
  if (opens) closed_ = false;
  lock.unlock();
  if (opens) StepGate::Global().Open();
}

ImageBudget::Writer::Writer(ImageBudget* budget) : budget_(budget) {
  std::lock_guard<std::mutex> lock(budget_->mutex_);
  ++budget_->writers_;
}

ImageBudget::Writer::~Writer() {
  std::lock_guard<std::mutex> lock(budget_->mutex_);
  --budget_->writers_;
  budget_->changed_.notify_all();
}

void ImageBudget::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return bytes_ <= limit_ || writers_ == 0; });
}

int64_t ImageBudget::bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

bool ImageBudget::tight() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return bytes_ > limit_ / 2;
}

int64_t ImageBudget::TakePeak() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(peak_, bytes_);
}

RowImages::~RowImages() { Release(Stop()); }

void RowImages::Start(const SnapshotRowFormat& format, int64_t chunk_bytes) {
  format_ = format;
  chunk_records_ = std::max<int64_t>(1, chunk_bytes / format.layout.bytes());
  failed_ = false;
}

char* RowImages::Add() {
  if (failed()) return nullptr;
  if (open_ == nullptr) {
    const int64_t bytes =
        sizeof(Chunk) + chunk_records_ * format_.layout.bytes();
    open_ = static_cast<Chunk*>(std::malloc(bytes));
    if (open_ == nullptr) {
      failed_ = true;
      return nullptr;
    }
    *open_ = {nullptr, 0, bytes};
    ImageBudget::Global().Add(bytes);
  }
  char* const record = reinterpret_cast<char*>(open_ + 1) +
                       open_->count * format_.layout.bytes();
  if (++open_->count == chunk_records_) {
    open_->next = full_;
    full_ = std::exchange(open_, nullptr);
  }
  return record;
}

RowImages::Chunk* RowImages::Stop() {
  if (open_ != nullptr) {
    open_->next = full_;
    full_ = std::exchange(open_, nullptr);
  }
  return std::exchange(full_, nullptr);
}

RowImages::Chunk* RowImages::Take(bool all) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (all && open_ != nullptr) {
    open_->next = full_;
    full_ = std::exchange(open_, nullptr);
  }
  return std::exchange(full_, nullptr);
}

void RowImages::Release(Chunk* chunks) {
  while (chunks != nullptr) {
    Chunk* const chunk = std::exchange(chunks, chunks->next);
    const int64_t bytes = chunk->bytes;
    std::free(chunk);
    ImageBudget::Global().Subtract(bytes);
  }
}

}  // namespace lodestar
