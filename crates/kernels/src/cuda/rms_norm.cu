// RMS norm without a gain, a warp for each row.
//
//   y = x·s, s = 1/√(mean x² + eps);     dx = sum + s·(dy − y·mean(y·dy)), where `sum` is what dx is added to, or null
#include "device.cuh"

struct Forward {
  const bf16* x;
  bf16* y;
  float* scale;
  int64_t rows;
  int32_t width;
  float eps;
};

struct Backward {
  const bf16* y;
  const float* scale;
  const bf16* dy;
  const bf16* sum;
  bf16* dx;
  int64_t rows;
  int32_t width;
};

KERNEL(rms_norm_forward, 256, Forward) {
  const int lane = threadIdx.x & 31;
  const int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= p.rows) return;
  const bf16* x = p.x + row * p.width;
  bf16* y = p.y + row * p.width;
  const bool wide = p.width % 8 == 0 && on_16_bytes(x) && on_16_bytes(y);
  float sum = 0.f, v[8];
  if (wide) {
    for (int c = lane * 8; c < p.width; c += 256) {
      load8(v, x + c);
#pragma unroll
      for (int i = 0; i < 8; i++) sum += v[i] * v[i];
    }
  } else {
    for (int c = lane; c < p.width; c += 32) sum += to_f32(x[c]) * to_f32(x[c]);
  }
  const float scale = 1.f / sqrtf(warp_sum(sum) / (float)p.width + p.eps);
  if (lane == 0) p.scale[row] = scale;
  if (wide) {
    // the row is in the first-level cache now
    for (int c = lane * 8; c < p.width; c += 256) {
      load8(v, x + c);
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] *= scale;
      store8(y + c, v);
    }
  } else {
    for (int c = lane; c < p.width; c += 32) store(y + c, to_f32(x[c]) * scale);
  }
}

KERNEL(rms_norm_backward, 256, Backward) {
  const int lane = threadIdx.x & 31;
  const int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int64_t at = row * p.width;
  const bf16 *y = p.y + at, *dy = p.dy + at, *sum = p.sum ? p.sum + at : nullptr;
  bf16* dx = p.dx + at;
  const bool wide = p.width % 8 == 0 && on_16_bytes(y) && on_16_bytes(dy) && on_16_bytes(sum) && on_16_bytes(dx);
  float along = 0.f, a[8], b[8];
  if (wide) {
    for (int c = lane * 8; c < p.width; c += 256) {
      load8(a, y + c);
      load8(b, dy + c);
#pragma unroll
      for (int i = 0; i < 8; i++) along += a[i] * b[i];
    }
  } else {
    for (int c = lane; c < p.width; c += 32) along += to_f32(y[c]) * to_f32(dy[c]);
  }
  along = warp_sum(along) / (float)p.width;
  const float scale = p.scale[row];
  if (wide) {
    for (int c = lane * 8; c < p.width; c += 256) {
      load8(a, y + c);
      load8(b, dy + c);
#pragma unroll
      for (int i = 0; i < 8; i++) b[i] = scale * (b[i] - a[i] * along);
      if (sum) {
        load8(a, sum + c);
#pragma unroll
        for (int i = 0; i < 8; i++) b[i] += a[i];
      }
      store8(dx + c, b);
    }
  } else {
    for (int c = lane; c < p.width; c += 32) {
      const float before = sum ? to_f32(sum[c]) : 0.f;
      store(dx + c, before + scale * (to_f32(dy[c]) - to_f32(y[c]) * along));
    }
  }
}
