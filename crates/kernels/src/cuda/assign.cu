// What changes a tensor in place, element by element: y ← y + x, y·s, cap·tanh(y/cap), or x in another type. Memory: what
// is read and written, once.
#include "device.cuh"

struct Assign {
  void* y;
  const void* x;  // for a scale its factor, one f32; for a cap nothing
  int64_t n;
  float cap;
};

template <class T>
__device__ __forceinline__ void add(const Assign& p) {
  map((T*)p.y, (const T*)p.y, (const T*)p.x, p.n, [](float y, float x) { return y + x; });
}
KERNEL(assign_sum_bf16, MAP_THREADS, Assign) { add<bf16>(p); }
KERNEL(assign_sum_f32, MAP_THREADS, Assign) { add<float>(p); }

template <class T>
__device__ __forceinline__ void scale(const Assign& p) {
  const float by = *(const float*)p.x;
  if (by == 1.f) return;  // what a loss that nothing was done to gives: no pass at all
  map((T*)p.y, (const T*)p.y, p.n, [by](float y) { return y * by; });
}
KERNEL(assign_scaled_bf16, MAP_THREADS, Assign) { scale<bf16>(p); }
KERNEL(assign_scaled_f32, MAP_THREADS, Assign) { scale<float>(p); }

template <class T>
__device__ __forceinline__ void soft_cap(const Assign& p) {
  const float cap = p.cap, inverse = 1.f / p.cap;
  map((T*)p.y, (const T*)p.y, p.n, [cap, inverse](float y) { return cap * tanhf(y * inverse); });
}
KERNEL(assign_capped_bf16, MAP_THREADS, Assign) { soft_cap<bf16>(p); }
KERNEL(assign_capped_f32, MAP_THREADS, Assign) { soft_cap<float>(p); }

KERNEL(assign_cast_bf16_f32, MAP_THREADS, Assign) {
  map((bf16*)p.y, (const float*)p.x, p.n, [](float x) { return x; });
}
