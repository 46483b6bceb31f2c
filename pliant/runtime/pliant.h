/* pliant's runtime: runs a program that pliant has compiled into a file, at every size that it admits, without Python.
 *
 *     pliant_program *p;
 *     if (pliant_load("model.pliant", NULL, &p)) fail(pliant_error());
 *     pliant_tensor in = {0}, out;
 *     in.data = ids; in.dtype = PLIANT_I64; in.ndim = 2; in.sizes[0] = 3; in.sizes[1] = 17;
 *     pliant_set_contiguous(&in);
 *     if (pliant_run(p, &in, 1, &out, 1)) fail(pliant_error());
 *     ... out.data, out.sizes ...
 *     pliant_release(&out, 1);
 *     pliant_free(p);
 *
 * Loading EXECUTES THE MACHINE CODE THAT THE FILE CONTAINS: load only files that you would run as a program. A damaged file is an error;
 * a malicious one can do what any program can. (From Python, pliant.load without machine_code=True executes nothing of a file.)
 *
 * Functions return 0, or another number with pliant_error() as the reason. One program may run in many threads at once. What a program
 * computes for itself lies in memory of the thread that runs it, kept for its next call. */
#ifndef PLIANT_H
#define PLIANT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PLIANT_API __attribute__((visibility("default")))
#else
#define PLIANT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_MAX_DIMS 16

enum {
    PLIANT_U8 = 0, PLIANT_I8 = 1, PLIANT_I16 = 2, PLIANT_I32 = 3, PLIANT_I64 = 4, PLIANT_F16 = 5, PLIANT_F32 = 6, PLIANT_F64 = 7,
    PLIANT_BOOL = 11, PLIANT_BF16 = 15
};

/* What pliant_load returns where the file has no machine code that this processor runs. */
#define PLIANT_OTHER_PROCESSOR 2

/* A tensor in the memory of the processor. `strides` are in elements. Numbers are tensors of no dims: i64, f64 or bool.
 * `owner` is the runtime's: 0 in inputs; an output without an owner lies in the memory of an input, or of the program's weights. */
typedef struct pliant_tensor {
    void *data;
    int32_t dtype, ndim;
    int64_t sizes[PLIANT_MAX_DIMS], strides[PLIANT_MAX_DIMS];
    void *owner;
} pliant_tensor;

typedef struct pliant_program pliant_program;

/* How to load. Set `size` to sizeof(pliant_options), and what is not asked for to 0. */
typedef struct pliant_options {
    size_t size;
    const char *level;         /* machine code for this kind of processor: "x86-64-v4", "x86-64-v3", "x86-64"; 0: the best that runs here */
    const char *torch_library; /* where libtorch_cpu.so is, for programs that call operators of it; 0: $PLIANT_TORCH, else by its name */
    const char *blas_library;  /* products of matrices by this library's sgemm_ instead of pliant's own (in the whole process) */
} pliant_options;

PLIANT_API int pliant_load(const char *path, const pliant_options *options, pliant_program **program);
PLIANT_API void pliant_free(pliant_program *program);

/* Run. `inputs` in the order of pliant_input_name, `outputs` likewise; each output is to be released, by any thread. */
PLIANT_API int pliant_run(const pliant_program *program, const pliant_tensor *inputs, int n_inputs, pliant_tensor *outputs, int n_outputs);
PLIANT_API void pliant_release(pliant_tensor *outputs, int n);

/* The last error of this thread. */
PLIANT_API const char *pliant_error(void);

/* What a program takes and gives. Sizes: a number, or -1 for one that may change. Kinds of outputs: "user", "mutation" (what a buffer or
 * an input has become, whose name pliant_output_of tells), "gradient". */
PLIANT_API int pliant_inputs(const pliant_program *program);
PLIANT_API const char *pliant_input_name(const pliant_program *program, int i);
PLIANT_API int pliant_input_dtype(const pliant_program *program, int i);
PLIANT_API int pliant_input_ndim(const pliant_program *program, int i);
PLIANT_API int64_t pliant_input_size(const pliant_program *program, int i, int dim);
PLIANT_API int pliant_outputs(const pliant_program *program);
PLIANT_API const char *pliant_output_name(const pliant_program *program, int i);
PLIANT_API const char *pliant_output_kind(const pliant_program *program, int i);
PLIANT_API const char *pliant_output_of(const pliant_program *program, int i);
PLIANT_API const char *pliant_level(const pliant_program *program); /* the machine code that runs */

/* Copy a tensor of the same dtype and sizes over a parameter or buffer, by name. Not while the program runs. */
PLIANT_API int pliant_set_state(pliant_program *program, const char *name, const pliant_tensor *value);

/* Row-major strides for the sizes of a tensor. */
PLIANT_API void pliant_set_contiguous(pliant_tensor *tensor);

/* How many threads one call of a program may use (in the whole process): 1 unless this says more, by way of libgomp. */
PLIANT_API int pliant_set_threads(int threads);

/* Bytes that the runtime holds now for tensors and for intermediate results of all threads, and the most that it ever held. */
PLIANT_API void pliant_memory(int64_t *now, int64_t *most);

/* The tensor as a DLPack DLManagedTensor *, which takes over its ownership; 0 if it has no memory of its own. */
PLIANT_API void *pliant_to_dlpack(pliant_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
