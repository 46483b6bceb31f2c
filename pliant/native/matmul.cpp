// Which vectors this machine has for products of matrices and for attention.
#include "matmul.h"

namespace pliant {

#if defined(__x86_64__)
bool matmul_runs() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma");
}

const Loops *loops_of(int64_t bits) {
    if (bits >= 512 && matmul_runs()) return &loops512;
    return bits >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") ? &loops256 : nullptr;
}

// MKL, which PyTorch links, computes with half of the vector on processors that are not Intel's, and not all the time.
bool matmul_is_best() { return loops_of(256) && !__builtin_cpu_is("intel"); }
#else // no vectors that are known here: the BLAS of PyTorch does everything
bool matmul_runs() { return false; }
const Loops *loops_of(int64_t) { return nullptr; }
bool matmul_is_best() { return false; }
#endif

} // namespace pliant
