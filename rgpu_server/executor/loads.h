// What the handlers of modules, libraries and functions share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/objects.h"

namespace rgpu::exec {

inline constexpr uint64_t kDefaultStackBytes = 1024;  // per thread, part of every context

// What a load is charged: in all, and for what it takes from the device's memory.
struct Charged {
  uint64_t bytes = 0;
  uint64_t placed_bytes = 0;
};

// Says as long as it lives that the driver loads code for this session, and perhaps compiles it;
// then tells the client, if it wishes to know, how long that took.  Made and destroyed with the
// lock held.  name: of a kernel; empty: of modules.
class Compiling {
 public:
  Compiling(Executor& executor, std::string_view name);
  ~Compiling();
  Compiling(const Compiling&) = delete;
  Compiling& operator=(const Compiling&) = delete;

 private:
  Executor& executor_;
  const std::string name_;
  const uint64_t start_ns_;
};

// Runs `load`, which may take long, and charges the lease for what it took from the device: the
// image first, what was measured afterwards.  If the lease refuses that, `undo` is run and, once
// what is being freed is gone, all of it tried again, charged before.
CUresult LoadCharged(Executor& executor, uint64_t image_bytes,
                     const std::function<CUresult()>& load, const std::function<void()>& undo,
                     Charged* charged);

// A library's data is placed in every context that uses it: charges for it before the first use.
CUresult PlaceLibrary(Executor& executor, const Context& context, Code& library);

// A C string of wire bytes.  False: it has a zero byte inside.
bool ToName(wire::ByteView bytes, std::string* name);
// As much of a name as is kept for reports.
std::string ShortName(const std::string& name);

// Parameter layout (n x {u32 offset, u32 bytes}) and attributes (i32 each) of a function or kernel.
// `storage` holds the bytes of both; also fills in what the launch path needs to know.
struct FunctionFacts {
  std::vector<uint32_t> params;
  std::vector<int32_t> attributes;
};
CUresult ReadFacts(Executor& executor, Function* function, FunctionFacts* facts);

// A kernel's first launch: has the driver load the code, which may mean to compile it.  Lets go of
// the lock meanwhile, and of the wish for the token.  Does nothing for other commands, for code
// that was loaded before, and for what the launch will refuse.
void LoadBeforeLaunch(Executor& executor, const Command& command);

// function or kernel: the other id is 0.
CUresult FindFunction(Executor& executor, uint64_t function, uint64_t kernel, Function** found);

}  // namespace rgpu::exec
