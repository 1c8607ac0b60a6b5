// The objects that handles name. Each holds what the client knows about it, so that queries need no
// round trip.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/jit_options.h"
#include "rgpu_client/shim/tables/credits.h"
#include "rgpu_client/shim/tables/handles.h"
#include "rgpu_common/native/base/stream_attributes.h"

namespace rgpu::shim {

inline constexpr uint64_t kWireLegacyStream = 1;
inline constexpr uint64_t kWirePerThreadStream = 2;

// What the client knows about the completion of an event or a stream, which programs poll.
struct Progress {
  std::atomic<uint64_t> version{0};    // of the last record (event) or work (stream)
  std::atomic<uint64_t> completed{0};  // highest version known to be complete
  std::atomic<uint64_t> asked{0};      // the worker will send COMPLETED for this version
  // Channel::completions() when the worker was asked. What has completed since may be behind this
  // version, and the notice may still be on its way.
  std::atomic<uint64_t> asked_at{0};
  std::atomic<uint64_t> time_ns{0};  // device time of `time_version`
  std::atomic<uint64_t> time_version{0};

  // True if the worker's answer "not ready" about `asked_version` still holds until its notice
  // comes.
  bool AnswerHolds(uint64_t asked_version, uint64_t completions) const {
    return asked.load() == asked_version && asked_at.load() == completions;
  }
  // The worker has answered "not ready", when `completions` were known.
  void NoteAnswer(uint64_t asked_version, uint64_t completions) {
    asked_at.store(completions);
    asked.store(asked_version);
  }
};

struct Stream : Object {
  static constexpr Kind kKind = Kind::kStream;
  Stream() : Object(kKind) {}

  uint64_t wire = 0;    // name on the wire: 1, 2 or the handle
  uint32_t thread = 0;  // owner of a per-thread stream
  unsigned flags = 0;
  int priority = 0;
  Credits credits;
  Progress progress;  // versions are sequence numbers of the last work
  base::StreamAttributes attributes;
  std::atomic<uint64_t> synced_seq{0};
};

struct Context : Object {
  static constexpr Kind kKind = Kind::kContext;
  Context() : Object(kKind) {}

  int device = 0;
  bool primary = false;
  std::atomic<unsigned> flags{0};
  std::atomic<bool> alive{true};
  unsigned api_version = 3020;
  std::atomic<int> cache_config{0};
  std::atomic<int> shared_config{0};
  std::atomic<int> attached{1};         // cuCtxAttach, cuCtxDetach
  std::atomic<uint64_t> work_seq{0};    // last work posted to any stream of the context
  std::atomic<uint64_t> synced_seq{0};  // all work up to this number is complete
  // The last command by which a stream waits for a value and that may not be complete. 0: none.
  std::atomic<uint64_t> host_order_seq{0};
  std::atomic<uint64_t> pool{0};  // current pool of its device's streams, 0: default
  std::mutex mutex;
  std::map<int, uint64_t> limits;  // CUlimit values asked for or set
  std::mutex page_stream_mutex;
  uint64_t page_stream = 0;  // handle of the stream for pages (paged/traffic.h), once there is one
  Stream legacy;
};

struct Event : Object {
  static constexpr Kind kKind = Kind::kEvent;
  Event() : Object(kKind) {}

  unsigned flags = 0;
  std::mutex record_mutex;  // so that records are sent in the order of their versions
  Progress progress;        // versions count the records
  std::atomic<uint64_t> record_seq{0};
  // The stream of the last record.
  std::atomic<uint64_t> record_stream{0};
  std::atomic<uint32_t> record_thread{0};
  // Other processes may record it, so only the worker knows its state.
  bool shared = false;
};

struct Param {
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

// The functions of a module or kernels of a library that the program has asked for, and the names
// of all that exist once LearnNames has asked for them.
struct Entries {
  std::map<std::string, uint64_t, std::less<>> ids;
  bool names_known = false;
  std::vector<std::string> names;
};

// A variable of a module or library in one context.
struct Global {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

struct Module : Object {
  static constexpr Kind kKind = Kind::kModule;
  Module() : Object(kKind) {}

  uint64_t library = 0;  // set if this module is the view of a library in one context
  std::mutex mutex;
  Entries functions;
  std::map<std::string, Global, std::less<>> globals;
};

struct Library : Object {
  static constexpr Kind kKind = Kind::kLibrary;
  Library() : Object(kKind) {}

  std::mutex mutex;
  Entries kernels;
  std::map<uint32_t, uint64_t> modules;                        // by context
  std::map<std::pair<uint32_t, std::string>, Global> globals;  // by context and name
};

// A function of a module, or a kernel of a library.
struct Function : Object {
  static constexpr Kind kKind = Kind::kFunction;
  static constexpr int kAttributes = 16;  // CU_FUNC_ATTRIBUTE_MAX of cuda.h 13.0
  Function() : Object(kKind) {}

  bool is_kernel = false;
  uint64_t owner = 0;   // module or library
  uint64_t kernel = 0;  // the kernel of a function that cuKernelGetFunction made
  std::string name;
  std::vector<Param> params;
  bool has_layout = false;
  std::atomic<bool> launched{false};
  uint32_t param_bytes = 0;
  std::array<std::atomic<int>, kAttributes> attributes{};
  std::array<uint32_t, 3> required_block{};  // the only block of a launch (.reqntid); 0: any
  std::mutex mutex;
  std::map<uint32_t, uint64_t> functions;               // a kernel's functions, by context
  std::map<std::array<uint64_t, 5>, uint64_t> answers;  // occupancy answers, by arguments
  // State of the old launch interface: cuFuncSetBlockShape, cuParamSetv ...
  std::array<uint32_t, 3> block{1, 1, 1};
  uint32_t shared_bytes = 0;
  std::vector<uint8_t> param_block;
};

struct Pool : Object {
  static constexpr Kind kKind = Kind::kPool;
  Pool() : Object(kKind) {}

  int device = 0;
  bool is_default = false;
  uint64_t wire = 0;  // name on the wire: the handle, or the number in WELCOME for a default pool
  std::mutex mutex;
  std::map<int, uint64_t> attributes;  // policies and threshold
};

// Memory of cuMemCreate. The handle exists on the server until no reference and no mapping is left.
struct Memory : Object {
  static constexpr Kind kKind = Kind::kMemory;
  Memory() : Object(kKind) {}

  int device = 0;
  uint64_t bytes = 0;
  bool shareable = false;  // other processes may get it, by a file descriptor
  // All: with the lock of ReservedAddresses::calls().
  std::string token;  // by which another process opens it, or this one has; empty: there is none
  unsigned references = 1;
  unsigned mappings = 0;
};

// A CUDA array, or a level or plane of another one, which goes with that one.
struct Array : Object {
  static constexpr Kind kKind = Kind::kArray;
  Array() : Object(kKind) {}

  CUDA_ARRAY3D_DESCRIPTOR shape{};
  bool whole = true;
  std::mutex mutex;
  std::map<unsigned, uint64_t> parts;  // handles of its planes that the program has asked for
};

struct MipmappedArray : Object {
  static constexpr Kind kKind = Kind::kMipmappedArray;
  MipmappedArray() : Object(kKind) {}

  std::mutex mutex;
  std::map<unsigned, uint64_t> parts;  // handles of its levels
};

struct Link : Object {
  static constexpr Kind kKind = Kind::kLink;
  Link() : Object(kKind) {}

  JitOptions options;          // with the program's log buffers
  std::vector<uint8_t> image;  // cubinOut: owned until cuLinkDestroy
};

}  // namespace rgpu::shim
