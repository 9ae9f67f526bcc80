/* Run a CUDA kernel on the host: the threads of a block are fibers of one thread, blocks run one after the other.
 *
 * Enough of CUDA for the portable kernels: shared memory, __syncthreads, shuffles, atomics, wmma (mma.h beside this file), and
 * the three PTX instructions of the mma.sync kernels (ldmatrix, mma m16n8k16, cp.async), emulated by their documented layouts.
 * A barrier that not every live thread reaches ends the program with a message instead of hanging.
 */
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#define KERNELWATCH_HOST 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {
constexpr int WARP = 32, STACK = 1 << 18;
struct Fiber { ucontext_t context; bool done = false; };
struct Meeting { int arrived = 0, live = 0; unsigned generation = 0; };
static std::vector<Fiber> fibers;
static std::vector<char> stacks;
static ucontext_t scheduler;
static Meeting block_meeting;
static std::vector<Meeting> warp_meetings;
static std::vector<uint64_t> slots;      /* what each thread shows its warp */
static std::vector<uint32_t> registers;  /* 6 words of each thread, for mma */
static std::function<void()> body;
static unsigned current;
static bool progressed;
alignas(128) static unsigned char dynamic_shared[1 << 17];

inline void release(Meeting& m) {
  if (m.arrived > 0 && m.arrived == m.live) m.arrived = 0, m.generation++, progressed = true;
}
inline void yield() { swapcontext(&fibers[current].context, &scheduler); }
inline void meet(Meeting& m) {
  const unsigned seen = m.generation;
  m.arrived++;
  release(m);
  while (m.generation == seen) yield();
}
inline Meeting& my_warp() { return warp_meetings[current / WARP]; }
inline unsigned lane() { return current % WARP; }
inline unsigned warp_first() { return current / WARP * WARP; }

static void enter() {
  body();
  fibers[current].done = true;
  progressed = true;
  block_meeting.live--, my_warp().live--;
  release(block_meeting), release(my_warp());
  swapcontext(&fibers[current].context, &scheduler);
}

static void run_block(unsigned threads) {
  fibers.assign(threads, Fiber());
  stacks.resize((size_t)threads * STACK);
  slots.assign(threads, 0), registers.assign(threads * 6, 0);
  block_meeting = Meeting{0, (int)threads, 0};
  warp_meetings.assign((threads + WARP - 1) / WARP, Meeting());
  for (unsigned t = 0; t < threads; t++) {
    warp_meetings[t / WARP].live++;
    getcontext(&fibers[t].context);
    fibers[t].context.uc_stack.ss_sp = stacks.data() + (size_t)t * STACK;
    fibers[t].context.uc_stack.ss_size = STACK;
    makecontext(&fibers[t].context, enter, 0);
  }
  for (unsigned left = threads; left > 0;) {
    progressed = false;
    left = 0;
    for (current = 0; current < threads; current++) {
      if (fibers[current].done) continue;
      left++;
      threadIdx = {current % blockDim.x, current / blockDim.x, 0};
      swapcontext(&scheduler, &fibers[current].context);
    }
    if (left > 0 && !progressed) fprintf(stderr, "deadlock: not every thread reaches a barrier\n"), abort();
  }
}

template <class... A, size_t... I>
static void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  auto values = std::make_tuple(*(A*)arguments[I]...);
  body = [=] { std::apply(kernel, values); };
}

template <class... A>
static void launch(void (*kernel)(A...), const unsigned* grid, unsigned threads, void** arguments) {
  call(kernel, arguments, std::index_sequence_for<A...>());
  gridDim = {grid[0], grid[1], grid[2]}, blockDim = {threads, 1, 1};
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0]; x++) blockIdx = {x, y, z}, run_block(threads);
}

template <class T>
static T exchange(T value, unsigned from) {
  memcpy(&slots[current], &value, sizeof value);
  meet(my_warp());
  T got;
  memcpy(&got, &slots[warp_first() + from], sizeof got);
  meet(my_warp());
  return got;
}
}  // namespace host

static inline void __syncthreads() { host::meet(host::block_meeting); }
static inline void __syncwarp() { host::meet(host::my_warp()); }
template <class T>
static T __shfl_xor_sync(unsigned, T value, int step) { return host::exchange(value, host::lane() ^ step); }
template <class T>
static T atomicAdd(T* at, T value) { T old = *at; *at += value; return old; }
static inline unsigned __float_as_uint(float value) { unsigned bits; memcpy(&bits, &value, 4); return bits; }
static inline float __uint_as_float(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }
#define __expf(x) expf(x)
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

/* The PTX of the mma.sync kernels. Shared addresses are offsets from the dynamic shared memory, as 32 bits. */
static inline unsigned shared_address(const void* p) { return (unsigned)((const unsigned char*)p - host::dynamic_shared); }
static inline unsigned char* at_shared(unsigned offset) { return host::dynamic_shared + (int)offset; }
static inline void copy_16(unsigned to, const void* from, bool inside) {
  if (inside) memcpy(at_shared(to), from, 16);
  else memset(at_shared(to), 0, 16);
}
static inline void commit() {}
template <int N>
static void wait_all_but() {}

static inline void load_8x8(unsigned* r, unsigned from, bool transposed) {
  const unsigned lane = host::lane();
  host::slots[host::current] = from;
  host::meet(host::my_warp());
  for (int i = 0; i < 4; i++) {
    uint16_t matrix[8][8];
    for (int row = 0; row < 8; row++) memcpy(matrix[row], at_shared((unsigned)host::slots[host::warp_first() + 8 * i + row]), 16);
    const int a = lane / 4, b = lane % 4 * 2;
    r[i] = transposed ? matrix[b][a] | (unsigned)matrix[b + 1][a] << 16 : matrix[a][b] | (unsigned)matrix[a][b + 1] << 16;
  }
  host::meet(host::my_warp());
}
static inline void load_8x8_x4(unsigned* r, unsigned from) { load_8x8(r, from, false); }
static inline void load_8x8_x4_transposed(unsigned* r, unsigned from) { load_8x8(r, from, true); }

static inline float half_of(uint32_t word, int high) { return __uint_as_float(high ? word & 0xffff0000u : word << 16); }
static inline void multiply_add(float* c, const unsigned* a, const unsigned* b) {
  using namespace host;
  uint32_t* mine = &registers[current * 6];
  memcpy(mine, a, 16), memcpy(mine + 4, b, 8);
  meet(my_warp());
  const uint32_t* warp = &registers[warp_first() * 6];
  const int group = lane() / 4, pair = lane() % 4 * 2;
  for (int i = 0; i < 4; i++) {
    const int low = i / 2, col = pair + i % 2;
    float sum = 0.0f;
    for (int k = 0; k < 16; k++) {
      const uint32_t left = warp[(group * 4 + k % 8 / 2) * 6 + k / 8 * 2 + low];
      const uint32_t right = warp[(col * 4 + k % 8 / 2) * 6 + 4 + k / 8];
      sum += half_of(left, k % 2) * half_of(right, k % 2);
    }
    c[i] += sum;
  }
  meet(my_warp());
}
