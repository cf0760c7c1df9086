// Stand-in for libc10.so: the place from which torch reads the environment, and what
// writes its warnings.
#include "c10.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/prctl.h>

// UNTRACED=1: in a process that has changed its user, which its own user may not trace.
std::string configured(const char* name) {
    if (getenv("UNTRACED")) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    const char* value = getenv(name);
    return value ? value : "";
}

#ifndef OLDER
namespace c10::CachingAllocator {
AcceleratorAllocatorConfig::AcceleratorAllocatorConfig() {}
void AcceleratorAllocatorConfig::parseArgs(const std::string& setting) {
    last = setting;
    expandable = setting.find("expandable_segments:True") != std::string::npos;
    auto size = [&](const std::string& key, size_t unset) {
        const size_t at = setting.find(key);
        return at == std::string::npos ? unset : std::stoul(setting.substr(at + key.size())) << 20;
    };
    split = size("max_split_size_mb:", SIZE_MAX);
    large = size("large_segment_size_mb:", 20 << 20);
}
AcceleratorAllocatorConfig& AcceleratorAllocatorConfig::instance() {
    static AcceleratorAllocatorConfig* made = [] {
        auto made = new AcceleratorAllocatorConfig();
        made->parseArgs(configured("PYTORCH_CUDA_ALLOC_CONF"));
        return made;
    }();
    return *made;
}
}
#endif

// As torch since 2.9, whose own library of configuration knows this one, too.
extern "C" EXPORT const char* later_variable() { return "PYTORCH_ALLOC_CONF"; }

namespace c10 {
MessageLogger::MessageLogger(SourceLocation where, int severity, bool) : where(where), severity(severity) {}
MessageLogger::~MessageLogger() {
    if (severity >= 1) fprintf(stderr, "[W %s:%u] %s\n", where.function, where.line, text);
}
}
