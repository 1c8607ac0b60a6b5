#pragma once

namespace netprobe {

// The responder reads what strangers send: it gives up what it does not need.  False: this system
// offers no filter for system calls; the rest holds.
bool Confine();

}  // namespace netprobe
