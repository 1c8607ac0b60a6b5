#include "tests/native/gate_story.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "tests/native/testing.h"

namespace rgpu::exec {

namespace {

constexpr std::array kPhases = {"off", "none", "prepare", "slice", "open", "recalled"};

// Of an age in a line; an age may be negative, since a thread may be told of the future.
uint64_t Before(uint64_t now_ns, int64_t age_ns) { return now_ns - static_cast<uint64_t>(age_ns); }

}  // namespace

StoryLine::StoryLine(const std::string& text) {
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words_.push_back(word);
  CHECK(!words_.empty());
}

bool StoryLine::Has(const std::string& flag) const {
  return std::ranges::find(words_, flag) != words_.end();
}

std::string StoryLine::Text(const std::string& key, const std::string& otherwise) const {
  for (const std::string& word : words_) {
    if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
  }
  return otherwise;
}

uint64_t StoryLine::Value(const std::string& key, uint64_t otherwise) const {
  const std::string text = Text(key, "");
  return text.empty() ? otherwise : std::stoull(text);
}

uint64_t StoryLine::Moment(const std::string& key, uint64_t now_ns, uint64_t otherwise) const {
  const std::string text = Text(key, "");
  return text.empty() ? otherwise : Before(now_ns, std::stoll(text));
}

const GateStory::Handlers& GateStory::Turns() {
  static const Handlers handlers = {
      {"ask", [](auto& story, const auto& line) { story.Ask(line); }},
      {"enter", [](auto& story, const auto& line) { story.Enter(line); }},
      {"look", [](auto& story, const auto& line) { story.Look(line); }},
      {"holding", [](auto& story, const auto& line) { story.Tell(event::Holding{line.Has("1")}); }},
      {"await_begins", [](auto& story, const auto&) { story.Tell(event::AwaitBegan{}); }},
      {"await_ends", [](auto& story, const auto&) { story.Tell(event::AwaitEnded{}); }},
      {"tick",
       [](auto& story, const auto& line) { story.Tell(event::Ticked{line.Has("streams")}); }},
      {"still_runs", [](auto& story, const auto&) { story.Tell(event::StillRuns{}); }},
      {"link_lost", [](auto& story, const auto&) { story.Tell(event::LinkLost{}); }},
      {"link_back", [](auto& story, const auto&) { story.Tell(event::LinkBack{}); }},
      {"failed", [](auto& story, const auto&) { story.Tell(event::Failed{}); }},
      {"stopped", [](auto& story, const auto&) { story.Tell(event::Stopped{}); }},
  };
  return handlers;
}

const GateStory::Handlers& GateStory::Work() {
  static const Handlers handlers = {
      {"kind", [](auto& story, const auto& line) { story.Kind(line); }},
      {"stream", [](auto& story, const auto& line) { story.NewStream(line); }},
      {"issue", [](auto& story, const auto& line) { story.Issue(line); }},
      {"mark", [](auto& story,
                  const auto& line) { story.Tell(event::Marked{story.Stream(line.Number(1))}); }},
      {"complete", [](auto& story, const auto& line) { story.Complete(line); }},
      {"awaited",
       [](auto& story, const auto& line) { story.Tell(event::Awaited{line.Number(1)}); }},
      {"forget", [](auto& story, const auto& line) { story.Forget(line); }},
  };
  return handlers;
}

const GateStory::Handlers& GateStory::Waits() {
  static const Handlers handlers = {
      {"wait_launched",
       [](auto& story, const auto& line) {
         const uint64_t stream = line.Number(1);
         story.Tell(event::WaitLaunched{story.Stream(stream), story.Order(stream)});
       }},
      {"ordered", [](auto& story, const auto& line) { story.Ordered(line); }},
      {"wait_begins",
       [](auto& story, const auto& line) {
         story.Tell(event::WaitBegan{story.Place(line.at(1))});
       }},
      {"wait_ends",
       [](auto& story, const auto& line) {
         story.Tell(event::WaitEnded{story.Place(line.at(1))});
       }},
      {"wait_passed",
       [](auto& story, const auto& line) {
         story.Tell(event::WaitPassed{story.Place(line.at(1))});
       }},
      {"went_on", [](auto& story, const auto& line) { story.WentOn(line); }},
  };
  return handlers;
}

std::string GateStory::Play(const std::string& text) {
  if (text.empty() || text[0] == '#') return text;
  const std::string happened = text.substr(0, text.find(" >"));
  size_t end = 0;
  now_ += std::stoull(happened, &end);
  const StoryLine line(happened.substr(end));
  actions_ = {};
  for (const Handlers* handlers : {&Turns(), &Work(), &Waits()}) {
    const auto found = handlers->find(line.name());
    if (found == handlers->end()) continue;
    found->second(*this, line);
    return happened + Outcome();
  }
  testing::Fail(__FILE__, __LINE__, "'" + line.name() + "' is not an event");
}

void GateStory::Kind(const StoryLine& line) {
  auto estimate = std::make_shared<Estimate>(line.Real(2), line.Number(3), line.Real(4));
  estimate->measured = line.Has("measured");
  kinds_[line.Number(1)] = std::move(estimate);
}

void GateStory::NewStream(const StoryLine& line) {
  const std::string& numbers = line.at(1);
  const size_t dash = numbers.find('-');
  const uint64_t first = line.Number(1);
  const uint64_t last = dash == std::string::npos ? first : std::stoull(numbers.substr(dash + 1));
  for (uint64_t number = first; number <= last; ++number) {
    auto work = std::make_shared<StreamWork>();
    work->legacy = line.Has("legacy");
    work->blocking = line.Has("blocking");
    streams_[number] = {std::move(work), line.Number(2)};
  }
}

void GateStory::Ask(const StoryLine& line) {
  event::Asked asked{.ns = line.Number(1), .others_ns = line.Value("others")};
  asked.has_streams = line.Has("streams");
  asked.in_stream = line.Has("in_stream");
  const uint64_t returns = line.Value("returns");
  if (returns != 0) asked.returns = Stream(returns).waits.get();
  Tell(asked);
}

void GateStory::ReadGrant(const StoryLine& line) {
  lease::Grant& grant = page_.grant;
  grant.generation = line.Value("gen", grant.generation);
  const std::string phase = line.Text("phase", kPhases[static_cast<size_t>(grant.phase)]);
  const auto found = std::ranges::find(kPhases, phase);
  CHECK(found != kPhases.end());
  grant.phase = static_cast<lease::Phase>(found - kPhases.begin());
  grant.start_ns = line.Moment("start", now_, grant.start_ns);
  grant.slice_ns = line.Value("slice", grant.slice_ns);
  grant.futex = static_cast<uint32_t>(line.Value("word", grant.futex));
}

void GateStory::Enter(const StoryLine& line) {
  ReadGrant(line);
  Tell(event::Entered{page_.grant});
}

void GateStory::Look(const StoryLine& line) {
  ReadGrant(line);
  page_.heartbeat_ns = line.Moment("beat", now_, page_.heartbeat_ns);
  page_.workers = static_cast<uint32_t>(line.Value("workers", page_.workers));
  page_.active_workers = static_cast<uint32_t>(line.Value("active", page_.active_workers));
  page_.request_ppm = line.Value("share", page_.request_ppm);
  Tell(page_);
}

void GateStory::Issue(const StoryLine& line) {
  const auto& kind = kinds_.at(line.Number(2));
  Tell(event::Issued{Stream(line.Number(1)), Order(line.Number(1)), kind, line.Number(3)});
}

void GateStory::Complete(const StoryLine& line) {
  event::Completed completed{.stream = Stream(line.Number(1)), .marker = line.Number(2)};
  completed.began_ns = line.Moment("began", now_, 0);
  completed.done_ns = line.Moment("done", now_, now_);
  completed.found_ns = line.Moment("found", now_, now_);
  completed.same_word = !line.Has("other_word");
  Tell(completed);
}

void GateStory::Forget(const StoryLine& line) {
  Tell(event::Forgotten{Stream(line.Number(1)), !line.Has("other_word")});
}

void GateStory::Ordered(const StoryLine& line) {
  WaitPlaces behind;
  for (size_t i = 2; i < line.size(); ++i) behind.Add(Place(line.at(i)));
  Tell(event::OrderedBehind{Stream(line.Number(1)), Order(line.Number(1)), behind});
}

void GateStory::WentOn(const StoryLine& line) {
  event::WentOn went_on{nullptr, line.Has("awaited")};
  if (line.size() > 1 && line.at(1) != "awaited") went_on.waits = Stream(line.Number(1)).waits;
  Tell(went_on);
}

WaitPlace GateStory::Place(const std::string& text) {
  size_t end = 0;
  const uint64_t stream = std::stoull(text, &end);
  return {Stream(stream).waits, std::stoull(text.substr(end + 1))};
}

std::string GateStory::Outcome() {
  const std::string outcome = Actions() + SlotChanges();
  return outcome.empty() ? "" : " >" + outcome;
}

std::string GateStory::Actions() const {
  std::ostringstream text;
  const auto flag = [&](bool set, const char* name) {
    if (set) text << " " << name;
  };
  flag(actions_.admit, "admit");
  flag(actions_.hold, "hold");
  flag(actions_.enter, "enter");
  flag(actions_.signal, "signal");
  flag(actions_.wake_held, "wake_held");
  flag(actions_.wake_watcher, "wake_watcher");
  flag(actions_.mark, "mark");
  flag(actions_.hurry, "hurry");
  flag(actions_.look, "look");
  flag(actions_.ask_driver, "ask_driver");
  flag(actions_.overdue, "overdue");
  if (actions_.charged_ns != 0) text << " charged=" << actions_.charged_ns;
  return text.str();
}

std::string GateStory::SlotChanges() {
  std::ostringstream text;
  const SlotImage now = state_.slot();
  const SlotImage before = std::exchange(slot_, now);
  const auto put = [&](auto value, auto was, const char* name) {
    if (value != was) text << " " << name << "=" << value;
  };
  put(now.active_gen, before.active_gen, "active");
  put(now.near_end_gen, before.near_end_gen, "near_end");
  put(now.spent_gen, before.spent_gen, "spent");
  put(now.wants, before.wants, "wants");
  put(now.kernel_us, before.kernel_us, "kernel_us");
  put(now.in_flight_ns, before.in_flight_ns, "in_flight");
  put(now.held_back_ns, before.held_back_ns, "held_back");
  if (now.drained_ns != before.drained_ns) {
    text << " drained=" << static_cast<int64_t>(now_ - now.drained_ns);
  }
  return text.str();
}

}  // namespace rgpu::exec
