// What recurrent.cpp asks of the loops in recurrent_loops.h: one step of an LSTM, forward and back.
#pragma once
#include <cstdint>

namespace pliant {

// Rows of a matrix, `row` floats apart.
struct Lines {
    float *data;
    int64_t row;
    float *at(int64_t i) const { return data + i * row; }
    Lines from(int64_t i) const { return {data + i * row, row}; }
};

// Some rows of a step, and the units [from, to) of them. `gates`: i, f, g and o, each `width` units, before their functions, which take
// their place.
struct Cell {
    Lines gates, before, c, h; // before: c of the step before
    int64_t rows, width, from, to;
};

// The same step backwards. `d_h` and `d_c`: what later steps say of h and c; `d_c` becomes what this step says of c before it. `d_out`: what the
// outside says of h, or null.
struct CellBack {
    Lines gates, before, c, d_out, d_h, d_c, d_gates;
    int64_t rows, width, from, to;
};

} // namespace pliant
