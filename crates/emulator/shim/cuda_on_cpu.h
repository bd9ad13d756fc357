// CUDA on a CPU: what kernel sources need of the language, executed by fibers.
//
// Every CUDA thread of a block is a fiber; it runs until it meets a barrier or a warp collective. Which of the ready
// fibers goes next is selectable (first, last, at random), so that a missing barrier changes the result in one of the
// orders. Dynamic shared memory starts as NaN, and is guarded behind its end. Reported as errors: divergent barriers
// and collectives, deadlock, shared memory overrun, misalignment, copies never waited for.
//
// Not caught: inline PTX text, tensor-core rounding, coalescing, speed, and races inside an instruction.
#pragma once
#include <cstddef>
#include <cstdint>
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__)
#define EMU_TSAN 1
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);  // flag 1: no happens-before edge
void __tsan_acquire(void*);
void __tsan_release(void*);
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
#else
#define EMU_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
extern "C" {
void __sanitizer_start_switch_fiber(void** fake, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake, const void** bottom, size_t* size);
}
#else
#define EMU_ASAN 0
#endif
#if !defined(__x86_64__) || defined(EMU_UCONTEXT)
#define EMU_USE_UCONTEXT 1
#include <ucontext.h>
#else
#define EMU_USE_UCONTEXT 0
// save callee-saved registers, swap stacks
asm(R"(
.section .text.emu_switch_asm,"axG",@progbits,emu_switch_asm,comdat
.weak emu_switch_asm
.type emu_switch_asm,@function
emu_switch_asm:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch_asm, .-emu_switch_asm
.text
)");
extern "C" void emu_switch_asm(void** save_sp, void* load_sp);
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local  // at block scope this means `static thread_local`; `extern __shared__` also works
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline constinit thread_local uint3 threadIdx{}, blockIdx{};
inline constinit thread_local dim3 blockDim{}, gridDim{};
constexpr size_t EMU_SMEM_MAX = 227 * 1024, EMU_SMEM_CANARY = 4096;
alignas(1024) inline constinit thread_local unsigned char smem_raw[EMU_SMEM_MAX + EMU_SMEM_CANARY]{};

namespace emu {
enum Order { Forward = 0, Reverse = 1, Random = 2 };
struct Config { Order order = Forward; uint64_t seed = 1; int os_threads = 1; };
struct Stats { uint64_t blocks = 0, switches = 0, barriers = 0, shfl = 0, mma = 0, ldmatrix = 0, ldm_conflicts = 0, cp_async = 0; };
inline Config cfg;
inline Stats stats;
inline std::mutex mu;
inline std::vector<std::string> errors;
inline size_t error_count = 0;

struct Ignore {  // hide the emulator's own bookkeeping from ThreadSanitizer
#if EMU_TSAN
  Ignore() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); AnnotateIgnoreWritesBegin(__FILE__, __LINE__); }
  ~Ignore() { AnnotateIgnoreWritesEnd(__FILE__, __LINE__); AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
#else
  Ignore() {}
#endif
};
inline void hb_release(void* p) { (void)p;
#if EMU_TSAN
  __tsan_release(p);
#endif
}
inline void hb_acquire(void* p) { (void)p;
#if EMU_TSAN
  __tsan_acquire(p);
#endif
}

__attribute__((noinline)) inline void report(const char* fmt, ...) {
  { std::lock_guard<std::mutex> l(mu); if (error_count >= 16) { error_count++; return; } }
  char b[512];
  int n = snprintf(b, sizeof b, "block(%u,%u,%u) thread %u: ", blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x);
  va_list ap; va_start(ap, fmt); vsnprintf(b + n, sizeof b - n, fmt, ap); va_end(ap);
  std::lock_guard<std::mutex> l(mu);
  error_count++;
  if (errors.size() < 16) errors.emplace_back(b);
}

struct Copy { void* dst; const void* src; bool valid; uint64_t group; };
enum Op : int { OpSyncwarp = 1, OpShfl, OpVote, OpMatch, OpMma, OpLdm, OpLdmT };
struct Slot { uint32_t in[10]; uint32_t out[4]; };
struct Coll { uint32_t mask, arrived; int op, line; };
constexpr size_t STACK = (EMU_TSAN || EMU_ASAN) ? 256 * 1024 : 64 * 1024;

struct Fiber {
#if EMU_USE_UCONTEXT
  ucontext_t uc;
#endif
  void* sp = nullptr;
  char* stack = nullptr;
  unsigned lane = 0, warp = 0;
  uint3 tid{};
  bool done = false;
  int wait_line = 0; const char* wait_what = "";
  std::vector<Copy> copies;
  uint64_t group = 0;
  void* tsan = nullptr; void* fake = nullptr;
  const void* stk_bottom = nullptr; size_t stk_size = 0;
};
struct Warp {
  uint32_t exist, alive, ready;
  int ncoll;
  Coll coll[8];
  Slot slot[32];
  char token;  // happens-before token for __syncwarp
};

struct Runner {
  std::vector<Fiber> fibers;
  Fiber host;
  Warp warps[32];
  unsigned nthreads = 0, nwarps = 0, alive = 0, arrived = 0, cur_warp = 0;
  uint32_t warp_ready = 0;
  int bar_line = 0; uint64_t phase = 0; char token[2], start_token, end_token;  // two tokens: a thread's end must not order another's start
  size_t smem = 0;
  uint64_t rng = 1;
  Fiber* cur = nullptr;
  void (*invoke)(const void*) = nullptr; const void* args = nullptr;
  Stats st;

  uint32_t rnd() { rng ^= rng << 13; rng ^= rng >> 7; rng ^= rng << 17; return (uint32_t)(rng >> 32); }
  static unsigned nth_bit(uint32_t m, unsigned n) { while (n--) m &= m - 1; return std::countr_zero(m); }
  static unsigned pick(uint32_t m, Runner& r) {
    switch (cfg.order) {
      case Forward: return std::countr_zero(m);
      case Reverse: return 31 - std::countl_zero(m);
      default: return nth_bit(m, r.rnd() % std::popcount(m));
    }
  }
  Fiber* next() {
    if (!warp_ready) return &host;
    if (cfg.order != Random || !(warp_ready >> cur_warp & 1)) cur_warp = pick(warp_ready, *this);
    Warp& w = warps[cur_warp];
    unsigned lane = pick(w.ready, *this);
    w.ready &= ~(1u << lane);
    if (!w.ready) warp_ready &= ~(1u << cur_warp);
    return &fibers[cur_warp * 32 + lane];
  }
  void wake(unsigned warp, uint32_t mask) { warps[warp].ready |= mask; warp_ready |= 1u << warp; }

  void switch_to(Fiber* to) {
    Fiber* from = cur;
    cur = to;
    threadIdx = to->tid;
    if (from == to) return;
    st.switches++;
#if EMU_TSAN
    __tsan_switch_to_fiber(to->tsan, 1);
#endif
#if EMU_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->stk_bottom, to->stk_size);
#endif
#if EMU_USE_UCONTEXT
    swapcontext(&from->uc, &to->uc);
#else
    emu_switch_asm(&from->sp, to->sp);
#endif
#if EMU_ASAN
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
  }
  void yield() { switch_to(next()); }

  // ---- block barrier
  void release_barrier() {
    arrived = 0; phase++; st.barriers++;
    for (unsigned i = 0; i < nwarps; i++) if (warps[i].alive) wake(i, warps[i].alive);
    if (cfg.order == Random) cur_warp = pick(warp_ready, *this);
  }
  void barrier(int line) {
    char* tok = &token[phase & 1];
    hb_release(tok);
    {
      Ignore ig;
      if (arrived == 0) bar_line = line;
      else if (bar_line != line) report("divergent __syncthreads: line %d while others wait at line %d", line, bar_line);
      cur->wait_line = line; cur->wait_what = "__syncthreads";
      if (++arrived == alive) release_barrier();
      yield();
    }
    hb_acquire(tok);
  }
  // ---- warp collective: the last lane to arrive evaluates f for the whole warp
  template <class F> void collective(uint32_t mask, int op, int line, F&& f) {
    Warp& w = warps[cur->warp];
    mask &= w.exist;
    uint32_t bit = 1u << cur->lane;
    if (!(mask & bit)) report("line %d: calling lane is not in its own mask %08x", line, mask);
    Coll* c = nullptr;
    for (int i = 0; i < w.ncoll; i++) if (w.coll[i].mask == mask) c = &w.coll[i];
    if (!c) {
      for (int i = 0; i < w.ncoll; i++) if (w.coll[i].mask & mask)
        report("line %d: overlapping warp masks %08x and %08x", line, mask, w.coll[i].mask);
      if (w.ncoll == 8) { report("too many warp groups"); w.ncoll = 0; }
      c = &w.coll[w.ncoll++];
      *c = {mask, 0, op, line};
    }
    if (c->op != op || c->line != line)
      report("warp divergence: op %d at line %d meets op %d at line %d", op, line, c->op, c->line);
    c->arrived |= bit;
    cur->wait_line = line; cur->wait_what = "warp collective";
    if (c->arrived == c->mask) {
      f(w, mask);
      *c = w.coll[--w.ncoll];
      wake(cur->warp, mask);
      if (cfg.order == Random && (rnd() & 15) == 0) cur_warp = pick(warp_ready, *this);
    }
    yield();
  }
  // ---- fiber life
  void thread_exit() {
    Fiber* f = cur;
    if (!f->copies.empty()) { report("%zu cp.async copies never waited for", f->copies.size()); f->copies.clear(); }
    f->done = true;
    warps[f->warp].alive &= ~(1u << f->lane);
    if (--alive && arrived == alive) release_barrier();
  }
  static void entry();
  void reset_fiber(Fiber& f) {
#if EMU_USE_UCONTEXT
    getcontext(&f.uc);
    f.uc.uc_stack.ss_sp = f.stack; f.uc.uc_stack.ss_size = STACK; f.uc.uc_link = nullptr;
    makecontext(&f.uc, entry, 0);
#else
    // stagger the stack tops: equal low address bits would put all lanes' frames into the same cache sets
    void** top = (void**)(f.stack + STACK - (size_t)(&f - fibers.data()) * 1088 % (STACK / 4) / 64 * 64);
    top[-1] = nullptr;
    top[-2] = (void*)entry;
    for (int i = 3; i <= 8; i++) top[-i] = nullptr;
    f.sp = &top[-8];
#endif
    f.fake = nullptr;
#if EMU_TSAN
    f.tsan = __tsan_create_fiber(0);
#endif
  }
  ~Runner() { for (auto& f : fibers) munmap(f.stack, STACK); }
  void prepare(unsigned n) {
    nthreads = n; nwarps = (n + 31) / 32;
    size_t have = fibers.size();
    if (have < n) {
      fibers.reserve(1024);  // the most a block has: suspended fibers hold their addresses
      fibers.resize(n);
      for (size_t i = have; i < n; i++) {
        Fiber& f = fibers[i];
        f.stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        mprotect(f.stack, 4096, PROT_NONE);  // overflow guard
        f.stk_bottom = f.stack; f.stk_size = STACK;
        reset_fiber(f);
      }
    }
#if EMU_TSAN
    host.tsan = __tsan_get_current_fiber();
#endif
  }
  void run_block(uint64_t bidx) {
    blockIdx = {unsigned(bidx % gridDim.x), unsigned(bidx / gridDim.x % gridDim.y), unsigned(bidx / gridDim.x / gridDim.y)};
    rng = (cfg.seed + 1) * 0x9E3779B97F4A7C15ull ^ (bidx + 1) * 0xD1B54A32D192ED03ull;
    for (int i = 0; i < 8; i++) rnd();
    memset(smem_raw, 0xff, smem + EMU_SMEM_CANARY);  // NaN in f32 and bf16
    for (unsigned i = 0; i < nwarps; i++) {
      Warp& w = warps[i];
      unsigned c = std::min(32u, nthreads - i * 32);
      w.exist = w.alive = c == 32 ? ~0u : (1u << c) - 1;
      w.ready = 0; w.ncoll = 0;
    }
    for (unsigned i = 0; i < nthreads; i++) {
      Fiber& f = fibers[i];
      f.done = false; f.group = 0; f.copies.clear();
      f.lane = i & 31; f.warp = i >> 5;
      f.tid = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    }
    alive = nthreads; arrived = 0; warp_ready = 0; cur = &host;
    for (unsigned i = 0; i < nwarps; i++) wake(i, warps[i].exist);
    cur_warp = pick(warp_ready, *this);
    hb_release(&start_token);
    { Ignore ig; yield(); }
    hb_acquire(&end_token);
    if (alive) {
      unsigned shown = 0;
      for (unsigned i = 0; i < nthreads && shown < 2; i++) if (!fibers[i].done) {
        report("deadlock: %u threads left; thread %u waits in %s at line %d", alive, i, fibers[i].wait_what, fibers[i].wait_line);
        shown++;
      }
      for (unsigned i = 0; i < nthreads; i++) if (!fibers[i].done) reset_fiber(fibers[i]);
    }
    for (size_t i = 0; i < EMU_SMEM_CANARY; i++) if (smem_raw[smem + i] != 0xff) {
      report("shared memory written %zu bytes past the %zu requested", i, smem); break;
    }
    st.blocks++;
  }
};
inline thread_local Runner* R = nullptr;
inline void Runner::entry() {
#if EMU_ASAN
  const void* b; size_t s;
  __sanitizer_finish_switch_fiber(nullptr, &b, &s);
  if (R->host.stk_bottom == nullptr) { R->host.stk_bottom = b; R->host.stk_size = s; }
#endif
  for (;;) {  // one turn per block
    Runner* r;
    { Ignore ig; r = R; }
    hb_acquire(&r->start_token);
    r->invoke(r->args);
    hb_release(&r->end_token);
    Ignore ig;
    r->thread_exit();
    r->yield();
  }
}

inline Runner& my_runner() { static thread_local Runner r; return r; }
// Not a template: kernels of two sources may call their parameter structs alike.
inline int launch(dim3 grid, dim3 block, size_t smem, void (*invoke)(const void*), const void* params) {
  unsigned n = block.x * block.y * block.z;
  uint64_t nb = (uint64_t)grid.x * grid.y * grid.z;
  if (n == 0 || n > 1024 || nb == 0 || grid.y > 65535 || grid.z > 65535 || smem > EMU_SMEM_MAX) {
    report("bad launch: %u threads, %llu blocks, %zu smem", n, (unsigned long long)nb, smem);
    return 1;
  }
  size_t before = error_count;
  std::atomic<uint64_t> nextb{0};
  std::vector<uint64_t> perm(cfg.order == Random ? nb : 0);
  for (uint64_t i = 0, g = cfg.seed * 2 + 1; i < perm.size(); i++) {  // shuffled block order
    g = g * 6364136223846793005ull + 1442695040888963407ull;
    uint64_t j = (g >> 33) % (i + 1);
    perm[i] = perm[j]; perm[j] = i;
  }
  auto work = [&] {
    R = &my_runner();
    R->smem = smem; R->invoke = invoke; R->args = params; R->st = Stats{};
    gridDim = grid; blockDim = block;
    R->prepare(n);
    for (uint64_t i; (i = nextb++) < nb;) {
      R->run_block(cfg.order == Forward ? i : cfg.order == Reverse ? nb - 1 - i : perm[i]);
    }
    std::lock_guard<std::mutex> l(mu);
    stats.blocks += R->st.blocks; stats.switches += R->st.switches; stats.barriers += R->st.barriers;
    stats.shfl += R->st.shfl; stats.mma += R->st.mma; stats.ldmatrix += R->st.ldmatrix;
    stats.ldm_conflicts += R->st.ldm_conflicts; stats.cp_async += R->st.cp_async;
  };
  if (cfg.os_threads <= 1 || EMU_TSAN) work();
  else {
    std::vector<std::thread> ts;
    for (int i = 0; i < cfg.os_threads; i++) ts.emplace_back(work);
    for (auto& t : ts) t.join();
  }
  return error_count == before ? 0 : 719;
}
}  // namespace emu

// ---- barriers and warp primitives
inline void __syncthreads(int line = __builtin_LINE()) { emu::R->barrier(line); }
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  auto& r = *emu::R; char* tok = &r.warps[r.cur->warp].token;
  emu::hb_release(tok);
  { emu::Ignore ig; r.collective(mask, emu::OpSyncwarp, line, [](emu::Warp&, uint32_t) {}); }
  emu::hb_acquire(tok);
}
namespace emu {
// src < 0 or >= 32, or outside [seg, seg+width): keep the own value
template <class T> inline T shfl(unsigned mask, T v, int src, int line) {
  static_assert(sizeof(T) <= 8);
  Ignore ig;
  Runner& r = *R;
  unsigned lane = r.cur->lane;
  Slot& s = r.warps[r.cur->warp].slot[lane];
  memcpy(s.in, &v, sizeof(T));
  s.in[2] = (uint32_t)src;
  r.collective(mask, OpShfl, line, [&](Warp& w, uint32_t m) {
    r.st.shfl++;
    for (unsigned i = 0; i < 32; i++) if (m >> i & 1) {
      unsigned j = w.slot[i].in[2];
      if (j > 31 || !(m >> j & 1)) { report("line %d: shuffle reads lane %u outside mask %08x", line, j, m); j = i; }
      w.slot[i].out[0] = w.slot[j].in[0];
      w.slot[i].out[1] = w.slot[j].in[1];
    }
  });
  T o; memcpy(&o, s.out, sizeof(T));
  return o;
}
inline int lane_id() { return (int)R->cur->lane; }
}  // namespace emu
template <class T> inline T __shfl_sync(unsigned m, T v, int src, int width = 32, int line = __builtin_LINE()) {
  int l = emu::lane_id(), seg = l & ~(width - 1);
  return emu::shfl(m, v, seg | (src & (width - 1)), line);
}
template <class T> inline T __shfl_xor_sync(unsigned m, T v, int x, int width = 32, int line = __builtin_LINE()) {
  int l = emu::lane_id(), src = l ^ x, end = (l & ~(width - 1)) + width;
  return emu::shfl(m, v, src < end ? src : l, line);
}
template <class T> inline T __shfl_down_sync(unsigned m, T v, unsigned d, int width = 32, int line = __builtin_LINE()) {
  int l = emu::lane_id(), src = l + (int)d, end = (l & ~(width - 1)) + width;
  return emu::shfl(m, v, src < end ? src : l, line);
}
template <class T> inline T __shfl_up_sync(unsigned m, T v, unsigned d, int width = 32, int line = __builtin_LINE()) {
  int l = emu::lane_id(), src = l - (int)d, seg = l & ~(width - 1);
  return emu::shfl(m, v, src >= seg ? src : l, line);
}
inline unsigned __ballot_sync(unsigned mask, int pred, int line = __builtin_LINE()) {
  emu::Ignore ig;
  auto& r = *emu::R; auto& s = r.warps[r.cur->warp].slot[r.cur->lane];
  s.in[0] = pred != 0;
  r.collective(mask, emu::OpVote, line, [](emu::Warp& w, uint32_t m) {
    uint32_t b = 0;
    for (unsigned i = 0; i < 32; i++) if (m >> i & 1) b |= w.slot[i].in[0] << i;
    for (unsigned i = 0; i < 32; i++) if (m >> i & 1) w.slot[i].out[0] = b;
  });
  return s.out[0];
}
inline int __any_sync(unsigned m, int p, int line = __builtin_LINE()) { return __ballot_sync(m, p, line) != 0; }
inline int __all_sync(unsigned m, int p, int line = __builtin_LINE()) { return __ballot_sync(m, !p, line) == 0; }
// the lanes of `mask` that hold the same value as the caller
inline unsigned __match_any_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  emu::Ignore ig;
  auto& r = *emu::R; auto& s = r.warps[r.cur->warp].slot[r.cur->lane];
  s.in[0] = value;
  r.collective(mask, emu::OpMatch, line, [](emu::Warp& w, uint32_t m) {
    for (unsigned i = 0; i < 32; i++) if (m >> i & 1) {
      uint32_t same = 0;
      for (unsigned j = 0; j < 32; j++) if (m >> j & 1) same |= uint32_t(w.slot[j].in[0] == w.slot[i].in[0]) << j;
      w.slot[i].out[0] = same;
    }
  });
  return s.out[0];
}
inline float atomicAdd(float* p, float v) { return std::atomic_ref<float>(*p).fetch_add(v, std::memory_order_relaxed); }
inline int atomicAdd(int* p, int v) { return std::atomic_ref<int>(*p).fetch_add(v, std::memory_order_relaxed); }
inline unsigned atomicAdd(unsigned* p, unsigned v) { return std::atomic_ref<unsigned>(*p).fetch_add(v, std::memory_order_relaxed); }
template <class T> inline T __ldg(const T* p) { return *p; }

// ---- math
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x ? std::countr_zero((unsigned)x) + 1 : 0; }
template <class T> constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T> constexpr T max(T a, T b) { return a < b ? b : a; }

// ---- bf16, round to nearest even, NaN -> 0x7fff as the hardware does
struct bf16 { uint16_t bits; };
inline float bf16_to_f32(bf16 x) { return std::bit_cast<float>((uint32_t)x.bits << 16); }
inline bf16 f32_to_bf16(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {(uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16)};
}
inline uint32_t pack_bf16x2(float lo, float hi) { return f32_to_bf16(lo).bits | (uint32_t)f32_to_bf16(hi).bits << 16; }
inline float bf16x2_lo(uint32_t v) { return std::bit_cast<float>(v << 16); }
inline float bf16x2_hi(uint32_t v) { return std::bit_cast<float>(v & 0xffff0000u); }

// ---- tensor core: m16n8k16, row.col, bf16 in, f32 accumulate.  g = lane/4, t = lane%4
//   A  a0:(g, 2t..2t+1) a1:(g+8, 2t..) a2:(g, 2t+8..) a3:(g+8, 2t+8..)
//   B  b0:(k=2t..2t+1, n=g)  b1:(k=2t+8.., n=g)         C  c0,c1:(g, 2t..2t+1)  c2,c3:(g+8, 2t..2t+1)
namespace emu {
inline void mma_eval(Warp& w) {
  float A[16][16], B[16][8], C[16][8];
  for (int l = 0; l < 32; l++) {
    const Slot& s = w.slot[l];
    int g = l >> 2, t2 = (l & 3) * 2;
    for (int i = 0; i < 4; i++) {
      int row = g + (i & 1) * 8, col = t2 + (i >> 1) * 8;
      A[row][col] = bf16x2_lo(s.in[i]); A[row][col + 1] = bf16x2_hi(s.in[i]);
    }
    for (int i = 0; i < 2; i++) { B[t2 + i * 8][g] = bf16x2_lo(s.in[4 + i]); B[t2 + i * 8 + 1][g] = bf16x2_hi(s.in[4 + i]); }
    for (int i = 0; i < 4; i++) C[g + (i >> 1) * 8][t2 + (i & 1)] = std::bit_cast<float>(s.in[6 + i]);
  }
  for (int m = 0; m < 16; m++)
    for (int k = 0; k < 16; k++)
      for (int n = 0; n < 8; n++) C[m][n] += A[m][k] * B[k][n];
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++)
      w.slot[l].out[i] = std::bit_cast<uint32_t>(C[(l >> 2) + (i >> 1) * 8][(l & 3) * 2 + (i & 1)]);
}
inline void ldmatrix(uint32_t (&o)[4], const void* row, bool trans, int line) {
  Runner& r = *R;
  uint32_t mine[4];
  size_t off = (const unsigned char*)row - smem_raw;
  if ((uintptr_t)row & 15) report("line %d: ldmatrix row address not 16-byte aligned", line);
  if (off < sizeof smem_raw && off + 16 > r.smem) report("line %d: ldmatrix reads past shared memory", line);
  memcpy(mine, __builtin_assume_aligned(row, 4), 16);  // read in the lane's own fiber: a racing store is seen as such
  Ignore ig;
  Slot& s = r.warps[r.cur->warp].slot[r.cur->lane];
  memcpy(s.in, mine, 16);
  s.in[4] = (uint32_t)((uintptr_t)row >> 4) & 7;  // 16-byte bank group
  r.collective(0xffffffffu, trans ? OpLdmT : OpLdm, line, [&](Warp& w, uint32_t) {
    r.st.ldmatrix++;
    for (int m = 0; m < 4; m++) {
      unsigned seen = 0;
      for (int i = 0; i < 8; i++) { unsigned b = 1u << w.slot[m * 8 + i].in[4]; r.st.ldm_conflicts += (seen & b) != 0; seen |= b; }
      uint16_t M[8][8];
      for (int i = 0; i < 8; i++) memcpy(M[i], w.slot[m * 8 + i].in, 16);
      for (int l = 0; l < 32; l++) {
        int g = l >> 2, c = (l & 3) * 2;
        w.slot[l].out[m] = trans ? M[c][g] | (uint32_t)M[c + 1][g] << 16 : M[g][c] | (uint32_t)M[g][c + 1] << 16;
      }
    }
  });
  memcpy(o, s.out, 16);
}
inline void do_copy(const Copy& c) {
  if (c.valid) memcpy(c.dst, c.src, 16); else memset(c.dst, 0, 16);
}
}  // namespace emu
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int line = __builtin_LINE()) {
  emu::Ignore ig;
  auto& r = *emu::R; auto& s = r.warps[r.cur->warp].slot[r.cur->lane];
  memcpy(s.in, a, 16); s.in[4] = b0; s.in[5] = b1; memcpy(s.in + 6, d, 16);
  r.collective(0xffffffffu, emu::OpMma, line, [&](emu::Warp& w, uint32_t) { r.st.mma++; emu::mma_eval(w); });
  memcpy(d, s.out, 16);
}
inline void ldmatrix_x4(uint32_t (&o)[4], const void* row, int line = __builtin_LINE()) { emu::ldmatrix(o, row, false, line); }
inline void ldmatrix_x4_trans(uint32_t (&o)[4], const void* row, int line = __builtin_LINE()) { emu::ldmatrix(o, row, true, line); }

// ---- cp.async.  Forward order copies at issue, reverse order as late as allowed (inside wait), random tosses a coin:
//      a missing wait and a buffer overwritten too early both change the result in one of the orders.
inline void cp_async_16(void* dst, const void* src, bool valid = true, int line = __builtin_LINE()) {
  auto& r = *emu::R;
  size_t off = (unsigned char*)dst - smem_raw;
  if (off < sizeof smem_raw && off + 16 > r.smem) { emu::report("line %d: cp.async writes past shared memory", line); return; }
  if (((uintptr_t)dst | (valid ? (uintptr_t)src : 0)) & 15) emu::report("line %d: cp.async address not 16-byte aligned", line);
  emu::Copy c{dst, src, valid, 0};
  bool now;
  { emu::Ignore ig; r.st.cp_async++; c.group = r.cur->group;
    now = emu::cfg.order == emu::Forward || (emu::cfg.order == emu::Random && (r.rnd() & 1));
    if (!now) r.cur->copies.push_back(c); }
  if (now) emu::do_copy(c);
}
inline void cp_async_commit() { emu::Ignore ig; emu::R->cur->group++; }
template <int N> inline void cp_async_wait() {
  std::vector<emu::Copy> due;
  { emu::Ignore ig;
    auto& f = *emu::R->cur; size_t k = 0;
    for (auto& c : f.copies) if (c.group + N < f.group) due.push_back(c); else f.copies[k++] = c;
    f.copies.resize(k); }
  for (auto& c : due) emu::do_copy(c);
}

// ---- kernels by name
namespace emu {
struct Kernel {
  const char* name;
  size_t params_size;
  unsigned most_threads;
  void (*run)(const void* params);  // one thread of it
};
inline std::vector<Kernel>& kernels() { static std::vector<Kernel> all; return all; }
inline const Kernel* find(const std::string& name) {
  for (auto& k : kernels()) if (name == k.name) return &k;
  return nullptr;
}
struct Register { explicit Register(Kernel k) { kernels().push_back(k); } };
}  // namespace emu
// what is appended to the names of a source that is compiled once more with a change
#define VARIANT ""
#define KERNEL(name, threads, Params)                                                                     \
  static void name(const Params p);                                                                       \
  static const emu::Register register_##name{{#name VARIANT, sizeof(Params), threads, [](const void* params) {    \
                                                name(*static_cast<const Params*>(params));                \
                                              }}};                                                        \
  static void name(const Params p)
#define SHARED(T, name) T* const name = reinterpret_cast<T*>(smem_raw)
