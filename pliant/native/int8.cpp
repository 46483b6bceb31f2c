// Products of int8 in segments: which instructions, how many threads; and the loops without vectors.
#include "int8.h"
#include "pool.h"
#include "routines.h"
#include "shared.h"
#include <cstdlib>
#include <cstring>

namespace pliant {

static void plain_columns(const IntProduct &p, const void *, int64_t low, int64_t high) {
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = low; j < high; j++) {
            const int8_t *a = p.a + i * p.lda, *b = p.b + j * p.ldb;
            uint32_t sum = 0;
            for (int64_t k = 0; k < p.k; k++) sum += static_cast<uint32_t>(a[k] * b[k]);
            p.c[i * p.n + j] = static_cast<int32_t>(sum);
        }
}

static int64_t nothing(const IntProduct &) { return 0; }

const IntLoops int8_plain = {plain_columns, nothing, nullptr, 1, 1};

static int32_t product(const IntProduct &p, const IntLoops &loops) {
    constexpr double kGrain = 1 << 24; // multiplications that are worth a thread
    if (p.m <= 0 || p.n <= 0) return 0;
    if (p.k <= 0) {
        std::memset(p.c, 0, sizeof(int32_t) * p.m * p.n);
        return 0;
    }
    const int64_t bytes = loops.bytes(p), groups = pieces(p.n, loops.grain);
    const int64_t threads = threads_for(static_cast<double>(p.m) * p.n * p.k, kGrain, groups);
    void *scratch = nullptr;
    if (bytes) {
        scratch = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!scratch) return OUT_OF_MEMORY;
        shared(threads, pieces(p.m, loops.rows), [&](int64_t low, int64_t high) { loops.prepare(p, scratch, low, high); });
    }
    shared(threads, groups, [&](int64_t low, int64_t high) {
        if (low < high) loops.columns(p, scratch, low * loops.grain, std::min(high * loops.grain, p.n));
    });
    std::free(scratch);
    return 0;
}

template <const IntLoops &loops> static int32_t with(const void *p) { return product(*static_cast<const IntProduct *>(p), loops); }

#if defined(__x86_64__)
Routine *int8_routine(int64_t bits, bool tiles) {
    if (bits >= 512 && tiles && int8_tiles_run()) return &with<int8_tiles>;
    if (bits >= 512 && int8_vnni_runs()) return &with<int8_vnni>;
    return bits >= 256 && __builtin_cpu_supports("avx2") ? &with<int8_avx2> : &with<int8_plain>;
}
#else
Routine *int8_routine(int64_t, bool) { return &with<int8_plain>; }
#endif

} // namespace pliant
