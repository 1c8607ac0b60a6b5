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
std::mutex g_fault_mutex;
std::string* g_fault = nullptr;  // leaked: threads may outlive static objects

// Returns the bytes written.
size_t CopyTo(const std::string& sentence, char* text, size_t bytes) {
  const size_t count = std::min(bytes, sentence.size());
  // The caller has the length.
  // NOLINTNEXTLINE(bugprone-not-null-terminated-result)
  if (count != 0) std::memcpy(text, sentence.data(), count);
  return count;
}

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

void NoteFault(const std::string& sentence) {
  base::Log(base::Level::kError, "%s", sentence.c_str());
  const std::lock_guard lock(g_fault_mutex);
  if (g_fault == nullptr) g_fault = new std::string(sentence);
}

}  // namespace rgpu::emu

extern "C" __attribute__((visibility("default"))) size_t rgpu_emu_reason(char* text, size_t bytes);

// Takes the sentence about this thread's last failed call about a kernel. Returns the bytes
// written; 0: there is none.
size_t rgpu_emu_reason(char* text, size_t bytes) {
  const size_t count = rgpu::emu::CopyTo(rgpu::emu::t_reason, text, bytes);
  rgpu::emu::t_reason.clear();
  return count;
}

extern "C" __attribute__((visibility("default"))) void rgpu_emu_log_to(int fd);

// Sets where this library's log goes. It is stderr at first.
void rgpu_emu_log_to(int fd) { rgpu::base::SetLogDescriptor(fd); }

extern "C" __attribute__((visibility("default"))) size_t rgpu_emu_fault(char* text, size_t bytes);

// Copies the sentence about the first kernel that failed in this process. Returns the bytes
// written; 0: none has failed.
size_t rgpu_emu_fault(char* text, size_t bytes) {
  const std::lock_guard lock(rgpu::emu::g_fault_mutex);
  const std::string* fault = rgpu::emu::g_fault;
  return fault == nullptr ? 0 : rgpu::emu::CopyTo(*fault, text, bytes);
}
