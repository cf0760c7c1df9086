/* A stream that captures, and what becomes of the capture. */
#ifndef CONFORMANCE_BEGIN_CAPTURE_H
#define CONFORMANCE_BEGIN_CAPTURE_H

#include "busy.h"
#include "conformance.h"

/* Memory that is there before the capture, and the streams beside it. */
struct scene {
    CUstream stream, other; /* the one that captures; a non-blocking one */
    CUdeviceptr memory;     /* 1 MiB, filled by the captured work */
    CUdeviceptr spare;      /* 1 MiB, freed in the end if a case did not */
    CUdeviceptr ordered;    /* as spare, by cuMemAllocAsync on `other` */
    CUdeviceptr made;       /* what a case allocated inside, 0 for none */
};

/* `flags` of the stream that will capture. */
struct scene open_scene(unsigned flags);
/* Begins a capture with one operation in it. */
void begin_capture(struct scene *s, int mode);
/* Ends it: what the end answered, and how many operations the graph has. */
CUgraph end_capture(struct scene *s);
void close_scene(struct scene *s);

/* Makes a call under every capture mode, from the capturing thread, under its
 * relaxed mode, and from another thread, and says what it answered and what
 * became of the capture. */
void in_every_mode(unsigned flags, int (*call)(struct scene *));

#endif
