// What the shim keeps for each thread of the application.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "rgpu_client/shim/tables/objects.h"

namespace rgpu::shim {

struct ThreadState {
  uint64_t generation = 0;  // of the session that the rest belongs to
  uint32_t number = 0;      // names the thread on the wire, from 1
  std::vector<Context*> stack;
  std::map<uint32_t, Stream*> streams;  // CU_STREAM_PER_THREAD, by context; the session owns them
  bool per_thread_stream = false;       // inside a _ptds or _ptsz function
  bool spoke = false;                   // has sent anything, so its end is worth telling
  uint64_t posted_seq = 0;              // its last posted command
  uint64_t reported_seq = 0;            // its last call that would have got a deferred error
  std::vector<uint8_t> reply;           // head of the last reply
  std::vector<uint8_t> params;          // parameter bytes of the launch it is making
  uint32_t call_index = 0;              // of the exported function it is in, for the trace
  int capture_mode = 0;                 // CUstreamCaptureMode
};

// The calling thread's state, made on first use and reset when the session is another one.
ThreadState& ThisThread();

// Called for a thread that ends and had spoken in session `generation`.
using ThreadGoneHook = void (*)(ThreadState& thread);
void SetThreadGoneHook(ThreadGoneHook hook);

// A new session begins: all threads' states are out of date.
void NewThreadGeneration();
uint64_t ThreadGeneration();

}  // namespace rgpu::shim
