// What the handlers of modules, libraries and functions share.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/objects.h"

namespace rgpu::exec {

// Runs `load`, which may take long, and charges the lease for what it took from the device: an
// upper bound (`image_bytes`) first, what was measured afterwards.  `undo` is run if the lease
// refuses that.
CUresult LoadCharged(Executor& executor, uint64_t image_bytes,
                     const std::function<CUresult()>& load, const std::function<void()>& undo,
                     uint64_t* charged);

// A C string of wire bytes.  False: it has a zero byte inside.
bool ToName(wire::ByteView bytes, std::string* name);

// Parameter layout (n x {u32 offset, u32 bytes}) and attributes (i32 each) of a function or kernel.
// `storage` holds the bytes of both; also fills in what the launch path needs to know.
struct FunctionFacts {
  std::vector<uint32_t> params;
  std::vector<int32_t> attributes;
};
CUresult ReadFacts(Executor& executor, Function* function, FunctionFacts* facts);

// function or kernel: the other id is 0.
CUresult FindFunction(Executor& executor, uint64_t function, uint64_t kernel, Function** found);

}  // namespace rgpu::exec
