// The objects that handles stand for: what the client knows of each, so that questions about it
// need no round trip.
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

namespace rgpu::shim {

inline constexpr uint64_t kWireLegacyStream = 1;
inline constexpr uint64_t kWirePerThreadStream = 2;

// What is known of the completion of something that can be polled.
struct Progress {
  std::atomic<uint64_t> version{0};    // of the last record (event) or work (stream)
  std::atomic<uint64_t> completed{0};  // highest version known to be complete
  std::atomic<uint64_t> asked{0};      // a COMPLETED notice for this version is on its way
  std::atomic<uint64_t> time_ns{0};    // device time of `time_version`
  std::atomic<uint64_t> time_version{0};
};

struct Stream : Object {
  static constexpr Kind kKind = Kind::kStream;
  Stream() : Object(kKind) {}

  uint64_t wire = 0;    // 1, 2 or the handle
  uint32_t thread = 0;  // owner of a per-thread stream
  unsigned flags = 0;
  int priority = 0;
  Credits credits;
  Progress progress;                // versions are sequence numbers of the last work
  std::atomic<int> sync_policy{0};  // CUsynchronizationPolicy
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
  std::atomic<uint64_t> work_seq{0};    // last stream work posted to any stream
  std::atomic<uint64_t> synced_seq{0};  // all work up to here is complete
  // The last wait for a value that may not be over, 0: none.
  std::atomic<uint64_t> host_order_seq{0};
  std::atomic<uint64_t> pool{0};  // current pool of its device's streams, 0: default
  std::mutex mutex;
  std::map<int, uint64_t> limits;  // CUlimit values asked for or set
  Stream legacy;
};

struct Event : Object {
  static constexpr Kind kKind = Kind::kEvent;
  Event() : Object(kKind) {}

  unsigned flags = 0;
  std::mutex record_mutex;  // versions travel in the order of their numbers
  Progress progress;        // versions count the records
  std::atomic<uint64_t> record_seq{0};
};

struct Param {
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

// A module, or a library (then it is no context's).
// Functions or kernels that the program has asked for, and the names of all there are.
struct Entries {
  std::map<std::string, uint64_t, std::less<>> ids;
  bool names_known = false;
  std::vector<std::string> names;
};

struct Module : Object {
  static constexpr Kind kKind = Kind::kModule;
  Module() : Object(kKind) {}

  uint64_t library = 0;  // this module is a view of that library in one context
  std::mutex mutex;
  Entries functions;
  std::map<std::string, std::pair<uint64_t, uint64_t>, std::less<>> globals;  // address, bytes
};

struct Library : Object {
  static constexpr Kind kKind = Kind::kLibrary;
  Library() : Object(kKind) {}

  std::mutex mutex;
  Entries kernels;
  std::map<uint32_t, uint64_t> modules;  // by context
  std::map<std::pair<uint32_t, std::string>, std::pair<uint64_t, uint64_t>> globals;
};

// A function of a module, or a kernel of a library.
struct Function : Object {
  static constexpr Kind kKind = Kind::kFunction;
  static constexpr int kAttributes = 16;  // CU_FUNC_ATTRIBUTE_MAX of cuda.h 13.0
  Function() : Object(kKind) {}

  bool is_kernel = false;
  uint64_t owner = 0;   // module or library
  uint64_t kernel = 0;  // a function made by cuKernelGetFunction: its kernel
  std::string name;
  std::vector<Param> params;
  bool has_layout = false;
  uint32_t param_bytes = 0;
  std::array<std::atomic<int>, kAttributes> attributes{};
  std::mutex mutex;
  std::map<uint32_t, uint64_t> functions;               // of a kernel, by context
  std::map<std::array<uint64_t, 5>, uint64_t> answers;  // occupancy, by what was asked
  // Old launch interface: cuFuncSetBlockShape, cuParamSetv ...
  std::array<uint32_t, 3> block{1, 1, 1};
  uint32_t shared_bytes = 0;
  std::vector<uint8_t> param_block;
};

struct Pool : Object {
  static constexpr Kind kKind = Kind::kPool;
  Pool() : Object(kKind) {}

  int device = 0;
  bool is_default = false;
  uint64_t wire = 0;  // the handle, or what WELCOME named for the default pool
  std::mutex mutex;
  std::map<int, uint64_t> attributes;  // policies and threshold
};

struct Link : Object {
  static constexpr Kind kKind = Kind::kLink;
  Link() : Object(kKind) {}

  JitOptions options;          // with the program's log buffers
  std::vector<uint8_t> image;  // cubinOut: owned until cuLinkDestroy
};

}  // namespace rgpu::shim
