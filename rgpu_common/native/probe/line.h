// The measuring end of one probe. It moves bytes and takes times. netprobe (Python) turns them into
// estimates.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rgpu_common/native/probe/message.h"
#include "rgpu_common/native/probe/watchdog.h"

namespace rgpu::probe {

// The result of a train or a count.
struct Train {
  uint64_t bytes = 0;     // bytes that the receiver got
  uint64_t total_ns = 0;  // from sending the order to the end of the answer
  // The arrivals at the receiver. Times count from the order's arrival (up) or sending (down).
  std::vector<Arrival> arrivals;
};

class Line {
 public:
  // Connects and sends PROBE; each of the two may take `timeout_ms`. Each later answer may take 2
  // s, because a train on a slow path does, and the whole probe may take `life_ms`. Null: `*why` is
  // a sentence.
  static std::unique_ptr<Line> Open(const std::string& uri, int timeout_ms, int life_ms,
                                    std::string* why);
  // Lets the rest of the probe take at most `life_ms`.
  void Limit(int life_ms) { watchdog_.Set(life_ms); }

  uint64_t connect_ns() const { return connect_ns_; }  // time to connect the transport
  uint64_t open_ns() const { return open_ns_; }        // time until the offer arrived
  const Offer& offer() const { return offer_; }
  const char* kind() const { return connection_->kind(); }

  // The functions below return false if the line is broken; error() then says why.
  //
  // Makes round trips of 64 bytes, until `count` are done or `time_ms` has passed; at least one.
  bool Ping(uint32_t count, int time_ms, std::vector<uint64_t>* ns);
  // Sends a train to the responder.
  bool Up(const Order& order, Train* train);
  // Receives a train from the responder.
  bool Down(const Order& order, Train* train);
  // Sends `count` messages of 64 bytes, `batch` of them in one write, and waits for one answer.
  bool Count(uint32_t count, uint32_t batch, Train* train);
  const std::string& error() const { return error_; }

 private:
  Line(std::unique_ptr<transport::Connection> connection, int timeout_ms, int life_ms);
  bool Greet();
  // Switches to the rings that came with the offer.
  bool TakeRing();
  bool Send();
  // Receives the next frame and returns its head. False: it is not a frame of this protocol.
  bool Receive(wire::ByteView* head);
  // Receives the responder's arrivals for `bytes` that were sent since `start_ns`. Sets total_ns.
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
  bool refused_ = false;  // error_ is the responder's own sentence
  Watchdog watchdog_;     // the last member, so that it is destroyed before connection_
};

}  // namespace rgpu::probe
