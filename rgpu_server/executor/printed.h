// Output of kernels (printf): the device library writes it to this process's stdout, from where it
// is forwarded to the client.
#pragma once

#include <string_view>

#include "rgpu_common/native/transport/outbox.h"
#include "rgpu_server/executor/driver.h"

namespace rgpu::exec {

// Replaces stdout by a pipe of our own. Returns false if no descriptor is left.
bool CapturePrinted();
// Sends what kernels have printed so far as LOG notices. Any thread may call it.
void ForwardPrinted(transport::Outbox& outbox);
// Sends, as a LOG notice, why this thread's last call about a kernel failed, if the device library
// can say. Each sentence is sent once.
void ForwardReason(const Driver& driver, transport::Outbox& outbox);
// Sends a sentence that the client prints on stderr. Any thread may call it.
void SendWarning(transport::Outbox& outbox, std::string_view sentence);
// The pipe's read end; -1 before CapturePrinted.
int PrintedFd();

}  // namespace rgpu::exec
