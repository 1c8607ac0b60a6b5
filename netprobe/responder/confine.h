#pragma once

#include <string>

namespace netprobe {

// The responder reads what strangers send: it gives up its user, if that is root, all capabilities,
// and every system call that is not on a short list.  Returns what the machine did not allow, as
// one line (rgpu::confine::Report; "" = everything).
std::string Confine();

}  // namespace netprobe
