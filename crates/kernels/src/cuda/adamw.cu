// AdamW over all tensors of a step in one launch: a row of the grid for each tensor, eight elements a thread.
//
//   m ← lerp(m, g, 1−β1);  v ← lerp(v, g², 1−β2);  w ← w·keep − rate·m / (√(v·root_scale) + eps);  copy ← w in bf16
#include "device.cuh"

struct Update {
  void* w;
  const void* g;
  void* m;
  void* v;
  bf16* copy;  // or null
  int64_t n;
  float to_g, to_square, keep, rate, root_scale, eps;
  int32_t half_state, half_gradient;  // whether w, m and v, and whether g, are bf16, else f32
};

constexpr int MOST = 48;  // as in adamw.rs: what parameters have room for

struct Updates {
  Update of[MOST];
};

template <bool WHOLE, class W, class G>
__device__ __forceinline__ void advance(const Update& u, int64_t first, int left) {
  W *w = (W*)u.w + first, *m = (W*)u.m + first, *v = (W*)u.v + first;
  float ws[8], gs[8], ms[8], vs[8];
  load_vector<WHOLE>(ws, w, left);
  load_vector<WHOLE>(gs, (const G*)u.g + first, left);
  load_vector<WHOLE>(ms, m, left);
  load_vector<WHOLE>(vs, v, left);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    ms[i] += u.to_g * (gs[i] - ms[i]);
    vs[i] += u.to_square * (gs[i] * gs[i] - vs[i]);
    ws[i] = ws[i] * u.keep - u.rate * ms[i] / (sqrtf(vs[i] * u.root_scale) + u.eps);
  }
  store_vector<WHOLE>(w, ws, left);
  store_vector<WHOLE>(m, ms, left);
  store_vector<WHOLE>(v, vs, left);
  if (u.copy) store_vector<WHOLE>(u.copy + first, ws, left);
}

template <class W, class G>
__device__ __forceinline__ void step(const Update& u) {
  const int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8, left = u.n - first;
  if (left <= 0) return;
  // each starts on 16 bytes, so every eighth element does
  const bool wide = on_16_bytes(u.w) && on_16_bytes(u.g) && on_16_bytes(u.m) && on_16_bytes(u.v) && on_16_bytes(u.copy);
  if (wide && left >= 8) {
    advance<true, W, G>(u, first, 8);
  } else {
    advance<false, W, G>(u, first, left < 8 ? (int)left : 8);
  }
}

KERNEL(adamw, 256, Updates) {
  const Update& u = p.of[blockIdx.y];
  if (u.half_state) {
    if (u.half_gradient) {
      step<bf16, bf16>(u);
    } else {
      step<bf16, float>(u);
    }
  } else if (u.half_gradient) {
    step<float, bf16>(u);
  } else {
    step<float, float>(u);
  }
}
