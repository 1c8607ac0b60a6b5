#pragma once

#include <string>

namespace netprobe {

// The responder reads what strangers send, so it gives up its user (if root), all capabilities, and
// all system calls except a short list. Returns what the machine did not allow, as one line
// (rgpu::confine::Report; "" = nothing).
std::string Confine();

}  // namespace netprobe
