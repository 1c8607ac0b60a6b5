// The responder's end of one probe: does what it is asked, within limits, and answers nowhere else.
#pragma once

#include <atomic>
#include <functional>

#include "rgpu_common/native/probe/message.h"

namespace rgpu::probe {

struct Limits {
  uint64_t bytes = 1ULL << 30;  // both ways, data and orders
  int time_ms = 15000;          // of the whole connection; kept by whoever can call Shutdown
  int idle_ms = 2000;           // no byte for this long
};

class Session {
 public:
  // `charge` is asked, beside the limits here, before bytes are moved; false: enough for this peer.
  // What was not moved after all comes back as a negative number.  Null: nobody else counts.
  Session(transport::Connection* connection, Offer offer, Limits limits,
          std::function<bool(int64_t)> charge = nullptr);

  // Serves to the end.  `first`: the head of the PROBE that somebody else has read; null: it comes
  // on the connection.
  void Serve(const wire::ByteView* first);

  // From any thread: the probe has said what it is.
  bool opened() const { return opened_.load(std::memory_order_relaxed); }

 private:
  bool Open(const wire::ByteView* first);
  // The offer, with a ring if the probe wishes one and there can be one.
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

// Tells a peer why it is not served; does not wait for it.
void RefuseNow(transport::Connection* connection, const char* sentence);

}  // namespace rgpu::probe
