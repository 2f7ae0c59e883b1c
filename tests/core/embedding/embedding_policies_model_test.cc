// Compares admission and eviction with a simple model without shards.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/core/embedding/embedding_policies.h"
#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

// The model has no shards, threads or lists.
class Model {
 public:
  Model(int64_t min_count, const EvictionPolicy& policy)
      : min_count_(min_count),
        policy_(policy),
        max_rows_(policy.max_rows),
        order_(policy.order) {}

  struct Row {
    int64_t frequency;
    int64_t last_seen;
  };

  void Lookup(const std::vector<int64_t>& ids, bool insert, bool count) {
    std::vector<int64_t> fresh;
    for (int64_t id : ids) {
      if (rows.count(id) > 0 || !insert) continue;
      Row& p = pending[id];  // {0, 0}
      if (count && (p.frequency == 0 || p.last_seen != step)) {
        ++p.frequency;
        p.last_seen = step;
      }
      if (min_count_ <= 1 || p.frequency >= min_count_) {
        fresh.push_back(id);
      } else if (p.frequency == 0) {
        pending.erase(id);
      }
    }
    for (int64_t id : MakeRoom(ids, fresh)) {
      const int64_t first = count ? 1 : 0;
      Put(id, {min_count_ <= 1 ? first : pending[id].frequency, step});
      pending.erase(id);
    }
    if (min_count_ <= 1) pending.clear();
    for (int64_t id : ids) {
      auto it = rows.find(id);
      if (!count || it == rows.end()) continue;
      Row row = it->second;
      if (row.last_seen == step && row.frequency > 0) continue;
      Put(id, {row.frequency + 1, step});
    }
  }

  void Assign(const std::vector<int64_t>& ids) {
    std::vector<int64_t> fresh;
    for (int64_t id : ids) {
      if (rows.count(id) == 0) fresh.push_back(id);
    }
    for (int64_t id : MakeRoom(ids, fresh)) {
      Put(id, {0, step});
      pending.erase(id);
    }
  }

  int64_t Remove(const std::vector<int64_t>& ids) {
    int64_t removed = 0;
    for (int64_t id : ids) {
      if (rows.count(id) == 0) continue;
      Drop(id);
      ++removed;
    }
    return removed;
  }

  int64_t EvictOlder(int64_t age) {
    std::vector<int64_t> old;
    for (const auto& [id, row] : rows) {
      if (step - row.last_seen > age) old.push_back(id);
    }
    for (auto it = pending.begin(); it != pending.end();) {
      it = step - it->second.last_seen > age ? pending.erase(it) : ++it;
    }
    return Remove(old);
  }

  // Moves the step, and evicts by the policy of the table.
  void MoveTo(int64_t next) {
    const auto passes = [&](int64_t every) {
      for (int64_t s = step + 1; s <= next; ++s) {
        if (s % every == 0) return true;
      }
      return false;
    };
    const bool by_frequency =
        policy_.min_frequency > 0 && passes(policy_.min_frequency_every);
    step = next;
    if (policy_.max_age >= 0) evicted += EvictOlder(policy_.max_age);
    if (!by_frequency) return;
    std::vector<int64_t> seldom;
    for (const auto& [id, row] : rows) {
      if (row.frequency >= policy_.min_frequency) continue;
      if (row.last_seen != step || row.frequency == 0) seldom.push_back(id);
    }
    evicted += Remove(seldom);
  }

  int64_t step = 0;
  int64_t refused = 0;
  int64_t evicted = 0;
  std::map<int64_t, Row> rows;
  std::map<int64_t, Row> pending;

 private:
  using Key = std::tuple<int64_t, int64_t, uint64_t, int64_t>;
  Key KeyOf(int64_t id, const Row& row) const {
    return {order_ == Order::kLfu ? row.frequency : 0, row.last_seen, Mixed(id),
            id};
  }
  void Drop(int64_t id) {
    order_of_rows_.erase(KeyOf(id, rows[id]));
    rows.erase(id);
  }
  void Put(int64_t id, const Row& row) {
    if (rows.count(id) > 0) Drop(id);
    rows[id] = row;
    order_of_rows_.insert(KeyOf(id, row));
  }
  // Returns the ids that find room.
  std::vector<int64_t> MakeRoom(const std::vector<int64_t>& ids,
                                const std::vector<int64_t>& fresh) {
    int64_t excess =
        static_cast<int64_t>(rows.size() + fresh.size()) - max_rows_;
    if (max_rows_ == 0 || excess <= 0) return fresh;
    const std::set<int64_t> spared(ids.begin(), ids.end());
    for (auto it = order_of_rows_.begin();
         it != order_of_rows_.end() && excess > 0;) {
      const int64_t id = std::get<3>(*it);
      ++it;
      if (rows[id].last_seen == step || spared.count(id) > 0) continue;
      Drop(id);
      ++evicted;
      --excess;
    }
    std::vector<int64_t> left = ByMix(fresh);
    if (excess > 0) {
      left.erase(left.begin(), left.begin() + excess);
      refused += excess;
    }
    return left;
  }

  const int64_t min_count_;
  const EvictionPolicy policy_;
  const int64_t max_rows_;
  const Order order_;
  std::set<Key> order_of_rows_;
};

void ExpectEqual(const EmbeddingStore& store, const Model& model) {
  const EmbeddingRows rows = Export(store);
  ASSERT_EQ(rows.ids.size(), model.rows.size());
  size_t i = 0;
  for (const auto& [id, row] : model.rows) {
    ASSERT_EQ(rows.ids[i], id);
    ASSERT_EQ(rows.frequencies[i], row.frequency) << id;
    ASSERT_EQ(rows.last_seen[i], row.last_seen) << id;
    ++i;
  }
  ASSERT_EQ(rows.pending_ids.size(), model.pending.size());
  i = 0;
  for (const auto& [id, row] : model.pending) {
    ASSERT_EQ(rows.pending_ids[i], id);
    ASSERT_EQ(rows.pending_sightings[i], row.frequency) << id;
    ASSERT_EQ(rows.pending_last_seen[i], row.last_seen) << id;
    ++i;
  }
}

struct Case {
  int64_t min_count;
  int64_t max_rows;
  Order order;
  int64_t shards;
  int threads;
  int64_t id_range;
  int64_t max_age = -1;
  int64_t min_frequency = 0;
};

class EmbeddingPoliciesModelTest : public testing::TestWithParam<Case> {};

// About a million occurrences, mixed with other operations.
TEST_P(EmbeddingPoliciesModelTest, RandomEventsAgreeWithAModel) {
  const Case c = GetParam();
  TablePolicies policies = MaxRows(c.max_rows, c.order);
  if (c.min_count > 1) {
    policies.admission = MinCount(c.min_count).admission;
  }
  policies.eviction.max_age = c.max_age;
  policies.eviction.min_frequency = c.min_frequency;
  policies.eviction.min_frequency_every = 7;
  auto store = MakeStore(policies, c.shards);
  Model model(c.min_count, policies.eviction);
  const ParallelFor parallel = Threads(c.threads);
  const ParallelFor* threads = c.threads > 1 ? &parallel : nullptr;
  std::mt19937_64 rng(c.shards);
  int64_t events = 0;
  int64_t evicted_by_age = 0;
  for (int round = 0; events < 1000000; ++round) {
    std::vector<int64_t> ids;
    const int64_t size = rng() % 200;
    for (int64_t i = 0; i < size; ++i) {
      // Small ids are frequent; in some rounds all ids are new.
      const int64_t range = round % 97 == 0 ? int64_t{1} << 50 : c.id_range;
      ids.push_back(rng() % (1 + rng() % range));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::shuffle(ids.begin(), ids.end(), rng);
    events += ids.size();
    int64_t returned;
    if (rng() % 50 == 0) {
      ASSERT_TRUE(store->Compact(&returned, {}).ok());
    }
    const int kind = static_cast<int>(rng() % 100);
    if (kind < 90) {
      const bool insert = rng() % 10 != 0;
      const bool count = rng() % 10 != 0;
      Lookup(store.get(), ids, insert, count,
             rng() % 8 == 0 ? threads : nullptr);
      model.Lookup(ids, insert, count);
      if (rng() % 3 != 0) {
        Advance(store.get());
        model.MoveTo(model.step + 1);
      }
    } else if (kind < 93) {
      const std::vector<float> rows(ids.size() * kDim, 1.0f);
      ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), threads).ok());
      model.Assign(ids);
    } else if (kind < 96) {
      ASSERT_EQ(Remove(store.get(), ids), model.Remove(ids));
    } else if (kind < 97) {
      EvictionPolicy age;
      age.max_age = 20 + rng() % 200;
      int64_t evicted = 0;
      ASSERT_TRUE(store->Evict(age, &evicted, threads).ok());
      ASSERT_EQ(evicted, model.EvictOlder(age.max_age));
      evicted_by_age += evicted;
    } else if (kind < 98) {
      // The step may jump, also backwards.
      model.MoveTo(std::max<int64_t>(
          0, model.step + static_cast<int64_t>(rng() % 40) - 20));
      EXPECT_TRUE(store->SetStep(model.step).ok());
      store->ReleaseStep();
    } else if (kind < 99) {
      auto other = MakeStore(policies, 1 + rng() % 9);
      ASSERT_TRUE(ImportInPlaceOf(&other, View(Export(*store)), threads).ok());
      store.swap(other);
      model.evicted = model.refused = evicted_by_age = 0;
    } else {
      ExpectEqual(*store, model);
    }
    ASSERT_EQ(store->size(), static_cast<int64_t>(model.rows.size()));
  }
  ExpectEqual(*store, model);
  EXPECT_EQ(store->Stats().count(Event::kRefused), model.refused);
  EXPECT_EQ(store->Stats().count(Event::kEvicted),
            model.evicted + evicted_by_age);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, EmbeddingPoliciesModelTest,
    testing::Values(Case{1, 1000, Order::kLru, 1, 1, 5000},
                    Case{1, 1000, Order::kLfu, 16, 1, 5000},
                    Case{3, 0, Order::kLru, 3, 1, 20000},
                    Case{2, 300, Order::kLru, 5, 4, 1000},
                    Case{2, 100, Order::kLfu, 2, 1, 250},
                    Case{1, 0, Order::kLru, 4, 1, 5000, 30},
                    Case{3, 0, Order::kLru, 1, 4, 5000, 3},
                    Case{1, 1000, Order::kLru, 5, 1, 5000, 60, 2},
                    Case{2, 1000, Order::kLfu, 16, 1, 5000, 40},
                    Case{1, 500, Order::kLfu, 1, 4, 2000, 50, 3},
                    Case{1, 0, Order::kLru, 7, 1, 5000, -1, 2}));

}  // namespace
}  // namespace lodestar
