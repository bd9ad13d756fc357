// Causal sliding-window attention: query i attends keys j with i − window <= j <= i, in the way of FlashAttention-2
// (arXiv 2307.08691): products on tensor cores, softmax and sums in f32, no T×T tensor, blocks out of the window skipped.
//
// Tensors are (B, T, H, D) bf16, their rows on 16 bytes; query head h reads key/value head h / (H / Hkv). No result
// depends on the order of threads or blocks.
#include "tensor_core.cuh"

// A (B, T, H, D) tensor: its strides in elements, but for the last axis, which is contiguous.
struct View {
  bf16* data;
  int64_t batch, time, head;
};

struct Forward {
  View q, k, v, out;
  float* log_sum_exp;  // (B, H, T)
  int32_t time, heads, kv_heads, window;
  float scale;
};

struct Backward {
  View q, k, v, out, d_out, dq, dk, dv;
  const float* log_sum_exp;  // (B, H, T)
  float2* rows;              // (B, H, T up to a multiple of 64): log-sum-exp in bits, Σ d_out·out
  float* sums;               // (splits, B, H, query tiles, a tile): dq so far, in the order of accumulators
  int32_t batch, time, heads, kv_heads, width, window, splits;
  float scale;
};

namespace {
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

__device__ __forceinline__ bf16* head_of(const View& v, int batch, int head) {
  return v.data + batch * v.batch + head * v.head;
}

// Scores of queries i0.. and keys j0.. become −inf where the query does not attend the key.
template <int MT, int NT>
__device__ __forceinline__ void mask(float (&s)[MT][NT][4], int i0, int j0, int window) {
  const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, back0 = opaque(i0) + g - (j0 + 2 * t);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int back = back0 + m * 16 + (e >> 1) * 8 - n * 8 - (e & 1);
        if (back < 0 || back > window) s[m][n][e] = -INFINITY;
      }
}

// ---- Forward. A block has 128 queries of a head, a warp 32 of them; keys come in tiles of 64, the next one while this
// one is used.

constexpr int FORWARD_THREADS = 128;

// Weights are powers of two relative to their row's base. It moves only for a score this many bits above it, so that
// the sums are hardly ever scaled; a weight stays below 2^8.
constexpr float HEADROOM = 8.f;
// The base before any key: below every score, and finite, so that −inf stays −inf.
constexpr float NO_BASE = -1e30f;

template <int D> __device__ __forceinline__ void forward(const Forward& p) {
  constexpr int BM = 128, BN = 64, MT = 2, NT = BN / 8;
  constexpr int K_TILES = BM * D, V_TILES = K_TILES + 2 * BN * D;
  SHARED(bf16, shared);
  const int m0 = (gridDim.x - 1 - blockIdx.x) * BM;  // those with the most keys first
  const int head = blockIdx.y, batch = blockIdx.z, kv_head = head / (p.heads / p.kv_heads);
  const int first = max(0, m0 - p.window) / BN, last = (min(p.time, m0 + BM) - 1) / BN;
  auto load_keys = [&](int j) {
    const int b = opaque(blockIdx.z), to = ((j - first) & 1) * BN * D;
    load_tile<FORWARD_THREADS, BN, D>(shared + K_TILES + to, head_of(p.k, b, kv_head), p.k.time, j * BN, p.time);
    load_tile<FORWARD_THREADS, BN, D>(shared + V_TILES + to, head_of(p.v, b, kv_head), p.v.time, j * BN, p.time);
    cp_async_commit();
  };
  load_tile<FORWARD_THREADS, BM, D>(shared, head_of(p.q, batch, head), p.q.time, m0, p.time);
  load_keys(first);

  const int row = threadIdx.x / 32 * 32, i0 = m0 + row;  // the warp's
  const int q = down_first<D>(row, 0), k = K_TILES + across_first<D>(0, 0), v = V_TILES + down_first<D>(0, 0);
  const float in_bits = p.scale * LOG2_E;
  float o[MT][D / 8][4] = {}, base[MT][2], sum[MT][2] = {};
#pragma unroll
  for (int m = 0; m < MT; m++) base[m][0] = base[m][1] = NO_BASE;

#pragma unroll 1
  for (int j = first; j <= last; j++) {
    const int j0 = j * BN, stage = ((j - first) & 1) * BN * D;
    cp_async_wait<0>();
    __syncthreads();  // tile j is here for all, and all are done with tile j − 1
    if (j < last) load_keys(j + 1);
    if (j0 > i0 + 31 || i0 - (j0 + BN - 1) > p.window) continue;  // out of reach of this warp's queries
    float s[MT][NT][4] = {};
    product<D, D, true, D, false>(s, shared, q, k + stage);
    if (j0 + BN - 1 > i0 || i0 + 31 - j0 > p.window) mask(s, i0, j0, p.window);

    float peak[MT][2];
    bool rises = false;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        peak[m][half] = s[m][0][2 * half];
#pragma unroll
        for (int n = 0; n < NT; n++)
          peak[m][half] = fmaxf(peak[m][half], fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
        peak[m][half] *= in_bits;
        rises |= peak[m][half] > base[m][half] + HEADROOM;
      }
    if (__any_sync(FULL_WARP, rises)) {
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float& top = peak[m][half];  // of the four lanes that share the row
          top = fmaxf(top, __shfl_xor_sync(FULL_WARP, top, 1));
          top = fmaxf(top, __shfl_xor_sync(FULL_WARP, top, 2));
          top = fmaxf(top, base[m][half]);
          const float shrink = exp2_approx(base[m][half] - top);
          base[m][half] = top;
          sum[m][half] *= shrink;
#pragma unroll
          for (int n = 0; n < D / 8; n++) {
            o[m][n][2 * half] *= shrink;
            o[m][n][2 * half + 1] *= shrink;
          }
        }
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          s[m][n][e] = exp2_approx(s[m][n][e] * in_bits - base[m][e >> 1]);
          sum[m][e >> 1] += s[m][n][e];
        }
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      uint32_t a[MT][4];  // two accumulator blocks side by side lie as an A operand does
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          a[m][i] = pack_bf16x2(s[m][n + (i >> 1)][2 * (i & 1)], s[m][n + (i >> 1)][2 * (i & 1) + 1]);
      multiply<D, true>(o, a, shared, v + stage, n * 8);
    }
  }

#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float total = sum[m][half];
      total += __shfl_xor_sync(FULL_WARP, total, 1);
      total += __shfl_xor_sync(FULL_WARP, total, 2);
      const int i = i0 + m * 16 + half * 8 + (threadIdx.x & 31) / 4;
      if (threadIdx.x % 4 == 0 && i < p.time)
        p.log_sum_exp[(batch * (int64_t)p.heads + head) * p.time + i] = base[m][half] * LN_2 + logf(total);
      sum[m][half] = 1.f / total;
    }
  store_tile(head_of(p.out, batch, head), p.out.time, i0, 0, p.time, o, sum);
}

// ---- Backward. With P the weights and S the scores: dV = Pᵀ·dO, dS = P∘(dO·Vᵀ − Σ dO∘O), dK = dSᵀ·Q/√D, dQ = dS·K/√D.
//
// A block owns a key/value head, or every splits-th key block of one, and walks the key blocks in order. A key block's
// dK and dV stay in registers while its queries pass by. dQ is added up in memory that no other block touches, each
// element always by the same thread. So all five products are made once, and sums have one order.

constexpr int BACKWARD_THREADS = 256, BN = 128, ROW_PAD = 64;

__device__ __forceinline__ int padded(int time) { return (time + ROW_PAD - 1) / ROW_PAD * ROW_PAD; }

// A warp's part of dQ for BM queries: eight warps stand 2 × 4 over (BM, D), 4 × 2 where D is 32.
template <int D, int BM> struct QueryTile {
  static constexpr int ACROSS = D == 32 ? 2 : 4, DOWN = 8 / ACROSS, MT = BM / DOWN / 16, NT = D / ACROSS / 8;
  float acc[MT][NT][4];

  __device__ __forceinline__ static int row() { return threadIdx.x / 32 % DOWN * MT * 16; }
  __device__ __forceinline__ static int column() { return threadIdx.x / 32 / DOWN * NT * 8; }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int i = 0; i < NT * 4; i++) acc[m][i / 4][i % 4] = 0.f;
  }
  // Calls f(block, its place in memory) for each accumulator block; a warp's places lie side by side.
  template <class F> __device__ __forceinline__ void each(float* sums, F f) {
#pragma unroll
    for (int i = 0; i < MT * NT; i++)
      f(acc[i / NT][i % NT], reinterpret_cast<float4*>(sums)[i * BACKWARD_THREADS + threadIdx.x]);
  }
  __device__ __forceinline__ void add(float* sums) {
    each(sums, [](float (&x)[4], const float4& at) {
      const float4 y = at;
      x[0] += y.x;
      x[1] += y.y;
      x[2] += y.z;
      x[3] += y.w;
    });
  }
  __device__ __forceinline__ void save(float* sums) {
    each(sums, [](const float (&x)[4], float4& at) { at = make_float4(x[0], x[1], x[2], x[3]); });
  }
  __device__ __forceinline__ void finish(const Backward& p, int batch, int head, int m0) const {
    float factor[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++) factor[m][0] = factor[m][1] = p.scale;
    store_tile(head_of(p.dq, batch, head), p.dq.time, m0 + row(), column(), p.time, acc, factor);
  }
};

// The place in `sums` of one split's dq for the queries m0...
template <int D, int BM>
__device__ __forceinline__ float* sums_of(const Backward& p, int split, int batch, int head, int m0) {
  const int tiles = (p.time + BM - 1) / BM;
  return p.sums + (((split * (int64_t)p.batch + batch) * p.heads + head) * tiles + m0 / BM) * (BM * D);
}

template <int D, int BM, int STAGES> __device__ __forceinline__ void backward(const Backward& p) {
  // eight warps stand 2 × 4 over (queries, keys) and 4 × 2 over (keys, D)
  constexpr int MT = BM / 32, NT = BN / 32, KT = 2, DT = D / 16;
  constexpr int V_TILE = BN * D, Q_TILES = 2 * BN * D, G_TILES = Q_TILES + STAGES * BM * D;  // G: d_out
  constexpr int P_TILE = G_TILES + STAGES * BM * D, DS_TILE = P_TILE + BM * BN;
  SHARED(bf16, shared);
  float2* row_tiles = reinterpret_cast<float2*>(shared + DS_TILE + BM * BN);
  const int split = blockIdx.x, kv_head = blockIdx.y, batch = blockIdx.z, group = p.heads / p.kv_heads;
  const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
  const int query = warp % 2 * (BM / 2), key = warp / 2 * 32, column = warp % 2 * (D / 2);
  const int queries = down_first<D>(query, 0), keys = across_first<D>(key, 0), columns = down_first<D>(0, column);
  const int weights = across_first<BN>(0, key), mine = place<BN>(query + g, key / 8) + 2 * t;
  const float in_bits = p.scale * LOG2_E;

  bool backwards = false;  // every other sweep: the sums it needs first are then those that the cache saw last
  for (int n0 = split * BN; n0 < p.time; n0 += p.splits * BN) {
    const int first = n0 / BM, last = min(p.time - 1, n0 + BN - 1 + p.window) / BM, steps = (last - first + 1) * group;
    int head = kv_head * group + (backwards ? group - 1 : 0), tile = backwards ? last : first;  // to be loaded next
    auto load_queries = [&](int stage) {
      const int b = opaque(blockIdx.z), m0 = tile * BM, to = stage * BM * D;
      load_tile<BACKWARD_THREADS, BM, D>(shared + Q_TILES + to, head_of(p.q, b, head), p.q.time, m0, p.time);
      load_tile<BACKWARD_THREADS, BM, D>(shared + G_TILES + to, head_of(p.d_out, b, head), p.d_out.time, m0, p.time);
      const int pair = threadIdx.x * 2;
      const float2* rows = p.rows + (b * (int64_t)p.heads + head) * padded(p.time) + m0;
      if (pair < BM) cp_async_16(row_tiles + stage * BM + pair, rows + pair);
      cp_async_commit();
    };
    auto advance = [&] {
      tile += backwards ? -1 : 1;
      if (tile >= first && tile <= last) return;
      tile = backwards ? last : first;
      head += backwards ? -1 : 1;
    };
    __syncthreads();  // all are done with the key block before
    load_tile<BACKWARD_THREADS, BN, D>(shared, head_of(p.k, batch, kv_head), p.k.time, n0, p.time);
    load_tile<BACKWARD_THREADS, BN, D>(shared + V_TILE, head_of(p.v, batch, kv_head), p.v.time, n0, p.time);
    load_queries(0);
    float dk[KT][DT][4] = {}, dv[KT][DT][4] = {};

    for (int step = 0; step < steps; step++) {
      const int stage = step % STAGES, q = Q_TILES + stage * BM * D, d_out = G_TILES + stage * BM * D;
      const float2* rows = row_tiles + stage * BM + query + g;
      const int this_head = head, m0 = tile * BM;
      advance();
      cp_async_wait<0>();
      __syncthreads();  // this step's tiles are here for all, and all are done with the step before
      if (STAGES == 2 && step + 1 < steps) load_queries(stage ^ 1);

      float s[MT][NT][4] = {}, ds[MT][NT][4] = {};
      product<D, D, true, D, false>(s, shared, q + queries, keys);
      if (n0 + BN - 1 > m0 || m0 + BM - 1 - n0 > p.window) mask(s, m0 + query, n0 + key, p.window);
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float bits = rows[m * 16 + half * 8].x;
#pragma unroll
          for (int n = 0; n < NT; n++) {
            float* w = s[m][n] + 2 * half;
            w[0] = exp2_approx(w[0] * in_bits - bits);
            w[1] = exp2_approx(w[1] * in_bits - bits);
            const int to = P_TILE + moved<BN>(mine, m * 16 + half * 8, n * 8);
            *reinterpret_cast<uint32_t*>(shared + to) = pack_bf16x2(w[0], w[1]);
          }
        }
      product<D, D, true, D, false>(ds, shared, d_out + queries, V_TILE + keys);
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float along = rows[m * 16 + half * 8].y;
#pragma unroll
          for (int n = 0; n < NT; n++) {
            const float *w = s[m][n] + 2 * half, *dp = ds[m][n] + 2 * half;
            const int to = DS_TILE + moved<BN>(mine, m * 16 + half * 8, n * 8);
            *reinterpret_cast<uint32_t*>(shared + to) = pack_bf16x2(w[0] * (dp[0] - along), w[1] * (dp[1] - along));
          }
        }
      __syncthreads();  // the tiles of P and dS are whole

      QueryTile<D, BM> dq;
      const int b = opaque(blockIdx.z);
      float* sums = sums_of<D, BM>(p, split, b, this_head, m0);
      dq.clear();
      if (n0 / BN - p.splits >= max(0, m0 - p.window) / BN) dq.add(sums);  // an earlier key block here reached it
      product<BM, BN, false, D, true>(dv, shared, P_TILE + weights, d_out + columns);
      product<BM, BN, false, D, true>(dk, shared, DS_TILE + weights, q + columns);
      if (STAGES == 1) {
        __syncthreads();  // all are done with this step's q and d_out
        if (step + 1 < steps) load_queries(0);
      }
      product<BN, BN, true, D, true>(dq.acc, shared, DS_TILE + down_first<BN>(dq.row(), 0),
                                     down_first<D>(0, dq.column()));
      if (p.splits == 1 && n0 + BN >= min(p.time, m0 + BM)) dq.finish(p, b, this_head, m0);
      else dq.save(sums);
    }
    float dk_factor[KT][2], dv_factor[KT][2];
#pragma unroll
    for (int m = 0; m < KT; m++) {
      dk_factor[m][0] = dk_factor[m][1] = p.scale;
      dv_factor[m][0] = dv_factor[m][1] = 1.f;
    }
    store_tile(head_of(p.dk, batch, kv_head), p.dk.time, n0 + key, column, p.time, dk, dk_factor);
    store_tile(head_of(p.dv, batch, kv_head), p.dv.time, n0 + key, column, p.time, dv, dv_factor);
    backwards = !backwards;
  }
}

// dQ where several blocks shared a key/value head: their sums, in the order of their first key blocks.
template <int D, int BM> __device__ __forceinline__ void add_splits(const Backward& p) {
  const int m0 = blockIdx.x * BM, head = blockIdx.y, batch = blockIdx.z;
  const int lowest = max(0, m0 - p.window) / BN, highest = (min(p.time, m0 + BM) - 1) / BN;
  QueryTile<D, BM> dq;
  dq.clear();
  for (int n = lowest; n <= min(highest, lowest + p.splits - 1); n++)
    dq.add(sums_of<D, BM>(p, n % p.splits, batch, head, m0));
  dq.finish(p, batch, head, m0);
}
}  // namespace

KERNEL(attention_forward_32, FORWARD_THREADS, Forward) { forward<32>(p); }
KERNEL(attention_forward_64, FORWARD_THREADS, Forward) { forward<64>(p); }
KERNEL(attention_forward_128, FORWARD_THREADS, Forward) { forward<128>(p); }

// What the backward needs of each row of scores, by D / 8 threads; rows past the end get the weight 2^-inf = 0.
KERNEL(attention_rows, BACKWARD_THREADS, Backward) {
  const int chunks = p.width / 8, head = blockIdx.y, batch = blockIdx.z;
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) / chunks, c = threadIdx.x % chunks;
  float along = 0.f, bits = INFINITY;
  const int64_t line = batch * (int64_t)p.heads + head;
  if (i < p.time) {
    float o[8], d[8];
    load8(o, head_of(p.out, batch, head) + i * p.out.time + c * 8);
    load8(d, head_of(p.d_out, batch, head) + i * p.d_out.time + c * 8);
#pragma unroll
    for (int e = 0; e < 8; e++) along += o[e] * d[e];
    bits = p.log_sum_exp[line * p.time + i] * LOG2_E;
  }
  for (int w = chunks / 2; w > 0; w /= 2) along += __shfl_xor_sync(FULL_WARP, along, w);
  if (c == 0 && i < padded(p.time)) p.rows[line * padded(p.time) + i] = make_float2(bits, along);
}

KERNEL(attention_backward_32, BACKWARD_THREADS, Backward) { backward<32, 64, 2>(p); }
KERNEL(attention_backward_64, BACKWARD_THREADS, Backward) { backward<64, 64, 2>(p); }
KERNEL(attention_backward_128, BACKWARD_THREADS, Backward) { backward<128, 64, 2>(p); }
// within 99 KB of shared memory, all that cards of compute capability 8.6, 8.9 and 12.0 grant a block
KERNEL(attention_backward_128_small, BACKWARD_THREADS, Backward) { backward<128, 32, 1>(p); }

KERNEL(attention_splits_32, BACKWARD_THREADS, Backward) { add_splits<32, 64>(p); }
KERNEL(attention_splits_64, BACKWARD_THREADS, Backward) { add_splits<64, 64>(p); }
KERNEL(attention_splits_128, BACKWARD_THREADS, Backward) { add_splits<128, 64>(p); }
KERNEL(attention_splits_128_small, BACKWARD_THREADS, Backward) { add_splits<128, 32>(p); }
