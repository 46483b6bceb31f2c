// Products of f16 and bf16 by the loops of f32, block by block, in scratch memory that stays in the second cache.
//
// f16: the blocks of both operands become f32, and what comes out is rounded. bf16: one instruction multiplies two pairs of neighbours
// along k and adds both products to a sum in f32, so to the loops a pair is an element; where neighbours along k do not lie side by side
// they are copied so.
#include "halves.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace pliant {
namespace {

constexpr int64_t kScratch = 64 << 10; // floats of a block of an operand, if its rows are not longer than that
constexpr int64_t kMostRows = 256;

int64_t clamped(int64_t wanted, int64_t unit, int64_t most) { return std::clamp(wanted / unit * unit, unit, (most + unit - 1) / unit * unit); }

// A block of an operand as f32 or as pairs.
struct Scratch {
    float *data;
    explicit Scratch(int64_t floats) : data(static_cast<float *>(std::malloc(floats * sizeof(float)))) {}
    ~Scratch() { std::free(data); }
    Scratch(const Scratch &) = delete;
};

// n elements of k neighbours each (`apart` from one element to the next), or k rows of n elements: the layout stays.
Matrix widened(const Halves &h, const uint16_t *data, int64_t apart, bool along, int64_t n, int64_t k, float *to) {
    const int64_t lines = along ? n : k, length = along ? k : n;
    for (int64_t i = 0; i < lines; i++) h.widen(data + i * apart, to + i * length, length);
    return along ? Matrix{to, k, 1} : Matrix{to, 1, n};
}

// The same as pairs along k; the last one of an odd number has a 0.
Matrix paired(const uint16_t *data, int64_t apart, bool along, int64_t n, int64_t k, float *to) {
    const int64_t pairs = (k + 1) / 2;
    auto *out = reinterpret_cast<uint32_t *>(to);
    if (along) {
        for (int64_t i = 0; i < n; i++) {
            if (k % 2) out[(i + 1) * pairs - 1] = 0;
            std::memcpy(out + i * pairs, data + i * apart, k * sizeof(uint16_t));
        }
        return {to, pairs, 1};
    }
    for (int64_t p = 0; p < pairs; p++) {
        const uint16_t *even = data + 2 * p * apart;
        pairs512.pair(even, 2 * p + 1 < k ? even + apart : nullptr, to + p * n, n);
    }
    return {to, 1, n};
}

} // namespace

bool pairs_run() {
#if defined(__x86_64__)
    return matmul_runs() && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

bool multiply_f16(const Halves &h, Way way, const HalfMatrix &a, const HalfMatrix &b, const HalfResult &out, int64_t m, int64_t n, int64_t k) {
    const bool dots = way == Way::Dots; // columns are read once or twice: as they are
    const int64_t tall = std::min(m, clamped(kScratch / k, 8, kMostRows)), wide = std::min(n, clamped(kScratch / k, kPanel, 4 * kPanel));
    const Scratch first(tall * k), second(dots ? 1 : wide * k), sums(tall * wide);
    if (!first.data || !second.data || !sums.data) return false;
    for (int64_t j = 0; j < n; j += wide) {
        const int64_t columns = std::min(wide, n - j);
        const HalfMatrix here = b.part(0, j);
        Matrix right = {second.data, 0, 0};
        if (!dots) {
            const Matrix turned = widened(h, here.data, b.column == 1 ? b.row : b.column, b.column != 1, columns, k, second.data);
            right = {turned.data, turned.column, turned.row};
        }
        for (int64_t i = 0; i < m; i += tall) {
            const int64_t rows = std::min(tall, m - i);
            const Matrix left = widened(h, a.part(i, 0).data, a.column == 1 ? a.row : a.column, a.column == 1, rows, k, first.data);
            if (dots) h.dots(left, here, {sums.data, wide}, rows, columns, k);
            else h.loops->multiply(way, left, right, {sums.data, wide}, rows, columns, k);
            for (int64_t r = 0; r < rows; r++) {
                const HalfResult to = out.part(i + r, j);
                h.narrow(sums.data + r * wide, to.bias, to.c, columns);
            }
        }
    }
    return true;
}

bool multiply_bf16(Way way, const HalfMatrix &a, const HalfMatrix &b, const HalfResult &out, int64_t m, int64_t n, int64_t k) {
    const int64_t pairs = (k + 1) / 2, tall = std::min<int64_t>(m, kMostRows), wide = std::min(n, 4 * kPanel);
    const bool lies = k % 2 == 0; // a row of pairs, if neighbours are side by side and rows begin at pairs
    const bool left_lies = lies && a.column == 1 && (a.row % 2 == 0 || m == 1), right_lies = lies && b.row == 1 && (b.column % 2 == 0 || n == 1);
    const Scratch first(left_lies ? 1 : tall * pairs), second(right_lies ? 1 : wide * pairs), sums(tall * wide);
    if (!first.data || !second.data || !sums.data) return false;
    for (int64_t j = 0; j < n; j += wide) {
        const int64_t columns = std::min(wide, n - j);
        const uint16_t *from = b.part(0, j).data;
        const Matrix turned = right_lies ? Matrix{reinterpret_cast<const float *>(from), b.column / 2, 1}
                                         : paired(from, b.column == 1 ? b.row : b.column, b.column != 1, columns, k, second.data);
        const Matrix right = {turned.data, turned.column, turned.row};
        for (int64_t i = 0; i < m; i += tall) {
            const int64_t rows = std::min(tall, m - i);
            const uint16_t *above = a.part(i, 0).data;
            const Matrix left = left_lies ? Matrix{reinterpret_cast<const float *>(above), a.row / 2, 1}
                                          : paired(above, a.column == 1 ? a.row : a.column, a.column == 1, rows, k, first.data);
            pairs512.loops.multiply(way, left, right, {sums.data, wide}, rows, columns, pairs);
            for (int64_t r = 0; r < rows; r++) {
                const HalfResult to = out.part(i + r, j);
                pairs512.narrow(sums.data + r * wide, to.bias, to.c, columns);
            }
        }
    }
    return true;
}

} // namespace pliant
