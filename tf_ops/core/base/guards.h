// Guards of the embedding store's guarantees. All of them hold in every regular
// build. A test compiles a source with one guard broken
// (-DLODESTAR_BROKEN_GUARD=kEpochs) and requires that guard's test to fail.
// This detects tests that have lost their effect.

#ifndef LODESTAR_TF_OPS_CORE_BASE_GUARDS_H_
#define LODESTAR_TF_OPS_CORE_BASE_GUARDS_H_

namespace lodestar {

enum class StoreGuard {
  kNone,
  kSequenceWord,    // row reads are never torn
  kReservePhase,    // a failed call changes nothing
  kOncePerStep,     // an id is counted once per step
  kEpochs,          // memory that a reader can see is not freed
  kRowVersion,      // an outside update applies to the current row
  kChangeMarks,     // an incremental snapshot has every written row
  kCopyOnWrite,     // a snapshot has rows as of its start
  kMarkAfterImage,  // a preempted writer's change reaches the next delta
};

#ifndef LODESTAR_BROKEN_GUARD
#define LODESTAR_BROKEN_GUARD kNone
#endif

constexpr bool GuardHolds(StoreGuard guard) {
  return guard != StoreGuard::LODESTAR_BROKEN_GUARD;
}

// Points where a test can stop a thread so that another overtakes it. Only
// sources built with LODESTAR_PAUSES call PauseAt, which the test defines.
enum class PausePoint {
  kMarkWritten,    // between writing a row's mark and its image
  kBeforeMarking,  // before either of them
  kReadRow,        // between copying a row out and confirming the copy
};

#ifdef LODESTAR_PAUSES
void PauseAt(PausePoint point);
#else
inline void PauseAt(PausePoint) {}
#endif

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_GUARDS_H_
