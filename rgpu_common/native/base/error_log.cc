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
#include <string>
#include <vector>

namespace rgpu::base {
namespace {

constexpr size_t kMostEntries = 100;
constexpr size_t kMostDumpBytes = 25600;  // of one dump to memory, as cuda.h says
constexpr size_t kMostCallbacks = 256;

struct Callback {
  CUlogsCallback function;
  void* data;
};

struct Entry {
  timespec time;
  long thread;
  const char* function;  // null: the entry is a sentence
  CUresult result;       // of a call that failed
  const char* error;     // its name; null: the call is not supported
  const char* who;       // does not support the call
  const char* reason;    // may be null
  std::string sentence;
};

struct Log {
  std::mutex mutex;
  std::deque<Entry> entries;  // the last has number `end` - 1
  CUlogIterator end = 0;
  std::map<uint64_t, Callback> callbacks;
  uint64_t last_callback = 0;
};

Log* g_log = new Log;  // never destroyed: calls fail while the process ends, too
thread_local bool t_in_callback = false;

unsigned g_process = 1;  // counts forks: a child's thread has another number than the parent's

long ThisThread() {
  struct Known {
    unsigned process = 0;
    long number = 0;
  };
  thread_local Known known;
  if (known.process != g_process) known = {g_process, syscall(SYS_gettid)};
  return known.number;
}

// What an entry says behind its head.
std::string SentenceOf(const Entry& entry) {
  if (entry.function == nullptr) return entry.sentence;
  if (entry.error != nullptr) {
    return "Returning " + std::to_string(static_cast<int>(entry.result)) + " (" + entry.error + ")";
  }
  std::string text = std::string(entry.who) + " does not support this call";
  if (entry.reason != nullptr) text.append(": ").append(entry.reason);
  return text;
}

// "[hh:mm:ss.mmm][thread][CUDA][E][function] sentence", as the CUDA programming guide shows it.
std::string LineOf(const Entry& entry) {
  tm local{};
  localtime_r(&entry.time.tv_sec, &local);
  std::array<char, 64> head;
  snprintf(head.data(), head.size(), "[%02d:%02d:%02d.%03ld][%ld][CUDA][E]", local.tm_hour,
           local.tm_min, local.tm_sec, entry.time.tv_nsec / 1'000'000, entry.thread);
  std::string line = head.data();
  if (entry.function != nullptr) line.append("[").append(entry.function).append("]");
  return line.append(" ").append(SentenceOf(entry));
}

// Adds an entry, with time and thread, and returns the callbacks.
std::vector<Callback> Add(Entry& entry) {
  clock_gettime(CLOCK_REALTIME, &entry.time);
  entry.thread = ThisThread();
  const std::lock_guard lock(g_log->mutex);
  if (g_log->entries.size() == kMostEntries) g_log->entries.pop_front();
  g_log->entries.push_back(entry);
  ++g_log->end;
  std::vector<Callback> callbacks;
  callbacks.reserve(g_log->callbacks.size());
  for (const auto& [_, callback] : g_log->callbacks) callbacks.push_back(callback);
  return callbacks;
}

void AddAndTell(Entry entry) {
  const std::vector<Callback> callbacks = Add(entry);
  if (t_in_callback || callbacks.empty()) return;
  std::string line = LineOf(entry);
  t_in_callback = true;
  for (const Callback& callback : callbacks) {
    callback.function(callback.data, CU_LOG_LEVEL_ERROR, line.data(), line.size());
  }
  t_in_callback = false;
}

// The lines from `*iterator` on, and the number of those that are gone. Moves the iterator.
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
  std::vector<std::string> lines;
  for (auto it = g_log->entries.end() - count; it != g_log->entries.end(); ++it) {
    lines.push_back(LineOf(*it));
  }
  return lines;
}

std::string Missing(size_t count) {
  return count == 0 ? "" : "(" + std::to_string(count) + " older messages are not shown)\n";
}

}  // namespace

void LogFailure(const char* function, CUresult result, const char* error) {
  AddAndTell({{}, 0, function, result, error == nullptr ? "?" : error, nullptr, nullptr, {}});
}

void LogRefusal(const char* function, const char* who, const char* reason) {
  AddAndTell({{}, 0, function, CUDA_ERROR_NOT_SUPPORTED, nullptr, who, reason, {}});
}

void LogSentence(std::string_view sentence) {
  Entry entry{{}, 0, nullptr, CUDA_SUCCESS, nullptr, nullptr, nullptr, std::string(sentence)};
  Add(entry);
}

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
  const size_t room = std::min(*bytes, kMostDumpBytes);
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

void RenewErrorLog() {
  g_log = new Log;
  ++g_process;
}

}  // namespace rgpu::base
