// Twins of libraries. A library belongs to no device, but a session has one. So a library is loaded
// on the device whose context was current, and again on another device when it is first used there.
#pragma once

#include "rgpu_client/shim/calls/images.h"
#include "rgpu_client/shim/jit_options.h"

namespace rgpu::shim {

// Keeps what a later load of the library needs, if the process has several devices.
void KeepForTwins(const Library& library, const Image& image, const JitOptions& options);
// Sets `*in` to the library in the session of `here`, which has a context.
CUresult LibraryIn(const Here& here, Library& library, Library** in);
// The same for a kernel.
CUresult KernelIn(const Here& here, Function& kernel, Function** in);
// Forgets the library; returns the handles of its twins, for the caller to unload.
std::vector<uint64_t> DropTwins(uint64_t library);
// In a forked child.
void ForgetTwins();

}  // namespace rgpu::shim
