// A gRPC call that a client makes to the gateway.
#pragma once

#include <cstdint>

#include "rgpu_server/gateway/http2/grpc.h"
#include "rgpu_server/gateway/http2/house.h"
#include "rgpu_server/gateway/http2/session.h"

namespace rgpu::gateway::http2 {

inline constexpr uint64_t kNever = UINT64_MAX;

class Carrier;

class Call : public Stream {
 public:
  // A descriptor that a call waits for, with events of poll(2).
  struct Wait {
    int fd = -1;
    short events = 0;
  };

  // place: the call's number in House::calls.
  Call(Carrier& carrier, uint64_t place, const Fields& request);

  virtual Wait waits() const { return {}; }
  virtual void OnReady(short /*events*/) {}
  // Returns when OnTime has to be called.
  uint64_t due() const;
  void OnTime(uint64_t now);

  // Ends the call with a status after the bytes in `out_`, unless it has a status already.
  void Finish(const Status& status) { FinishWith(Trailers(status)); }
  void FinishWith(const Fields& trailers);
  bool finished() const { return finished_; }

  void OnClosed(uint32_t error_code) override;

 protected:
  virtual uint64_t NextDue() const = 0;
  virtual void Look(uint64_t now) = 0;
  // The stream has closed. Frees the resources of the call.
  virtual void GiveBack() {}

  Carrier& carrier() const { return carrier_; }
  // Sends the bytes in `out_`, after the answer's first fields.
  void Send();
  // From now on the call does not make room for other calls.
  void Admit();
  bool admitted() const { return admitted_; }
  void SetDeadline(uint64_t at) { deadline_ns_ = std::min(deadline_ns_, at); }

 private:
  Carrier& carrier_;
  const uint64_t place_;
  uint64_t deadline_ns_ = kNever;
  bool answered_ = false;
  bool admitted_ = false;
  bool finished_ = false;
};

}  // namespace rgpu::gateway::http2
