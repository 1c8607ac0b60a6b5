// The responder's end of one probe. It carries out the probe's orders within limits, and sends only
// on the probe's own connection.
#pragma once

#include <atomic>
#include <functional>

#include "rgpu_common/native/probe/message.h"

namespace rgpu::probe {

struct Limits {
  uint64_t bytes = 1ULL << 30;  // both ways together, trains and orders
  int time_ms = 15000;          // of the whole connection; the owner enforces it with Shutdown
  int idle_ms = 2000;           // the longest time without a byte
};

class Session {
 public:
  // Before bytes are moved, `charge` is called with their number, in addition to the check of
  // `limits`. If it returns false, the peer's allowance is used up. Bytes that were charged but not
  // moved are given back as a negative number. `charge` may be null.
  Session(transport::Connection* connection, Offer offer, Limits limits,
          std::function<bool(int64_t)> charge = nullptr);

  // Serves the probe until it ends. `first` is the head of the PROBE if the caller has already read
  // it; null: the PROBE is still to be read from the connection.
  void Serve(const wire::ByteView* first);

  // True once a valid PROBE has come. May be called from any thread.
  bool opened() const { return opened_.load(std::memory_order_relaxed); }

 private:
  bool Open(const wire::ByteView* first);
  // Sends the offer, with shared-memory rings if the probe wishes them and they can be made.
  bool Answer(const Request& request);
  bool AwaitRing();
  bool Obey(const wire::FrameHeader& header, wire::ByteView head);
  bool Echo(const Order& order);
  bool Up(const Order& order);
  bool Down(const Order& order);
  bool Count(const Order& order);
  bool Charge(uint64_t bytes);
  void GiveBack(uint64_t bytes);
  bool Send();
  void Refuse(const char* sentence);

  transport::Connection* connection_;
  transport::FrameReader reader_;
  transport::FrameBuffer out_;
  Offer offer_;
  const Limits limits_;
  std::function<bool(int64_t)> charge_;
  uint64_t left_;
  std::atomic<bool> opened_{false};
};

// Sends the peer a refusal with the reason, without waiting.
void RefuseNow(transport::Connection* connection, const char* sentence);

}  // namespace rgpu::probe
