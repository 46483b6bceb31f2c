// One direction of a layer of an LSTM of f32, forward and back, for lengths that only a run knows.
//
// What does not wait for the step before is one product for all steps: the inputs by their weight before the first step, and the gradients of
// inputs, weights and biases behind the last. A step is one product with the state and one pass over the gates. The weight of the state is
// turned round once, where steps and rows are many, so that no step has to. How a product is made depends on its sizes alone: the number
// of threads changes no bit.
//
// A packed sequence has fewer rows in each step than in the one before: the first ones. Taken backwards, rows join in.
#include "recurrent.h"
#include "matmul.h"
#include "pool.h"
#include "routines.h"
#include "shared.h"
#include <algorithm>
#include <cstring>
#include <utility>

namespace pliant {
namespace {

constexpr int64_t kGates = 4;
constexpr int64_t kApart = 16;           // floats that rows are further apart than they are long: no power of two
constexpr double kGrain = 1 << 20;       // multiplications that are worth a thread
constexpr int64_t kCached = 1 << 17;      // floats
constexpr int64_t kUnits = 16;           // that a thread takes at a time
constexpr int64_t kSummed = 64;          // rows that a sum of a weight's gradient has before it joins the others: errors as small as PyTorch's

// What both ways are told of the sequence.
struct Sequence {
    const int64_t *counts; // rows of each step, if packed
    int64_t steps, batch, rows, inputs, width, flags;
    bool has(RecurrentFlag f) const { return flags & f; }
    int64_t count(int64_t t) const { return has(PACKED) ? counts[t] : batch; }
    int64_t gates() const { return kGates * width; }
    int64_t gates_row() const { return gates() + kApart; }
};

// A step: its rows are [start, start + rows), those of the step before it [earlier, earlier + there); the other ones, which begin here, have
// the states that the sequence began with. Of its rows, those from `ends` on have no step after it.
struct Step {
    int64_t start, rows, earlier, there, ends;
};

// The steps of a direction in order: f(step).
template <class F> void in_order(const Sequence &s, bool backwards, const F &f) {
    const bool falling = s.has(REVERSE) != backwards; // from the last step of the data to the first
    int64_t start = falling ? s.rows : 0;
    for (int64_t k = 0; k < s.steps; k++) {
        const int64_t t = falling ? s.steps - 1 - k : k, n = s.count(t);
        if (falling) start -= n;
        const int64_t before = s.has(REVERSE) ? t + 1 : t - 1, after = s.has(REVERSE) ? t - 1 : t + 1;
        const auto rows_at = [&](int64_t at) { return at >= 0 && at < s.steps ? std::min(n, s.count(at)) : 0; };
        f(Step{start, n, s.has(REVERSE) ? start + n : start - (before >= 0 ? s.count(before) : 0), rows_at(before), rows_at(after)});
        if (!falling) start += n;
    }
}

// Rows of a that stay in the second cache while all of b goes by.
int64_t rows_in_cache(int64_t k) { return std::max<int64_t>(kCached / k / 8 * 8, 64); }

// A product, cut between threads. `depth`: how many products a sum has before it joins the result; all, if that is 0.
void product(const Loops *loops, const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k, int64_t depth = 0) {
    const Way way = loops->way(a, b, m, n, k);
    const bool columns = n >= m;
    const int64_t unit = columns ? kPanel : 8, parts = pieces(columns ? n : m, unit);
    const int64_t threads = threads_for(static_cast<double>(m) * n * k, kGrain, parts);
    shared(threads, parts, [&](int64_t low, int64_t high) {
        const int64_t from = low * unit, to = std::min(high * unit, columns ? n : m);
        if (from >= to) return;
        const int64_t first = columns ? 0 : from, last = columns ? m : to, j = columns ? from : 0, block = rows_in_cache(k);
        for (int64_t i = first; i < last; i += block)
            for (int64_t d = 0, many = depth ? depth : k; d < k; d += many) {
                Result sums = out.part(i, j);
                if (d > 0) sums.plus = sums.c, sums.plus_row = sums.ldc;
                loops->multiply(way, a.part(i, d), b.part(d, j), sums, std::min(block, last - i), columns ? to - from : n, std::min(many, k - d));
            }
    });
}

// Columns of a matrix become rows, which lie `to_row` apart.
void turn_round(const float *x, int64_t rows, int64_t columns, float *to, int64_t to_row) {
    constexpr int64_t kTile = 16;
    for (int64_t i = 0; i < rows; i += kTile)
        for (int64_t j = 0; j < columns; j += kTile)
            for (int64_t q = j; q < std::min(j + kTile, columns); q++)
                for (int64_t p = i; p < std::min(i + kTile, rows); p++) to[q * to_row + p] = x[p * columns + q];
}

struct Scratch {
    int64_t bytes;
    float *data;
    explicit Scratch(int64_t floats) : bytes(floats * static_cast<int64_t>(sizeof(float))), data(static_cast<float *>(arena_take(bytes))) {}
    ~Scratch() {
        if (data) arena_give(data, bytes);
    }
    Scratch(const Scratch &) = delete;
};

// What a segment hands over, forward. Matrices lie dense but for `out`, whose rows are `out_row` apart. `gates` and `cells` are what the
// derivative reads.
struct Forward {
    const float *x;
    const int64_t *counts;
    const float *h0, *c0, *w, *u, *b, *v;
    float *out, *h, *c, *gates, *cells;
    int64_t steps, batch, rows, inputs, width, out_row, flags;
};

int32_t forward(const Forward &p, const Loops *loops) {
    const Sequence s = {p.counts, p.steps, p.batch, p.rows, p.inputs, p.width, p.flags};
    const int64_t n = s.gates();
    const bool turned = p.steps >= 4 && p.batch > 8; // else dot products read the weight as it lies
    const int64_t state_row = turned ? s.gates_row() : 0, biases = (n + kUnits - 1) / kUnits * kUnits;
    Scratch scratch(biases + p.width * state_row);
    if (!scratch.data) return OUT_OF_MEMORY;
    float *bias = scratch.data, *turned_u = scratch.data + biases;
    if (s.has(BIASES))
        for (int64_t j = 0; j < n; j++) bias[j] = p.b[j] + p.v[j];
    if (turned) turn_round(p.u, n, p.width, turned_u, state_row);
    const Matrix u = turned ? Matrix{turned_u, state_row, 1} : Matrix{p.u, 1, p.width};
    Result all = {p.gates, n};
    if (s.has(BIASES)) all.plus = bias;
    product(loops, {p.x, p.inputs, 1}, {p.w, 1, p.inputs}, all, p.rows, n, p.inputs);
    in_order(s, false, [&](const Step &step) {
        const Lines gates = {p.gates + step.start * n, n}, out = {p.out + step.start * p.out_row, p.out_row};
        const Lines cells = {p.cells + step.start * p.width, p.width};
        const Matrix states[] = {{p.out + step.earlier * p.out_row, p.out_row, 1}, {p.h0 + step.there * p.width, p.width, 1}};
        const Lines before[] = {{p.cells + step.earlier * p.width, p.width}, {const_cast<float *>(p.c0) + step.there * p.width, p.width}};
        const int64_t from[] = {0, step.there}, rows[] = {step.there, step.rows - step.there};
        const double work = static_cast<double>(step.rows) * n * (p.width + 16);
        const int64_t parts = pieces(p.width, kUnits), threads = threads_for(work, kGrain, parts);
        const Way way = loops->way(states[0], u, step.rows, n, p.width);
        shared(threads, parts, [&](int64_t low, int64_t high) {
            const int64_t first = low * kUnits, last = std::min(high * kUnits, p.width);
            const bool whole = first == 0 && last == p.width;
            for (int side = 0; side < 2; side++) {
                if (rows[side] <= 0 || first >= last) continue;
                const Lines mine = gates.from(from[side]);
                for (int64_t gate = 0; gate < (whole ? 1 : kGates); gate++) {
                    const int64_t at = gate * p.width + first;
                    Result sums = {mine.data + at, n};
                    sums.plus = sums.c, sums.plus_row = n;
                    loops->multiply(way, states[side], u.part(0, at), sums, rows[side], whole ? n : last - first, p.width);
                }
                loops->lstm_cell({mine, before[side], cells.from(from[side]), out.from(from[side]), rows[side], p.width, first, last});
            }
        });
        for (int64_t i = step.ends; i < step.rows; i++) {
            std::memcpy(p.h + i * p.width, out.at(i), p.width * sizeof(float));
            std::memcpy(p.c + i * p.width, cells.at(i), p.width * sizeof(float));
        }
    });
    return 0;
}

// The same, back. `d_h` and `d_c` hold the gradients of the last states, and then those of the first. `d_x` is added to where the other direction
// was there before.
struct Backward {
    const float *x;
    const int64_t *counts;
    const float *h0, *c0, *w, *u, *out, *gates, *cells, *d_out;
    float *d_h, *d_c, *d_x, *d_w, *d_u, *d_b, *d_v;
    int64_t steps, batch, rows, inputs, width, out_row, d_out_row, flags;
};

int32_t backward(const Backward &p, const Loops *loops) {
    const Sequence s = {p.counts, p.steps, p.batch, p.rows, p.inputs, p.width, p.flags};
    const int64_t n = s.gates(), row = s.gates_row();
    Scratch scratch(p.rows * (row + p.width));
    if (!scratch.data) return OUT_OF_MEMORY;
    float *d_gates = scratch.data, *states = d_gates + p.rows * row; // the states that steps began with
    const Matrix u = {p.u, p.width, 1};
    in_order(s, true, [&](const Step &step) {
        const auto lines = [&](const float *data, int64_t from, int64_t apart) { return Lines{const_cast<float *>(data) + from * apart, apart}; };
        const Lines before[] = {lines(p.cells, step.earlier, p.width), lines(p.c0, step.there, p.width)};
        const Lines d = {d_gates + step.start * row, row};
        const int64_t from[] = {0, step.there}, rows[] = {step.there, step.rows - step.there};
        const int64_t parts = pieces(p.width, kUnits);
        shared(threads_for(static_cast<double>(step.rows) * n * 16, kGrain, parts), parts, [&](int64_t low, int64_t high) {
            const int64_t first = low * kUnits, last = std::min(high * kUnits, p.width);
            for (int side = 0; side < 2; side++) {
                if (rows[side] <= 0 || first >= last) continue;
                const int64_t i = from[side], at = step.start + i;
                const Lines d_out = s.has(HAS_GRAD_OUT) ? lines(p.d_out, at, p.d_out_row) : Lines{nullptr, 0};
                loops->lstm_cell_back({lines(p.gates, at, n), before[side], lines(p.cells, at, p.width), d_out, lines(p.d_h, i, p.width),
                                       lines(p.d_c, i, p.width), d.from(i), rows[side], p.width, first, last});
            }
        });
        product(loops, {d.data, row, 1}, u, {p.d_h, p.width}, step.rows, p.width, n);
        for (int64_t i = 0; i < step.rows && s.has(WANT_WEIGHTS); i++) {
            const float *h = i < step.there ? p.out + (step.earlier + i) * p.out_row : p.h0 + i * p.width;
            std::memcpy(states + (step.start + i) * p.width, h, p.width * sizeof(float));
        }
    });
    if (s.has(WANT_X)) {
        Result out = {p.d_x, p.inputs};
        if (s.has(ADD_X)) out.plus = p.d_x, out.plus_row = p.inputs;
        product(loops, {d_gates, row, 1}, {p.w, p.inputs, 1}, out, p.rows, p.inputs, n);
    }
    if (!s.has(WANT_WEIGHTS)) return 0;
    product(loops, {d_gates, 1, row}, {p.x, p.inputs, 1}, {p.d_w, p.inputs}, n, p.inputs, p.rows, kSummed);
    product(loops, {d_gates, 1, row}, {states, p.width, 1}, {p.d_u, p.width}, n, p.width, p.rows, kSummed);
    if (s.has(BIASES)) {
        loops->sum_rows({d_gates, row}, p.rows, p.d_b, 0, n);
        std::memcpy(p.d_v, p.d_b, n * sizeof(float));
    }
    return 0;
}

template <const Loops &loops> int32_t run_forward(const void *given) { return forward(*static_cast<const Forward *>(given), &loops); }
template <const Loops &loops> int32_t run_backward(const void *given) { return backward(*static_cast<const Backward *>(given), &loops); }

} // namespace

std::pair<Routine *, Routine *> lstm_routines(int64_t bits) {
    const Loops *loops = loops_of(bits);
    if (!loops) return {nullptr, nullptr};
    if (loops == &loops512) return {run_forward<loops512>, run_backward<loops512>};
    return {run_forward<loops256>, run_backward<loops256>};
}

} // namespace pliant
