// Makes the worker small and unprivileged, before it hears anything from a client.
#pragma once

#include <string>
#include <vector>

namespace rgpu::exec {

struct SandboxOptions {
  // NVIDIA's driver opens device files, /proc and /sys, and makes files below /dev/shm: it may read
  // files, write below /dev, and keeps most system calls.  The emulated device needs none of this.
  bool needs_driver_files = false;
};

// Closes every descriptor but 0, 1, 2 and `keep`.
void CloseOtherDescriptors(std::vector<int> keep);

// Applies what the machine allows, for this thread and all that it starts later.  Returns what it
// did not allow, as one line (confine::Report; "" = everything).  The daemon decides whether that
// is enough.
std::string EnterSandbox(const SandboxOptions& options);

enum class Gateway {
  kTls,  // relays between sockets that it has: a list of allowed system calls
  kUcx,  // UCX opens devices, ports and shared memory whenever somebody comes
};

// For rgpu-gateway, which runs no tenant's code.  It keeps its network; it starts nothing and looks
// into no other process.  Returns the same as `EnterSandbox`.
std::string EnterGatewaySandbox(Gateway gateway);

// What a process is refused: a worker of the emulated device, of NVIDIA's driver, or a gateway of
// `ucx:`.
enum class Calls { kWorker, kDriver, kUcx };

// The list of refused system calls.  False: errno says why the kernel does not take it.
bool InstallSeccomp(Calls profile);

// The list of allowed system calls of a gateway of `tls:`.  False: as above.
bool AllowGatewayCalls();

}  // namespace rgpu::exec
