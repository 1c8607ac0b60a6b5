// Makes the worker small and unprivileged, before it hears anything from a client.
#pragma once

#include <string>
#include <vector>

namespace rgpu::exec {

struct SandboxOptions {
  // NVIDIA's driver opens device files, /proc and sockets of its own and starts nvidia-modprobe: it
  // keeps the file system and most system calls.  The emulated device needs none of this.
  bool needs_driver_files = false;
};

// Closes every descriptor but 0, 1, 2 and `keep`.
void CloseOtherDescriptors(std::vector<int> keep);

// Applies what the machine allows, for this thread and all that it starts later.  Returns what it
// did not allow, as one line ("" = everything).
std::string EnterSandbox(const SandboxOptions& options);

// The list of refused system calls.  False: the kernel has no seccomp filters.
bool InstallSeccomp(bool needs_driver_files);

}  // namespace rgpu::exec
