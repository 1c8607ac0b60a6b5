#include "rgpu_emu/device/reason.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "rgpu_common/native/base/log.h"

namespace rgpu::emu {
namespace {

constexpr size_t kMostSaid = 256;

thread_local std::string t_reason;

// Returns false for a sentence that was logged before, since a program may ask for a refused kernel
// again and again.
bool SayNow(const std::string& sentence) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;  // leaked: threads may outlive static objects
  const std::lock_guard lock(mutex);
  return said->size() < kMostSaid && said->insert(sentence).second;
}

}  // namespace

void NoteReason(const std::string& sentence) {
  t_reason = sentence;
  if (SayNow(sentence)) base::Log(base::Level::kError, "%s", sentence.c_str());
}

}  // namespace rgpu::emu

extern "C" __attribute__((visibility("default"))) size_t rgpu_emu_reason(char* text, size_t bytes);

// Takes the sentence about this thread's last failed call about a kernel. Returns the bytes
// written; 0: there is none.
size_t rgpu_emu_reason(char* text, size_t bytes) {
  std::string& reason = rgpu::emu::t_reason;
  const size_t count = std::min(bytes, reason.size());
  // The caller has the length.
  // NOLINTNEXTLINE(bugprone-not-null-terminated-result)
  if (count != 0) std::memcpy(text, reason.data(), count);
  reason.clear();
  return count;
}
