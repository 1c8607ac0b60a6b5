// The state that the shim keeps for each thread of the application.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "rgpu_client/shim/tables/objects.h"

namespace rgpu::shim {

// What a thread has sent to one session.
struct Sent {
  bool spoke = false;         // has sent a command, so the worker is told of the thread's end
  uint64_t posted_seq = 0;    // its last posted command
  uint64_t reported_seq = 0;  // its last call that can return a deferred error
  uint64_t doubtful_seq = 0;  // its last first launch of a kernel, which may fail late
};

struct ThreadState {
  uint64_t generation = 0;  // the sessions to which the other members belong
  uint32_t number = 0;      // the thread's number on the wire, from 1
  std::vector<Context*> stack;
  std::map<uint32_t, Stream*> streams;   // CU_STREAM_PER_THREAD, by context; the session owns them
  bool per_thread_stream = false;        // inside a _ptds or _ptsz function
  std::array<Sent, kMostSessions> sent;  // by the number of the session
  std::vector<uint8_t> reply;            // head of the last reply
  std::vector<uint8_t> params;           // parameter bytes of the current launch
  uint32_t call_index = 0;               // CallId of the current exported function, for the trace
  int capture_mode = 0;                  // CUstreamCaptureMode
};

// The calling thread's state. It is created on first use, and reset when a new session has begun.
ThreadState& ThisThread();

// Called when a thread ends that has sent a command in the current session.
using ThreadGoneHook = void (*)(ThreadState& thread);
void SetThreadGoneHook(ThreadGoneHook hook);

// Begins new sessions: each thread's state is reset at its next use.
void NewThreadGeneration();

}  // namespace rgpu::shim
