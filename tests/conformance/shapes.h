/* The larger structures of the driver's interface: copies of rows and slices,
 * arrays, textures. As the documentation gives them.
 */
#ifndef CONFORMANCE_SHAPES_H
#define CONFORMANCE_SHAPES_H

#include "cuda.h"

/* CUmemorytype. */
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };

/* CUDA_MEMCPY2D; both ends have the same form. */
typedef struct {
    size_t xInBytes, y;
    int memoryType;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch;
} CUcopyEnd2D;
typedef struct {
    CUcopyEnd2D src, dst;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

/* CUDA_MEMCPY3D. */
typedef struct {
    size_t xInBytes, y, z, lod;
    int memoryType;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    void *reserved;
    size_t pitch, height;
} CUcopyEnd3D;
typedef struct {
    CUcopyEnd3D src, dst;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

/* CUDA_MEMCPY3D_PEER. */
typedef struct {
    size_t xInBytes, y, z, lod;
    int memoryType;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    CUcontext context;
    size_t pitch, height;
} CUcopyEndPeer;
typedef struct {
    CUcopyEndPeer src, dst;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_PEER;

/* CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR; CU_AD_FORMAT_UNSIGNED_INT32. */
enum { FORMAT_UINT32 = 3 };
typedef struct {
    size_t Width, Height;
    int Format;
    unsigned NumChannels;
} CUDA_ARRAY_DESCRIPTOR;
typedef struct {
    size_t Width, Height, Depth;
    int Format;
    unsigned NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

/* CUDA_RESOURCE_DESC for linear memory and for rows with a pitch. */
enum { RESOURCE_ARRAY = 0, RESOURCE_LINEAR = 2, RESOURCE_PITCH2D = 3 };
typedef struct {
    int resType;
    union {
        struct { CUarray array; } array;
        struct {
            CUdeviceptr devPtr;
            int format;
            unsigned numChannels;
            size_t sizeInBytes;
        } linear;
        struct {
            CUdeviceptr devPtr;
            int format;
            unsigned numChannels;
            size_t width, height, pitchInBytes;
        } pitch2D;
        struct { int reserved[32]; } reserved;
    } res;
    unsigned flags;
} CUDA_RESOURCE_DESC;

/* CUDA_TEXTURE_DESC; CU_TRSF_READ_AS_INTEGER. */
enum { TEXTURE_READ_AS_INTEGER = 1 };
typedef struct {
    int addressMode[3], filterMode;
    unsigned flags, maxAnisotropy;
    int mipmapFilterMode;
    float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp, borderColor[4];
    int reserved[12];
} CUDA_TEXTURE_DESC;

_Static_assert(sizeof(CUDA_MEMCPY2D) == 128, "as the driver's");
_Static_assert(sizeof(CUDA_MEMCPY3D) == 200, "as the driver's");
_Static_assert(sizeof(CUDA_MEMCPY3D_PEER) == 200, "as the driver's");
_Static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR) == 24, "as the driver's");
_Static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40, "as the driver's");
_Static_assert(sizeof(CUDA_RESOURCE_DESC) == 144, "as the driver's");
_Static_assert(sizeof(CUDA_TEXTURE_DESC) == 104, "as the driver's");

#endif
