// Embedding: rows of a table by token id; backward, dw[id] += Σ dy over the positions of id, in a fixed order.
//
// Backward sorts positions by id, stably: passes over digits of up to 8 bits, each of two kernels. `count` counts the
// digits in each block's share of positions, `place` moves them to where the counts of all blocks say. Then `sum` adds
// the rows of dy by CHUNK sorted positions a block: a run of one id inside a chunk goes to dw at once, the parts of one
// that crosses an edge go to `edges`, and `join` adds those in their order. So a frequent token is many blocks' work.
//
// Memory, with rows of n positions and width C: forward writes n·C and reads what the caches miss of the table; backward
// reads n·C, writes and reads 2·n/CHUNK·C f32 of edges, and reads and writes the rows of dw that occur.
#include "device.cuh"

struct Gather {
  const bf16* w;
  const uint32_t* ids;
  bf16* y;
  int64_t rows;
  int32_t vocab, width;
};

// A warp for each row; one of an unknown id is NaN, which the loss then shows.
template <bool WHOLE>
__device__ __forceinline__ void gather(const Gather& p) {
  const int lane = threadIdx.x & 31;
  const int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
  if (row >= p.rows) return;
  const uint32_t id = p.ids[row];
  const bool known = id < (uint32_t)p.vocab;
  const bf16* w = p.w + (int64_t)id * p.width;
  bf16* y = p.y + row * p.width;
  for (int c = lane * 8; c < p.width; c += 512) {
    const bool more = c + 256 < p.width;
    float a[8], b[8];
    if (known) {
      load_vector<WHOLE>(a, w + c, p.width - c);
      if (more) load_vector<WHOLE>(b, w + c + 256, p.width - c - 256);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) a[i] = b[i] = NAN;
    }
    store_vector<WHOLE>(y + c, a, p.width - c);
    if (more) store_vector<WHOLE>(y + c + 256, b, p.width - c - 256);
  }
}

KERNEL(embedding_forward, 256, Gather) {
  if (p.width % 8 == 0 && on_16_bytes(p.w) && on_16_bytes(p.y))
    gather<true>(p);
  else
    gather<false>(p);
}

// ---- the sort

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int DIGITS = THREADS;              // a thread for each value of a digit
constexpr int ROUNDS = 8;                    // a warp takes 32·ROUNDS positions in a row
constexpr int TILE = THREADS * ROUNDS;

struct Sort {
  const uint32_t* ids;
  const uint32_t* from;  // positions in the order so far; null: 0, 1, 2, …
  uint32_t* to;
  uint32_t* counts;  // of each block, of each digit
  int32_t n, vocab;
  int32_t per_block;  // positions, a multiple of TILE
  int32_t shift, mask;
};

// Ids outside the table count as `vocab`: they sort behind all others.
__device__ __forceinline__ uint32_t key_of(const uint32_t* ids, uint32_t position, int vocab) {
  return min(ids[position], (uint32_t)vocab);
}
__device__ __forceinline__ uint32_t position_at(const Sort& p, int i) { return p.from ? p.from[i] : i; }
__device__ __forceinline__ uint32_t digit_of(const Sort& p, uint32_t position) {
  return key_of(p.ids, position, p.vocab) >> p.shift & p.mask;
}

KERNEL(embedding_count, THREADS, Sort) {
  SHARED(uint32_t, count);  // DIGITS
  const int64_t start = (int64_t)blockIdx.x * p.per_block;
  const int end = (int)min(start + p.per_block, (int64_t)p.n);
  count[threadIdx.x] = 0;
  __syncthreads();
  // whole numbers: the order of these additions changes nothing
  for (int64_t i = start + threadIdx.x; i < end; i += THREADS) atomicAdd(&count[digit_of(p, position_at(p, i))], 1u);
  __syncthreads();
  p.counts[(int64_t)blockIdx.x * DIGITS + threadIdx.x] = count[threadIdx.x];
}

// Sum of x over the threads before this one. `room`: WARPS words of shared memory.
__device__ __forceinline__ uint32_t sum_before(uint32_t x, uint32_t* room) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  uint32_t sum = x;
#pragma unroll
  for (int o = 1; o < 32; o <<= 1) {
    const uint32_t left = __shfl_up_sync(FULL_WARP, sum, o);
    if (lane >= o) sum += left;
  }
  if (lane == 31) room[warp] = sum;
  __syncthreads();
  sum -= x;
  for (int w = 0; w < warp; w++) sum += room[w];
  return sum;
}

KERNEL(embedding_place, THREADS, Sort) {
  SHARED(uint32_t, next);           // DIGITS: where the block's next position of each digit goes
  uint32_t* seen = next + DIGITS;   // WARPS × (DIGITS + 1): how many each warp has of each digit, the last for none
  uint32_t* room = seen + WARPS * (DIGITS + 1);
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, digit = threadIdx.x;
  uint32_t before = 0, all = 0;
#pragma unroll 8
  for (unsigned b = 0; b < gridDim.x; b++) {
    const uint32_t count = p.counts[(int64_t)b * DIGITS + digit];
    before += b < blockIdx.x ? count : 0;
    all += count;
  }
  next[digit] = sum_before(all, room) + before;
  const int64_t start = (int64_t)blockIdx.x * p.per_block;
  const int end = (int)min(start + p.per_block, (int64_t)p.n);
  uint32_t* mine = seen + warp * (DIGITS + 1);
  for (int64_t tile = start; tile < end; tile += TILE) {
    for (int d = lane; d <= DIGITS; d += 32) mine[d] = 0;
    __syncwarp();
    uint32_t position[ROUNDS], digits[ROUNDS], rank[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      const int64_t i = tile + (warp * ROUNDS + r) * 32 + lane;
      position[r] = i < end ? position_at(p, (int)i) : 0;
      digits[r] = i < end ? digit_of(p, position[r]) : DIGITS;
    }
    // rank among the warp's own of the same digit, by position
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
      const unsigned same = __match_any_sync(FULL_WARP, digits[r]);
      const int lower = __popc(same & ((1u << lane) - 1));
      rank[r] = mine[digits[r]] + lower;
      __syncwarp();
      if (lower == 0) mine[digits[r]] += __popc(same);
      __syncwarp();
    }
    __syncthreads();
    // each warp's first place for each digit
    uint32_t place = next[digit];
    for (int w = 0; w < WARPS; w++) {
      const uint32_t count = seen[w * (DIGITS + 1) + digit];
      seen[w * (DIGITS + 1) + digit] = place;
      place += count;
    }
    next[digit] = place;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
      if (digits[r] < DIGITS) p.to[mine[digits[r]] + rank[r]] = position[r];
    __syncwarp();  // the counts may be cleared again
  }
}

// ---- the sums

constexpr int CHUNK = 64;                    // sorted positions
constexpr int COLUMNS = 64, WIDE = COLUMNS * 8;  // a block's threads along a row, eight columns each
constexpr int AHEAD = 4;                     // rows under way at a time
constexpr int JOINERS = 4;                   // rows of threads that share a long run's chunks

struct Sum {
  const uint32_t *ids, *order;
  const bf16* dy;
  float* dw;
  float* edges;  // (chunks, 2, width): the run that holds a chunk's first position, and the one that holds its last
  int32_t n, vocab, width;
};

constexpr uint32_t NO_KEY = 0xffffffffu;  // equals none: a vocabulary is an int32_t

// dw[key] += sum, by eight columns.
template <bool WHOLE>
__device__ __forceinline__ void add_to_row(const Sum& p, uint32_t key, int column, const float (&sum)[8]) {
  if (key >= (uint32_t)p.vocab) return;
  float* row = p.dw + (int64_t)key * p.width + column;
  float v[8];
  load_vector<WHOLE>(v, row, p.width - column);
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] += sum[i];
  store_vector<WHOLE>(row, v, p.width - column);
}

template <bool WHOLE>
__device__ __forceinline__ void sum_chunk(const Sum& p, const uint32_t* keys, const uint32_t* rows, int count, int column) {
  float sum[8] = {};
  bool since_first = true;  // the run goes on from the chunk's first position
  for (int j = 0; j < count; j += AHEAD) {
    float dy[AHEAD][8];
#pragma unroll
    for (int k = 0; k < AHEAD; k++)  // behind the end the last once more: its loads are in the cache
      load_vector<WHOLE>(dy[k], p.dy + (int64_t)rows[min(j + k, count - 1)] * p.width + column, p.width - column);
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
      const int at = j + k;
      if (at >= count) break;
#pragma unroll
      for (int i = 0; i < 8; i++) sum[i] += dy[k][i];
      const uint32_t key = keys[at + 1];
      const bool last = at + 1 == count;
      if (!last && keys[at + 2] == key) continue;
      // the end of the run within this chunk
      const bool crosses = (since_first && keys[0] == key) || (last && keys[count + 1] == key);
      if (crosses) {
        float* edge = p.edges + (2 * (int64_t)blockIdx.x + !since_first) * p.width + column;
        store_vector<WHOLE>(edge, sum, p.width - column);
      } else {
        add_to_row<WHOLE>(p, key, column, sum);
      }
#pragma unroll
      for (int i = 0; i < 8; i++) sum[i] = 0.f;
      since_first = false;
    }
  }
}

__device__ __forceinline__ bool whole(const Sum& p) {
  return p.width % 8 == 0 && on_16_bytes(p.dy) && on_16_bytes(p.dw) && on_16_bytes(p.edges);
}

// Grid: chunks, columns by WIDE.
KERNEL(embedding_sum, COLUMNS, Sum) {
  SHARED(uint32_t, rows);         // CHUNK
  uint32_t* keys = rows + CHUNK;  // of the position before the chunk, of its own, of the one behind
  const int64_t start = (int64_t)blockIdx.x * CHUNK;
  const int count = (int)min((int64_t)CHUNK, p.n - start);
  for (int j = threadIdx.x; j < CHUNK + 2; j += COLUMNS) {
    const int64_t at = start + j - 1;
    const bool there = at >= 0 && at < p.n;
    const uint32_t position = there ? p.order[at] : 0;
    keys[j] = there ? key_of(p.ids, position, p.vocab) : NO_KEY;
    if (j >= 1 && j <= CHUNK) rows[j - 1] = position;
  }
  __syncthreads();
  const int column = blockIdx.y * WIDE + threadIdx.x * 8;
  if (column >= p.width) return;
  if (whole(p))
    sum_chunk<true>(p, keys, rows, count, column);
  else
    sum_chunk<false>(p, keys, rows, count, column);
}

__device__ __forceinline__ uint32_t sorted_key(const Sum& p, int64_t at) {
  return at >= 0 && at < p.n ? key_of(p.ids, p.order[at], p.vocab) : NO_KEY;
}

template <bool WHOLE>
__device__ __forceinline__ void add_edges(const Sum& p, int64_t chunk, int chunks, int column, int joiner, float (&sum)[8]) {
  // the parts behind the first are those of runs that hold their chunk's first position
#pragma unroll 4
  for (int k = joiner; k < chunks; k += JOINERS) {
    float part[8];
    load_vector<WHOLE>(part, p.edges + 2 * (chunk + 1 + k) * p.width + column, p.width - column);
#pragma unroll
    for (int i = 0; i < 8; i++) sum[i] += part[i];
  }
}

// Grid as above. A block joins the run that begins in its chunk and goes on behind it, if there is one.
KERNEL(embedding_join, COLUMNS * JOINERS, Sum) {
  SHARED(float, shared);  // COLUMNS × JOINERS × 8
  const int64_t chunk = blockIdx.x, start = chunk * CHUNK, end = start + CHUNK;
  const uint32_t key = sorted_key(p, end - 1);
  if (key == NO_KEY || key != sorted_key(p, end)) return;
  const bool from_first = key == sorted_key(p, start);
  if (from_first && key == sorted_key(p, start - 1)) return;
  // how many chunks behind this one begin with the key: it is sorted, so those are neighbours
  int chunks = 0;
  for (int found = COLUMNS * JOINERS; found == COLUMNS * JOINERS; chunks += found) {
    const bool same = sorted_key(p, (chunk + 1 + chunks + threadIdx.x) * CHUNK) == key;
    found = (int)block_sum(same, shared);
  }
  const int joiner = threadIdx.x / COLUMNS, lane = threadIdx.x % COLUMNS;
  const int column = blockIdx.y * WIDE + lane * 8;
  float sum[8] = {};
  if (column < p.width) {
    if (whole(p))
      add_edges<true>(p, chunk, chunks, column, joiner, sum);
    else
      add_edges<false>(p, chunk, chunks, column, joiner, sum);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) shared[(joiner * 8 + i) * COLUMNS + lane] = sum[i];
  __syncthreads();
  if (joiner > 0 || column >= p.width) return;
  const float* first = p.edges + (2 * chunk + !from_first) * p.width + column;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    sum[i] = column + i < p.width ? first[i] : 0.f;
    for (int k = 0; k < JOINERS; k++) sum[i] += shared[(k * 8 + i) * COLUMNS + lane];
  }
  if (whole(p))
    add_to_row<true>(p, key, column, sum);
  else
    add_to_row<false>(p, key, column, sum);
}
