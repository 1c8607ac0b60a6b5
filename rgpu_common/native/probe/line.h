// The measuring end of one probe.  Moves bytes and takes times; what they mean is decided
// elsewhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rgpu_common/native/probe/message.h"
#include "rgpu_common/native/probe/watchdog.h"

namespace rgpu::probe {

// What became of a train or a count.
struct Train {
  uint64_t bytes = 0;     // how many really went
  uint64_t total_ns = 0;  // from the first byte of the order to the last of the answer
  // At the receiver, since the order (up: its arrival, down: its sending).
  std::vector<Arrival> arrivals;
};

class Line {
 public:
  // Connects and says PROBE; timeout_ms is for each of both.  Later an answer may take 2 s, since a
  // train on a slow path does, and all together life_ms.  Null: `*why` is a sentence.
  static std::unique_ptr<Line> Open(const std::string& uri, int timeout_ms, int life_ms,
                                    std::string* why);
  // From now on all together may take so long.
  void Limit(int life_ms) { watchdog_.Set(life_ms); }

  uint64_t connect_ns() const { return connect_ns_; }  // until the transport was connected
  uint64_t open_ns() const { return open_ns_; }        // until the offer was here
  const Offer& offer() const { return offer_; }
  const char* kind() const { return connection_->kind(); }

  // Round trips of 64 bytes, until there are `count` or `time_ms` has passed; at least one.
  // False: the line is broken, see error().
  bool Ping(uint32_t count, int time_ms, std::vector<uint64_t>* ns);
  bool Up(const Order& order, Train* train);
  bool Down(const Order& order, Train* train);
  // `count` messages of 64 bytes, `batch` of them to a write, and one answer.
  bool Count(uint32_t count, uint32_t batch, Train* train);
  const std::string& error() const { return error_; }

 private:
  Line(std::unique_ptr<transport::Connection> connection, int timeout_ms, int life_ms);
  bool Greet();
  // Goes over to the rings that came with the offer.
  bool TakeRing();
  bool Send();
  // The head of the next frame; empty `error_` means that it is one of this protocol.
  bool Receive(wire::ByteView* head);
  // What the other end says of `bytes` that were sent since start_ns; also sets total_ns.
  bool ReceiveArrivals(uint64_t bytes, uint64_t start_ns, Train* train);
  bool Broken(const char* sentence);

  std::unique_ptr<transport::Connection> connection_;
  transport::FrameReader reader_;
  transport::FrameBuffer out_;
  int idle_ms_;
  Offer offer_;
  uint64_t connect_ns_ = 0;
  uint64_t open_ns_ = 0;
  std::string error_;
  bool refused_ = false;  // error_ is what the responder said
  Watchdog watchdog_;     // last: it is gone before what it watches
};

}  // namespace rgpu::probe
