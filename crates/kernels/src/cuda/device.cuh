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
// 2^x, one instruction; 2^-inf is 0
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1/x, one instruction; 1/inf is 0
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
#include "cuda_on_cpu.h"

inline float exp2_approx(float x) { return exp2f(x); }
inline float reciprocal_approx(float x) { return 1.f / x; }
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
__device__ __forceinline__ void load8(float (&to)[8], const float* from) {
  const float4 low = *reinterpret_cast<const float4*>(from), high = *reinterpret_cast<const float4*>(from + 4);
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}
__device__ __forceinline__ void store8(float* to, const float (&from)[8]) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  *reinterpret_cast<float4*>(to + 4) = make_float4(from[4], from[5], from[6], from[7]);
}
__device__ __forceinline__ bool on_16_bytes(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }

// Eight elements: WHOLE, as load8 and store8 want them; else as many as are `left`, zeros for the others. A kernel branches
// once on what is WHOLE and then has all its loads in a row: behind a branch each, they would wait for one another.
template <bool WHOLE, class T>
__device__ __forceinline__ void load_vector(float (&to)[8], const T* from, int left) {
  if (WHOLE) {
    load8(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) to[i] = i < left ? to_f32(from[i]) : 0.f;
  }
}
template <bool WHOLE, class T>
__device__ __forceinline__ void store_vector(T* to, const float (&from)[8], int left) {
  if (WHOLE) {
    store8(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (i < left) store(to + i, from[i]);
  }
}

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
// Sum over `lanes` neighbours, a power of two; each of them gets it. Every lane of the warp takes part.
__device__ __forceinline__ float group_sum(float x, int lanes) {
  for (int o = lanes >> 1; o > 0; o >>= 1) x += __shfl_xor_sync(FULL_WARP, x, o);
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

// y[i] ← f(a[i], b[i]) for all i < n, by blocks of MAP_THREADS for MAP_ELEMENTS each (`map` of mod.rs). A thread reads
// two vectors of each operand before it writes, so that enough bytes are under way; y may be a or b.
constexpr int MAP_THREADS = 256, MAP_VECTORS = 2, MAP_ELEMENTS = MAP_THREADS * MAP_VECTORS * 8;
template <bool WHOLE, class Y, class A, class B, class F>
__device__ __forceinline__ void map_part(Y* y, const A* a, const B* b, int left, F f) {
  float u[MAP_VECTORS][8], v[MAP_VECTORS][8];
#pragma unroll
  for (int k = 0; k < MAP_VECTORS; k++) {
    const int at = (k * MAP_THREADS + threadIdx.x) * 8;
    load_vector<WHOLE>(u[k], a + at, left - at);
    load_vector<WHOLE>(v[k], b + at, left - at);
  }
#pragma unroll
  for (int k = 0; k < MAP_VECTORS; k++) {
    const int at = (k * MAP_THREADS + threadIdx.x) * 8;
#pragma unroll
    for (int i = 0; i < 8; i++) u[k][i] = f(u[k][i], v[k][i]);
    store_vector<WHOLE>(y + at, u[k], left - at);
  }
}
template <class Y, class A, class B, class F>
__device__ __forceinline__ void map(Y* y, const A* a, const B* b, int64_t n, F f) {
  const int64_t start = (int64_t)blockIdx.x * MAP_ELEMENTS;
  const int left = (int)min((int64_t)MAP_ELEMENTS, n - start);
  if (left == MAP_ELEMENTS && on_16_bytes(y) && on_16_bytes(a) && on_16_bytes(b))
    map_part<true>(y + start, a + start, b + start, left, f);
  else
    map_part<false>(y + start, a + start, b + start, left, f);
}
// y[i] ← f(a[i]); to the compiler, a read twice is a read once.
template <class Y, class A, class F>
__device__ __forceinline__ void map(Y* y, const A* a, int64_t n, F f) {
  map(y, a, a, n, [f](float x, float) { return f(x); });
}
