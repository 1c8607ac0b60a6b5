// Asks a server what the lease of this program has and uses (OBSERVE on the data port). Opens no
// session and makes no lease.
#pragma once

#include <memory>
#include <string>

#include "gen/handshake.gen.h"
#include "gen/nvml_abi.gen.h"
#include "rgpu_client/shim/settings.h"

namespace rgpu::nvml {

// `observed` is null unless `status` is NVML_SUCCESS; then `sentence` says why.
struct Answer {
  nvmlReturn_t status = NVML_SUCCESS;
  std::string sentence;
  std::shared_ptr<const wire::Observed> observed;
};

// Asks the server of one device (`SettingsOfDevice`). Returns within about `deadline_ms`:
// NVML_ERROR_GPU_IS_LOST if the server cannot be reached, NVML_ERROR_TIMEOUT if it is silent,
// NVML_ERROR_NO_PERMISSION if it refuses.
Answer Ask(const shim::Settings& settings, int deadline_ms);

}  // namespace rgpu::nvml
