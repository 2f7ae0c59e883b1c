#include "tf_ops/core/steps/update_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lodestar {
namespace {

UpdateLog::Write Adding(std::vector<int>* written, int number) {
  return [written, number](const ParallelFor*) {
    written->push_back(number);
    return Status();
  };
}

Status Stage(UpdateLog* log, const UpdateLog::Attempt& attempt, int64_t name,
             UpdateLog::Write write,
             std::shared_ptr<StepGate> gate = std::make_shared<StepGate>()) {
  return log->Stage(attempt, name, std::move(gate), std::move(write));
}

UpdateLog::Attempt MustBegin(UpdateLog* log, int64_t update,
                             int64_t expect_committed = 0) {
  UpdateLog::Attempt attempt;
  int64_t committed = -1;
  EXPECT_TRUE(log->Begin(update, 0, &attempt, &committed).ok());
  EXPECT_EQ(committed, expect_committed);
  return attempt;
}

TEST(UpdateLog, WritesInTheOrderOfStaging) {
  UpdateLog log;
  std::vector<int> written;
  const auto attempt = MustBegin(&log, 0);
  ASSERT_TRUE(Stage(&log, attempt, attempt.number, Adding(&written, 1)).ok());
  ASSERT_TRUE(Stage(&log, attempt, attempt.number, Adding(&written, 2)).ok());
  EXPECT_TRUE(written.empty());
  ASSERT_TRUE(log.Commit(attempt, attempt.number, nullptr).ok());
  EXPECT_EQ(written, (std::vector<int>{1, 2}));
}

TEST(UpdateLog, CommitsOnce) {
  UpdateLog log;
  std::vector<int> written;
  const auto attempt = MustBegin(&log, 0);
  ASSERT_TRUE(Stage(&log, attempt, attempt.number, Adding(&written, 1)).ok());
  ASSERT_TRUE(log.Commit(attempt, attempt.number, nullptr).ok());
  ASSERT_TRUE(log.Commit(attempt, attempt.number, nullptr).ok());
  const auto next = MustBegin(&log, 0, /*expect_committed=*/1);
  ASSERT_TRUE(log.Commit(next, 1, nullptr).ok());
  EXPECT_EQ(written, std::vector<int>{1});
  const Status staged = Stage(&log, next, next.number, Adding(&written, 2));
  EXPECT_EQ(staged.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(staged.message(), "update 0 is already committed.");
  EXPECT_TRUE(log.IsLast(next));
}

TEST(UpdateLog, AnAttemptSupersedesEarlierOnes) {
  UpdateLog log;
  std::vector<int> written;
  const auto first = MustBegin(&log, 3);
  ASSERT_TRUE(Stage(&log, first, first.number, Adding(&written, 1)).ok());
  EXPECT_TRUE(log.IsLast(first));
  const auto second = MustBegin(&log, 3);
  EXPECT_FALSE(log.IsLast(first));
  const std::string message =
      "attempt 1 at update 3 is superseded: a later attempt has begun.";
  EXPECT_EQ(Stage(&log, first, first.number, Adding(&written, 2)).message(),
            message);
  EXPECT_EQ(log.Commit(first, first.number, nullptr).message(), message);
  EXPECT_EQ(log.Commit(first, 2, nullptr).message(), message);
  ASSERT_TRUE(Stage(&log, second, second.number, Adding(&written, 3)).ok());
  ASSERT_TRUE(log.Commit(second, second.number, nullptr).ok());
  EXPECT_EQ(written, std::vector<int>{3});
}

TEST(UpdateLog, CommitIgnoresWritesOfEarlierAttempts) {
  UpdateLog log;
  std::vector<int> written;
  ASSERT_TRUE(Stage(&log, MustBegin(&log, 0), 1, Adding(&written, 1)).ok());
  ASSERT_TRUE(log.Commit(MustBegin(&log, 0), 2, nullptr).ok());
  EXPECT_TRUE(written.empty());
}

TEST(UpdateLog, CommitWritesTheNamedEarlierAttempt) {
  UpdateLog log;
  std::vector<int> written;
  ASSERT_TRUE(Stage(&log, MustBegin(&log, 0), 1, Adding(&written, 1)).ok());
  ASSERT_TRUE(Stage(&log, MustBegin(&log, 0), 2, Adding(&written, 2)).ok());
  ASSERT_TRUE(log.Commit(MustBegin(&log, 0), 1, nullptr).ok());
  EXPECT_EQ(written, std::vector<int>{1});
}

TEST(UpdateLog, ForgetsFinishedUpdates) {
  UpdateLog log;
  std::vector<int> written;
  UpdateLog::Attempt attempt;
  for (int64_t update = 0; update < 5; ++update) {
    attempt = MustBegin(&log, update);
    ASSERT_TRUE(Stage(&log, attempt, attempt.number, Adding(&written, 1)).ok());
  }
  EXPECT_EQ(log.size(), 5);
  UpdateLog::Attempt next;
  int64_t committed = 0;
  ASSERT_TRUE(log.Begin(5, 5, &next, &committed).ok());
  EXPECT_EQ(log.size(), 1);
  EXPECT_FALSE(log.IsLast(attempt));
  EXPECT_FALSE(log.Commit(attempt, attempt.number, nullptr).ok());
  const Status status = log.Begin(2, 0, &next, &committed);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "update 2 is finished, like all updates below 5.");
  EXPECT_TRUE(written.empty());
}

TEST(UpdateLog, AFailedWriteIsReportedAndTheOthersRun) {
  UpdateLog log;
  std::vector<int> written;
  for (const bool throws : {false, true}) {
    const auto attempt = MustBegin(&log, throws);
    ASSERT_TRUE(
        Stage(&log, attempt, attempt.number, [throws](const ParallelFor*) {
          if (throws) throw std::bad_alloc();
          return ResourceExhausted("full");
        }).ok());
    ASSERT_TRUE(
        Stage(&log, attempt, attempt.number, Adding(&written, throws)).ok());
    EXPECT_EQ(log.Commit(attempt, attempt.number, nullptr).message(),
              throws ? "out of memory." : "full");
    EXPECT_TRUE(log.Commit(attempt, attempt.number, nullptr).ok());
  }
  EXPECT_EQ(written, (std::vector<int>{0, 1}));
}

TEST(UpdateLog, ClosedUpdatesCannotBeginAndAreSettled) {
  UpdateLog log;
  std::vector<int> written;
  std::vector<UpdateLog::Attempt> attempts;
  for (int update = 0; update < 5; ++update) {
    attempts.push_back(MustBegin(&log, update));
    ASSERT_TRUE(Stage(&log, attempts.back(), attempts.back().number,
                      Adding(&written, update))
                    .ok());
  }
  ASSERT_TRUE(log.Commit(attempts[1], attempts[1].number, nullptr).ok());
  const auto closed = log.Close(4);
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].update, 1);
  EXPECT_EQ(closed[0].name, 1);
  for (int update = 0; update < 4; ++update) {
    EXPECT_FALSE(log.IsLast(attempts[update]));
    EXPECT_FALSE(
        log.Commit(attempts[update], attempts[update].number, nullptr).ok());
    UpdateLog::Attempt next;
    int64_t committed = 0;
    EXPECT_EQ(log.Begin(update, 0, &next, &committed).code(),
              StatusCode::kFailedPrecondition);
  }
  // Settles no update that is open, and ignores an unknown one.
  ASSERT_TRUE(
      log.Settle({{-1, 1}, {1, 1}, {2, 1}, {4, 1}, {9, 1}}, nullptr).ok());
  EXPECT_EQ(written, (std::vector<int>{1, 2}));
  EXPECT_EQ(log.size(), 1);
  ASSERT_TRUE(log.Commit(attempts[4], attempts[4].number, nullptr).ok());
  EXPECT_EQ(written, (std::vector<int>{1, 2, 4}));
  EXPECT_TRUE(log.Close(-5).empty());
  ASSERT_TRUE(log.Settle({}, nullptr).ok());
  EXPECT_EQ(log.size(), 1);
}

TEST(UpdateLog, FindsTheGatesOfStagedWrites) {
  UpdateLog log;
  std::vector<int> written;
  const auto a = std::make_shared<StepGate>();
  const auto b = std::make_shared<StepGate>();
  const auto c = std::make_shared<StepGate>();
  const auto attempt = MustBegin(&log, 0);
  ASSERT_TRUE(Stage(&log, attempt, 1, Adding(&written, 1), a).ok());
  ASSERT_TRUE(Stage(&log, attempt, 1, Adding(&written, 2), b).ok());
  ASSERT_TRUE(Stage(&log, attempt, 2, Adding(&written, 3), c).ok());
  const auto expect = [&](const std::vector<UpdateLog::Committed>& attempts,
                          const std::vector<bool>& entered) {
    const StepGates gates = log.GatesOf(attempts);
    ASSERT_TRUE(gates.TryEnter());
    const std::vector<std::shared_ptr<StepGate>> all = {a, b, c};
    for (size_t i = 0; i < all.size(); ++i) {
      const Status flipped = StepGates({all[i]}).Flip(
          [] { return Status(); }, std::chrono::milliseconds(1));
      EXPECT_EQ(flipped.ok(), !entered[i]) << i;
    }
    gates.Exit();
  };
  expect({{0, 1}}, {true, true, false});
  expect({{0, 2}, {0, 3}, {1, 1}}, {false, false, true});
  expect({{0, 1}, {0, 2}}, {true, true, true});
  ASSERT_TRUE(log.Commit(attempt, 1, nullptr).ok());
  expect({{0, 1}, {0, 2}}, {false, false, false});
}

TEST(UpdateLog, CommitWaitsForRunningWrites) {
  UpdateLog log;
  std::atomic<bool> begun{false};
  std::atomic<bool> end{false};
  std::atomic<bool> ended{false};
  const auto attempt = MustBegin(&log, 0);
  const auto slow = [&](const ParallelFor*) {
    begun = true;
    while (!end) std::this_thread::yield();
    ended = true;
    return Status();
  };
  ASSERT_TRUE(Stage(&log, attempt, attempt.number, slow).ok());
  std::thread writer(
      [&] { EXPECT_TRUE(log.Commit(attempt, attempt.number, nullptr).ok()); });
  while (!begun) std::this_thread::yield();
  const auto next = MustBegin(&log, 0, /*expect_committed=*/1);
  std::atomic<int> waited{0};
  std::vector<std::thread> others;
  others.emplace_back([&] {
    EXPECT_TRUE(log.Commit(next, 1, nullptr).ok());
    EXPECT_TRUE(ended);
    waited += 1;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(log.Close(1).size(), 1u);
  others.emplace_back([&] {
    EXPECT_TRUE(log.Settle({}, nullptr).ok());
    EXPECT_TRUE(ended);
    waited += 1;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(waited, 0);
  end = true;
  writer.join();
  for (std::thread& other : others) other.join();
  EXPECT_EQ(log.size(), 0);
}

constexpr int kLogs = 3;

// Updates of several logs. A worker may be lost at any call.
class Updates {
 public:
  explicit Updates(int count) {
    for (int i = 0; i < kLogs; ++i) {
      tokens_[i] = std::vector<std::atomic<int>>(count);
      times_[i] = std::vector<std::atomic<int>>(count);
    }
  }

  // Makes at most `calls` calls, in random order within a phase. Returns
  // whether the update is committed on every log.
  bool Attempt(int64_t update, int calls, std::mt19937* random) {
    const int token = next_token_.fetch_add(1);
    std::array<UpdateLog::Attempt, kLogs> attempts;
    std::array<int, kLogs> order = {0, 1, 2};
    const auto on_all = [&](const auto& call) {
      std::shuffle(order.begin(), order.end(), *random);
      for (const int i : order) {
        if (calls-- == 0 || !call(i).ok()) return false;
      }
      return true;
    };
    int64_t any_committed = 0;
    if (!on_all([&](int i) {
          int64_t committed = 0;
          const Status status =
              logs_[i].Begin(update, 0, &attempts[i], &committed);
          any_committed = std::max(any_committed, committed);
          return status;
        })) {
      return false;
    }
    const int64_t name =
        any_committed != 0 ? any_committed : attempts[0].number;
    const auto commit = [&](int i) {
      return logs_[i].Commit(attempts[i], name, nullptr);
    };
    if (any_committed != 0) return on_all(commit);
    return on_all([&](int i) {
             return Stage(&logs_[i], attempts[i], name,
                          [this, i, update, token](const ParallelFor*) {
                            tokens_[i][update] = token;
                            times_[i][update].fetch_add(1);
                            return Status();
                          });
           }) &&
           on_all(commit);
  }

  // Settles the updates below `below`.
  void Settle(int64_t below) {
    std::vector<UpdateLog::Committed> committed;
    for (UpdateLog& log : logs_) {
      for (const auto& attempt : log.Close(below)) committed.push_back(attempt);
    }
    for (UpdateLog& log : logs_)
      ASSERT_TRUE(log.Settle(committed, nullptr).ok());
  }

  // Number of writes per update, all from the same attempt on every log.
  std::vector<int> Times() const {
    std::vector<int> times;
    for (size_t update = 0; update < times_[0].size(); ++update) {
      times.push_back(times_[0][update]);
      for (int i = 1; i < kLogs; ++i) {
        EXPECT_EQ(times_[i][update], times.back()) << "update " << update;
        EXPECT_EQ(tokens_[i][update], tokens_[0][update]) << update;
      }
    }
    return times;
  }

 private:
  std::array<UpdateLog, kLogs> logs_;
  // By log and update: which attempt wrote it, and how many times.
  std::array<std::vector<std::atomic<int>>, kLogs> tokens_;
  std::array<std::vector<std::atomic<int>>, kLogs> times_;
  std::atomic<int> next_token_{1};
};

// Lost workers may continue as if they were not lost.
TEST(UpdateLog, EachUpdateIsWrittenOnceIfWorkersAreLost) {
  constexpr int kUpdates = 2000;
  Updates updates(kUpdates);
  std::atomic<int64_t> next_update{0};
  std::vector<std::thread> workers;
  for (int w = 0; w < 4; ++w) {
    workers.emplace_back([&, w] {
      std::mt19937 random(w);
      while (true) {
        const int64_t update = next_update.fetch_add(1);
        if (update >= kUpdates) return;
        std::thread lost;
        for (bool done = false; !done;) {
          // A worker that is assumed to be lost may still be running.
          if (random() % 4 == 0 && !lost.joinable()) {
            lost = std::thread([&updates, update, seed = random()] {
              std::mt19937 own(seed);
              updates.Attempt(update, 3 * kLogs, &own);
            });
          }
          done = updates.Attempt(update, random() % (4 * kLogs), &random);
        }
        if (lost.joinable()) lost.join();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(updates.Times(), std::vector<int>(kUpdates, 1));
}

// Updates abandoned at any call are written by all logs or by none.
TEST(UpdateLog, SettledUpdatesAreAtomic) {
  constexpr int kRounds = 100;
  constexpr int kUpdates = 10;
  Updates updates(kRounds * kUpdates);
  std::vector<int> done(kRounds * kUpdates);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> workers;
    for (int w = 0; w < 3; ++w) {
      workers.emplace_back([&, w] {
        std::mt19937 random(round * 3 + w);
        for (int u = 0; u < kUpdates; ++u) {
          const int update = round * kUpdates + u;
          // The last update continues while others settle.
          const bool all =
              updates.Attempt(update, random() % (4 * kLogs), &random);
          if (w == 0) done[update] = all;
        }
      });
    }
    workers[0].join();
    workers[1].join();
    updates.Settle((round + 1) * kUpdates);
    workers[2].join();
  }
  const std::vector<int> times = updates.Times();
  int once = 0;
  for (size_t update = 0; update < times.size(); ++update) {
    EXPECT_GE(times[update], done[update]) << "update " << update;
    EXPECT_LE(times[update], 1) << "update " << update;
    once += times[update];
  }
  EXPECT_GT(once, 0);
  EXPECT_LT(once, kRounds * kUpdates);
}

}  // namespace
}  // namespace lodestar
