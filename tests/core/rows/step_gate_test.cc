#include "tf_ops/core/rows/step_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/testing/allocation_failure.h"

namespace lodestar {
namespace {

constexpr std::chrono::milliseconds kAWhile(20);

const StepGate::Scheduler kAtOnce = [](std::function<void()> call) { call(); };

template <typename Step>
void Enter(StepGate* gate, const Step& step) {
  EXPECT_TRUE(gate->Run(kAtOnce, step, [] {}).ok());
}

TEST(StepGate, StepsRunConcurrently) {
  StepGate gate;
  EXPECT_TRUE(gate.TryEnter());
  EXPECT_TRUE(gate.TryEnter());
  gate.Exit();
  gate.Exit();
}

TEST(StepGate, AFlipRunsBetweenSteps) {
  StepGate gate;
  // Two counters that every step increments together.
  std::atomic<int64_t> first{0};
  std::atomic<int64_t> second{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        std::atomic<bool> done{false};
        Enter(&gate, [&] {
          first.fetch_add(1);
          std::this_thread::yield();
          second.fetch_add(1);
          gate.Exit();
          done = true;
        });
        while (!done) std::this_thread::yield();
      }
    });
  }
  int torn = 0;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(gate.Flip([&] {
                      torn += first != second;
                      return Status();
                    })
                    .ok());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(first, second);
}

TEST(StepGate, NoStepEntersBeforeAWaitingFlip) {
  StepGate gate;
  ASSERT_TRUE(gate.TryEnter());
  std::atomic<bool> flipped{false};
  std::thread flip([&] {
    EXPECT_TRUE(gate.Flip([&] {
                      flipped = true;
                      return Status();
                    })
                    .ok());
  });
  while (gate.TryEnter()) {
    gate.Exit();
    std::this_thread::yield();
  }
  std::atomic<bool> entered_after{false};
  Enter(&gate, [&] { entered_after = flipped.load(); });
  EXPECT_FALSE(flipped);
  gate.Exit();
  flip.join();
  EXPECT_TRUE(entered_after);
  gate.Exit();
}

TEST(StepGate, AFlipTimesOut) {
  StepGate gate;
  ASSERT_TRUE(gate.TryEnter());
  bool called = false;
  const Status status = gate.Flip(
      [&] {
        called = true;
        return Status();
      },
      kAWhile);
  EXPECT_FALSE(called);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "found no point between two optimizer steps within 20 ms: "
            "1 steps are still running.");
  // Others enter again.
  EXPECT_TRUE(gate.TryEnter());
  gate.Exit();
  gate.Exit();
}

TEST(StepGate, AFlipReturnsItsError) {
  StepGate gate;
  EXPECT_EQ(gate.Flip([] { return ResourceExhausted("full"); }).message(),
            "full");
  EXPECT_TRUE(gate.TryEnter());
  gate.Exit();
}

TEST(StepGate, AFlipOutOfMemoryEnds) {
  StepGate gate;
  const Status status = gate.Flip([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(gate.TryEnter());
  gate.Exit();
  EXPECT_TRUE(gate.Flip([] { return Status(); }).ok());
}

TEST(StepGate, StepsWaitOutsideWhileItIsClosed) {
  StepGate gate;
  gate.Close();
  gate.Close();
  int entered = 0;
  Enter(&gate, [&] { ++entered; });
  Enter(&gate, [&] { ++entered; });
  EXPECT_FALSE(gate.TryEnter());
  gate.Open();
  EXPECT_EQ(entered, 0);
  // A flip in between.
  EXPECT_TRUE(gate.Flip([] { return Status(); }).ok());
  EXPECT_EQ(entered, 0);
  gate.Open();
  EXPECT_EQ(entered, 2);
  gate.Exit();
  gate.Exit();
  EXPECT_TRUE(gate.Flip([] { return Status(); }, kAWhile).ok());
}

// The continuation may run out of memory; the step has run all the same.
TEST(StepGate, AStepRunsOnceWhateverItsContinuationThrows) {
  StepGate gate;
  int steps = 0;
  int continuations = 0;
  const auto step = [&] {
    ++steps;
    gate.Exit();
  };
  const auto done = [&] {
    ++continuations;
    throw std::bad_alloc();
  };
  EXPECT_THROW(static_cast<void>(gate.Run(kAtOnce, step, done)),
               std::bad_alloc);
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(continuations, 1);
  gate.Close();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(gate.Run(kAtOnce, step, done).ok());
  }
  EXPECT_EQ(steps, 1);
  gate.Open();
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(continuations, 4);
  EXPECT_TRUE(gate.Flip([] { return Status(); }, kAWhile).ok());
}

// One of several queued steps cannot be scheduled.
TEST(StepGate, AStepThatCannotBeScheduledRunsWhereTheGateIsOpened) {
  StepGate gate;
  gate.Close();
  std::vector<std::function<void()>> scheduled;
  int schedules = 0;
  const StepGate::Scheduler schedule = [&](std::function<void()> call) {
    if (++schedules == 2) throw std::bad_alloc();
    scheduled.push_back(std::move(call));
  };
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    const auto step = [&, i] {
      order.push_back(i);
      gate.Exit();
    };
    EXPECT_TRUE(gate.Run(schedule, step, [] {}).ok());
  }
  gate.Open();
  EXPECT_EQ(order, std::vector<int>{1});
  for (const auto& call : scheduled) call();
  EXPECT_EQ(order, (std::vector<int>{1, 0, 2}));
  EXPECT_TRUE(gate.Flip([] { return Status(); }, kAWhile).ok());
}

// Without memory a step neither runs nor is queued.
TEST(StepGate, AStepThatCannotBeQueuedIsRefused) {
  for (int64_t allocation = 0;; ++allocation) {
    StepGate gate;
    gate.Close();
    int runs = 0;
    Status status;
    bool failed = false;
    {
      FailAllocation fail(allocation);
      status = gate.Run(
          kAtOnce,
          [&] {
            ++runs;
            gate.Exit();
          },
          [] {});
      failed = fail.failed();
    }
    EXPECT_EQ(status.code(),
              failed ? StatusCode::kResourceExhausted : StatusCode::kOk);
    gate.Open();
    EXPECT_EQ(runs, failed ? 0 : 1);
    EXPECT_TRUE(gate.Flip([] { return Status(); }, kAWhile).ok());
    if (!failed) {
      EXPECT_GT(allocation, 1);
      return;
    }
  }
}

TEST(StepScope, EndsOnce) {
  StepGate gate;
  ASSERT_TRUE(gate.TryEnter());
  ASSERT_TRUE(gate.TryEnter());
  {
    StepScope stay(&gate);
    stay.End();
    stay.End();
  }
  // The other step is still inside.
  EXPECT_FALSE(gate.Flip([] { return Status(); }, kAWhile).ok());
  {
    StepScope stay(&gate);
  }
  EXPECT_TRUE(gate.Flip([] { return Status(); }, kAWhile).ok());
}

}  // namespace
}  // namespace lodestar
