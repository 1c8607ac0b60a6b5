// Stories of the gate: each event must have the outcome that the story tells.
//
// RGPU_GATE_STORIES_ANEW=1 writes the stories with the outcomes that the events have now.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/native/gate_story.h"
#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

std::vector<std::string> Lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  CHECK(!lines.empty());
  return lines;
}

void Replay(const std::filesystem::path& path) {
  GateStory story;
  size_t number = 0;
  for (const std::string& line : Lines(path)) {
    ++number;
    const std::string played = story.Play(line);
    if (played == line) continue;
    testing::Fail(path.c_str(), static_cast<int>(number),
                  "the story has\n  " + line + "\nand the gate did\n  " + played);
  }
}

void WriteAnew(const std::filesystem::path& path) {
  GateStory story;
  const std::vector<std::string> lines = Lines(path);
  std::ofstream file(path);
  for (const std::string& line : lines) file << story.Play(line) << "\n";
}

TEST(gate, events_of_stories_have_the_outcomes_that_were_recorded) {
  const bool anew = std::getenv("RGPU_GATE_STORIES_ANEW") != nullptr;
  int stories = 0;
  for (const auto& entry : std::filesystem::directory_iterator(RGPU_GATE_STORIES)) {
    if (entry.path().extension() != ".story") continue;
    if (anew) WriteAnew(entry.path());
    Replay(entry.path());
    ++stories;
  }
  CHECK(stories > 0);
}

}  // namespace
}  // namespace rgpu::exec
