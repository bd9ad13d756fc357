// Rotary embedding, then RMS norm, of heads. With (x1, x2) the halves of a head and s = 1/√(mean x² + eps):
//
//   y1 = s·(x1·cos + x2·sin), y2 = s·(x2·cos − x1·sin);     dx = s·Rᵀ(dy − y·mean(y·dy)), Rᵀ turning back
//
// `lanes` neighbours share a head; each takes eight elements of one half and their partners of the other, so that a
// pair is turned inside one thread. Memory: 2 passes forward, 3 backward; the tables stay in the caches.
#include "device.cuh"

// Where the heads of a (B, T, H, D) view lie, D contiguous: elements from one to the next along each axis.
struct Heads {
  int64_t along_batch, along_time, along_heads;
};

struct Sizes {
  int32_t time, heads, all, width;  // T, H, B·T·H, D
  int32_t lanes;                    // a power of two
};

struct Forward {
  const bf16 *x, *cos, *sin;
  bf16* y;
  float* scale;
  Heads at;  // of x
  Sizes size;
  float eps;
};

struct Backward {
  const bf16 *y, *dy, *cos, *sin;
  const float* scale;
  bf16* dx;
  Heads at;  // of dy
  Sizes size;
};

// The share of a thread.
struct Share {
  bool mine;        // false: there is no head left, and the thread follows the last one without writing
  int64_t head;     // of B·T·H
  int64_t strided;  // offset of its first element, by strides
  int64_t table;    // offset of its row of cos and sin
  int half, first;  // D/2; the first element of a half that the thread takes
};

__device__ __forceinline__ Share share(const Heads& at, const Sizes& size) {
  const int shift = __ffs(size.lanes) - 1;
  const int64_t place = ((int64_t)blockIdx.x * 256 + threadIdx.x) >> shift;
  const unsigned head = (unsigned)min(place, (int64_t)size.all - 1);
  const unsigned token = head / (unsigned)size.heads, h = head - token * size.heads;
  const unsigned b = token / (unsigned)size.time, t = token - b * size.time;
  Share s;
  s.mine = place < size.all;
  s.head = head;
  s.strided = b * at.along_batch + t * at.along_time + h * at.along_heads;
  s.half = size.width / 2;
  s.table = (int64_t)t * s.half;
  s.first = (threadIdx.x & (size.lanes - 1)) * 8;
  return s;
}

// Whether vectors of a half are whole and on 16 bytes wherever a head begins.
__device__ __forceinline__ bool aligned(const Heads& at, const Sizes& size, const void* cos, const void* sin) {
  const int64_t steps = at.along_batch | at.along_time | at.along_heads | size.width / 2;
  return steps % 8 == 0 && on_16_bytes(cos) && on_16_bytes(sin);
}

template <bool WHOLE>
__device__ __forceinline__ void forward(const Forward& p) {
  const Share s = share(p.at, p.size);
  const int half = s.half, step = p.size.lanes * 8;
  const bf16 *x = p.x + s.strided, *cos = p.cos + s.table, *sin = p.sin + s.table;
  bf16* y = p.y + s.head * p.size.width;
  float y1[8], y2[8], sum = 0.f;
  auto turn = [&](int c) {
    float x1[8], x2[8], co[8], si[8];
    load_vector<WHOLE>(x1, x + c, half - c);
    load_vector<WHOLE>(x2, x + half + c, half - c);
    load_vector<WHOLE>(co, cos + c, half - c);
    load_vector<WHOLE>(si, sin + c, half - c);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      sum += x1[i] * x1[i] + x2[i] * x2[i];
      y1[i] = x1[i] * co[i] + x2[i] * si[i];
      y2[i] = x2[i] * co[i] - x1[i] * si[i];
    }
  };
  for (int c = s.first; c < half; c += step) turn(c);
  const float scale = 1.f / sqrtf(group_sum(sum, p.size.lanes) / (float)p.size.width + p.eps);
  if (!s.mine) return;
  if (s.first == 0) p.scale[s.head] = scale;
  for (int c = s.first; c < half; c += step) {
    if (step < half) turn(c);  // else it is still here
#pragma unroll
    for (int i = 0; i < 8; i++) {
      y1[i] *= scale;
      y2[i] *= scale;
    }
    store_vector<WHOLE>(y + c, y1, half - c);
    store_vector<WHOLE>(y + half + c, y2, half - c);
  }
}

template <bool WHOLE>
__device__ __forceinline__ void backward(const Backward& p) {
  const Share s = share(p.at, p.size);
  const int half = s.half, step = p.size.lanes * 8;
  const bf16 *y = p.y + s.head * p.size.width, *dy = p.dy + s.strided, *cos = p.cos + s.table, *sin = p.sin + s.table;
  bf16* dx = p.dx + s.head * p.size.width;
  const float scale = p.scale[s.head];
  float x1[8], x2[8], g1[8], g2[8], along = 0.f;  // y and dy, turned back
  auto turn = [&](int c) {
    float y1[8], y2[8], dy1[8], dy2[8], co[8], si[8];
    load_vector<WHOLE>(y1, y + c, half - c);
    load_vector<WHOLE>(y2, y + half + c, half - c);
    load_vector<WHOLE>(dy1, dy + c, half - c);
    load_vector<WHOLE>(dy2, dy + half + c, half - c);
    load_vector<WHOLE>(co, cos + c, half - c);
    load_vector<WHOLE>(si, sin + c, half - c);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      along += y1[i] * dy1[i] + y2[i] * dy2[i];
      x1[i] = y1[i] * co[i] - y2[i] * si[i];
      x2[i] = y1[i] * si[i] + y2[i] * co[i];
      g1[i] = dy1[i] * co[i] - dy2[i] * si[i];
      g2[i] = dy1[i] * si[i] + dy2[i] * co[i];
    }
  };
  for (int c = s.first; c < half; c += step) turn(c);
  const float mean = group_sum(along, p.size.lanes) / (float)p.size.width;
  if (!s.mine) return;
  for (int c = s.first; c < half; c += step) {
    if (step < half) turn(c);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      g1[i] = scale * (g1[i] - x1[i] * mean);
      g2[i] = scale * (g2[i] - x2[i] * mean);
    }
    store_vector<WHOLE>(dx + c, g1, half - c);
    store_vector<WHOLE>(dx + half + c, g2, half - c);
  }
}

KERNEL(rope_norm_forward, 256, Forward) {
  if (aligned(p.at, p.size, p.cos, p.sin) && on_16_bytes(p.x) && on_16_bytes(p.y))
    forward<true>(p);
  else
    forward<false>(p);
}

KERNEL(rope_norm_backward, 256, Backward) {
  if (aligned(p.at, p.size, p.cos, p.sin) && on_16_bytes(p.y) && on_16_bytes(p.dy) && on_16_bytes(p.dx))
    backward<true>(p);
  else
    backward<false>(p);
}
