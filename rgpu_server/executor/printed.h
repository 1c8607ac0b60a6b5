// Output of kernels: the device library writes printf's to this process's stdout, and the lines of
// asserts that have failed to its stderr. Both are forwarded to the client.
#pragma once

#include <string_view>

#include "rgpu_common/native/transport/outbox.h"
#include "rgpu_server/executor/driver.h"

namespace rgpu::exec {

// Replaces stdout and stderr by pipes of our own. The log of the worker and of the device library
// goes on to what was stderr before. Returns false if no descriptor is left.
bool CapturePrinted(const Driver& driver);
// Sends what kernels have printed so far as LOG notices. Any thread may call it.
void ForwardPrinted(transport::Outbox& outbox);
// Sends, as a LOG notice, why this thread's last call about a kernel failed, if the device library
// can say. Each sentence is sent once.
void ForwardReason(const Driver& driver, transport::Outbox& outbox);
// Sends a sentence that the client prints on stderr. Any thread may call it.
void SendWarning(transport::Outbox& outbox, std::string_view sentence);
// The read ends of the pipes; -1 before CapturePrinted.
int PrintedFd();
int PrintedErrorsFd();

}  // namespace rgpu::exec
