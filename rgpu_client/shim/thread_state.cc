#include "rgpu_client/shim/thread_state.h"

#include <pthread.h>

#include <atomic>

namespace rgpu::shim {
namespace {

// One pointer in static TLS, so that reading it needs no call and no allocation.
__attribute__((tls_model("initial-exec"))) thread_local ThreadState* t_state = nullptr;

std::atomic<uint64_t> g_generation{1};
std::atomic<uint32_t> g_next_number{1};
std::atomic<ThreadGoneHook> g_gone{nullptr};

void OnThreadEnd(void* opaque) {
  auto* state = static_cast<ThreadState*>(opaque);
  const ThreadGoneHook hook = g_gone.load();
  if (hook != nullptr && state->generation == g_generation.load()) hook(*state);
  t_state = nullptr;
  delete state;
}

pthread_key_t MakeKey() {
  pthread_key_t key{};
  pthread_key_create(&key, &OnThreadEnd);
  return key;
}

ThreadState& MakeState() {
  static const pthread_key_t key = MakeKey();
  t_state = new ThreadState;
  pthread_setspecific(key, t_state);
  return *t_state;
}

void Reset(ThreadState& state, uint64_t generation) {
  const bool per_thread = state.per_thread_stream;
  const uint32_t call = state.call_index;
  state = ThreadState{};
  state.per_thread_stream = per_thread;
  state.call_index = call;
  state.generation = generation;
  state.number = g_next_number.fetch_add(1);
}

}  // namespace

ThreadState& ThisThread() {
  ThreadState& state = t_state != nullptr ? *t_state : MakeState();
  const uint64_t generation = g_generation.load(std::memory_order_relaxed);
  if (state.generation != generation) Reset(state, generation);
  return state;
}

void SetThreadGoneHook(ThreadGoneHook hook) { g_gone = hook; }

void NewThreadGeneration() {
  g_generation.fetch_add(1);
  g_next_number = 1;
}

}  // namespace rgpu::shim
