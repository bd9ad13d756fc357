// Soft cap and cross-entropy of a chunk of logits, a block for each row.
//
//   c = cap·tanh(z/cap);     loss = ln Σ exp c − c[target];     z ← weight·(softmax(c) − onehot(target))·dc/dz
//
// A row is read once and written once: in between it stays in registers, unless it is too long for them.
#include "device.cuh"

struct Rows {
  bf16* z;                  // (rows, stride), a stride that is a multiple of 8
  const uint32_t* targets;  // (rows)
  float* losses;            // (rows)
  int64_t stride;
  int32_t vocab;
  int32_t gradients;  // 0: z is left as it is
  float cap;          // 0: none
  float weight;
};

struct Mean {
  const float* losses;
  float* mean;
  int64_t rows;
};

// Vectors of eight logits that a thread keeps; `KEPT` in head.rs.
constexpr int KEPT = 4;

struct Capped {
  float value, slope;
};

__device__ __forceinline__ Capped capped(float z, float cap, float per_cap) {
  if (cap == 0.f) return {z, 1.f};
  // tanh to within 1e-7 of 1, which is what a logit in f32 can tell; NaN stays NaN
  const float t = 1.f - __fdividef(2.f, 1.f + __expf(2.f * per_cap * z));
  return {cap * t, 1.f - t * t};
}

__device__ __forceinline__ float block_max(float x, float* room) {
  x = warp_max(x);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  if (lane == 0) room[warp] = x;
  __syncthreads();
  x = warp_max(room[lane < warps ? lane : 0]);
  __syncthreads();
  return x;
}

// Vector v of a row; what lies behind its end is −∞, which no maximum and no sum of exponentials sees.
__device__ __forceinline__ void load_logits(float (&to)[8], const bf16* z, int v, int vocab) {
  load8(to, z + 8 * v);
  if (8 * v + 8 <= vocab) return;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (8 * v + i >= vocab) to[i] = -INFINITY;
  }
}

template <bool KEEP>
__device__ __forceinline__ void cross_entropy(const Rows& p) {
  SHARED(float, room);
  bf16* z = p.z + blockIdx.x * p.stride;
  const int vectors = (p.vocab + 7) / 8, stride = blockDim.x;
  const float per_cap = p.cap == 0.f ? 0.f : 1.f / p.cap;
  const uint32_t target = p.targets[blockIdx.x];
  // no host waits to hear of a target outside the vocabulary: a loss that is not a number ends the training
  const bool known = target < (uint32_t)p.vocab;
  const Capped right = capped(known ? to_f32(z[target]) : NAN, p.cap, per_cap);

  float kept[KEEP ? KEPT : 1][8], highest = -INFINITY;
  if constexpr (KEEP) {
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
      const int v = threadIdx.x + k * stride;
      if (v >= vectors) break;
      load_logits(kept[k], z, v, p.vocab);
#pragma unroll
      for (int i = 0; i < 8; i++) highest = fmaxf(highest, kept[k][i]);
    }
  } else {
    for (int v = threadIdx.x; v < vectors; v += stride) {
      load_logits(kept[0], z, v, p.vocab);
#pragma unroll
      for (int i = 0; i < 8; i++) highest = fmaxf(highest, kept[0][i]);
    }
  }
  // the cap keeps the order, so the highest of all needs it only once
  highest = capped(block_max(highest, room), p.cap, per_cap).value;

  // z → exp(c − highest)·slope; returns Σ exp(c − highest)
  const auto exponentials = [&](float (&x)[8], int v) {
    float sum = 0.f;
    const bool whole = 8 * v + 8 <= p.vocab;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const Capped c = capped(x[i], p.cap, per_cap);
      // behind the end the cap makes a number of −∞
      const float e = whole || 8 * v + i < p.vocab ? __expf(c.value - highest) : 0.f;
      sum += e;
      x[i] = e * c.slope;
    }
    return sum;
  };
  float sum = 0.f;
  if constexpr (KEEP) {
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
      const int v = threadIdx.x + k * stride;
      if (v >= vectors) break;
      sum += exponentials(kept[k], v);
    }
  } else {
    for (int v = threadIdx.x; v < vectors; v += stride) {
      load_logits(kept[0], z, v, p.vocab);
      sum += exponentials(kept[0], v);
    }
  }
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) p.losses[blockIdx.x] = logf(sum) + highest - right.value;
  if (!p.gradients) return;

  const float share = p.weight / sum;
  const auto write = [&](float (&x)[8], int v) {
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] *= share;
    store8(z + 8 * v, x);
  };
  if constexpr (KEEP) {
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
      const int v = threadIdx.x + k * stride;
      if (v >= vectors) break;
      write(kept[k], v);
    }
  } else {
    for (int v = threadIdx.x; v < vectors; v += stride) {
      load_logits(kept[0], z, v, p.vocab);
      exponentials(kept[0], v);
      write(kept[0], v);
    }
  }
  // by the thread that has written there before
  if (known && threadIdx.x == target / 8 % stride) {
    store(z + target, (share * __expf(right.value - highest) - p.weight) * right.slope);
  }
}

KERNEL(head_rows, 1024, Rows) { cross_entropy<true>(p); }

KERNEL(head_long_rows, 1024, Rows) { cross_entropy<false>(p); }

KERNEL(head_mean, 1024, Mean) {
  SHARED(float, room);
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < p.rows; i += blockDim.x) sum += p.losses[i];
  const float total = block_sum((float)(sum / (double)p.rows), room);
  if (threadIdx.x == 0) *p.mean = total;
}
