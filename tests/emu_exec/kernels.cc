// Hand-made kernels in the form that the compiler emits (kernel_abi.h), one per -DKERNEL_<name>.
// Compiled to relocatable objects that the tests load; never linked.
#include "rgpu_emu/device/kernel_abi.h"

using rgpu::emu::BlockInfo;
using rgpu::emu::ThreadState;

namespace {

template <typename T>
T Param(const BlockInfo* block, unsigned offset) {
  return *reinterpret_cast<const T*>(block->launch->params + offset);
}

template <typename T>
T* Device(const BlockInfo* block, unsigned offset) {
  return reinterpret_cast<T*>(Param<uint64_t>(block, offset));
}

inline void Poll(BlockInfo* block) {
  if (*static_cast<const volatile uint32_t*>(block->launch->stop) != 0)
    block->launch->runtime->trap(block, 702);
}

// A coroutine by hand: `step` counts the suspend points that were passed.
struct Frame {
  void (*resume)(Frame*);
  BlockInfo* block;
  uint32_t tid;
  uint32_t step;
  uint64_t value;
};

inline ThreadState& State(Frame* frame) { return frame->block->threads[frame->tid]; }

inline void Wait(Frame* frame, uint32_t op, uint32_t mask, uint32_t a, uint32_t b, uint64_t value) {
  ThreadState& state = State(frame);
  state.op = op;
  state.mask = mask;
  state.a = a;
  state.b = b;
  state.value = value;
}

}  // namespace

extern "C" {

#if defined(KERNEL_saxpy)
// y[i] = exp2(a) * x[i] + table[i % 4] + counter: a library call, constants, data, a function call.
float exp2f(float);
void* memcpy(void*, const void*, decltype(sizeof(0)));
__attribute__((visibility("default"))) uint64_t g_counter = 40;
__attribute__((visibility("default"))) uint64_t* g_pointer = &g_counter;
static const float kTable[4] = {1, 2, 3, 4};
__attribute__((noinline)) float Lookup(uint32_t i) {
  float value;
  memcpy(&value, &kTable[i % 4], sizeof(value));
  return value;
}
void rgpu_block(BlockInfo* block) {
  float* y = Device<float>(block, 0);
  const float* x = Device<float>(block, 8);
  const auto n = Param<uint32_t>(block, 20);
  const float scale = exp2f(Param<float>(block, 16));
  for (uint32_t t = 0; t < block->thread_count; ++t) {
    const uint32_t i = block->ctaid[0] * block->thread_count + t;
    if (i < n) y[i] = scale * x[i] + Lookup(i) + static_cast<float>(*g_pointer);
  }
}

#elif defined(KERNEL_forbidden)
int system(const char*);
void rgpu_block(BlockInfo*) { system("true"); }

#elif defined(KERNEL_store)
// *(uint32_t*)params[0] = block index, from block params[8] only
void rgpu_block(BlockInfo* block) {
  if (block->ctaid[0] == Param<uint32_t>(block, 8))
    *Device<volatile uint32_t>(block, 0) = block->ctaid[0];
}

#elif defined(KERNEL_recurse)
__attribute__((noinline)) uint64_t Deep(volatile uint64_t* at, uint64_t n) {
  volatile uint64_t here[64];
  here[n % 64] = *at;
  return Deep(here, n + 1) + here[n % 64];
}
void rgpu_block(BlockInfo* block) {
  volatile uint64_t start = 1;
  *Device<uint64_t>(block, 0) = Deep(&start, 0);
}

#elif defined(KERNEL_spin)
// Adds one to *arrived, then waits until *flag is set; the last block to leave adds one to *left.
void rgpu_block(BlockInfo* block) {
  __atomic_add_fetch(Device<uint32_t>(block, 8), 1u, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(Device<uint32_t>(block, 0), __ATOMIC_ACQUIRE) == 0) Poll(block);
}

#elif defined(KERNEL_raise)
void rgpu_block(BlockInfo* block) {
  __atomic_store_n(Device<uint32_t>(block, 0), 1u, __ATOMIC_RELEASE);
}

#elif defined(KERNEL_printf)
// vprintf(format, arguments) where both are parameters; the count goes to *params[16].
void rgpu_block(BlockInfo* block) {
  *Device<int32_t>(block, 16) =
      block->launch->runtime->vprintf(block, Param<uint64_t>(block, 0), Param<uint64_t>(block, 8));
}

#elif defined(KERNEL_fail)
void rgpu_block(BlockInfo* block) {
  const auto at = Param<uint64_t>(block, 0);
  if (at == 0) block->launch->runtime->trap(block, 0);
  for (uint32_t thread = 0; thread < block->thread_count; ++thread) {
    block->launch->runtime->assertfail(block, at, at, 7, at, 1, thread, 0, 2);
  }
}

#elif defined(KERNEL_function)
void rgpu_fn_1(uint32_t* out) { *out = 77; }
void rgpu_block(BlockInfo* block) {
  const uint64_t address =
      block->launch->runtime->function_address(block, Param<uint64_t>(block, 8));
  reinterpret_cast<void (*)(uint32_t*)>(address)(Device<uint32_t>(block, 0));
}

#else
uint64_t rgpu_frame_bytes = sizeof(Frame);
static void Step(Frame* frame);
void* rgpu_thread(BlockInfo* block, uint32_t tid, void* memory) {
  auto* frame = static_cast<Frame*>(memory);
  *frame = {Step, block, tid, 0, 0};
  Step(frame);
  return frame;
}
static void End(Frame* frame) { frame->resume = nullptr; }

#if defined(KERNEL_reduce)
// Sum of tid + ctaid over the block in shared memory, a tree with barriers; out[ctaid] = sum.
static void Step(Frame* frame) {
  BlockInfo* block = frame->block;
  auto* shared = reinterpret_cast<uint32_t*>(block->shared_base);
  const uint32_t half = block->thread_count >> frame->step;
  if (frame->step == 0) {
    shared[frame->tid] = frame->tid + block->ctaid[0];
  } else if (frame->tid < half) {
    shared[frame->tid] += shared[frame->tid + half];
  }
  if (half <= 1) {
    if (frame->tid == 0) Device<uint32_t>(block, 0)[block->ctaid[0]] = shared[0];
    return End(frame);
  }
  ++frame->step;
  Wait(frame, rgpu::emu::kOpBarSync, 0, 0, 0, 0);
}

#elif defined(KERNEL_shuffle)
// Butterfly sum over each warp; the lanes with an odd number end before the last step, which names
// even lanes.
static void Step(Frame* frame) {
  uint32_t value = frame->tid + 1;
  if (frame->step > 0)
    value = static_cast<uint32_t>(frame->value + (State(frame).result & 0xffffffff));
  frame->value = value;
  if (frame->step == 5) {
    Device<uint32_t>(frame->block, 0)[frame->tid] = value;
    return End(frame);
  }
  Wait(frame, rgpu::emu::kOpShflBfly, 0xffffffff, 1u << frame->step++, 31, value);
}

#elif defined(KERNEL_diverge)
// Odd lanes end at once; the even ones vote with the full mask, halves vote with their own masks,
// then activemask.  out[tid * 4 ...] = the results.
static void Step(Frame* frame) {
  const uint32_t lane = frame->tid % 32;
  uint32_t* out = Device<uint32_t>(frame->block, 0) + frame->tid * 4;
  if (frame->step > 0) out[frame->step - 1] = static_cast<uint32_t>(State(frame).result);
  switch (frame->step++) {
    case 0:
      if (lane % 2 != 0) return End(frame);
      return Wait(frame, rgpu::emu::kOpVoteBallot, 0xffffffff, 0, 0, lane < 8);
    case 1:
      return Wait(frame, rgpu::emu::kOpVoteBallot, lane < 16 ? 0xffff : 0xffff0000, 0, 0, 1);
    case 2:
      return Wait(frame, rgpu::emu::kOpActiveMask, 0, 0, 0, 0);
    case 3:
      return Wait(frame, rgpu::emu::kOpMatchAny, 0x55555555, 32, 0, lane / 8);
    default:
      return End(frame);
  }
}

#elif defined(KERNEL_barriers)
// The first half arrives at barrier 3, the second half waits there; then the whole block counts odd
// threads.
static void Step(Frame* frame) {
  BlockInfo* block = frame->block;
  auto* shared = reinterpret_cast<uint32_t*>(block->shared_base);
  const bool first = frame->tid < block->thread_count / 2;
  uint32_t* out = Device<uint32_t>(block, 0);
  switch (frame->step++) {
    case 0:
      if (first) shared[frame->tid] = frame->tid;
      return Wait(frame, first ? rgpu::emu::kOpBarArrive : rgpu::emu::kOpBarSync, 0, 3,
                  block->thread_count, 0);
    case 1:
      if (!first) out[frame->tid] = shared[frame->tid - block->thread_count / 2];
      return Wait(frame, rgpu::emu::kOpBarRedPopc, 0, 0, 0, frame->tid % 2);
    default:
      if (first) out[frame->tid] = static_cast<uint32_t>(State(frame).result);
      return End(frame);
  }
}

#elif defined(KERNEL_stuck)
// Thread 0 waits at barrier 1 for a second one, who never comes.
static void Step(Frame* frame) {
  if (frame->tid != 0 || frame->step++ != 0) return End(frame);
  Wait(frame, rgpu::emu::kOpBarSync, 0, 1, 64, 0);
}

#elif defined(KERNEL_badmask)
static void Step(Frame* frame) {
  Wait(frame, rgpu::emu::kOpWarpSync, ~(1u << (frame->tid % 32)), 0, 0, 0);
}

#elif defined(KERNEL_yield)
// Thread 0 spins until the last thread of the block, which goes through warp operations first, sets
// a flag.
static void Step(Frame* frame) {
  BlockInfo* block = frame->block;
  auto* flag = reinterpret_cast<volatile uint32_t*>(block->shared_base);
  if (frame->tid == 0) {
    if (frame->step++ == 0) return Wait(frame, rgpu::emu::kOpYield, 0, 0, 0, 0);
    if (*flag != 99) return Wait(frame, rgpu::emu::kOpYield, 0, 0, 0, 1000);
    *Device<uint32_t>(block, 0) = frame->step;
    return End(frame);
  }
  if (frame->tid != block->thread_count - 1) return End(frame);
  if (frame->step++ < 1000)
    return Wait(frame, rgpu::emu::kOpWarpSync, 1u << (frame->tid % 32), 0, 0, 0);
  *flag = 99;
  End(frame);
}
#endif
#endif

}  // extern "C"
