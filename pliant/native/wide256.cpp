// Products, attention and recurrent networks with AVX2.
#include "lanes8.h"

#if defined(__x86_64__)
#include "matmul_loops.h"

#include "attention_loops.h"
#include "halves_loops.h"
#include "int8_loops.h"
#include "recurrent_loops.h"

const pliant::Loops pliant::loops256 = {way_of, multiply, attend, lstm_cell, lstm_cell_back, sum_rows};
const pliant::Halves pliant::halves256 = {&loops256, dots_f16, widen, narrow};
const pliant::Bytes pliant::bytes256 = {dots_int8, floats_of};
#else
#include "halves.h"
#include "int8.h"
const pliant::Loops pliant::loops256 = {};
const pliant::Halves pliant::halves256 = {};
const pliant::Bytes pliant::bytes256 = {};
#endif
