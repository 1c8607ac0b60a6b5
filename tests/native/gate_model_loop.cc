// The model's clock, and its token loop in short.
#include <algorithm>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "tests/native/gate_model.h"
#include "tests/native/testing.h"

namespace rgpu::exec::model {

namespace {

using base::kMicrosecond;
using base::kMillisecond;
using base::kSecond;
using lease::Phase;

constexpr uint64_t kTickNs = 20 * kMillisecond;
constexpr uint64_t kLongestNs = 600 * kSecond;

}  // namespace

World::World(uint64_t seed, size_t commands) : random_(seed), seed_(seed) {
  for (int i = 0; i < 2; ++i) sessions_.push_back(std::make_unique<Session>(*this, commands));
  Tick();
}

void World::Run() {
  const auto finished = [](const auto& session) { return session->finished(); };
  while (!std::ranges::all_of(sessions_, finished)) {
    const auto next = due_.begin();
    now_ = next->first;
    const auto function = std::move(next->second);
    due_.erase(next);
    function();
    const auto fail = [&](const std::string& what) {
      testing::Fail(__FILE__, __LINE__,
                    what + ", seed " + std::to_string(seed_) + "; " + sessions_[0]->Story() + "; " +
                        sessions_[1]->Story());
    };
    try {
      for (const auto& session : sessions_) session->Check();
    } catch (const testing::CheckFailed& failure) {
      fail(failure.what());
    }
    if (sessions_[0]->running() > 0 && sessions_[1]->running() > 0) fail("two on the device");
    if (now_ > kLongestNs) fail("a program does not come to its end");
  }
  for (const auto& session : sessions_) session->CheckEnd();
}

void World::Signal() {
  After(Random(5, 100) * kMicrosecond, [this] { LoopLooks(); });
}

void World::Tick() {
  LoopLooks();
  After(kTickNs, [this] { Tick(); });
}

// The token loop in short: turns by demand, slices and open grants, a recall when a turn is over.
void World::LoopLooks() {
  if (sessions_.size() < 2) return;
  if (holder_ != kNobody) {
    const SlotImage& slot = sessions_[holder_]->slot();
    const bool other_wants = sessions_[1 - holder_]->slot().wants;
    const bool spent = slot.spent_gen == grant_.generation && slot.active_gen == 0;
    const bool unused = slot.active_gen == 0 && !slot.wants;
    const bool over =
        grant_.phase == Phase::kSlice && now_ > grant_.start_ns + grant_.slice_ns + kTickNs;
    const bool near_end = slot.near_end_gen == grant_.generation;
    if (grant_.running() && near_end && slot.active_gen != 0 && !other_wants && Chance(2)) {
      grant_.slice_ns += 10 * kMillisecond;  // a longer slice, before the device runs dry
      Write(holder_, grant_);
    }
    const bool ends = spent || unused || over || (grant_.phase == Phase::kOpen && other_wants);
    // Now and then for no reason, also at the moment in which a worker takes the grant up.
    if (grant_.running() && (ends || Chance(10))) Recall();
    if (grant_.phase == Phase::kRecalled && slot.active_gen == 0) {
      Write(holder_, {grant_.generation, Phase::kNone, 0, 0});
      last_ = std::exchange(holder_, kNobody);
    }
  }
  if (holder_ != kNobody) return;
  for (const size_t session : {1 - last_, last_}) {
    if (sessions_[session]->slot().wants) return Grant(session);
  }
}

void World::Grant(size_t session) {
  holder_ = session;
  const bool open = !sessions_[1 - session]->slot().wants && Chance(2);
  grant_ = {grant_.generation + 1, open ? Phase::kOpen : Phase::kSlice, now_,
            open ? 0 : Random(5, 25) * kMillisecond};
  Write(session, grant_);
}

void World::Recall() {
  grant_.phase = Phase::kRecalled;
  Write(holder_, grant_);
}

void World::Write(size_t session, const lease::Grant& grant) {
  lease::Grant written = grant;
  written.futex = ++word_;
  sessions_[session]->Granted(written);
}

}  // namespace rgpu::exec::model
