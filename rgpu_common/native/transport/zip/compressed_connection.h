// A link whose bytes travel in blocks, which are compressed if that pays. It lies over another
// Connection and under a Lane; the Lane does not know about compression.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/transport/zip/block_receiver.h"
#include "rgpu_common/native/transport/zip/block_sender.h"

namespace rgpu::transport::zip {

class CompressedConnection final : public Connection {
 public:
  // `link` carries plain bytes until StartBlocks. `savings` must outlive the connection.
  CompressedConnection(const Api& api, std::unique_ptr<Connection> link, Savings* savings,
                       Clock clock = &base::NowNs);

  // From here on, both directions carry blocks. `ahead` holds bytes of the peer's first blocks that
  // have already been read from the link, at most ReadAhead::kCapacity.
  void StartBlocks(wire::ByteView ahead = {});

  IoResult TrySend(const iovec* parts, int count) override;
  IoResult TryRecv(void* to, size_t bytes) override;
  IoResult TryRecvGuarded(void* to, size_t bytes) override;
  IoResult Recv(void* to, size_t bytes, int timeout_ms) override;
  bool HasInput() const override { return receiver_.ready() || link_->HasInput(); }
  bool HasOutput() const override { return link_->HasOutput(); }
  int Wait(int events, int timeout_ms) override;
  void Wake() override { link_->Wake(); }
  void EndSending() override { link_->EndSending(); }
  void Shutdown() override { link_->Shutdown(); }
  void Abandon() override { link_->Abandon(); }
  bool Malformed() const override { return receiver_.malformed() || link_->Malformed(); }
  std::string LostReason() const override;
  const char* kind() const override { return link_->kind(); }
  bool checks_memory() const override { return link_->checks_memory(); }

 private:
  const std::unique_ptr<Connection> link_;
  std::atomic<bool> blocks_{false};
  BlockSender sender_;
  BlockReceiver receiver_;
};

// Wraps `link`. The caller has checked that zstd is present (LoadZstd).
std::unique_ptr<CompressedConnection> Compress(std::unique_ptr<Connection> link, Savings* savings);

// Logs how many bytes compression saved. Logs nothing if no block was compressed.
void LogSavings(const Savings& savings);

}  // namespace rgpu::transport::zip
