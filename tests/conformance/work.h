/* Work on the device: kernels from a small PTX module on a real GPU, the
 * simulator's own calls on the simulated one. Streams may be the default ones'
 * handles. All of it is queued and none of it waits.
 */
#ifndef CONFORMANCE_WORK_H
#define CONFORMANCE_WORK_H

#include "conformance.h"

/* Loads the kernels into the current context. Called by the others when it is
 * first needed; cases that capture, or count memory, call it before. */
void work_prepare(void);

/* Keeps a stream busy for this long. */
void work_spin(CUstream stream, double microseconds);
/* Writes `bytes` (a multiple of 4) of a 32-bit value. */
void work_write(CUstream stream, CUdeviceptr at, size_t bytes, unsigned value);
/* The same after so many microseconds, in one piece of work that uses the
 * memory from its beginning. */
void work_write_late(CUstream stream, double microseconds, CUdeviceptr at, size_t bytes,
                     unsigned value);
/* Copies `bytes` (a multiple of 4) by a kernel. */
void work_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes);
/* Faults: error 700 stays with the context from then on. */
void work_crash(CUstream stream);

/* Microseconds of the clock that device work runs on. */
double work_clock(void);

/* Device memory as the host sees it after a wait: the 32-bit word there, and
 * whether `bytes` of it are all `value`. */
unsigned word_at(CUdeviceptr at);
bool all_words(CUdeviceptr at, size_t bytes, unsigned value);

#endif
