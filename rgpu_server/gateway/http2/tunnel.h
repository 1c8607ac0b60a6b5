// `TunnelService.Open`: a call that is one connection to the daemon.
#pragma once

#include <cstdint>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_server/gateway/http2/call.h"
#include "rgpu_server/gateway/http2/chunks.h"

namespace rgpu::gateway::http2 {

class Tunnel final : public Call, private ChunkSink {
 public:
  Tunnel(Carrier& carrier, uint64_t place, const Fields& request);

  Wait waits() const override;
  void OnReady(short events) override;
  void OnData(const uint8_t* data, size_t bytes) override;
  void OnEnd() override;
  void OnSent() override;

 private:
  enum class State : uint8_t {
    kSilent,    // no data for the daemon has come
    kKnocking,  // the daemon takes no connection yet
    kOpen,
  };

  uint64_t NextDue() const override;
  void Look(uint64_t now) override;
  void GiveBack() override;
  void Data(const uint8_t* data, size_t bytes) override;
  void EndOfData() override;

  void Knock(uint64_t now);
  void Refuse(ChunkReader::Fault fault);
  // Sends bytes to the daemon. Returns how many the socket took, or all if the daemon's end is
  // closed.
  size_t HandOn(const uint8_t* data, size_t bytes);
  void Flush();
  void EndIfFlushed();
  void Read();
  void InnerEnded();

  State state_ = State::kSilent;
  ChunkReader reader_{this};
  base::UniqueFd inner_;
  Body in_;                   // bytes that the daemon's socket did not take yet
  bool ending_ = false;       // the client sends no more data
  bool deaf_ = false;         // the daemon's end takes no more data
  bool inner_ended_ = false;  // the daemon's end sends no more data
  int32_t window_ = 0;        // bytes granted beyond kStreamWindow
  uint64_t began_ns_;
  uint64_t heard_ns_;
  uint64_t said_ns_;
  uint64_t knocked_ns_ = 0;
  uint64_t knock_again_ns_ = 0;
};

}  // namespace rgpu::gateway::http2
