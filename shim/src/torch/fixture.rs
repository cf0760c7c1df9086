//! A small stand-in for `libc10_cuda.so`, compiled by the C++ compiler: the
//! same names, a vtable with the same methods.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = r#"
#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>
typedef struct CUstream_st* cudaStream_t;
typedef std::pair<unsigned long long, unsigned long long> MempoolId_t;
#ifdef STANDS_IN
#define OR_NOT
#define ON true
#else
#define OR_NOT , bool on
#define ON on
#endif
namespace c10 { namespace cuda { namespace CUDACachingAllocator {
struct CUDAAllocator {
  virtual void* raw_alloc(size_t) = 0;
  virtual void* raw_alloc_with_stream(size_t, cudaStream_t) = 0;
  virtual void enable(bool) = 0;
  virtual void beginAllocateToPool(signed char, MempoolId_t, std::function<bool(cudaStream_t)>) = 0;
  virtual void endAllocateToPool(signed char, MempoolId_t) = 0;
  virtual void setUseOnOOM(signed char, MempoolId_t OR_NOT) = 0;
};
extern "C" { __attribute__((visibility("default"))) long seen[8]; }
namespace Native {
struct __attribute__((visibility("hidden"))) NativeCachingAllocator : CUDAAllocator {
  void* raw_alloc(size_t n) override;
  void* raw_alloc_with_stream(size_t n, cudaStream_t s) override;
  void enable(bool on) override;
  void beginAllocateToPool(signed char, MempoolId_t, std::function<bool(cudaStream_t)>) override;
  void endAllocateToPool(signed char, MempoolId_t) override;
  void setUseOnOOM(signed char, MempoolId_t OR_NOT) override;
};
void* NativeCachingAllocator::raw_alloc(size_t n) { return (void*)n; }
void* NativeCachingAllocator::raw_alloc_with_stream(size_t n, cudaStream_t s) {
  seen[0] = (long)s; if (n == 13) throw 13; return (void*)(n + 1);
}
void NativeCachingAllocator::enable(bool on) { seen[1] = on ? 1 : 2; }
void NativeCachingAllocator::beginAllocateToPool(signed char d, MempoolId_t id, std::function<bool(cudaStream_t)> f) {
  seen[2] = d; seen[3] = id.first; seen[4] = id.second; seen[5] = f((cudaStream_t)7);
}
void NativeCachingAllocator::endAllocateToPool(signed char d, MempoolId_t id) {
  if (id.second == 99) throw 99; seen[6] = d * 1000 + id.second;
}
void NativeCachingAllocator::setUseOnOOM(signed char, MempoolId_t OR_NOT) { seen[7] = ON ? 1 : 2; }
static NativeCachingAllocator instance;
}
__attribute__((visibility("default"))) std::atomic<CUDAAllocator*> allocator{&Native::instance};
}}}
using namespace c10::cuda::CUDACachingAllocator;
extern "C" __attribute__((visibility("default"))) long drive(int what) {
  CUDAAllocator* a = allocator.load();
  MempoolId_t id(5, what == 3 ? 99 : 6);
  try {
    switch (what) {
      case 0: return (long)a->raw_alloc_with_stream(41, (cudaStream_t)8);
      case 1: a->beginAllocateToPool(3, id, [](cudaStream_t s) { return s == (cudaStream_t)7; }); return 0;
      case 2: case 3: a->endAllocateToPool(3, id); return 0;
      case 4: a->enable(true); return 0;
      case 5: return (long)a->raw_alloc_with_stream(13, (cudaStream_t)8);
#ifndef STANDS_IN
      case 6: a->setUseOnOOM(3, id, true); return 0;
      case 8: a->setUseOnOOM(3, id, false); return 0;
#endif
      case 7: a->enable(false); return 0;
    }
  } catch (int thrown) { return -thrown; }
  return 0;
}
extern "C" __attribute__((visibility("default"))) void replace_allocator(void* to) {
  allocator.store((CUDAAllocator*)to);
}
"#;

/// A compiled library, removed when dropped.
pub struct Fixture {
    directory: PathBuf,
    library: PathBuf,
}

impl Fixture {
    /// Compiles the library with extra flags; `name` keeps tests apart.
    pub fn build(name: &str, flags: &str) -> Self {
        let own = format!("memcuda-torch-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(own);
        std::fs::create_dir_all(&directory).unwrap();
        let library = directory.join("libc10_cuda.so");
        let source = directory.join("c10.cc");
        std::fs::write(&source, SOURCE).unwrap();
        let output = Command::new("g++")
            .args(["-std=c++17", "-O2", "-fPIC", "-shared", "-o"])
            .arg(&library)
            .arg(&source)
            .args(flags.split_whitespace())
            .output()
            .expect("the tests need g++");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        Self { directory, library }
    }

    /// The library's file.
    pub fn path(&self) -> &Path {
        &self.library
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
