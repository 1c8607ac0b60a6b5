// Functions that the handlers of modules, libraries and functions share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/objects.h"

namespace rgpu::exec {

// per thread; included in what every context takes
inline constexpr uint64_t kDefaultStackBytes = 1024;

// What a load is charged: in total, and the part that lies in device memory.
struct Charged {
  uint64_t bytes = 0;
  uint64_t placed_bytes = 0;
};

// While an object of this class lives, the lease page shows that the driver loads (and perhaps
// compiles) code for this session. Its destructor tells the client how long that took, if the
// client asked. Create and destroy it with the executor's lock held. name: the kernel's; empty for
// modules.
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

// Runs `load`, which may take long, and charges the lease: for the image before the load, and for
// what the load took from the device afterwards. If the lease refuses the latter, runs `undo`, and
// tries once more, charging the measured amount first.
CUresult LoadCharged(Executor& executor, uint64_t image_bytes,
                     const std::function<CUresult()>& load, const std::function<void()>& undo,
                     Charged* charged);

// Charges for a library's data before its first use in a context: the driver places the data once
// in every context that uses the library.
CUresult PlaceLibrary(Executor& executor, const Context& context, Code& library);

// Converts wire bytes to a C string. Returns false if they contain a zero byte.
bool ToName(wire::ByteView bytes, std::string* name);
// Returns the part of a name that is kept for reports.
std::string ShortName(const std::string& name);

// Reads the parameter layout (n x {u32 offset, u32 bytes}) and attributes (i32 each) of a function
// or kernel. Also sets the function's local_bytes, which launches need.
struct FunctionFacts {
  std::vector<uint32_t> params;
  std::vector<int32_t> attributes;  // and the block that .reqntid demands, where it is known
};
CUresult ReadFacts(Executor& executor, Function* function, FunctionFacts* facts);

// Before a kernel's first launch: makes the driver load the code, which may compile it. Releases
// the executor's lock and does not ask for the token meanwhile. Does nothing for other commands,
// for code that is loaded already, or for a launch that will be refused anyway.
void LoadBeforeLaunch(Executor& executor, const Command& command);

// Makes the driver load the function's code, if it was not asked yet (Function::loaded), and
// releases the executor's lock meanwhile. The library's data are placed in `context`.
void LoadFunction(Executor& executor, const Context& context,
                  const std::shared_ptr<Function>& function);
// Charges for what the driver provides at a launch: a library's data, and stack and spill memory
// for all threads that can be resident. May release the lock, and the kernel may go meanwhile.
CUresult ChargeLaunch(Executor& executor, Context& context, const Function& function);

// One of `function` and `kernel` is an id, the other is 0.
CUresult FindFunction(Executor& executor, uint64_t function, uint64_t kernel, Function** found);

}  // namespace rgpu::exec
