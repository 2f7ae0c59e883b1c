// Instruction sets that a loop is compiled for; the processor is asked at run
// time which of them it has. No loop may use fused multiply-add, so that all
// give the same bits.

#ifndef LODESTAR_TF_OPS_CORE_BASE_ISA_H_
#define LODESTAR_TF_OPS_CORE_BASE_ISA_H_

// What is inlined into a function is compiled for that function's set.
#define LODESTAR_INLINE inline __attribute__((always_inline))

#ifdef __x86_64__
#define LODESTAR_TARGET_AVX2 __attribute__((target("avx2")))
#else
#define LODESTAR_TARGET_AVX2
#endif

namespace lodestar {

enum class Isa { kBaseline, kAvx2 };
constexpr int kIsas = 2;

// The widest that the processor has.
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

// Loop::Run<isa>(args...), compiled for that set. REQUIRES: Run is
// LODESTAR_INLINE; the processor has `isa`.
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
