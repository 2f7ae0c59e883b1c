#include "tf_ops/core/rows/row_images.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lodestar {

void ImageBudget::Add(int64_t bytes) {
  MutexLock lock(&mutex_);
  bytes_ += bytes;
  peak_ = std::max(peak_, bytes_);
  if (bytes_ <= limit_ || closed_) return;
  closed_ = true;
  // Close while holding the mutex, so that no one can open the gates first.
  gates_.Close();
}

void ImageBudget::Subtract(int64_t bytes) {
  bool opens = false;
  {
    MutexLock lock(&mutex_);
    bytes_ -= bytes;
    changed_.NotifyAll();
    opens = closed_ && bytes_ <= limit_ / 2;
    if (opens) closed_ = false;
  }
  if (opens) gates_.Open();
}

ImageBudget::Writer::Writer(ImageBudget* budget) : budget_(budget) {
  MutexLock lock(&budget_->mutex_);
  ++budget_->writers_;
}

ImageBudget::Writer::~Writer() {
  MutexLock lock(&budget_->mutex_);
  --budget_->writers_;
  budget_->changed_.NotifyAll();
}

void ImageBudget::Wait() {
  MutexLock lock(&mutex_);
  while (bytes_ > limit_ && writers_ > 0) changed_.Wait(&mutex_);
}

int64_t ImageBudget::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

int64_t ImageBudget::peak() const {
  MutexLock lock(&mutex_);
  return peak_;
}

bool ImageBudget::tight() const {
  MutexLock lock(&mutex_);
  return bytes_ > limit_ / 2;
}

RowImages::~RowImages() { Release(Stop()); }

void RowImages::Start(const SnapshotRowFormat& format, int64_t chunk_bytes,
                      ImageBudget* budget) {
  format_ = format;
  budget_ = budget;
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
    *open_ = {nullptr, 0, bytes, budget_};
    budget_->Add(bytes);
  }
  char* const record = reinterpret_cast<char*>(open_ + 1) +
                       open_->count * format_.layout.bytes();
  if (++open_->count == chunk_records_) CloseChunk();
  return record;
}

void RowImages::CloseChunk() {
  open_->next = full_;
  full_ = std::exchange(open_, nullptr);
}

RowImages::Chunk* RowImages::Stop() {
  if (open_ != nullptr) CloseChunk();
  return std::exchange(full_, nullptr);
}

RowImages::Chunk* RowImages::Take(bool all) {
  MutexLock lock(&mutex_);
  if (all && open_ != nullptr) CloseChunk();
  return std::exchange(full_, nullptr);
}

void RowImages::Release(Chunk* chunks) {
  while (chunks != nullptr) {
    Chunk* const chunk = std::exchange(chunks, chunks->next);
    const int64_t bytes = chunk->bytes;
    ImageBudget* const budget = chunk->budget;
    std::free(chunk);
    budget->Subtract(bytes);
  }
}

}  // namespace lodestar
