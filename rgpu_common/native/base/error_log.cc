#include "rgpu_common/native/base/error_log.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

namespace rgpu::base {
namespace {

constexpr size_t kMostEntries = 100;
constexpr size_t kMostBytes = 25600;  // of one dump to memory, as cuda.h says
constexpr size_t kMostCallbacks = 256;

struct Callback {
  CUlogsCallback function;
  void* data;
};

struct Log {
  std::mutex mutex;
  std::deque<std::string> entries;  // the last has number `end` - 1
  CUlogIterator end = 0;
  std::map<uint64_t, Callback> callbacks;
  uint64_t last_callback = 0;
};

Log* g_log = new Log;  // never destroyed: calls fail while the process ends, too
thread_local bool t_in_callback = false;

// "[hh:mm:ss.mmm][thread][CUDA][E][function] sentence", as the CUDA programming guide shows it.
std::string Line(std::string_view function, std::string_view sentence) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  std::array<char, 64> head;
  snprintf(head.data(), head.size(), "[%02d:%02d:%02d.%03ld][%ld][CUDA][E]", local.tm_hour,
           local.tm_min, local.tm_sec, now.tv_nsec / 1'000'000, syscall(SYS_gettid));
  std::string line = head.data();
  if (!function.empty()) line.append("[").append(function).append("]");
  return line.append(" ").append(sentence);
}

// Adds an entry, and returns the callbacks.
std::vector<Callback> Add(const std::string& line) {
  const std::lock_guard lock(g_log->mutex);
  if (g_log->entries.size() == kMostEntries) g_log->entries.pop_front();
  g_log->entries.push_back(line);
  ++g_log->end;
  std::vector<Callback> callbacks;
  callbacks.reserve(g_log->callbacks.size());
  for (const auto& [_, callback] : g_log->callbacks) callbacks.push_back(callback);
  return callbacks;
}

// The entries from `*iterator` on, and the number of those that are gone. Moves the iterator.
std::vector<std::string> Take(CUlogIterator* iterator, size_t* missing) {
  const std::lock_guard lock(g_log->mutex);
  const auto kept = static_cast<CUlogIterator>(g_log->entries.size());
  const CUlogIterator first = g_log->end - kept;
  const CUlogIterator from = iterator == nullptr ? first : *iterator;
  // Iterators count up to their type's end and begin again.
  CUlogIterator wanted = g_log->end - from;
  if (wanted > 1U << 31) wanted = 0;  // not an iterator of this log
  const CUlogIterator count = std::min(wanted, kept);
  *missing = wanted - count;
  if (iterator != nullptr) *iterator = g_log->end;
  return {g_log->entries.end() - count, g_log->entries.end()};
}

std::string Missing(size_t count) {
  return count == 0 ? "" : "(" + std::to_string(count) + " older messages are not shown)\n";
}

}  // namespace

void LogFailure(std::string_view function, std::string_view sentence) {
  std::string line = Line(function, sentence);
  const std::vector<Callback> callbacks = Add(line);
  if (t_in_callback) return;
  t_in_callback = true;
  for (const Callback& callback : callbacks) {
    callback.function(callback.data, CU_LOG_LEVEL_ERROR, line.data(), line.size());
  }
  t_in_callback = false;
}

void LogSentence(std::string_view sentence) { Add(Line("", sentence)); }

CUlogIterator EndOfLog() {
  const std::lock_guard lock(g_log->mutex);
  return g_log->end;
}

CUresult RegisterLogCallback(CUlogsCallback function, void* data, CUlogsCallbackHandle* handle) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(g_log->mutex);
  if (g_log->callbacks.size() >= kMostCallbacks) return CUDA_ERROR_OUT_OF_MEMORY;
  g_log->callbacks[++g_log->last_callback] = {function, data};
  *handle = reinterpret_cast<CUlogsCallbackHandle>(g_log->last_callback);
  return CUDA_SUCCESS;
}

CUresult UnregisterLogCallback(CUlogsCallbackHandle handle) {
  const std::lock_guard lock(g_log->mutex);
  const bool known = g_log->callbacks.erase(reinterpret_cast<uint64_t>(handle)) == 1;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult DumpLog(CUlogIterator* iterator, char* buffer, size_t* bytes) {
  size_t missing = 0;
  const size_t room = std::min(*bytes, kMostBytes);
  const std::vector<std::string> entries = Take(iterator, &missing);
  size_t length = 1;  // the null character
  size_t count = 0;
  std::string head = Missing(missing);
  for (size_t left = entries.size(); left > 0; --left) {
    const std::string shorter = Missing(missing + left - 1);
    const size_t more = entries[left - 1].size() + 1;
    if (length + more + shorter.size() > room) break;
    length += more;
    ++count;
    head = shorter;
  }
  *bytes = 0;
  if (room > 0) buffer[0] = '\0';
  if (count == 0) return entries.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  std::string text = std::move(head);
  for (size_t i = entries.size() - count; i < entries.size(); ++i) text += entries[i] + '\n';
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  *bytes = text.size();
  return CUDA_SUCCESS;
}

CUresult DumpLog(CUlogIterator* iterator, const char* path) {
  std::FILE* file = std::fopen(path, "ae");
  if (file == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t missing = 0;
  const std::vector<std::string> entries = Take(iterator, &missing);
  std::string text = Missing(missing);
  for (const std::string& entry : entries) text += entry + '\n';
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void RenewErrorLog() { g_log = new Log; }

}  // namespace rgpu::base
