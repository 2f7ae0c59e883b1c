// Instruction sets that a loop is compiled for, selected at run time. Loops
// must not use fused multiply-add, so that all sets produce the same bits.

#ifndef LODESTAR_TF_OPS_CORE_BASE_ISA_H_
#define LODESTAR_TF_OPS_CORE_BASE_ISA_H_

// Functions inlined into a caller are compiled for the caller's instruction
// set.
#define LODESTAR_INLINE inline __attribute__((always_inline))

#ifdef __x86_64__
#define LODESTAR_TARGET_AVX2 __attribute__((target("avx2")))
#else
#define LODESTAR_TARGET_AVX2
#endif

namespace lodestar {

enum class Isa { kBaseline, kAvx2 };
constexpr int kIsas = 2;

// Returns the widest instruction set of the processor.
inline Isa BestIsa() {
#ifdef __x86_64__
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  return has_avx2 ? Isa::kAvx2 : Isa::kBaseline;
#else
  return Isa::kBaseline;
#endif
}

template <typename Loop, typename... Args>
void RunOnBaseline(Args... args) {
  Loop::template Run<Isa::kBaseline>(args...);
}

template <typename Loop, typename... Args>
LODESTAR_TARGET_AVX2 void RunOnAvx2(Args... args) {
  Loop::template Run<Isa::kAvx2>(args...);
}

// Calls Loop::Run<isa>(args...), compiled for that instruction set. Requires:
// Run is LODESTAR_INLINE; the processor supports `isa`.
template <typename Loop, typename... Args>
void RunOn(Isa isa, Args... args) {
  if (isa == Isa::kAvx2) {
    RunOnAvx2<Loop>(args...);
  } else {
    RunOnBaseline<Loop>(args...);
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_ISA_H_
