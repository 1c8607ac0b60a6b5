#include "rgpu_client/shim/refusal.h"

#include <atomic>

#include "rgpu_client/shim/say.h"

namespace rgpu::shim {

void ExplainPrivateTables() {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  Say("this program asks for private tables of NVIDIA's driver, as a statically linked CUDA "
      "runtime "
      "does; rgpu implements the public driver API only and refuses them. If the program goes on, "
      "all "
      "is well; if it stops here, docs/compatibility.md says what to use instead.");
}

}  // namespace rgpu::shim
