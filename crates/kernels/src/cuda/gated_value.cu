// Gated value add: y = v + 2·sigmoid(gate)·ve, one gate a head. dve = 2·s·dy, dgate = 2·s·(1 − s)·(ve·dy); dv is dy.
//
// `lanes` neighbours share a head, eight elements each: no division, no idle lane at widths of 64 and 128.
// Memory: 3 passes forward, 3 backward.
#include "device.cuh"

struct Forward {
  const bf16 *v, *gate, *ve;
  bf16* y;
  int64_t heads;
  int32_t width, lanes;  // lanes: a power of two
};

struct Backward {
  const bf16 *gate, *ve, *dy;
  bf16 *dgate, *dve;
  int64_t heads;
  int32_t width, lanes;
};

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

// The head this thread works on, and from which of its elements on.
__device__ __forceinline__ int64_t head_of(int lanes, int& first) {
  first = (threadIdx.x & (lanes - 1)) * 8;
  return ((int64_t)blockIdx.x * 256 + threadIdx.x) >> (__ffs(lanes) - 1);
}

template <bool WHOLE>
__device__ __forceinline__ void forward(const Forward& p) {
  int first;
  const int64_t head = head_of(p.lanes, first);
  if (head >= p.heads) return;
  const bf16 *v = p.v + head * p.width, *ve = p.ve + head * p.width;
  for (int c = first; c < p.width; c += p.lanes * 8) {
    float a[8], b[8];
    load_vector<WHOLE>(a, v + c, p.width - c);
    load_vector<WHOLE>(b, ve + c, p.width - c);
    const float scale = 2.f * sigmoid(to_f32(p.gate[head]));
#pragma unroll
    for (int i = 0; i < 8; i++) a[i] += scale * b[i];
    store_vector<WHOLE>(p.y + head * p.width + c, a, p.width - c);
  }
}

template <bool WHOLE>
__device__ __forceinline__ void backward(const Backward& p) {
  int first;
  const int64_t place = head_of(p.lanes, first);
  // lanes without a head follow the last one, for the sum that all lanes of a warp take part in
  const bool mine = place < p.heads;
  const int64_t head = mine ? place : p.heads - 1;
  const bf16 *ve = p.ve + head * p.width, *dy = p.dy + head * p.width;
  const float s = sigmoid(to_f32(p.gate[head])), scale = 2.f * s;
  float along = 0.f;
  for (int c = first; c < p.width; c += p.lanes * 8) {
    float a[8], b[8];
    load_vector<WHOLE>(a, ve + c, p.width - c);
    load_vector<WHOLE>(b, dy + c, p.width - c);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      along += a[i] * b[i];
      b[i] *= scale;
    }
    if (mine) store_vector<WHOLE>(p.dve + head * p.width + c, b, p.width - c);
  }
  along = group_sum(along, p.lanes);
  if (mine && first == 0) store(p.dgate + head, scale * (1.f - s) * along);
}

KERNEL(gated_value_forward, 256, Forward) {
  if (p.width % 8 == 0 && on_16_bytes(p.v) && on_16_bytes(p.ve) && on_16_bytes(p.y))
    forward<true>(p);
  else
    forward<false>(p);
}

KERNEL(gated_value_backward, 256, Backward) {
  if (p.width % 8 == 0 && on_16_bytes(p.ve) && on_16_bytes(p.dy) && on_16_bytes(p.dve))
    backward<true>(p);
  else
    backward<false>(p);
}
