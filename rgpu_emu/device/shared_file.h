// Files in memory that several processes map: exported memory and the pages of exported events.
#pragma once

#include <cstdint>

#include "rgpu_common/native/base/emulated_ipc.h"
#include "rgpu_common/native/base/fd.h"

namespace rgpu::emu {

// Makes a file of `bytes` zero bytes whose size nobody can change. Invalid: the system refuses it.
rgpu::base::UniqueFd MakeSharedFile(const char* name, uint64_t bytes);

// Opens the descriptor that a handle names. Invalid: there is none, or it is not a file of
// `ipc.file_bytes` bytes whose size is fixed: mapped memory whose file shrinks would fault.
rgpu::base::UniqueFd OpenSharedFile(const rgpu::base::EmulatedIpc& ipc);

// A new descriptor of such a file, and its size. Invalid: its size is not fixed.
rgpu::base::UniqueFd CopySharedFile(int file, uint64_t* bytes);

// True while the process exists. A process that has ended and that its parent has not waited for
// counts as ended if the system lets us see it.
bool ProcessLives(int process);

}  // namespace rgpu::emu
