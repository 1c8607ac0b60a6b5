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

// For rgpu-gateway, which runs no tenant's code: it keeps its user, its network and the files that
// it reads its keys from again; it starts nothing, writes nothing and looks into no other process.
// opens_devices: UCX's needs devices, ports and shared memory whenever somebody comes.
std::string EnterGatewaySandbox(bool opens_devices);

// What a process is refused.  kGateway: sockets are its work.
enum class Calls { kWorker, kDriver, kGateway };

// The list of refused system calls.  False: the kernel has no seccomp filters.
bool InstallSeccomp(Calls profile);

}  // namespace rgpu::exec
