#include "rgpu_common/native/transport/zip/compressed_connection.h"

#include <utility>

#include "rgpu_common/native/base/log.h"

namespace rgpu::transport::zip {

CompressedConnection::CompressedConnection(const Api& api, std::unique_ptr<Connection> link,
                                           Savings* savings, Clock clock)
    : link_(std::move(link)),
      sender_(api, link_.get(), savings, clock),
      receiver_(api, link_.get(), savings) {}

void CompressedConnection::StartBlocks(wire::ByteView ahead) {
  receiver_.Start(ahead);
  blocks_ = true;
}

IoResult CompressedConnection::TrySend(const iovec* parts, int count) {
  return blocks_ ? sender_.TrySend(parts, count) : link_->TrySend(parts, count);
}

IoResult CompressedConnection::TryRecv(void* to, size_t bytes) {
  if (!blocks_) return link_->TryRecv(to, bytes);
  return receiver_.Receive(to, bytes, How::kTry);
}

IoResult CompressedConnection::TryRecvGuarded(void* to, size_t bytes) {
  if (!blocks_) return link_->TryRecvGuarded(to, bytes);
  return receiver_.Receive(to, bytes, How::kGuarded);
}

// Without a time limit, blocks in the link's Recv, which is one system call.
IoResult CompressedConnection::Recv(void* to, size_t bytes, int timeout_ms) {
  if (!blocks_) return link_->Recv(to, bytes, timeout_ms);
  if (timeout_ms >= 0) return Connection::Recv(to, bytes, timeout_ms);
  return receiver_.Receive(to, bytes, How::kBlock);
}

int CompressedConnection::Wait(int events, int timeout_ms) {
  if ((events & kReadable) != 0 && receiver_.ready()) return kReadable;
  return link_->Wait(events, timeout_ms);
}

std::string CompressedConnection::LostReason() const {
  if (!receiver_.malformed()) return link_->LostReason();
  return "the peer sent bytes that are not a block of a compressed stream; install the same "
         "release "
         "of rgpu on both sides";
}

std::unique_ptr<CompressedConnection> Compress(std::unique_ptr<Connection> link, Savings* savings) {
  std::string ignored;
  return std::make_unique<CompressedConnection>(*LoadZstd(&ignored), std::move(link), savings);
}

void LogSavings(const Savings& savings) {
  const auto log = [](const char* way, uint64_t plain, uint64_t packed) {
    if (plain == 0) return;
    base::Log(base::Level::kInfo, "compression: %llu bytes were %s as %llu",
              static_cast<unsigned long long>(plain), way, static_cast<unsigned long long>(packed));
  };
  log("sent", savings.sent_plain, savings.sent_packed);
  log("received", savings.received_plain, savings.received_packed);
}

}  // namespace rgpu::transport::zip
