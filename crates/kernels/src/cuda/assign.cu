// Element by element, mostly in place: y ← a + b, a·s, cap·tanh(a/cap), or a in another type; a may be y. Memory: what is
// read and written, once.
#include "device.cuh"

struct Assign {
  void* y;
  const void* a;
  const void* b;  // for a scale its factor, one f32; null where there is one operand
  int64_t n;
  float cap;
};

template <class T>
__device__ __forceinline__ void sum(const Assign& p) {
  map((T*)p.y, (const T*)p.a, (const T*)p.b, p.n, [](float a, float b) { return a + b; });
}
KERNEL(assign_sum_bf16, MAP_THREADS, Assign) { sum<bf16>(p); }
KERNEL(assign_sum_f32, MAP_THREADS, Assign) { sum<float>(p); }

template <class T>
__device__ __forceinline__ void scale(const Assign& p) {
  const float by = *(const float*)p.b;
  if (by == 1.f && p.y == p.a) return;  // what a loss that nothing was done to gives: no pass at all
  map((T*)p.y, (const T*)p.a, p.n, [by](float a) { return a * by; });
}
KERNEL(assign_scaled_bf16, MAP_THREADS, Assign) { scale<bf16>(p); }
KERNEL(assign_scaled_f32, MAP_THREADS, Assign) { scale<float>(p); }

template <class T>
__device__ __forceinline__ void soft_cap(const Assign& p) {
  const float cap = p.cap, inverse = 1.f / p.cap;
  map((T*)p.y, (const T*)p.a, p.n, [cap, inverse](float a) { return cap * tanhf(a * inverse); });
}
KERNEL(assign_capped_bf16, MAP_THREADS, Assign) { soft_cap<bf16>(p); }
KERNEL(assign_capped_f32, MAP_THREADS, Assign) { soft_cap<float>(p); }

KERNEL(assign_cast_bf16_f32, MAP_THREADS, Assign) {
  map((bf16*)p.y, (const float*)p.a, p.n, [](float a) { return a; });
}
