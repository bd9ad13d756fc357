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

// moment ← lerp(moment, g, 1 − μ); partial ← Σ lerp(g, moment, μ)².
KERNEL(muon_momentum, 256, Begin) {
  SHARED(float, room);
  const float* g = p.g[blockIdx.y];
  float* moment = p.moment + (int64_t)blockIdx.y * p.size;
  const int first = blockIdx.x * PART, end = min(first + PART, p.size);
  const bool wide = on_16_bytes(g) && on_16_bytes(moment);
  const float to_g = 1.f - p.momentum;
  float sum = 0.f;
  for (int at = first + threadIdx.x * 8; at < end; at += blockDim.x * 8) {
    float gs[8], ms[8];
    if (wide && at + 8 <= end) {
      load8(gs, g + at);
      load8(ms, moment + at);
#pragma unroll
      for (int i = 0; i < 8; i++) {
        ms[i] += to_g * (gs[i] - ms[i]);
        const float x = ahead(gs[i], ms[i], p.momentum);
        sum += x * x;
      }
      store8(moment + at, ms);
    } else {
      for (int i = at; i < min(at + 8, end); i++) {
        const float m = moment[i] + to_g * (g[i] - moment[i]), x = ahead(g[i], m, p.momentum);
        sum += x * x;
        moment[i] = m;
      }
    }
  }
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) p.partial[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// x ← lerp(g, moment, μ) / (1.02·its norm + 1e-6), rounded once: to read both again costs less than a second rounding.
KERNEL(muon_start, 256, Begin) {
  SHARED(float, room);
  float sum = 0.f;
  for (int i = threadIdx.x; i < (int)gridDim.x; i += blockDim.x) sum += p.partial[blockIdx.y * gridDim.x + i];
  const float scale = 1.f / (sqrtf(block_sum(sum, room)) * MARGIN + TINY_NORM);
  const float* g = p.g[blockIdx.y];
  const float* moment = p.moment + (int64_t)blockIdx.y * p.size;
  bf16* x = p.x + (int64_t)blockIdx.y * p.size;
  const int first = blockIdx.x * PART, end = min(first + PART, p.size);
  const bool wide = on_16_bytes(g) && on_16_bytes(moment) && on_16_bytes(x);
  for (int at = first + threadIdx.x * 8; at < end; at += blockDim.x * 8) {
    float gs[8], ms[8];
    if (wide && at + 8 <= end) {
      load8(gs, g + at);
      load8(ms, moment + at);
#pragma unroll
      for (int i = 0; i < 8; i++) gs[i] = scale * ahead(gs[i], ms[i], p.momentum);
      store8(x + at, gs);
    } else {
      for (int i = at; i < min(at + 8, end); i++) store(x + i, scale * ahead(g[i], moment[i], p.momentum));
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

  const int size = p.rows * p.cols;
  const bf16* x = p.x + (int64_t)blockIdx.y * size;
  float* w = p.w[blockIdx.y];
  bf16* copy = p.copy[blockIdx.y];
  const int first = blockIdx.x * PART, end = min(first + PART, size);
  const bool wide = on_16_bytes(x) && on_16_bytes(w) && on_16_bytes(copy);
  for (int at = first + threadIdx.x * 8; at < end; at += blockDim.x * 8) {
    float xs[8], ws[8];
    const bool whole = wide && at + 8 <= end;
    const int here = min(8, end - at);
    if (whole) {
      load8(xs, x + at);
      load8(ws, w + at);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) {
        xs[i] = i < here ? to_f32(x[at + i]) : 0.f;
        ws[i] = i < here ? w[at + i] : 0.f;
      }
    }
    int row = at / p.cols, col = at - row * p.cols;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if (i < here) {
        const float change = xs[i] * rescale * rsqrtf(fmaxf(second[p.by_row ? row : col], FLOOR));
        const float kept = change * ws[i] >= 0.f ? ws[i] : 0.f;
        ws[i] -= p.rate * (change + p.decay * kept);
        if (++col == p.cols) col = 0, row++;
      }
    }
    if (whole) {
      store8(w + at, ws);
      if (copy) store8(copy + at, ws);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) {
        if (i < here) {
          w[at + i] = ws[i];
          if (copy) store(copy + at + i, ws[i]);
        }
      }
    }
  }
}
