// Stand-in for libc10.so: the place from which torch reads the environment.
#include "c10.h"
#include <cstdlib>

std::string configured(const char* name) {
    const char* value = getenv(name);
    return value ? value : "";
}
