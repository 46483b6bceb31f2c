// Products of int8 in segments: which instructions, how many threads; and the loops without vectors.
#include "int8.h"
#include "routines.h"
#include "shared.h"
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

const IntLoops &int8_loops(int64_t bits, bool tiles) {
#if defined(__x86_64__)
    if (bits >= 512 && tiles && int8_tiles_run()) return int8_tiles;
    if (bits >= 512 && int8_vnni_runs()) return int8_vnni;
    if (bits >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return int8_avx2;
#else
    (void)bits, (void)tiles;
#endif
    return int8_plain;
}

template <const IntLoops &loops> static int32_t with(const void *given) {
    const auto &p = *static_cast<const IntProduct *>(given);
    if (p.m <= 0 || p.n <= 0) return 0;
    if (p.k <= 0) {
        std::memset(p.c, 0, sizeof(int32_t) * p.m * p.n);
        return 0;
    }
    return int8_product(p, loops, [](int64_t, int64_t) {});
}

Routine *int8_routine(int64_t bits, bool tiles) {
    const IntLoops &loops = int8_loops(bits, tiles);
    return &loops == &int8_tiles ? &with<int8_tiles> : &loops == &int8_vnni ? &with<int8_vnni> : &loops == &int8_avx2 ? &with<int8_avx2> : &with<int8_plain>;
}

} // namespace pliant
