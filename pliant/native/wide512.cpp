// Products, attention and recurrent networks with AVX-512.
#include "lanes16.h"

#if defined(__x86_64__)
#include "matmul_loops.h"

#include "attention_loops.h"
#include "halves_loops.h"
#include "int8_loops.h"
#include "recurrent_loops.h"

const pliant::Loops pliant::loops512 = {way_of, multiply, attend, lstm_cell, lstm_cell_back, sum_rows};
const pliant::Halves pliant::halves512 = {&loops512, dots_f16, widen, narrow};
const pliant::Bytes pliant::bytes512 = {dots_int8, floats_of};
#else
#include "halves.h"
#include "int8.h"
const pliant::Loops pliant::loops512 = {};
const pliant::Halves pliant::halves512 = {};
const pliant::Bytes pliant::bytes512 = {};
#endif
