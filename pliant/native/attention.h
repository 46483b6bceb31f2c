// What attention.cpp asks of the loops in attention_loops.h.
#pragma once
#include <cstdint>

namespace pliant {

constexpr int64_t kKeys = 512;   // that are looked at in one go: their scores, k and v stay in the second cache
constexpr int64_t kBlock = 64;   // rows that are
constexpr int64_t kSpan = kKeys + 16; // from one row of scores to the next: no power of two

// Some rows of one head, and keys [from, to) of it: out = sum of exp(score - most) * v, most and total (of the exponentials) of each row.
// With `finish` the rows are divided by their totals.
struct Rows {
    const float *q, *k, *v, *mask;
    float *out, *scores, *most, *total; // scores: kBlock * kSpan
    int64_t rows, from, to, depth, width;
    int64_t q_row, k_row, v_row, out_row, mask_row, mask_column;
    int64_t first; // of a causal one: row i attends to keys up to first + i; else -1
    float scale;
    bool finish;
};

} // namespace pliant
