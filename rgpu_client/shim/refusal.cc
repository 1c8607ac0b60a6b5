#include "rgpu_client/shim/refusal.h"

#include <atomic>

#include "rgpu_client/shim/say.h"

namespace rgpu::shim {

void ExplainPrivateTables() {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  Say("this program asks for private tables of NVIDIA's driver, as a statically linked CUDA runtime "
      "does; rgpu implements the public driver API only and refuses them. Programs that then fail, "
      "and what to use instead, are listed in docs/compatibility.md.");
}

}  // namespace rgpu::shim
