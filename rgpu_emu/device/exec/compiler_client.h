// The connection to the PTX compiler process (protocol: rgpu_emu/DESIGN.md).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rgpu_emu/device/exec/module.h"

namespace rgpu::emu {

struct CompilerOptions {
  int fd = -1;  // a connected stream socket, which the client then owns; -1: start `command`
  std::string command = "python3 -m rgpu_emu.compiler";  // split at blanks; "--fd 3" is appended
  // For each request. Longer than the compiler lets a request wait and run (600 s).
  int deadline_seconds = 660;
};

// Reads RGPU_EMU_COMPILER_FD and RGPU_EMU_COMPILER.
CompilerOptions CompilerOptionsFromEnvironment();

// Thread-safe; sends one request at a time. If the compiler dies, the request fails with
// CUDA_ERROR_JIT_COMPILER_NOT_FOUND. A compiler that this client started is started again by the
// next request.
class CompilerClient {
 public:
  explicit CompilerClient(CompilerOptions options);
  ~CompilerClient();
  CompilerClient(const CompilerClient&) = delete;
  CompilerClient& operator=(const CompilerClient&) = delete;

  // Several texts are linked together. On failure the message is the compiler's log.
  Outcome Load(std::span<const std::string_view> ptx, LoadedModule* module);
  Outcome Lower(LoadedModule* module, std::string_view entry, wire::compiler::Lowered* code);
  // Also on failure, `linked` names what no text defines.
  Outcome Link(std::span<const std::string_view> ptx, wire::compiler::Linked* linked);

 private:
  // All of these: the mutex is held.
  Outcome LoadAgain(LoadedModule* module);
  Outcome LowerNow(const LoadedModule& module, std::string_view entry,
                   wire::compiler::Lowered* code);
  Outcome Ask(wire::compiler::MessageType type, std::span<const uint8_t> body,
              wire::compiler::MessageType answer, std::vector<uint8_t>* reply);
  Outcome EnsureConnected();
  Outcome Start();
  Outcome Lost(const std::string& why);
  void Disconnect();

  const CompilerOptions options_;
  std::mutex mutex_;
  int fd_ = -1;
  pid_t pid_ = -1;
  uint64_t generation_ = 0;  // counts connections; a module of an older connection is loaded again
};

}  // namespace rgpu::emu
