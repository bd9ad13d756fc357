// −ln softmax(logits)[target] of each position, a block for each: NaN where a logit is NaN or infinite.
//
// f32 throughout, the sum over a block in f64. Compiled by build.rs, and by the emulator of the kernels' tests, which
// brings its own names for CUDA's.
#if defined(__CUDACC__)
#include <cstdint>
#include <cuda_bf16.h>
using bf16 = __nv_bfloat16;
#define KERNEL(name, threads, Params) extern "C" __global__ void __launch_bounds__(threads) name(const Params p)
#define SHARED(T, name) extern __shared__ T name[]
__device__ __forceinline__ float bf16_to_f32(bf16 x) { return __bfloat162float(x); }
#else
#include "cuda_on_cpu.h"
#endif

struct Positions {
  const void* logits;       // (positions, vocab)
  const uint32_t* targets;  // (positions), below vocab
  float* nats;              // (positions)
  int32_t vocab;
};

constexpr int THREADS = 256, WARPS = THREADS / 32;

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(bf16 x) { return bf16_to_f32(x); }

// f over the values of all threads, in a fixed order; every thread gets it. `room`: WARPS values.
template <class F>
__device__ __forceinline__ double over_block(double x, double* room, F f) {
  for (int o = 16; o > 0; o >>= 1) x = f(x, __shfl_xor_sync(0xffffffffu, x, o));
  __syncthreads();  // the room has been read by all
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
  __syncthreads();
  x = room[0];
  for (int w = 1; w < WARPS; w++) x = f(x, room[w]);
  return x;
}

template <class T>
__device__ __forceinline__ void position(const Positions& p) {
  SHARED(double, room);
  const T* logits = (const T*)p.logits + (int64_t)blockIdx.x * p.vocab;
  float highest = -INFINITY, zero = 0.f;
#pragma unroll 8
  for (int i = threadIdx.x; i < p.vocab; i += THREADS) {
    const float z = wide(logits[i]);
    highest = fmaxf(highest, z);
    zero += z * 0.f;  // NaN once and for all if one is not finite
  }
  highest = (float)over_block(highest, room, [](double a, double b) { return a > b ? a : b; });
  float part = zero;
  // the row is in the caches now
#pragma unroll 8
  for (int i = threadIdx.x; i < p.vocab; i += THREADS) part += expf(wide(logits[i]) - highest);
  const double sum = over_block(part, room, [](double a, double b) { return a + b; });
  if (threadIdx.x == 0) p.nats[blockIdx.x] = (float)((double)highest - wide(logits[p.targets[blockIdx.x]]) + log(sum));
}

KERNEL(cross_entropy_f32, THREADS, Positions) { position<float>(p); }
KERNEL(cross_entropy_bf16, THREADS, Positions) { position<bf16>(p); }
