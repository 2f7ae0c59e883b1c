// The guards of the embedding store's contract. In every build of ours all of
// them hold. A test builds a source with one of them broken
// (-DLODESTAR_BROKEN_GUARD=kEpochs) and requires that guard's test to fail, so
// that a test which no longer notices is itself noticed.

#ifndef LODESTAR_TF_OPS_CORE_BASE_GUARDS_H_
#define LODESTAR_TF_OPS_CORE_BASE_GUARDS_H_

namespace lodestar {

enum class StoreGuard {
  kNone,
  kSequenceWord,    // a read row is whole
  kReservePhase,    // a call that fails has changed nothing
  kSightingSet,     // an id is counted once a step
  kEpochs,          // memory that a reader can see is not freed
  kRowVersion,      // an update made outside is of the row as it is
  kChangeMarks,     // a delta has every row that was written
  kCopyOnWrite,     // a snapshot has rows as they were when it began
  kMarkAfterImage,  // a preempted writer's change is in the next delta
};

#ifndef LODESTAR_BROKEN_GUARD
#define LODESTAR_BROKEN_GUARD kNone
#endif

constexpr bool GuardHolds(StoreGuard guard) {
  return guard != StoreGuard::LODESTAR_BROKEN_GUARD;
}

// Places where a test may hold a thread that another one has to overtake. Only
// sources that are built with LODESTAR_PAUSES call PauseAt, which the test
// defines.
enum class PausePoint {
  kMarkWritten,  // between a row's mark and its image, or after both
};

#ifdef LODESTAR_PAUSES
void PauseAt(PausePoint point);
#else
inline void PauseAt(PausePoint) {}
#endif

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_GUARDS_H_
