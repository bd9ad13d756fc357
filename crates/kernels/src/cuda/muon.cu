// Muon before and after its matrix products, over a group of n matrices (R, K): momentum and scaling; then NorMuon,
// cautious decay and the weights.
//
// Sums over a matrix are made in two launches, parts first, so that blocks need no order among them.
#include "device.cuh"

constexpr int MOST = 128;   // matrices of a launch; as in muon.rs
constexpr int PART = 8192;  // elements of a matrix that a block takes; as in muon.rs

constexpr float MARGIN = 1.02f, TINY_NORM = 1e-6f, FLOOR = 1e-10f;  // as in ../muon.rs

struct Begin {
  const float* g[MOST];
  float* moment;   // (n, size)
  float* partial;  // (n, parts): sums of squares
  bf16* x;         // (n, size)
  int32_t size;
  float momentum;
};

struct Lines {
  const bf16* x;  // (n, R, K)
  float* means;   // (n, R), or (n, K) when columns are reduced
  float* second;
  int64_t count;  // n·R
  int32_t rows, cols;
  float to_mean;
};

struct Finish {
  float* w[MOST];
  bf16* copy[MOST];  // or null
  const bf16* x;
  const float* means;
  const float* second;
  int32_t rows, cols;
  int32_t by_row;
  float rate, decay;
};

// Nesterov: the gradient, led by its moving average.
__device__ __forceinline__ float ahead(float g, float m, float momentum) { return g + momentum * (m - g); }

template <bool WHOLE>
__device__ __forceinline__ float move_moment(const float* g, float* moment, float momentum, int left) {
  float gs[8], ms[8], sum = 0.f;
  load_vector<WHOLE>(gs, g, left);
  load_vector<WHOLE>(ms, moment, left);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    ms[i] += (1.f - momentum) * (gs[i] - ms[i]);
    const float x = ahead(gs[i], ms[i], momentum);
    sum += x * x;
  }
  store_vector<WHOLE>(moment, ms, left);
  return sum;
}

// moment ← lerp(moment, g, 1 − μ); partial ← Σ lerp(g, moment, μ)².
KERNEL(muon_momentum, 256, Begin) {
  SHARED(float, room);
  const float* g = p.g[blockIdx.y];
  float* moment = p.moment + (int64_t)blockIdx.y * p.size;
  const int first = blockIdx.x * PART, end = min(first + PART, p.size);
  const bool wide = on_16_bytes(g) && on_16_bytes(moment);
  float sum = 0.f;
  for (int at = first + threadIdx.x * 8; at < end; at += blockDim.x * 8) {
    const int left = end - at;
    sum += wide && left >= 8 ? move_moment<true>(g + at, moment + at, p.momentum, left)
                             : move_moment<false>(g + at, moment + at, p.momentum, left);
  }
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) p.partial[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

template <bool WHOLE>
__device__ __forceinline__ void scale(bf16* x, const float* g, const float* moment, float momentum, float by, int left) {
  float gs[8], ms[8];
  load_vector<WHOLE>(gs, g, left);
  load_vector<WHOLE>(ms, moment, left);
#pragma unroll
  for (int i = 0; i < 8; i++) gs[i] = by * ahead(gs[i], ms[i], momentum);
  store_vector<WHOLE>(x, gs, left);
}

// x ← lerp(g, moment, μ) / (1.02·its norm + 1e-6), rounded once: to read both again costs less than a second rounding.
KERNEL(muon_start, 256, Begin) {
  SHARED(float, room);
  float sum = 0.f;
  for (int i = threadIdx.x; i < (int)gridDim.x; i += blockDim.x) sum += p.partial[blockIdx.y * gridDim.x + i];
  const float by = 1.f / (sqrtf(block_sum(sum, room)) * MARGIN + TINY_NORM);
  const float* g = p.g[blockIdx.y];
  const float* moment = p.moment + (int64_t)blockIdx.y * p.size;
  bf16* x = p.x + (int64_t)blockIdx.y * p.size;
  const int first = blockIdx.x * PART, end = min(first + PART, p.size);
  const bool wide = on_16_bytes(g) && on_16_bytes(moment) && on_16_bytes(x);
  for (int at = first + threadIdx.x * 8; at < end; at += blockDim.x * 8) {
    const int left = end - at;
    if (wide && left >= 8) {
      scale<true>(x + at, g + at, moment + at, p.momentum, by, left);
    } else {
      scale<false>(x + at, g + at, moment + at, p.momentum, by, left);
    }
  }
}

__device__ __forceinline__ void note_mean(const Lines& p, int64_t line, float mean) {
  p.means[line] = mean;
  p.second[line] += p.to_mean * (mean - p.second[line]);
}

// means ← mean x² of each row, a warp for each; second ← lerp(second, means, 1 − β2).
KERNEL(muon_rows, 256, Lines) {
  const int lane = threadIdx.x & 31;
  const int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= p.count) return;
  const bf16* x = p.x + row * p.cols;
  float sum = 0.f;
  if (p.cols % 8 == 0 && on_16_bytes(x)) {
    for (int c = lane * 8; c < p.cols; c += 256) {
      float v[8];
      load8(v, x + c);
#pragma unroll
      for (int i = 0; i < 8; i++) sum += v[i] * v[i];
    }
  } else {
    for (int c = lane; c < p.cols; c += 32) sum += to_f32(x[c]) * to_f32(x[c]);
  }
  sum = warp_sum(sum);
  if (lane == 0) note_mean(p, row, sum / (float)p.cols);
}

// The same of each column: 32 columns a block, whose warps take every eighth row.
KERNEL(muon_columns, 256, Lines) {
  SHARED(float, sums);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, col = blockIdx.x * 32 + lane;
  const bf16* x = p.x + (int64_t)blockIdx.y * p.rows * p.cols + col;
  float sum = 0.f;
  if (col < p.cols) {
    for (int r = warp; r < p.rows; r += 8) {
      const float v = to_f32(x[(int64_t)r * p.cols]);
      sum += v * v;
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp > 0 || col >= p.cols) return;
#pragma unroll
  for (int i = 1; i < 8; i++) sum += sums[32 * i + lane];
  note_mean(p, (int64_t)blockIdx.y * p.cols + col, sum / (float)p.rows);
}

template <bool WHOLE>
__device__ __forceinline__ void move_weights(const Finish& p, int at, int left, const float* second, float rescale) {
  const int row = at / p.cols;
  float* w = p.w[blockIdx.y] + at;
  bf16* copy = p.copy[blockIdx.y];
  float xs[8], ws[8];
  load_vector<WHOLE>(xs, p.x + (int64_t)blockIdx.y * p.rows * p.cols + at, left);
  load_vector<WHOLE>(ws, w, left);
  int line = p.by_row ? row : at - row * p.cols, in_row = at - row * p.cols;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (!WHOLE && i >= left) break;
    const float change = xs[i] * rescale * rsqrtf(fmaxf(second[line], FLOOR));
    const float kept = change * ws[i] >= 0.f ? ws[i] : 0.f;
    ws[i] -= p.rate * (change + p.decay * kept);
    const bool last = ++in_row == p.cols;
    if (last) in_row = 0;
    line = p.by_row ? line + last : in_row;
  }
  store_vector<WHOLE>(w, ws, left);
  if (copy) store_vector<WHOLE>(copy + at, ws, left);
}

// w −= rate·(x + decay·w where x·w ≥ 0), x scaled by its lines' second moments and back to its Frobenius norm.
KERNEL(muon_finish, 256, Finish) {
  SHARED(float, room);
  const int lines = p.by_row ? p.rows : p.cols, reduced = p.by_row ? p.cols : p.rows;
  const float* means = p.means + (int64_t)blockIdx.y * lines;
  const float* second = p.second + (int64_t)blockIdx.y * lines;
  float before = 0.f, after = 0.f;
  for (int i = threadIdx.x; i < lines; i += blockDim.x) {
    before += means[i];
    after += means[i] / fmaxf(second[i], FLOOR);
  }
  before = sqrtf(block_sum(before, room) * (float)reduced);
  after = sqrtf(block_sum(after, room) * (float)reduced);
  const float rescale = before / fmaxf(after, FLOOR);

  const int size = p.rows * p.cols, first = blockIdx.x * PART, end = min(first + PART, size);
  const bool wide = on_16_bytes(p.x + (int64_t)blockIdx.y * size) && on_16_bytes(p.w[blockIdx.y]) &&
                    on_16_bytes(p.copy[blockIdx.y]);
  for (int at = first + threadIdx.x * 8; at < end; at += blockDim.x * 8) {
    const int left = end - at;
    if (wide && left >= 8) {
      move_weights<true>(p, at, left, second, rescale);
    } else {
      move_weights<false>(p, at, left, second, rescale);
    }
  }
}
