// Residual mix: y = r·x + z·x0.
//
//   dx = sum + r·dy, dx0 = sum0 + z·dy, where the sums are what the gradients are added to, or null;
//   dr = Σ x·dy, dz = Σ x0·dy, by blocks of PART elements, then over the blocks: in an order that n alone fixes.
//
// Memory: 3 passes forward, 5 backward and one more for each sum.
#include "device.cuh"

constexpr int PART = 16384, THREADS = 256;

struct Forward {
  const bf16 *x, *x0;
  const float *r, *z;
  bf16* y;
  int64_t n;
};

struct Backward {
  const bf16 *x, *x0, *dy, *sum, *sum0;
  const float *r, *z;
  bf16 *dx, *dx0;
  float* parts;  // dr, dz of each block
  int64_t n;
};

struct Finish {
  const float* parts;
  float *dr, *dz;
  int32_t blocks;
};

KERNEL(mix_forward, MAP_THREADS, Forward) {
  const float r = *p.r, z = *p.z;
  map(p.y, p.x, p.x0, p.n, [r, z](float x, float x0) { return r * x + z * x0; });
}

// dx and dx0 of a block; adds the thread's share to dr and dz.
template <bool WHOLE>
__device__ __forceinline__ void backward_part(const Backward& p, int64_t start, float& dr, float& dz) {
  const float r = *p.r, z = *p.z;
  const int count = (int)min((int64_t)PART, p.n - start);
  for (int i = threadIdx.x * 8; i < count; i += THREADS * 8) {
    const int64_t at = start + i;
    const int left = count - i;
    float dy[8], x[8], x0[8], sum[8] = {}, sum0[8] = {};
    if (p.sum) load_vector<WHOLE>(sum, p.sum + at, left);
    if (p.sum0) load_vector<WHOLE>(sum0, p.sum0 + at, left);
    load_vector<WHOLE>(dy, p.dy + at, left);
    load_vector<WHOLE>(x, p.x + at, left);
    load_vector<WHOLE>(x0, p.x0 + at, left);
#pragma unroll
    for (int k = 0; k < 8; k++) {
      dr += x[k] * dy[k];
      dz += x0[k] * dy[k];
      sum[k] += r * dy[k];
      sum0[k] += z * dy[k];
    }
    store_vector<WHOLE>(p.dx + at, sum, left);
    store_vector<WHOLE>(p.dx0 + at, sum0, left);
  }
}

KERNEL(mix_backward, THREADS, Backward) {
  SHARED(float, room);  // 32
  const int64_t start = (int64_t)blockIdx.x * PART;
  const bool aligned = on_16_bytes(p.x) && on_16_bytes(p.x0) && on_16_bytes(p.dy) && on_16_bytes(p.sum) &&
                       on_16_bytes(p.sum0) && on_16_bytes(p.dx) && on_16_bytes(p.dx0);
  float dr = 0.f, dz = 0.f;
  if (aligned && p.n - start >= PART)
    backward_part<true>(p, start, dr, dz);
  else
    backward_part<false>(p, start, dr, dz);
  dr = block_sum(dr, room);
  dz = block_sum(dz, room);
  if (threadIdx.x == 0) {
    p.parts[2 * blockIdx.x] = dr;
    p.parts[2 * blockIdx.x + 1] = dz;
  }
}

// One block.
KERNEL(mix_finish, THREADS, Finish) {
  SHARED(float, room);  // 32
  float dr = 0.f, dz = 0.f;
  for (int i = threadIdx.x; i < p.blocks; i += THREADS) {
    dr += p.parts[2 * i];
    dz += p.parts[2 * i + 1];
  }
  dr = block_sum(dr, room);
  dz = block_sum(dz, room);
  if (threadIdx.x == 0) {
    *p.dr = dr;
    *p.dz = dz;
  }
}
