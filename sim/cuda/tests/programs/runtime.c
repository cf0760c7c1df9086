/* An ordinary program of the CUDA runtime: it declares what it calls, and is
 * linked against libcudart.so.13 alone.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int type, device; void *device_pointer, *host_pointer; long reserved[8]; } Attributes;
int cudaMalloc(void **, size_t); int cudaFree(void *); int cudaMallocPitch(void **, size_t *, size_t, size_t); int cudaMemGetInfo(size_t *, size_t *);
int cudaMallocAsync(void **, size_t, void *); int cudaFreeAsync(void *, void *); int cudaMallocAsync_ptsz(void **, size_t, void *); int cudaFreeAsync_ptsz(void *, void *);
int cudaMemcpy(void *, const void *, size_t, int); int cudaMemcpyAsync(void *, const void *, size_t, int, void *); int cudaMemset(void *, int, size_t); int cudaMemsetAsync(void *, int, size_t, void *);
int cudaMemsetAsync_ptsz(void *, int, size_t, void *);
int cudaStreamCreate(void **); int cudaStreamCreateWithFlags(void **, unsigned); int cudaStreamDestroy(void *); int cudaStreamSynchronize(void *); int cudaStreamQuery(void *); int cudaStreamWaitEvent(void *, void *, unsigned);
int cudaStreamBeginCapture(void *, int); int cudaStreamEndCapture(void *, void **); int cudaStreamIsCapturing(void *, int *); int cudaThreadExchangeStreamCaptureMode(int *);
int cudaGraphInstantiate(void **, void *, unsigned long long); int cudaGraphLaunch(void *, void *); int cudaGraphDestroy(void *); int cudaGraphExecDestroy(void *);
int cudaEventCreate(void **); int cudaEventRecord(void *, void *); int cudaEventSynchronize(void *); int cudaEventQuery(void *); int cudaEventDestroy(void *); int cudaEventElapsedTime(float *, void *, void *);
int cudaDeviceSynchronize(void); int cudaSetDevice(int); int cudaGetDevice(int *); int cudaGetDeviceCount(int *); int cudaDeviceReset(void); int cudaDeviceGetAttribute(int *, int, int);
int cudaDeviceGetDefaultMemPool(void **, int); int cudaMemPoolGetAttribute(void *, int, void *); int cudaMemPoolTrimTo(void *, size_t); int cudaPointerGetAttributes(Attributes *, const void *);
int cudaHostAlloc(void **, size_t, unsigned); int cudaFreeHost(void *); int cudaGetLastError(void); int cudaPeekAtLastError(void); const char *cudaGetErrorString(int); const char *cudaGetErrorName(int);
int cudaGetDriverEntryPoint(const char *, void **, unsigned long long, int *); int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);
int cudaStreamGetCaptureInfo(void *, int *, unsigned long long *, void **, void ***, void **, size_t *); int cudaStreamGetCaptureInfo_v2(void *, int *, unsigned long long *, void **, void ***, size_t *);
int cudaStreamGetCaptureInfo_v3(void *, int *, unsigned long long *, void **, void ***, void **, size_t *);
int cudaDriverGetVersion(int *); int cudaRuntimeGetVersion(int *);

#define IS(code, call) do { int got_ = (call); if (got_ != (code)) { fprintf(stderr, "%s:%d: %s answered %d, not %d\n", __FILE__, __LINE__, #call, got_, (int)(code)); exit(3); } } while (0)
#define OK(call) IS(0, call)
#define TRUE(what) do { if (!(what)) { fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); exit(3); } } while (0)

static void *other_thread(void *memory) {
    int device; OK(cudaGetDevice(&device)); TRUE(device == 0); TRUE(cudaPeekAtLastError() == 0);
    OK(cudaMemset(memory, 3, 64)); OK(cudaDeviceSynchronize()); return 0;
}

int main(void) {
    int n, v; void *p, *q, *s, *e, *f, *g, *x, *pool, *entry; size_t pitch, free_bytes, total; char host[64]; float ms; Attributes a; uint64_t used;
    OK(cudaRuntimeGetVersion(&v)); TRUE(v == 13000); OK(cudaDriverGetVersion(&v)); TRUE(v == 13000); OK(cudaGetDeviceCount(&n)); TRUE(n == 2);
    OK(cudaMalloc(&p, 0)); TRUE(p == 0); OK(cudaFree(0)); OK(cudaMalloc(&p, 64)); OK(cudaMemset(p, 7, 64)); OK(cudaMemcpy(host, p, 64, 2)); TRUE(host[0] == 7 && host[63] == 7);
    memset(host, 8, 64); OK(cudaMemcpy(p, host, 64, 1)); memset(host, 0, 64); OK(cudaMemcpy(host, p, 64, 4)); TRUE(host[9] == 8); IS(21, cudaMemcpy(host, p, 64, 77));
    TRUE(cudaGetLastError() == 21 && cudaGetLastError() == 0); IS(1, cudaFree((void *)0x77)); TRUE(cudaPeekAtLastError() == 1 && cudaPeekAtLastError() == 1);
    pthread_t t; pthread_create(&t, 0, other_thread, p); pthread_join(t, 0); TRUE(cudaGetLastError() == 1); OK(cudaMemcpy(host, p, 64, 2)); TRUE(host[1] == 3);
    IS(2, cudaMalloc(&q, (size_t)1 << 40)); TRUE(!strcmp(cudaGetErrorString(2), "out of memory") && !strcmp(cudaGetErrorName(2), "CUDA_ERROR_OUT_OF_MEMORY"));
    OK(cudaMallocPitch(&q, &pitch, 1000, 4)); TRUE(pitch == 1024); OK(cudaFree(q)); OK(cudaMemGetInfo(&free_bytes, &total)); TRUE(free_bytes < total);
    OK(cudaPointerGetAttributes(&a, p)); TRUE(a.type == 2 && a.device == 0 && a.device_pointer == p && a.host_pointer == 0); OK(cudaPointerGetAttributes(&a, host)); TRUE(a.type == 0 && a.device == -2);

    OK(cudaStreamCreateWithFlags(&s, 1)); OK(cudaMallocAsync(&q, 1 << 20, s)); OK(cudaMemsetAsync(q, 1, 1 << 20, s)); OK(cudaFreeAsync(q, s)); OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolGetAttribute(pool, 7, &used)); TRUE(used == 0); OK(cudaStreamSynchronize(s)); OK(cudaStreamQuery(s)); OK(cudaMemPoolTrimTo(pool, 0));
    OK(cudaMallocAsync_ptsz(&q, 1 << 20, 0)); OK(cudaMemsetAsync_ptsz(q, 1, 64, 0)); OK(cudaFreeAsync_ptsz(q, 0));
    OK(cudaEventCreate(&e)); OK(cudaEventCreate(&f)); OK(cudaEventRecord(e, s)); OK(cudaMemsetAsync(p, 1, 64, s)); OK(cudaEventRecord(f, s)); OK(cudaEventSynchronize(f)); OK(cudaEventElapsedTime(&ms, e, f)); TRUE(ms > 0);

    int status = 7; unsigned long long id = 7, same = 7; void *graph = 0, *edges = 0, **nodes = 0; size_t count = 7;
    OK(cudaStreamGetCaptureInfo(s, &status, &id, 0, 0, 0, 0)); TRUE(status == 0); IS(1, cudaStreamGetCaptureInfo(s, 0, &id, 0, 0, 0, 0)); (void)cudaGetLastError();
    OK(cudaStreamBeginCapture(s, 0)); OK(cudaStreamGetCaptureInfo(s, &status, &id, &graph, &nodes, &edges, &count)); TRUE(status == 1 && id != 0 && graph != 0 && count == 0);
    OK(cudaStreamGetCaptureInfo_v2(s, &status, &same, 0, 0, 0)); TRUE(status == 1 && same == id); OK(cudaStreamGetCaptureInfo_v3(s, &status, &same, 0, 0, 0, 0)); TRUE(status == 1 && same == id); OK(cudaStreamEndCapture(s, &g)); OK(cudaGraphDestroy(g));
    int mode = 2; OK(cudaStreamBeginCapture(s, 0)); OK(cudaMemsetAsync(p, 9, 64, s)); IS(900, cudaMalloc(&q, 64)); IS(901, cudaStreamEndCapture(s, &g)); TRUE(cudaGetLastError() == 901);
    OK(cudaStreamBeginCapture(s, 0)); OK(cudaMemsetAsync(p, 9, 64, s)); OK(cudaThreadExchangeStreamCaptureMode(&mode)); TRUE(mode == 0); OK(cudaMalloc(&q, 64)); OK(cudaThreadExchangeStreamCaptureMode(&mode));
    OK(cudaStreamEndCapture(s, &g)); OK(cudaGraphInstantiate(&x, g, 0)); OK(cudaGraphLaunch(x, s)); OK(cudaStreamSynchronize(s)); OK(cudaMemcpy(host, p, 64, 2)); TRUE(host[5] == 9);
    OK(cudaGraphExecDestroy(x)); OK(cudaGraphDestroy(g)); OK(cudaFree(q));

    OK(cudaGetDriverEntryPoint("cuMemAlloc", &entry, 0, &n)); TRUE(entry && n == 0); OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 3020, 0, 0)); TRUE(entry); OK(cudaGetDriverEntryPoint("cuNone", &entry, 0, &n)); TRUE(!entry && n == 1);
    OK(cudaSetDevice(1)); OK(cudaGetDevice(&n)); TRUE(n == 1); OK(cudaMalloc(&q, 64)); OK(cudaPointerGetAttributes(&a, q)); TRUE(a.device == 1); OK(cudaSetDevice(0)); IS(101, cudaSetDevice(7));
    OK(cudaHostAlloc(&q, 64, 0)); OK(cudaMemcpyAsync(q, p, 64, 2, s)); OK(cudaStreamSynchronize(s)); TRUE(((char *)q)[3] == 9); OK(cudaFreeHost(q));
    OK(cudaDeviceReset()); (void)cudaGetLastError(); IS(1, cudaFree(p)); OK(cudaMalloc(&p, 64)); OK(cudaMemset(p, 1, 64)); OK(cudaDeviceSynchronize()); OK(cudaFree(p));
    return 0;
}
