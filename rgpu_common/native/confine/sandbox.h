// Takes a worker's privileges away before it reads anything from a client.
#pragma once

#include <string>
#include <vector>

namespace rgpu::confine {

struct SandboxOptions {
  // Set for NVIDIA's driver, which opens device files, /proc and /sys, and creates files in
  // /dev/shm: the worker may then read files, write below /dev, and use most system calls. The
  // emulated device needs none of this.
  bool needs_driver_files = false;
  // Folders and files that a worker may read although it needs no driver files: those from which
  // Python loads its modules.
  std::vector<std::string> readable = {};
};

// Closes every descriptor but 0, 1, 2 and `keep`.
void CloseOtherDescriptors(std::vector<int> keep);

// Restricts this thread, and the threads that it starts later, as far as the machine allows.
// Returns the restrictions that the machine refused as one line (Report; "" = none). The
// daemon decides whether such a worker is used.
std::string EnterSandbox(const SandboxOptions& options);

enum class Gateway {
  kTls,  // relays between sockets that it already has: a list of allowed system calls
  kUcx,  // UCX opens devices, ports and shared memory whenever a client connects
};

// For rgpu-gateway, which runs no tenant's code. It keeps its network, starts no program and sees
// no other process. Returns the same as `EnterSandbox`.
std::string EnterGatewaySandbox(Gateway gateway);

// Whose system calls are filtered: a worker of the emulated device, a worker of NVIDIA's driver, or
// a gateway of `ucx:`.
enum class Calls { kWorker, kDriver, kUcx };

// Installs the list of refused system calls. Returns false, with errno, if the kernel rejects the
// list.
bool InstallSeccomp(Calls profile);

// Installs the list of allowed system calls for a gateway of `tls:`. Returns false as above.
bool AllowGatewayCalls();

}  // namespace rgpu::confine
