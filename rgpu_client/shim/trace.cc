#include "rgpu_client/shim/trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/runtime.h"
#include "rgpu_client/shim/say.h"
#include "rgpu_client/shim/session.h"
#include "rgpu_client/shim/thread_state.h"
#include "rgpu_client/shim/trace_page.h"

namespace rgpu::shim {
namespace {

std::atomic<TracePage*> g_page{nullptr};
// Set while the library loads, perhaps before this file's dynamic initialisation has run, so these
// must not need any.
constinit std::string* g_path = nullptr;
constinit bool g_is_folder = false;
// Guards the rows that are found by name. A pointer, because a forked child needs a new mutex.
constinit std::mutex* g_names = nullptr;

TracePage* Page() { return g_page.load(std::memory_order_relaxed); }

TracePage* NewPage() {
  TracePage* page = MakeTracePage(g_is_folder ? g_path->c_str() : "", kCallCount);
  if (page == nullptr) {
    Say("the trace cannot be kept in %s (RGPU_TRACE: %s); choose another folder", g_path->c_str(),
        strerror(errno));
  }
  return page;
}

uint64_t Count(const std::atomic<uint64_t>& counter) { return counter.load(); }

void SetTotal(TracePage* page, TraceTotal total, uint64_t value) {
  page->totals[static_cast<uint32_t>(total)].store(value, std::memory_order_relaxed);
}

// Keeps the totals up to date with each call, because a process that is killed cannot write them at
// its end.
void KeepTotals(TracePage* page) {
  uint64_t commands = 0;
  uint64_t writes = 0;
  for (const Session* session : LiveSessions()) {
    commands += session->channel().commands_sent();
    writes += session->channel().writes();
  }
  SetTotal(page, TraceTotal::kCommands, commands);
  SetTotal(page, TraceTotal::kWrites, writes);
}

using Line = unsigned long long;

void WriteRows(FILE* file, TracePage* page) {
  for (uint32_t i = 0; i < page->calls; ++i) {
    const TraceRow& row = page->rows[i];
    if (Count(row.calls) == 0) continue;
    fprintf(file, "%s\t%llu\t%llu\t%llu\n", kCallNames[i], Line{Count(row.calls)},
            Line{Count(row.bytes)}, Line{Count(row.ns)});
  }
}

void WriteTotals(FILE* file, const Session& session) {
  const Channel& channel = session.channel();
  const transport::LaneStats lanes = session.LaneTotals();
  fprintf(file, "#commands\t%llu\twrites\t%llu\n", Line{channel.commands_sent()},
          Line{channel.writes()});
  fprintf(file, "#resumes\t%llu\tmoves\t%llu\tresent_bytes\t%llu\n", Line{lanes.resumes},
          Line{lanes.moves}, Line{lanes.resent_bytes});
  const transport::zip::Savings& saved = session.savings();
  fprintf(file, "#compressed\t%llu\tinto\t%llu\tdecompressed\t%llu\tfrom\t%llu\n",
          Line{Count(saved.sent_plain)}, Line{Count(saved.sent_packed)},
          Line{Count(saved.received_plain)}, Line{Count(saved.received_packed)});
}

}  // namespace

void StartTrace(const std::string& path) {
  if (path.empty() || g_path != nullptr) return;
  struct stat facts{};
  g_path = new std::string(path);
  g_is_folder = stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
  g_names = new std::mutex;
  g_page = NewPage();
}

void ResetTrace() {
  if (g_path == nullptr) return;
  g_names = new std::mutex;
  g_page = NewPage();
}

bool TraceOn() { return Page() != nullptr; }

void TraceCall(uint32_t index, uint64_t ns) {
  TracePage* page = Page();
  if (page == nullptr || index >= page->calls) return;
  TraceRow& row = page->rows[index];
  if (row.calls.fetch_add(1, std::memory_order_relaxed) == 0) SetRowName(&row, kCallNames[index]);
  row.ns.fetch_add(ns, std::memory_order_relaxed);
  KeepTotals(page);
}

void TraceBytes(uint64_t bytes) {
  TracePage* page = Page();
  if (page == nullptr) return;
  const uint32_t index = ThisThread().call_index;
  if (index < page->calls) page->rows[index].bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void TraceRefused(uint32_t index) {
  TracePage* page = Page();
  if (page == nullptr || index >= page->calls) return;
  page->rows[index].refused.fetch_add(1, std::memory_order_relaxed);
}

void TraceMissing(std::string_view name) {
  TracePage* page = Page();
  if (page == nullptr) return;
  const std::lock_guard lock(*g_names);
  FindRow(page->missing_rows(), page->missing, name)->calls.fetch_add(1);
}

void TraceCompiled(std::string_view name, uint64_t ns) {
  TracePage* page = Page();
  if (page == nullptr) return;
  const std::lock_guard lock(*g_names);
  TraceRow* row = FindRow(page->compiled_rows(), page->compiled, name);
  row->calls.fetch_add(1);
  row->ns.fetch_add(ns);
}

void TraceFailure(std::string_view sentence) {
  TracePage* page = Page();
  if (page == nullptr) return;
  const std::lock_guard lock(*g_names);
  if (page->failure_bytes != 0) return;
  const size_t bytes = std::min<size_t>(sentence.size(), TracePage::kFailureBytes);
  memcpy(page->failure(), sentence.data(), bytes);
  page->failure_bytes = static_cast<uint32_t>(bytes);
}

void WriteTrace(const Session& session) {
  TracePage* page = Page();
  if (page == nullptr) return;
  KeepTotals(page);
  SetTotal(page, TraceTotal::kEnded, 1);
  if (g_is_folder) return;
  FILE* file = fopen(g_path->c_str(), "ae");
  if (file == nullptr) {
    Say("the trace cannot be written to %s (RGPU_TRACE); choose another path", g_path->c_str());
    return;
  }
  WriteRows(file, page);
  WriteTotals(file, session);
  fclose(file);
}

}  // namespace rgpu::shim
