#include "rgpu_server/executor/driver.h"

#include <dlfcn.h>

#include "rgpu_common/native/base/library.h"

namespace rgpu::exec {

namespace {

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

bool LoadDriver(const std::string& path, Driver* driver, std::string* sentence) {
  std::string reason;
  void* library = base::OpenLibrary({path.c_str()}, &reason);
  if (library == nullptr) {
    *sentence = "cannot load the device library " + path + ": " + reason +
                "; check the path given with --device or install the driver";
    return false;
  }
  if (dlsym(library, "rgpu_shim_version") != nullptr) {
    *sentence = path +
                " is rgpu's own client library: a worker on it would serve itself. Take "
                "rgpu's client folder off the server's LD_LIBRARY_PATH, or name NVIDIA's library";
    return false;
  }
  const char* missing = nullptr;
  if (!LoadDriverTable(library, &driver->table, &missing)) {
    *sentence = path + " lacks " + (missing ? missing : "a function") +
                " of the CUDA driver API: install a newer driver";
    return false;
  }
  Find(library, "rgpu_emu_heap", &driver->heap);
  Find(library, "rgpu_emu_reason", &driver->reason);
  Find(library, "rgpu_emu_fault", &driver->fault);
  Find(library, "rgpu_emu_log_to", &driver->log_to);
  Find(library, "rgpu_emu_required_block", &driver->required_block);
  Find(library, "rgpu_emu_window", &driver->credit.window);
  Find(library, "rgpu_emu_set_aside", &driver->credit.set_aside);
  Find(library, "rgpu_emu_give_back", &driver->credit.give_back);
  Find(library, "rgpu_emu_back", &driver->credit.back);
  // NVIDIA's driver exports none of these functions.
  driver->emulated = driver->heap != nullptr;
  return true;
}

bool IsSticky(CUresult result) {
  switch (static_cast<int>(result)) {
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
    case 721:  // TENSOR_MEMORY_LEAK
    case 810:  // MPS_CLIENT_TERMINATED
    case 911:  // EXTERNAL_DEVICE
      return true;
    default:
      return false;
  }
}

}  // namespace rgpu::exec
