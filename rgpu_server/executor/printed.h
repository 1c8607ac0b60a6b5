// What kernels print comes out of the device library on this process's stdout; it belongs to the
// client.
#pragma once

#include "rgpu_common/native/transport/outbox.h"
#include "rgpu_server/executor/driver.h"

namespace rgpu::exec {

// Makes stdout a pipe of our own.  False: the system has no descriptor left.
bool CapturePrinted();
// Sends what has been printed so far as LOG notices.  From any thread.
void ForwardPrinted(transport::Outbox& outbox);
// Sends why this thread's last call about a kernel failed, if the device library can say, as a LOG
// notice; each sentence once.
void ForwardReason(const Driver& driver, transport::Outbox& outbox);
// The end to poll for reading; -1 before CapturePrinted.
int PrintedFd();

}  // namespace rgpu::exec
