// The control lane: the session's second connection, which the worker reads independently of the
// command stream. BYE and the answers to PULL and CALLBACK go this way.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gen/handshake.gen.h"
#include "gen/notices.gen.h"
#include "rgpu_client/shim/host_region.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/lane/lane.h"

namespace rgpu::shim {

class ControlLane {
 public:
  static constexpr const char* kNotAccepted =
      "the server did not accept the second connection, which the control lane needs";

  // Connects and sends ATTACH with the session's id, without waiting for the answer. If the server
  // granted resume_grace, the connection becomes a lane that survives cuts.
  bool Attach(const std::string& uri, const wire::Welcome& welcome);
  // The lane that survives cuts, or null.
  transport::Lane* lane() const { return lane_; }

  // Answers `pull` with packed bytes of `source` from `start` on.
  bool SendPulled(const wire::Pull& pull, const HostRegion& source, uint64_t start);
  // Tells the worker that the bytes of a direct copy have been copied.
  bool SendCopyDone(uint64_t ticket);
  // Tells the worker how much memory credit has been returned so far.
  void SendCreditReturn(uint64_t returned);
  // Tells the worker that a host function has returned, or that a stream may go on. In a process
  // with several sessions the caller does not wait for the lane: it may serve another session.
  void SendCallbackDone(uint64_t callback);
  // After the command lane has ended: the server's reason if it refused this lane, because the
  // session had ended before. If the lane ended without an answer, the server is asked again.
  // Waits for some seconds at most. Empty if the server did not refuse the lane, or if the lane
  // survives cuts: RESUME then brings the reason.
  std::string WhyRefused();
  // `lost` is called, without locks, when the worker cannot be given this lane. A worker that never
  // had it does not end the session by itself.
  void OnLost(std::function<void(std::string_view)> lost) { lost_ = std::move(lost); }
  // Tells the worker that the session ends in good order. Waits at most `timeout_ms` to send it.
  void Bye(int timeout_ms);
  // In a forked child: gives the connection up without sending anything.
  void Abandon();

 private:
  // The server's answer to ATTACH.
  enum class Answer : uint8_t { kNone, kAttached, kRefused, kCut };

  bool Connect();
  Answer Hear(int timeout_ms, std::string* sentence);
  bool IsAttached(std::string* why);
  template <typename Step>
  bool WhenAttached(const Step& step);
  template <typename Message>
  bool SendMessage(wire::Control kind, const Message& message);
  bool Send(transport::FrameBuffer& frame, const HostRegion* bulk, uint64_t offset, uint64_t bytes);
  bool SendRest();
  bool SendNow(transport::FrameBuffer& frame);
  void Leave(transport::FrameBuffer frame);
  static void SendLeft(void* lane);

  std::function<void(std::string_view)> lost_;
  std::string uri_;
  wire::Attach attach_;

  std::mutex mutex_;
  std::unique_ptr<transport::Connection> connection_;
  transport::Lane* lane_ = nullptr;  // connection_ as a lane, if it survives cuts
  Answer answer_ = Answer::kNone;    // mutex_; to ATTACH, as far as it was read
  std::vector<uint8_t> rest_;        // mutex_; of a frame that did not fit, to be sent first

  std::mutex left_mutex_;
  std::condition_variable left_something_;
  std::deque<transport::FrameBuffer> left_;  // frames that a thread of the lane's own sends
  bool sends_left_ = false;                  // the thread runs
};

}  // namespace rgpu::shim
