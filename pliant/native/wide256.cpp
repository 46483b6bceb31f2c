// Products and attention with AVX2.
#include "lanes8.h"

#if defined(__x86_64__)
#include "matmul_loops.h"

#include "attention_loops.h"

const pliant::Loops pliant::loops256 = {way_of, multiply, attend};
#else
#include "matmul.h"
const pliant::Loops pliant::loops256 = {};
#endif
