#include "tf_ops/core/base/step_gate.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/testing/allocation_failure.h"

namespace lodestar {
namespace {

constexpr std::chrono::milliseconds kAWhile(20);

const StepGates::Scheduler kAtOnce = [](std::function<void()> call) { call(); };
const auto kNothing = [] { return Status(); };

using Gate = std::shared_ptr<StepGate>;

Gate NewGate() { return std::make_shared<StepGate>(); }

// Runs or queues a step.
template <typename Step>
void RunStep(const StepGates& gates, const Step& step) {
  EXPECT_TRUE(gates.Run(kAtOnce, [step](StepScope) { step(); }, [] {}).ok());
}

bool CanFlip(const StepGates& gates) {
  return gates.Flip(kNothing, kAWhile).ok();
}

bool CanEnter(const StepGates& gates) {
  if (!gates.TryEnter()) return false;
  gates.Exit();
  return true;
}

TEST(StepGates, StepsRunConcurrently) {
  const StepGates gates({NewGate(), NewGate()});
  EXPECT_TRUE(gates.TryEnter());
  EXPECT_TRUE(gates.TryEnter());
  gates.Exit();
  EXPECT_FALSE(CanFlip(gates));
  gates.Exit();
  EXPECT_TRUE(CanFlip(gates));
}

TEST(StepGates, NoGatesAreAlwaysOpen) {
  const StepGates none;
  EXPECT_TRUE(none.TryEnter());
  EXPECT_TRUE(CanFlip(none));
  none.Close();
  EXPECT_TRUE(CanEnter(none));
  none.Open();
  none.Exit();
}

TEST(StepGates, AGateThatOccursTwiceIsEnteredOnce) {
  const Gate gate = NewGate();
  const StepGates twice({gate, gate});
  EXPECT_TRUE(twice.TryEnter());
  twice.Exit();
  EXPECT_TRUE(CanFlip(twice));
  EXPECT_TRUE(CanFlip(StepGates({gate})));
}

TEST(StepGates, NoStepEntersBeforeAWaitingFlip) {
  const StepGates gates({NewGate()});
  ASSERT_TRUE(gates.TryEnter());
  std::atomic<bool> flipped{false};
  std::thread flip([&] {
    EXPECT_TRUE(gates
                    .Flip([&] {
                      flipped = true;
                      return Status();
                    })
                    .ok());
  });
  while (CanEnter(gates)) std::this_thread::yield();
  std::atomic<bool> entered_after{false};
  RunStep(gates, [&] { entered_after = flipped.load(); });
  EXPECT_FALSE(flipped);
  gates.Exit();
  flip.join();
  EXPECT_TRUE(entered_after);
}

TEST(StepGates, AFlipTimesOut) {
  const Gate a = NewGate();
  const Gate b = NewGate();
  for (const Gate& busy : {a, b}) {
    const StepGates step({busy});
    const StepGates both({a, b});
    ASSERT_TRUE(step.TryEnter());
    bool called = false;
    const Status status = both.Flip(
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
    EXPECT_TRUE(CanEnter(both));
    step.Exit();
    EXPECT_TRUE(CanFlip(both));
  }
}

TEST(StepGates, AFlipReturnsItsError) {
  const StepGates gates({NewGate(), NewGate()});
  EXPECT_EQ(gates.Flip([] { return ResourceExhausted("full"); }).message(),
            "full");
  EXPECT_TRUE(CanEnter(gates));
}

TEST(StepGates, AFlipOutOfMemoryEnds) {
  const StepGates gates({NewGate(), NewGate()});
  const Status status = gates.Flip([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(CanEnter(gates));
  EXPECT_TRUE(gates.Flip(kNothing).ok());
}

TEST(StepGates, StepsWaitOutsideWhileAGateIsClosed) {
  const StepGates gates({NewGate()});
  gates.Close();
  gates.Close();
  int entered = 0;
  RunStep(gates, [&] { ++entered; });
  RunStep(gates, [&] { ++entered; });
  EXPECT_FALSE(gates.TryEnter());
  gates.Open();
  EXPECT_EQ(entered, 0);
  // A flip in between.
  EXPECT_TRUE(gates.Flip(kNothing).ok());
  EXPECT_EQ(entered, 0);
  gates.Open();
  EXPECT_EQ(entered, 2);
  EXPECT_TRUE(CanFlip(gates));
}

// A step that waits for one gate does not hold up flips of the others. It moves
// from gate to gate without allocating.
TEST(StepGates, AStepEntersAllGatesOrNone) {
  const Gate a = NewGate();
  const Gate b = NewGate();
  const Gate c = NewGate();
  const StepGates all({a, b, c});
  int entered = 0;
  StepGates({a}).Close();
  StepGates({c}).Close();
  RunStep(all, [&] {
    ++entered;
    for (const Gate& gate : {a, b, c}) EXPECT_FALSE(CanFlip(StepGates({gate})));
  });
  for (const Gate& opens : {a, c}) {
    for (const Gate& gate : {a, b, c}) EXPECT_TRUE(CanFlip(StepGates({gate})));
    EXPECT_EQ(entered, 0);
    const StepGates opened({opens});
    const FailAllocation fail(opens == c ? 1000 : 0);
    opened.Open();
    EXPECT_FALSE(fail.failed());
  }
  EXPECT_EQ(entered, 1);
  EXPECT_TRUE(CanFlip(all));
}

// Neither a flip nor a closed gate of one group of tables stops the other.
TEST(StepGates, GroupsDoNotWaitForEachOther) {
  const Gate a = NewGate();
  const Gate b = NewGate();
  const StepGates first({a});
  const StepGates second({b, NewGate()});
  int entered = 0;
  const auto expect_open = [&] {
    EXPECT_FALSE(CanEnter(first));
    EXPECT_FALSE(CanEnter(StepGates({a, b})));
    const int before = entered;
    RunStep(second, [&] { ++entered; });
    EXPECT_EQ(entered, before + 1);
    EXPECT_TRUE(CanFlip(second));
  };
  // Inside a flip.
  EXPECT_TRUE(first
                  .Flip([&] {
                    expect_open();
                    return Status();
                  })
                  .ok());
  // While a flip waits.
  ASSERT_TRUE(first.TryEnter());
  std::thread flip([&] { EXPECT_TRUE(first.Flip(kNothing).ok()); });
  while (CanEnter(first)) std::this_thread::yield();
  expect_open();
  first.Exit();
  flip.join();
  first.Close();
  expect_open();
  first.Open();
}

// The continuation may run out of memory; the step has run all the same.
TEST(StepGates, AStepRunsOnceWhateverItsContinuationThrows) {
  const StepGates gates({NewGate()});
  int steps = 0;
  int continuations = 0;
  const auto step = [&](StepScope) { ++steps; };
  const auto done = [&] {
    ++continuations;
    throw std::bad_alloc();
  };
  EXPECT_THROW(static_cast<void>(gates.Run(kAtOnce, step, done)),
               std::bad_alloc);
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(continuations, 1);
  gates.Close();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(gates.Run(kAtOnce, step, done).ok());
  }
  EXPECT_EQ(steps, 1);
  gates.Open();
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(continuations, 4);
  EXPECT_TRUE(CanFlip(gates));
}

// One of several queued steps cannot be scheduled.
TEST(StepGates, AStepThatCannotBeScheduledRunsWhereTheGateIsOpened) {
  const StepGates gates({NewGate()});
  gates.Close();
  std::vector<std::function<void()>> scheduled;
  int schedules = 0;
  const StepGates::Scheduler schedule = [&](std::function<void()> call) {
    if (++schedules == 2) throw std::bad_alloc();
    scheduled.push_back(std::move(call));
  };
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    const auto step = [&, i](StepScope) { order.push_back(i); };
    EXPECT_TRUE(gates.Run(schedule, step, [] {}).ok());
  }
  gates.Open();
  EXPECT_EQ(order, std::vector<int>{1});
  for (const auto& call : scheduled) call();
  EXPECT_EQ(order, (std::vector<int>{1, 0, 2}));
  EXPECT_TRUE(CanFlip(gates));
}

// Without memory a step neither runs nor is queued.
TEST(StepGates, AStepThatCannotBeQueuedIsRefused) {
  for (int64_t allocation = 0;; ++allocation) {
    const StepGates gates({NewGate()});
    gates.Close();
    int runs = 0;
    Status status;
    bool failed = false;
    {
      FailAllocation fail(allocation);
      status = gates.Run(kAtOnce, [&](StepScope) { ++runs; }, [] {});
      failed = fail.failed();
    }
    EXPECT_EQ(status.code(),
              failed ? StatusCode::kResourceExhausted : StatusCode::kOk);
    gates.Open();
    EXPECT_EQ(runs, failed ? 0 : 1);
    EXPECT_TRUE(CanFlip(gates));
    if (!failed) {
      EXPECT_GT(allocation, 1);
      return;
    }
  }
}

TEST(StepScope, EndsOnce) {
  const StepGates gates({NewGate()});
  ASSERT_TRUE(gates.TryEnter());
  ASSERT_TRUE(gates.TryEnter());
  {
    StepScope scope(gates);
    StepScope moved(std::move(scope));
    scope.End();
    moved.End();
    moved.End();
  }
  // The other step is still inside.
  EXPECT_FALSE(CanFlip(gates));
  {
    StepScope scope(gates);
  }
  EXPECT_TRUE(CanFlip(gates));
}

// Calls scheduled by an opened gate, run by one thread.
class Pool {
 public:
  Pool() : thread_([this] { RunAll(); }) {}
  ~Pool() {
    stop_ = true;
    thread_.join();
  }
  void Add(std::function<void()> call) {
    MutexLock lock(&mutex_);
    calls_.push_back(std::move(call));
  }

 private:
  void RunAll() {
    while (true) {
      std::function<void()> call;
      {
        MutexLock lock(&mutex_);
        if (!calls_.empty()) {
          call = std::move(calls_.front());
          calls_.pop_front();
        } else if (stop_) {
          return;
        }
      }
      if (call) {
        call();
      } else {
        std::this_thread::yield();
      }
    }
  }

  Mutex mutex_;
  std::deque<std::function<void()>> calls_ LODESTAR_GUARDED_BY(mutex_);
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Steps write their number to all of their tables. Flips of other sets of
// tables compare which numbers each table has.
class RandomSets {
 public:
  RandomSets() {
    for (Table& table : tables_) table.gate = NewGate();
    std::mt19937 rng(1);
    // Few tables are more likely.
    for (int& set : sets_) set = (rng() & rng()) % kAll + 1;
  }

  void Run() {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([this, t] {
        for (int i = t; i < kSteps; i += 3) Step(i);
      });
    }
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([this, t] {
        std::mt19937 rng(t);
        while (ended_ < kSteps) {
          t == 0 ? Close(rng()) : Flip(rng());
          std::this_thread::sleep_for(std::chrono::microseconds(rng() % 200));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < kSteps; ++i) EXPECT_EQ(runs_[i], 1) << i;
    Flip(kAll);
    EXPECT_GT(flips_, 1);
  }

 private:
  static constexpr int kTables = 6;
  static constexpr int kAll = (1 << kTables) - 1;
  static constexpr int kSteps = 1500;

  struct Table {
    Gate gate;
    Mutex mutex;
    std::set<int> steps LODESTAR_GUARDED_BY(mutex);
    std::atomic<int> inside{0};
    std::atomic<int> flips{0};
  };

  template <typename Fn>
  void ForEach(int set, const Fn& fn) {
    for (int t = 0; t < kTables; ++t) {
      if ((set >> t & 1) != 0) fn(&tables_[t]);
    }
  }

  StepGates GatesOf(int set) {
    std::vector<Gate> gates;
    ForEach(set, [&](Table* table) { gates.push_back(table->gate); });
    return StepGates(std::move(gates));
  }

  void Step(int number) {
    const auto step = [this, number](StepScope) {
      const int set = sets_[number];
      ForEach(set, [&](Table* table) { table->inside += 1; });
      ForEach(set, [&](Table* table) {
        EXPECT_EQ(table->flips, 0);
        std::this_thread::yield();
        MutexLock lock(&table->mutex);
        table->steps.insert(number);
      });
      ForEach(set, [&](Table* table) { table->inside -= 1; });
      runs_[number] += 1;
    };
    const auto schedule = [this, number](std::function<void()> call) {
      if (number % 3 == 0) throw std::bad_alloc();
      pool_.Add(std::move(call));
    };
    EXPECT_TRUE(
        GatesOf(sets_[number]).Run(schedule, step, [this] { ++ended_; }).ok());
  }

  void Flip(unsigned random) {
    const int set = random % kAll + 1;
    EXPECT_TRUE(GatesOf(set)
                    .Flip([&] {
                      Compare(set);
                      return Status();
                    })
                    .ok());
    ++flips_;
  }

  void Compare(int set) {
    std::array<std::set<int>, kTables> steps;
    ForEach(set, [&](Table* table) {
      EXPECT_EQ(table->flips.fetch_add(1), 0);
      EXPECT_EQ(table->inside, 0);
      std::this_thread::yield();
      MutexLock lock(&table->mutex);
      steps[table - tables_.data()] = table->steps;
    });
    for (int t = 0; t < kTables; ++t) {
      for (const int step : steps[t]) {
        for (int u = 0; u < kTables; ++u) {
          const int both = 1 << t | 1 << u;
          if ((set & sets_[step] & both) != both) continue;
          EXPECT_EQ(steps[u].count(step), 1u) << "torn step " << step;
        }
      }
    }
    ForEach(set, [](Table* table) {
      EXPECT_EQ(table->inside, 0);
      table->flips -= 1;
    });
  }

  void Close(unsigned random) {
    const StepGates gates = GatesOf(random % kAll + 1);
    gates.Close();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    gates.Open();
  }

  std::array<Table, kTables> tables_;
  std::array<int, kSteps> sets_;  // of tables, by step
  std::array<std::atomic<int>, kSteps> runs_ = {};
  std::atomic<int> ended_{0};
  std::atomic<int> flips_{0};
  Pool pool_;
};

TEST(StepGates, RandomSetsAreAtomic) { RandomSets().Run(); }

}  // namespace
}  // namespace lodestar
