#include "tf_ops/core/base/update_log.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace lodestar {
namespace {

UpdateLog::Write Adding(std::vector<int>* written, int number) {
  return [written, number](const ParallelFor*) {
    written->push_back(number);
    return Status();
  };
}

UpdateLog::Attempt MustBegin(UpdateLog* log, int64_t run, int64_t update,
                             bool expect_committed = false) {
  UpdateLog::Attempt attempt{run, update, 0};
  bool committed = false;
  EXPECT_TRUE(log->Begin(run, update, 0, &attempt.number, &committed).ok());
  EXPECT_EQ(committed, expect_committed);
  return attempt;
}

TEST(UpdateLog, WritesWhatWasStagedInOrder) {
  UpdateLog log;
  std::vector<int> written;
  const auto attempt = MustBegin(&log, 7, 0);
  ASSERT_TRUE(log.Stage(attempt, Adding(&written, 1)).ok());
  ASSERT_TRUE(log.Stage(attempt, Adding(&written, 2)).ok());
  EXPECT_TRUE(written.empty());
  ASSERT_TRUE(log.Commit(attempt, nullptr).ok());
  EXPECT_EQ(written, (std::vector<int>{1, 2}));
}

TEST(UpdateLog, CommitsOnce) {
  UpdateLog log;
  std::vector<int> written;
  const auto attempt = MustBegin(&log, 7, 0);
  ASSERT_TRUE(log.Stage(attempt, Adding(&written, 1)).ok());
  ASSERT_TRUE(log.Commit(attempt, nullptr).ok());
  ASSERT_TRUE(log.Commit(attempt, nullptr).ok());
  const auto next = MustBegin(&log, 7, 0, /*expect_committed=*/true);
  ASSERT_TRUE(log.Finish(next, nullptr).ok());
  EXPECT_EQ(written, std::vector<int>{1});
  const Status staged = log.Stage(next, Adding(&written, 2));
  EXPECT_EQ(staged.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(staged.message(), "update 0 of run 7 is committed");
}

TEST(UpdateLog, AnAttemptShutsOutThoseBeforeIt) {
  UpdateLog log;
  std::vector<int> written;
  const auto first = MustBegin(&log, 7, 3);
  ASSERT_TRUE(log.Stage(first, Adding(&written, 1)).ok());
  const auto second = MustBegin(&log, 7, 3);
  const std::string message =
      "attempt 1 at update 3 of run 7 is over: a later one has begun, or "
      "another run";
  EXPECT_EQ(log.Stage(first, Adding(&written, 2)).message(), message);
  EXPECT_EQ(log.Commit(first, nullptr).message(), message);
  EXPECT_EQ(log.Finish(first, nullptr).message(), message);
  ASSERT_TRUE(log.Stage(second, Adding(&written, 3)).ok());
  ASSERT_TRUE(log.Commit(second, nullptr).ok());
  EXPECT_EQ(written, std::vector<int>{3});
}

TEST(UpdateLog, ACommitWritesNothingThatAnAttemptBeforeHasStaged) {
  UpdateLog log;
  std::vector<int> written;
  ASSERT_TRUE(log.Stage(MustBegin(&log, 7, 0), Adding(&written, 1)).ok());
  ASSERT_TRUE(log.Commit(MustBegin(&log, 7, 0), nullptr).ok());
  EXPECT_TRUE(written.empty());
}

TEST(UpdateLog, FinishCommitsWhatAnAttemptBeforeHasStaged) {
  UpdateLog log;
  std::vector<int> written;
  ASSERT_TRUE(log.Stage(MustBegin(&log, 7, 0), Adding(&written, 1)).ok());
  ASSERT_TRUE(log.Finish(MustBegin(&log, 7, 0), nullptr).ok());
  EXPECT_EQ(written, std::vector<int>{1});
}

TEST(UpdateLog, ForgetsFinishedUpdates) {
  UpdateLog log;
  std::vector<int> written;
  for (int64_t update = 0; update < 5; ++update) {
    const auto attempt = MustBegin(&log, 7, update);
    ASSERT_TRUE(log.Stage(attempt, Adding(&written, 1)).ok());
  }
  EXPECT_EQ(log.size(), 5);
  int64_t number = 0;
  bool committed = false;
  ASSERT_TRUE(log.Begin(7, 5, 4, &number, &committed).ok());
  EXPECT_EQ(log.size(), 2);
  const Status status = log.Begin(7, 2, 0, &number, &committed);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "update 2 of run 7 is finished, as are all below 4");
}

TEST(UpdateLog, ARunEndsTheRunBefore) {
  UpdateLog log;
  std::vector<int> written;
  const auto before = MustBegin(&log, 7, 0);
  ASSERT_TRUE(log.Stage(before, Adding(&written, 1)).ok());
  const auto after = MustBegin(&log, -9, 0);
  EXPECT_EQ(log.size(), 1);
  EXPECT_FALSE(log.Commit(before, nullptr).ok());
  int64_t number = 0;
  bool committed = false;
  const Status status = log.Begin(7, 1, 0, &number, &committed);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "run 7 is over: run -9 has begun after it");
  ASSERT_TRUE(log.Commit(after, nullptr).ok());
  EXPECT_TRUE(written.empty());
}

TEST(UpdateLog, AFailedWriteIsReportedAndTheOthersAreMade) {
  UpdateLog log;
  std::vector<int> written;
  const auto attempt = MustBegin(&log, 7, 0);
  ASSERT_TRUE(
      log.Stage(attempt,
                [](const ParallelFor*) { return ResourceExhausted("full"); })
          .ok());
  ASSERT_TRUE(log.Stage(attempt, Adding(&written, 2)).ok());
  EXPECT_EQ(log.Commit(attempt, nullptr).message(), "full");
  EXPECT_EQ(written, std::vector<int>{2});
}

// Workers that are lost anywhere, and go on as if they were not: each update
// is written once by every log, and by all logs from the same attempt.
TEST(UpdateLog, EachUpdateIsWrittenOnceWhoeverIsLost) {
  constexpr int kLogs = 3;
  constexpr int kUpdates = 2000;
  constexpr int kWorkers = 4;
  std::array<UpdateLog, kLogs> logs;
  // By log and update: which attempt wrote it, and how often.
  std::vector<std::vector<std::atomic<int>>> tokens(kLogs);
  std::vector<std::vector<std::atomic<int>>> times(kLogs);
  for (int i = 0; i < kLogs; ++i) {
    tokens[i] = std::vector<std::atomic<int>>(kUpdates);
    times[i] = std::vector<std::atomic<int>>(kUpdates);
  }
  std::atomic<int> next_token{1};
  // Returns whether the update is committed everywhere; does no more than
  // `calls` calls.
  const auto attempt_at = [&](int64_t update, int calls) {
    const int token = next_token.fetch_add(1);
    std::array<UpdateLog::Attempt, kLogs> attempts;
    bool any_committed = false;
    for (int i = 0; i < kLogs; ++i) {
      if (calls-- == 0) return false;
      bool committed = false;
      attempts[i] = {7, update, 0};
      if (!logs[i].Begin(7, update, 0, &attempts[i].number, &committed).ok()) {
        return false;
      }
      any_committed = any_committed || committed;
    }
    if (any_committed) {
      for (int i = 0; i < kLogs; ++i) {
        if (calls-- == 0) return false;
        if (!logs[i].Finish(attempts[i], nullptr).ok()) return false;
      }
      return true;
    }
    for (int i = 0; i < kLogs; ++i) {
      if (calls-- == 0) return false;
      const auto write = [&, i, update, token](const ParallelFor*) {
        tokens[i][update] = token;
        times[i][update].fetch_add(1);
        return Status();
      };
      if (!logs[i].Stage(attempts[i], write).ok()) return false;
    }
    for (int i = 0; i < kLogs; ++i) {
      if (calls-- == 0) return false;
      if (!logs[i].Commit(attempts[i], nullptr).ok()) return false;
    }
    return true;
  };
  std::atomic<int64_t> next_update{0};
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&, w] {
      std::mt19937 random(w);
      while (true) {
        const int64_t update = next_update.fetch_add(1);
        if (update >= kUpdates) return;
        std::thread lost;
        for (bool done = false; !done;) {
          // One that is thought to be lost may still be at work.
          if (random() % 4 == 0 && !lost.joinable()) {
            lost = std::thread(
                [&attempt_at, update] { attempt_at(update, 3 * kLogs); });
          }
          done = attempt_at(update, random() % (4 * kLogs));
        }
        if (lost.joinable()) lost.join();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (int update = 0; update < kUpdates; ++update) {
    for (int i = 0; i < kLogs; ++i) {
      ASSERT_EQ(times[i][update], 1) << "update " << update << ", log " << i;
      ASSERT_EQ(tokens[i][update], tokens[0][update]) << "update " << update;
    }
  }
}

}  // namespace
}  // namespace lodestar
