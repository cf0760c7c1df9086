//! libmemcuda.so.
