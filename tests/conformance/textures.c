/* Textures over linear memory and over rows, read by a kernel of their own. */
#include "patterns.h"
#include "shapes.h"

/* Reads `words` words through a texture by their index; for rows of `width`,
 * through both coordinates where `width` is not 0. */
static const char reader[] =
    ".version 6.4\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry read1(.param .u64 to, .param .u64 texture, .param .u32 words)\n"
    "{\n"
    "    .reg .pred %done;\n"
    "    .reg .u32 %i, %n, %b, %s, %v, %g, %h, %k;\n"
    "    .reg .u64 %to, %tex, %at;\n"
    "    ld.param.u64 %to, [to];\n"
    "    ld.param.u64 %tex, [texture];\n"
    "    ld.param.u32 %n, [words];\n"
    "    mov.u32 %b, %ctaid.x;\n"
    "    mov.u32 %s, %ntid.x;\n"
    "    mov.u32 %i, %tid.x;\n"
    "    mad.lo.u32 %i, %b, %s, %i;\n"
    "    setp.ge.u32 %done, %i, %n;\n"
    "    @%done ret;\n"
    "    tex.1d.v4.u32.s32 {%v, %g, %h, %k}, [%tex, {%i}];\n"
    "    mul.wide.u32 %at, %i, 4;\n"
    "    add.u64 %at, %to, %at;\n"
    "    st.global.u32 [%at], %v;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry read2(.param .u64 to, .param .u64 texture, .param .u32 words, .param .u32 width)\n"
    "{\n"
    "    .reg .pred %done;\n"
    "    .reg .u32 %i, %n, %b, %s, %v, %g, %h, %k, %w, %x, %y;\n"
    "    .reg .f32 %fx, %fy;\n"
    "    .reg .u64 %to, %tex, %at;\n"
    "    ld.param.u64 %to, [to];\n"
    "    ld.param.u64 %tex, [texture];\n"
    "    ld.param.u32 %n, [words];\n"
    "    ld.param.u32 %w, [width];\n"
    "    mov.u32 %b, %ctaid.x;\n"
    "    mov.u32 %s, %ntid.x;\n"
    "    mov.u32 %i, %tid.x;\n"
    "    mad.lo.u32 %i, %b, %s, %i;\n"
    "    setp.ge.u32 %done, %i, %n;\n"
    "    @%done ret;\n"
    "    rem.u32 %x, %i, %w;\n"
    "    div.u32 %y, %i, %w;\n"
    "    cvt.rn.f32.u32 %fx, %x;\n"
    "    cvt.rn.f32.u32 %fy, %y;\n"
    "    add.f32 %fx, %fx, 0f3F000000;\n"
    "    add.f32 %fy, %fy, 0f3F000000;\n"
    "    tex.2d.v4.u32.f32 {%v, %g, %h, %k}, [%tex, {%fx, %fy}];\n"
    "    mul.wide.u32 %at, %i, 4;\n"
    "    add.u64 %at, %to, %at;\n"
    "    st.global.u32 [%at], %v;\n"
    "    ret;\n"
    "}\n";

static const CUDA_TEXTURE_DESC plainly = {.flags = TEXTURE_READ_AS_INTEGER};

static CUDA_RESOURCE_DESC linear(CUdeviceptr at, size_t bytes) {
    CUDA_RESOURCE_DESC of = {.resType = RESOURCE_LINEAR};
    of.res.linear.devPtr = at;
    of.res.linear.format = FORMAT_UINT32;
    of.res.linear.numChannels = 1;
    of.res.linear.sizeInBytes = bytes;
    return of;
}

/* Reads through the texture into fresh memory: what the first words are. */
static bool reads(CUtexObject texture, size_t words, unsigned width, const void *expected) {
    CUmodule module = NULL;
    CUfunction function = NULL;
    unsigned count = (unsigned)words;
    CUdeviceptr to = allocate(words * 4);
    NEED(cuModuleLoadData(&module, reader));
    NEED(cuModuleGetFunction(&function, module, width == 0 ? "read1" : "read2"));
    NEED(cuCtxSynchronize());
    NEED(cuLaunchKernel(function, (count + 255) / 256, 1, 1, 256, 1, 1, 0, CU_STREAM_LEGACY,
                        (void *[]){&to, &texture, &count, &width}, NULL));
    NEED(cuCtxSynchronize());
    bool same = holds(to, expected, words * 4);
    put_memory(to);
    return same;
}

CASE(textures_over_linear_memory, GPU) {
    for (int kind = 0; kind < KINDS; kind++) {
        size_t bytes = 90 * MiB;
        CUdeviceptr at = get_memory(kind, bytes);
        CUtexObject texture = 0;
        unsigned char *some = pattern(bytes, 6);
        NEED(cuMemcpyHtoD_v2(at, some, bytes));
        CUDA_RESOURCE_DESC of = linear(at, bytes), told;
        say("%s", kind_names[kind]);
        say_code("cuTexObjectCreate", cuTexObjectCreate(&texture, &of, &plainly, NULL));
        say("read: %s", yes(reads(texture, bytes / 4, 0, some)));
        say_code("cuTexObjectGetResourceDesc", cuTexObjectGetResourceDesc(&told, texture));
        say("of this memory: %s", yes(told.res.linear.devPtr == at));
        say_code("cuTexObjectDestroy", cuTexObjectDestroy(texture));
        free(some);
        put_memory(at);
    }
}

CASE(textures_inside_an_allocation, GPU) {
    CUdeviceptr at = allocate(4 * MiB);
    CUtexObject texture = 0;
    unsigned char *some = pattern(4 * MiB, 2);
    NEED(cuMemcpyHtoD_v2(at, some, 4 * MiB));
    static const size_t offsets[] = {512, 2 * MiB - 512, 4, 1};
    for (int i = 0; i < 4; i++) {
        CUDA_RESOURCE_DESC of = linear(at + offsets[i], MiB);
        int code = cuTexObjectCreate(&texture, &of, &plainly, NULL);
        say("at %zu: %s", offsets[i], code_name(code));
        if (code != CU_OK) continue;
        say("read: %s", yes(reads(texture, MiB / 4, 0, some + offsets[i])));
        NEED(cuTexObjectDestroy(texture));
    }
    free(some);
}

CASE(textures_over_rows, GPU) {
    CUdeviceptr at = 0;
    CUtexObject texture = 0;
    size_t pitch = 0, width = 300, height = 200;
    unsigned char *some = pattern(width * 4 * height, 3);
    NEED(cuMemAllocPitch_v2(&at, &pitch, width * 4, height, 4));
    CUDA_MEMCPY2D up = {.WidthInBytes = width * 4, .Height = height};
    up.src = (CUcopyEnd2D){.memoryType = MEMORY_HOST, .host = some, .pitch = width * 4};
    up.dst = (CUcopyEnd2D){.memoryType = MEMORY_DEVICE, .device = at, .pitch = pitch};
    NEED(cuMemcpy2D_v2(&up));
    CUDA_RESOURCE_DESC of = {.resType = RESOURCE_PITCH2D};
    of.res.pitch2D.devPtr = at;
    of.res.pitch2D.format = FORMAT_UINT32;
    of.res.pitch2D.numChannels = 1;
    of.res.pitch2D.width = width;
    of.res.pitch2D.height = height;
    of.res.pitch2D.pitchInBytes = pitch;
    say_code("cuTexObjectCreate", cuTexObjectCreate(&texture, &of, &plainly, NULL));
    say("read: %s", yes(reads(texture, width * height, (unsigned)width, some)));
    say_code("cuTexObjectDestroy", cuTexObjectDestroy(texture));
    free(some);
}

CASE(textures_over_no_memory, GPU) {
    CUdeviceptr at = allocate(4 * MiB);
    CUtexObject texture = 0;
    CUDA_RESOURCE_DESC nothing = linear(0, MiB), beyond = linear(at, 64 * MiB);
    say_code("NULL", cuTexObjectCreate(&texture, &nothing, &plainly, NULL));
    say_code("beyond the end", cuTexObjectCreate(&texture, &beyond, &plainly, NULL));
}
