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

__device__ __forceinline__ void advance(const Update& u, float& w, float g, float& m, float& v) {
  m += u.to_g * (g - m);
  v += u.to_square * (g * g - v);
  w = w * u.keep - u.rate * m / (sqrtf(v * u.root_scale) + u.eps);
}

template <class W, class G>
__device__ __forceinline__ void step(const Update& u) {
  const int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (first >= u.n) return;
  W *w = (W*)u.w + first, *m = (W*)u.m + first, *v = (W*)u.v + first;
  const G* g = (const G*)u.g + first;
  bf16* copy = u.copy ? u.copy + first : nullptr;
  if (first + 8 <= u.n && on_16_bytes(w) && on_16_bytes(m) && on_16_bytes(v) && on_16_bytes(g) && on_16_bytes(copy)) {
    float ws[8], gs[8], ms[8], vs[8];
    load8(ws, w);
    load8(gs, g);
    load8(ms, m);
    load8(vs, v);
#pragma unroll
    for (int i = 0; i < 8; i++) advance(u, ws[i], gs[i], ms[i], vs[i]);
    store8(w, ws);
    store8(m, ms);
    store8(v, vs);
    if (copy) store8(copy, ws);
    return;
  }
  const int left = (int)(u.n - first < 8 ? u.n - first : 8);
  for (int i = 0; i < left; i++) {
    float wi = to_f32(w[i]), mi = to_f32(m[i]), vi = to_f32(v[i]);
    advance(u, wi, to_f32(g[i]), mi, vi);
    store(w + i, wi);
    store(m + i, mi);
    store(v + i, vi);
    if (copy) store(copy + i, wi);
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
