// relu²: y = max(x, 0)², and from y alone dx = 2·√y·dy. Memory: 2 passes forward, 3 backward. NaN stays NaN.
#include "device.cuh"

struct Forward {
  const bf16* x;
  bf16* y;
  int64_t n;
};

struct Backward {
  const bf16 *y, *dy;
  bf16* dx;
  int64_t n;
};

KERNEL(relu_squared_forward, MAP_THREADS, Forward) {
  map(p.y, p.x, p.n, [](float x) { return x < 0.f ? 0.f : x * x; });
}

KERNEL(relu_squared_backward, MAP_THREADS, Backward) {
  // sqrtf would leave the fast path at 0, which every other y is; not y > 0: 0 and NaN, that stay
  map(p.dx, p.y, p.dy, p.n, [](float y, float dy) { return 2.f * (y > 0.f ? y * rsqrtf(y) : y) * dy; });
}
