// A GateState with what its tests need: a time that the test sets, streams, and a page.
#pragma once

#include <memory>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/gate/limits.h"
#include "rgpu_server/executor/gate/state.h"
#include "tests/native/testing.h"

namespace rgpu::exec {

struct GateBench {
  static constexpr uint64_t kStartNs = 1'000 * base::kSecond;

  GateState state;
  uint64_t now = kStartNs;
  GateActions last;
  GateActions all;  // since Clear
  lease::Grant grant;
  uint32_t word = 0;
  ContextOrder order;
  bool has_streams = true;

  void Clear() { all = {}; }
  void Pass(uint64_t ns) { now += ns; }

  template <typename Event>
  GateActions Tell(const Event& happened) {
    last = state.Handle(happened, now);
    all |= last;
    return last;
  }
  // The page has this grant, and the shell looks at it.
  GateActions Look(lease::Phase phase, uint64_t generation, uint64_t slice_ns = 0) {
    grant = {generation, phase, now, slice_ns, ++word};
    return Look();
  }
  GateActions Look() {
    return Tell(event::Looked{grant, now, 1, state.active() ? 1U : 0U, 500'000});
  }
  // As the shell does it: an answer, and perhaps a look afterwards.
  bool Asks(uint64_t ns, bool in_stream = false, const ClientWaits* returns = nullptr) {
    GateActions answer = Tell(event::Asked{ns, 0, has_streams, in_stream, returns});
    if (answer.enter) answer = Tell(event::Entered{grant});
    if (answer.look) Look();
    return answer.admit;
  }
  std::shared_ptr<StreamWork> Stream(bool legacy = false, bool blocking = true) {
    auto stream = std::make_shared<StreamWork>();
    stream->legacy = legacy;
    stream->blocking = blocking;
    return stream;
  }
  static std::shared_ptr<Estimate> Kernel(uint64_t ns) {
    auto kernel = std::make_shared<Estimate>(static_cast<double>(ns));
    kernel->measured = true;
    return kernel;
  }
  void Issues(StreamWork& stream, const std::shared_ptr<Estimate>& kernel) {
    Tell(event::Issued{stream, order, kernel, 1});
  }
  // The number of the marker.
  uint64_t Marks(StreamWork& stream) {
    Tell(event::Marked{stream});
    return state.last_marker();
  }
  uint64_t IssuesAndMarks(StreamWork& stream, const std::shared_ptr<Estimate>& kernel) {
    Issues(stream, kernel);
    return Marks(stream);
  }
  void Completes(StreamWork& stream, uint64_t marker) {
    const bool same = state.grant() == grant;
    if (Tell(event::Completed{stream, marker, 0, now, now, same}).look) Look();
  }
  // A client wait in the stream; the place of it.
  WaitPlace LaunchesWait(StreamWork& stream) {
    Tell(event::WaitLaunched{stream, order});
    return {stream.waits, stream.waits->last};
  }
};

// A session in a slice of 20 ms, which has asked for work of `ns` and may issue it.
struct GateTurn : GateBench {
  explicit GateTurn(uint64_t ns) {
    Look(lease::Phase::kSlice, 2, 20 * base::kMillisecond);
    CHECK(Asks(ns));
  }
};

}  // namespace rgpu::exec
