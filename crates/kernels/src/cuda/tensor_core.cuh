// Tiles in shared memory and their products on tensor cores: mma.m16n8k16 on bf16 with f32 sums, ldmatrix, cp.async.
//
// An accumulator block of 16x8 lies in a warp as acc[4]: lane 4g + t has row g, columns 2t and 2t + 1, then row g + 8.
// Under the emulator the wrapped instructions come from its shim.
#pragma once
#include "device.cuh"

#if defined(__CUDACC__)
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&f)[4], const void* row) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&f)[4], const void* row) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(at)
               : "memory");
}
// 16 bytes to shared memory; where not valid, zeros, and `from` is not read.
__device__ __forceinline__ void cp_async_16(void* to, const void* from, bool valid = true) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}
// x, of which the compiler knows nothing: what follows from it is computed where it is used. Addresses that a loop
// could compute once would take the registers that its accumulators need.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
#else
inline int opaque(int x) { return x; }
#endif

namespace {
// A tile has rows of L elements in chunks of 16 bytes, permuted within a row so that the 8 rows that ldmatrix reads at
// once lie in different banks. A place in it is counted in elements.
template <int L> __device__ __forceinline__ int place(int row, int chunk) {
  return row * L + ((L == 32 ? chunk ^ (row >> 1 & 3) : chunk ^ (row & 7)) << 3);
}
// `rows` down and `columns` across from a place: rows a multiple of 8, columns of bits that the place's column has not.
template <int L> __device__ __forceinline__ int moved(int place, int rows, int columns) {
  return (place ^ columns) + rows * L;
}

// Each lane gives ldmatrix the place of one row of four 8x8 blocks; operands need the four in one of two orders.
//
// Down, then across: for A, and for two B operands from a tile whose rows are B's.
template <int L> __device__ __forceinline__ int down_first(int row, int column) {
  const int lane = threadIdx.x & 31;
  return place<L>(row + (lane & 15), column / 8 + (lane >> 4));
}
// Across, then down: for two B operands from a tile whose rows are B's columns, and for A from one of A's columns.
template <int L> __device__ __forceinline__ int across_first(int row, int column) {
  const int lane = threadIdx.x & 31;
  return place<L>(row + (lane >> 4) * 8 + (lane & 7), column / 8 + (lane >> 3 & 1));
}

// Rows row0.. of a matrix into a tile, zeros past its last row; begins the copy, which cp_async_wait ends.
template <int THREADS, int ROWS, int L>
__device__ __forceinline__ void load_tile(bf16* tile, const bf16* from, int64_t stride, int row0, int rows) {
  constexpr int CHUNKS = L / 8, STEP = THREADS / CHUNKS;
  static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "a thread's rows must be permuted alike");
  const int thread = opaque(threadIdx.x), r = thread / CHUNKS, c = thread % CHUNKS, left = rows - row0 - r;
  bf16* to = tile + place<L>(r, c);
  from += (row0 + r) * stride + c * 8;
#pragma unroll
  for (int i = 0; i < ROWS; i += STEP) {
    cp_async_16(to + i * L, from, i < left);
    from += STEP * stride;
  }
}

// acc += A·B for 16 of the depth. b: B's first block, in a tile of its rows (BY_ROW) or of its columns.
template <int L, bool BY_ROW, int MT, int NT>
__device__ __forceinline__ void multiply(float (&acc)[MT][NT][4], const uint32_t (&a)[MT][4], const bf16* shared, int b,
                                         int k) {
#pragma unroll
  for (int n = 0; n < NT; n += 2) {
    uint32_t f[4];
    if (BY_ROW) ldmatrix_x4_trans(f, shared + moved<L>(b, k, n * 8));
    else ldmatrix_x4(f, shared + moved<L>(b, n * 8, k));
#pragma unroll
    for (int m = 0; m < MT; m++) {
      mma_m16n8k16_bf16(acc[m][n], a[m], f[0], f[1]);
      mma_m16n8k16_bf16(acc[m][n + 1], a[m], f[2], f[3]);
    }
  }
}
// acc += A·B over a depth of K. a, b: the first blocks, in tiles of the operand's rows or of its columns.
template <int K, int LA, bool A_BY_ROW, int LB, bool B_BY_ROW, int MT, int NT>
__device__ __forceinline__ void product(float (&acc)[MT][NT][4], const bf16* shared, int a, int b) {
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    uint32_t f[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
      if (A_BY_ROW) ldmatrix_x4(f[m], shared + moved<LA>(a, m * 16, k));
      else ldmatrix_x4_trans(f[m], shared + moved<LA>(a, k, m * 16));
    multiply<LB, B_BY_ROW>(acc, f, shared, b, k);
  }
}

// acc, its rows times `factor`, to rows row0.. and columns column0.. of a matrix of `rows` rows.
template <int MT, int NT>
__device__ __forceinline__ void store_tile(bf16* to, int64_t stride, int row0, int column0, int rows,
                                           const float (&acc)[MT][NT][4], const float (&factor)[MT][2]) {
  const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = row0 + m * 16 + half * 8 + g;
      if (row >= rows) continue;
      bf16* line = to + row * stride + column0 + 2 * t;
#pragma unroll
      for (int n = 0; n < NT; n++)
        *reinterpret_cast<uint32_t*>(line + n * 8) =
            pack_bf16x2(acc[m][n][2 * half] * factor[m][half], acc[m][n][2 * half + 1] * factor[m][half]);
    }
}
}  // namespace
