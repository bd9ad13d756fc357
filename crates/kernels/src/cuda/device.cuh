// What every kernel source includes: CUDA under nvcc, the same names on a CPU under the emulator.
//
// A kernel takes one struct by value, mirrored by a #[repr(C)] struct in the .rs file of the same name, and is found by
// its name:
//
//   struct Scale { bf16* x; int64_t n; float by; };
//   KERNEL(scale, 256, Scale) { ... p.x ... }     // at most 256 threads a block
//
// Shared memory is dynamic only: SHARED(float, sums). Where a block shares more than one array, cut them from it.
#pragma once

#if defined(__CUDACC__)
#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;

#define KERNEL(name, threads, Params) extern "C" __global__ void __launch_bounds__(threads) name(const Params p)
extern __shared__ __align__(128) unsigned char shared_memory[];
#define SHARED(T, name) T* const name = reinterpret_cast<T*>(shared_memory)

__device__ __forceinline__ float bf16_to_f32(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ bf16 f32_to_bf16(float x) { return __float2bfloat16_rn(x); }
__device__ __forceinline__ uint32_t pack_bf16x2(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&v);
}
__device__ __forceinline__ float bf16x2_lo(uint32_t v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float bf16x2_hi(uint32_t v) { return __uint_as_float(v & 0xffff0000u); }
#else
#include "cuda_on_cpu.h"
#endif

constexpr unsigned FULL_WARP = 0xffffffffu;

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(bf16 x) { return bf16_to_f32(x); }
__device__ __forceinline__ void store(float* to, float x) { *to = x; }
__device__ __forceinline__ void store(bf16* to, float x) { *to = f32_to_bf16(x); }

// Eight bf16 as one 16-byte access; the address must be a multiple of 16.
__device__ __forceinline__ void load8(float (&to)[8], const bf16* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    to[2 * i] = bf16x2_lo(pairs[i]);
    to[2 * i + 1] = bf16x2_hi(pairs[i]);
  }
}
__device__ __forceinline__ void store8(bf16* to, const float (&from)[8]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pack_bf16x2(from[0], from[1]), pack_bf16x2(from[2], from[3]),
                                             pack_bf16x2(from[4], from[5]), pack_bf16x2(from[6], from[7]));
}
__device__ __forceinline__ bool on_16_bytes(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }

// Sum over a warp; every lane gets it, always added in the same order.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) x += __shfl_xor_sync(FULL_WARP, x, o);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, o));
  return x;
}
// Sum over a block of whole warps; every thread gets it. `room`: 32 floats of shared memory, free again afterwards.
__device__ __forceinline__ float block_sum(float x, float* room) {
  x = warp_sum(x);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  if (lane == 0) room[warp] = x;
  __syncthreads();
  x = warp_sum(lane < warps ? room[lane] : 0.f);
  __syncthreads();  // the room may be written again
  return x;
}
