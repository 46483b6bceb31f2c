// Products of f32 with weights of int8 in segments: out = x @ weight^T, the weights taken as the floats that they are.
//
// With the processor's tiles (AMX), x is the sum of three bf16, which hold all of its bits, and the weights are bf16 already: three products
// of those, summed in f32, are the product in f32. Elsewhere some columns at a time are made floats for the loops of matmul_loops.h.
#include "int8.h"
#include "routines.h"

namespace pliant {

namespace {

constexpr double kGrain = 1 << 22; // multiplications that are worth a thread
constexpr int64_t kFew = 4;        // rows that do not fill tiles

void plain_floats(const int8_t *from, float *to, int64_t n) {
    for (int64_t k = 0; k < n; k++) to[k] = from[k];
}
constexpr Bytes plain_bytes = {nullptr, plain_floats};

int32_t with_floats(const FloatProduct &p, const Loops &loops, const Bytes &bytes) {
    const int64_t cuts = pieces(p.n, kPanel), threads = threads_for(static_cast<double>(p.m) * p.n * p.k, kGrain, cuts);
    const Matrix a = {p.x, p.ldx, 1};
    int32_t status = 0;
    shared(threads, cuts, [&](int64_t low, int64_t high) {
        if (low >= high) return;
        if (bytes.dots && p.m <= kFew) {
            const int64_t j = low * kPanel;
            bytes.dots(a, p.weight + j * p.ldw, p.ldw, {p.out + j, p.n}, p.m, std::min(high * kPanel, p.n) - j, p.k);
            return;
        }
        auto *floats = static_cast<float *>(std::malloc(sizeof(float) * kPanel * p.k));
        if (!floats) {
            __atomic_store_n(&status, OUT_OF_MEMORY, __ATOMIC_RELAXED);
            return;
        }
        const Matrix b = {floats, 1, p.k};
        for (int64_t j = low * kPanel; j < std::min(high * kPanel, p.n); j += kPanel) {
            const int64_t columns = std::min(kPanel, p.n - j);
            for (int64_t q = 0; q < columns; q++) bytes.floats(p.weight + (j + q) * p.ldw, floats + q * p.k, p.k);
            loops.multiply(loops.way(a, b, p.m, columns, p.k), a, b, {p.out + j, p.n}, p.m, columns, p.k);
        }
        std::free(floats);
    });
    return status;
}

int32_t with_tiles(const FloatProduct &p) {
    constexpr int64_t kColumns = 32, kRows = 16;
    const int64_t cuts = pieces(p.n, kColumns), threads = threads_for(static_cast<double>(p.m) * p.n * p.k, kGrain, cuts);
    auto *scratch = std::aligned_alloc(64, bf16_bytes(p));
    if (!scratch) return OUT_OF_MEMORY;
    shared(threads, pieces(p.m, kRows), [&](int64_t low, int64_t high) { bf16_prepare(p, scratch, low, high); });
    int32_t status = 0;
    shared(threads, cuts, [&](int64_t low, int64_t high) {
        if (low >= high) return;
        auto *room = std::aligned_alloc(64, bf16_room(p));
        if (room) bf16_columns(p, scratch, room, low * kColumns, std::min(high * kColumns, p.n));
        else __atomic_store_n(&status, OUT_OF_MEMORY, __ATOMIC_RELAXED);
        std::free(room);
    });
    std::free(scratch);
    return status;
}

template <const Loops &loops, const Bytes &bytes, bool tiles> int32_t product(const void *given) {
    const auto &p = *static_cast<const FloatProduct *>(given);
    if (p.m <= 0 || p.n <= 0) return 0;
    if (p.k <= 0) {
        std::fill_n(p.out, p.m * p.n, 0.0f);
        return 0;
    }
    return tiles && p.m > kFew ? with_tiles(p) : with_floats(p, loops, bytes);
}

} // namespace

Routine *float_routine(int64_t bits, bool tiles) {
    const Loops *loops = loops_of(bits);
    if (loops == &loops512) return tiles && bf16_tiles_run() ? &product<loops512, bytes512, true> : &product<loops512, bytes512, false>;
    return loops ? &product<loops256, bytes256, false> : &product<loops_plain, plain_bytes, false>;
}

} // namespace pliant
