// The part of Session that keeps its lanes connected, moves them and sums up their counters.
#include "rgpu_client/shim/session.h"

namespace rgpu::shim {
namespace {

// How long the worker's last words may take to arrive when the server lets nobody attach any more.
constexpr int kLastWordsMs = 1000;

}  // namespace

void Session::AttachControl(const wire::Welcome& welcome) {
  control_.OnLost([this](std::string_view why) { channel_->End(why); });
  if (control_.Attach(server_, welcome)) return;
  // The server may have ended the session meanwhile, or be ending itself: the worker says why.
  channel_->AwaitEnd(kLastWordsMs);
  channel_->SetSticky(CUDA_ERROR_EXTERNAL_DEVICE, ControlLane::kNotAccepted);
}

void Session::KeepLanes(const Settings& settings, const wire::Welcome& welcome) {
  paths_.Set(settings.server, settings.paths);
  if (lane_ != nullptr) {
    keeper_ = std::make_unique<LaneKeeper>(lane_, wire::LaneName::kCommand, welcome, &paths_,
                                           compresses_ ? &savings_ : nullptr);
    keeper_->Start();
  }
  if (control_.lane() != nullptr) {
    control_keeper_ =
        std::make_unique<LaneKeeper>(control_.lane(), wire::LaneName::kControl, welcome, &paths_);
    control_keeper_->FailWith(lane_);
    control_keeper_->Start();
  }
  if (!settings.agent.empty()) agent_.Start(this, settings.agent);
}

bool Session::Move(const std::string& uri, std::string* why) {
  if (keeper_ == nullptr || control_keeper_ == nullptr) {
    *why = "the server granted this session no resumption, so it cannot change its path";
    return false;
  }
  if (!keeper_->Move(uri, why)) return false;
  // The command lane has moved. If the control lane cannot move now, it follows when its old
  // connection is cut.
  std::string ignored;
  control_keeper_->Move(uri, &ignored);
  return true;
}

std::string Session::Stats() const {
  return "STATS calls=" + std::to_string(channel_->commands_sent()) +
         " bulk_bytes=" + std::to_string(channel_->bulk_bytes()) +
         " syncs=" + std::to_string(channel_->syncs()) + " path=" + paths_.current();
}

transport::LaneStats Session::LaneTotals() const {
  transport::LaneStats total;
  for (const transport::Lane* lane : {static_cast<const transport::Lane*>(lane_),
                                      static_cast<const transport::Lane*>(control_.lane())}) {
    if (lane == nullptr) continue;
    const transport::LaneStats one = lane->stats();
    total.cuts += one.cuts;
    total.resumes += one.resumes;
    total.moves += one.moves;
    total.resent_bytes += one.resent_bytes;
  }
  return total;
}

}  // namespace rgpu::shim
