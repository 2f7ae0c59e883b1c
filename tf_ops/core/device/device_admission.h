// DeviceAdmission: counts occurrences of ids that wait for a row of a
// DeviceStore, and admits them. The counterpart of OccurrenceCounter.
//
//   pending ids   DeviceIndex from ids to occurrences, and their last steps
//   sketch        see CountingSketch

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ADMISSION_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ADMISSION_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/embedding_rows.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

struct AdmissionView;
struct IndexEntry;

// Not thread-safe. Work is queued within a turn of the table.
class DeviceAdmission {
 public:
  // How a call counts and admits ids.
  struct Call {
    int64_t now = 0;
    bool admission = false;  // ids may need several occurrences
    LookupOptions::Admit admit = LookupOptions::Admit::kByPolicy;
    bool count_frequency = false;
    // [N], how often each id occurs; null: count once per step.
    const uint32_t* occurrences = nullptr;
  };
  // The planned change of one id. Zeros for an id that has a row.
  struct PlannedId {
    uint32_t occurrences;  // including this one
    uint32_t frequency;    // of its row, see AdmissionRule
    bool pending;          // it is pending now
    bool fresh;            // its occurrence counts
    bool admitted;
  };
  struct Plan {
    DeviceArray<PlannedId> ids;       // [N]
    DeviceArray<uint32_t> list;       // indices of admitted ids, in any order
    DeviceArray<uint64_t> mixed_ids;  // Mix64 of each of these
    int64_t num_admitted = 0;
    int64_t num_waiting = 0;  // ids that become pending
    int64_t num_missing = 0;
  };
  // Numbers of events since the index of pending ids was built.
  struct PendingCounts {
    uint32_t inserted = 0;
    uint32_t reused = 0;  // into cells of removed ids
    uint32_t removed = 0;
    uint32_t emptied = 0;  // of these, cells that became empty

    int64_t ids() const { return inserted - removed; }
    // Upper bound of cells that are not empty.
    int64_t cells() const { return inserted - reused - emptied; }
  };

  // `allocator` must outlive this.
  DeviceAdmission(const AdmissionPolicy& policy, DeviceAllocator* allocator)
      : policy_(policy), allocator_(allocator) {}
  Status Init(const DeviceStream& on);

  // Returns false if every id is admitted at once.
  bool any() const { return policy_.kind != AdmissionPolicy::Kind::kAll; }
  int64_t bytes() const;

  // Plans what becomes of the ids without a row: those with refs[i] == kNoRow,
  // except if skipped[i]. Waits.
  Status PlanIds(const DeviceStream& on, const DeviceIds& ids,
                 const bool* skipped, const uint32_t* refs, const Call& call,
                 Plan* plan);
  // Reserves memory for Commit, if Refuse is called for up to `refused` ids.
  Status Reserve(const DeviceStream& on, const Plan& plan, int64_t refused);
  // The first `refused` ids of the list keep waiting.
  Status Refuse(const DeviceStream& on, const Plan& plan, int64_t refused);
  Status Commit(const DeviceStream& on, const DeviceIds& ids, const Call& call,
                const Plan& plan);

  // Number of ids that are pending at this step. Waits.
  Status CountPending(const DeviceStream& on, int64_t step,
                      int64_t* pending) const;
  // See OccurrenceCounter::CountsOf. For ids with a row the counts are
  // arbitrary. Waits.
  Status ReadCounts(const DeviceStream& on, const DeviceIds& ids, int64_t step,
                    std::vector<int64_t>* occurrences,
                    std::vector<int64_t>* last_seen) const;
  // Exports the ids pending at out->step, ascending, and the sketch. Waits.
  Status Export(const DeviceStream& on, EmbeddingRows* out) const;
  // Requires: CheckPending succeeded, and nothing was counted yet.
  Status Import(const DeviceStream& on, const EmbeddingRowsView& rows);
  // Drops pending ids that were last seen more than max_age steps before `now`.
  // A sketch drops none.
  Status Forget(const DeviceStream& on, int64_t max_age, int64_t now);
  Status Clear(const DeviceStream& on);

 private:
  bool sketched() const {
    return policy_.kind == AdmissionPolicy::Kind::kCountingBloom;
  }
  // Returns true if no id is pending at this step: with a sketch, ids of an
  // earlier step are dropped when the next id arrives.
  bool NonePending(int64_t step) const {
    return !any() || (sketched() && pending_step_ != step);
  }
  AdmissionView view(int64_t step) const;
  Status ReserveSketch(const DeviceStream& on);
  Status ClearPending(const DeviceStream& on);
  Status Fetch(const DeviceStream& on, PendingCounts* counts) const;
  // Makes room for `more` pending ids.
  Status ReservePending(const DeviceStream& on, int64_t more);
  Status Rehash(const DeviceStream& on, int64_t cells, int64_t ids);
  // Sets the counts of ids that keep waiting. last_seen: [N]; null: `now`.
  Status Put(const DeviceStream& on, const DeviceIds& ids,
             const PlannedId* planned, const int64_t* last_seen, int64_t now);

  const AdmissionPolicy policy_;
  DeviceAllocator* const allocator_;
  // Pending ids; empty without admission.
  DeviceArray<uint32_t> tags_;
  DeviceArray<IndexEntry> entries_;
  DeviceArray<int64_t> last_seen_;  // of each cell
  DeviceArray<PendingCounts> counts_;
  int64_t cells_bound_ = 0;   // upper bound of cells that are not empty
  int64_t pending_step_ = 0;  // with a sketch: the step of all pending ids
  // The sketch's counters, four per word; empty until the first is needed.
  DeviceArray<uint32_t> sketch_;
  bool counted_ = false;  // whether the sketch has counted an id
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_ADMISSION_H_
