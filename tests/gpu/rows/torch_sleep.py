"""The row of a sleep mode, as servers of models have it: weights in a torch pool over an
allocator that maps device memory itself, takes what is below away, and puts other below
the same addresses when it is wanted again.
"""
import ctypes
import os
import subprocess
import tempfile

from . import MIB, churn, digest, must, torch_row
from .torch_memory import compiler, tensor

# Addresses stay, what is below them comes and goes. Structures as in cuda.h.
ALLOCATOR = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <sys/types.h>

typedef unsigned long long word;
struct where { int kind, device; };
struct properties { int type, handles; struct where where; void *unused; word flags; };
struct access { struct where where; int flags; };

static int (*reserve)(word *, size_t, size_t, word, word);
static int (*unreserve)(word, size_t);
static int (*create)(word *, size_t, const struct properties *, word);
static int (*release)(word);
static int (*map)(word, size_t, size_t, word, word);
static int (*unmap)(word, size_t);
static int (*set_access)(word, size_t, const struct access *, size_t);

static struct { word at, handle; size_t bytes; int device; } all[256];
static int many;

static int look_up(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda == NULL) return 0;
    reserve = dlsym(cuda, "cuMemAddressReserve"), unreserve = dlsym(cuda, "cuMemAddressFree");
    create = dlsym(cuda, "cuMemCreate"), release = dlsym(cuda, "cuMemRelease");
    map = dlsym(cuda, "cuMemMap"), unmap = dlsym(cuda, "cuMemUnmap");
    set_access = dlsym(cuda, "cuMemSetAccess");
    return reserve && unreserve && create && release && map && unmap && set_access;
}

static int put_below(int i)
{
    struct properties what = {.type = 1, .where = {1, all[i].device}};
    struct access access = {{1, all[i].device}, 3};
    int code = create(&all[i].handle, all[i].bytes, &what, 0);
    if (code == 0) code = map(all[i].at, all[i].bytes, 0, all[i].handle, 0);
    return code ? code : set_access(all[i].at, all[i].bytes, &access, 1);
}

static int take_below(int i)
{
    int code = unmap(all[i].at, all[i].bytes);
    return code ? code : release(all[i].handle);
}

void *take(ssize_t bytes, int device, void *stream)
{
    (void)stream;
    if (many == 256 || !look_up()) return NULL;
    all[many].bytes = ((size_t)bytes + 0x1fffff) & ~(size_t)0x1fffff;
    all[many].device = device;
    if (reserve(&all[many].at, all[many].bytes, 0, 0, 0) || put_below(many)) return NULL;
    return (void *)all[many++].at;
}

void give(void *pointer, ssize_t bytes, int device, void *stream)
{
    (void)bytes, (void)device, (void)stream;
    for (int i = 0; i < many; i++)
        if (all[i].at == (word)pointer) take_below(i), unreserve(all[i].at, all[i].bytes), all[i] = all[--many];
}

/* Both answer the driver's first error, or 0. */
int fall_asleep(void)
{
    int code = 0;
    for (int i = 0; i < many && code == 0; i++) code = take_below(i);
    return code;
}

int wake_up(void)
{
    int code = 0;
    for (int i = 0; i < many && code == 0; i++) code = put_below(i);
    return code;
}
"""


@torch_row("torch sleep mode", not_async=True, alone=True)
def sleep_mode(torch):
    """Weights sleep on the host while others take their memory, and are where they were."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = os.path.join(folder, "sleeper.c"), os.path.join(folder, "sleeper.so")
        with open(source, "w") as f:
            f.write(ALLOCATOR)
        subprocess.run([compiler(), "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give")
        sleeper = ctypes.CDLL(library)
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            weights = [tensor(torch, 40 + 90 * i, 1 + i) for i in range(12)]
        addresses, seen = [w.data_ptr() for w in weights], []
        for turn in range(3):
            churn(torch, 20, 3000, seed=turn)
            asleep = [w.cpu() for w in weights]
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            free = torch.cuda.mem_get_info()[0]
            code = sleeper.fall_asleep()
            must(code == 0, f"nothing falls asleep: {code}")
            given = torch.cuda.mem_get_info()[0] - free
            must(given >= sum(w.numel() for w in weights), f"{given >> 20} MiB are free for it")
            # Fits beside nothing that is awake.
            rest = tensor(torch, 134 * 1024, 7)
            churn(torch, 20, 2000, seed=turn)
            seen.append(digest(rest[:: 1 << 20]))
            del rest
            torch.cuda.empty_cache()
            code = sleeper.wake_up()
            must(code == 0, f"nothing wakes up: {code}")
            for w, kept in zip(weights, asleep):
                w.copy_(kept)
                w.add_(1)
            seen.append(digest(*(w[:: 1 << 12] for w in weights)))
        must([w.data_ptr() for w in weights] == addresses, "the weights have moved")
        torch.cuda.synchronize()
        del w, weights, pool
        torch.cuda.empty_cache()
        return dict(seen=seen)
