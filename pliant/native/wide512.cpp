// Products and attention with AVX-512.
#include "lanes16.h"

#if defined(__x86_64__)
#include "matmul_loops.h"

#include "attention_loops.h"

const pliant::Loops pliant::loops512 = {way_of, multiply, attend};
#else
#include "matmul.h"
const pliant::Loops pliant::loops512 = {};
#endif
