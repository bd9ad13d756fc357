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

constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// A logit with its cap, in units of ln 2, so that its exponential is a power of two; and dc/dz.
struct Capped {
  float bits, slope;
};

__device__ __forceinline__ Capped capped(float z, float cap, float per_cap) {
  if (cap == 0.f) return {z * LOG2_E, 1.f};
  // tanh to within 2e-7 of what it is, which a logit in f32 can hardly tell; NaN stays NaN
  const float t = 1.f - 2.f * reciprocal_approx(1.f + exp2_approx(2.f * LOG2_E * per_cap * z));
  return {LOG2_E * cap * t, 1.f - t * t};
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

// KEEP: the row fits the registers. FULL: and fills them all.
template <bool KEEP, bool FULL>
__device__ __forceinline__ void cross_entropy(const Rows& p) {
  SHARED(float, room);
  bf16* z = p.z + blockIdx.x * p.stride;
  const int vectors = (p.vocab + 7) / 8, stride = blockDim.x;
  const float cap = p.cap, per_cap = cap == 0.f ? 0.f : 1.f / cap;
  const uint32_t target = p.targets[blockIdx.x];
  // no host waits to hear of a target outside the vocabulary: a loss that is not a number ends the training
  const bool known = target < (uint32_t)p.vocab;
  const Capped right = capped(known ? to_f32(z[target]) : NAN, cap, per_cap);

  // calls f(x, v) for each vector v of this thread, x being the eight floats kept for it
  float kept[KEEP ? KEPT : 1][8];
  const auto each = [&](auto f) {
    if constexpr (KEEP) {
#pragma unroll
      for (int k = 0; k < KEPT; k++) {
        const int v = threadIdx.x + k * stride;
        if (FULL || v < vectors) f(kept[k], v);
      }
    } else {
      for (int v = threadIdx.x; v < vectors; v += stride) f(kept[0], v);
    }
  };
  // what lies behind a row's end is −∞, which no maximum sees
  const auto load = [&](float (&x)[8], int v) {
    load8(x, z + 8 * v);
    if (!FULL && 8 * v + 8 > p.vocab) {
#pragma unroll
      for (int i = 0; i < 8; i++) {
        if (8 * v + i >= p.vocab) x[i] = -INFINITY;
      }
    }
  };

  float highest = -INFINITY;
  each([&](float (&x)[8], int v) {
    load(x, v);
#pragma unroll
    for (int i = 0; i < 8; i++) highest = fmaxf(highest, x[i]);
  });
  // the cap keeps the order, so the highest of all needs it only once
  highest = capped(block_max(highest, room), cap, per_cap).bits;

  // z → exp(c − highest)·slope; returns Σ exp(c − highest)
  const auto exponentials = [&](float (&x)[8], int v) {
    float e[8], sum = 0.f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const Capped c = capped(x[i], cap, per_cap);
      e[i] = exp2_approx(c.bits - highest);
      x[i] = e[i] * c.slope;
    }
    if (!FULL && 8 * v + 8 > p.vocab) {
      // the cap makes a number of −∞
#pragma unroll
      for (int i = 0; i < 8; i++) {
        if (8 * v + i >= p.vocab) e[i] = x[i] = 0.f;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) sum += e[i];
    return sum;
  };
  float sum = 0.f;
  each([&](float (&x)[8], int v) {
    if (!KEEP) load(x, v);
    sum += exponentials(x, v);
  });
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) p.losses[blockIdx.x] = logf(sum) + LN_2 * (highest - right.bits);
  if (!p.gradients) return;

  const float share = p.weight / sum;
  each([&](float (&x)[8], int v) {
    if (!KEEP) {
      load(x, v);
      exponentials(x, v);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] *= share;
    store8(z + 8 * v, x);
  });
  // by the thread that has written there before
  if (known && threadIdx.x == target / 8 % stride) {
    store(z + target, (share * exp2_approx(right.bits - highest) - p.weight) * right.slope);
  }
}

KERNEL(head_rows, 1024, Rows) { cross_entropy<true, true>(p); }

KERNEL(head_odd_rows, 1024, Rows) { cross_entropy<true, false>(p); }

KERNEL(head_long_rows, 1024, Rows) { cross_entropy<false, false>(p); }

KERNEL(head_mean, 1024, Mean) {
  SHARED(float, room);
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < p.rows; i += blockDim.x) sum += p.losses[i];
  const float total = block_sum((float)(sum / (double)p.rows), room);
  if (threadIdx.x == 0) *p.mean = total;
}
