#include "rgpu_client/shim/trace.h"

#include <stdio.h>

#include <atomic>
#include <memory>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/say.h"
#include "rgpu_client/shim/session.h"
#include "rgpu_client/shim/thread_state.h"

namespace rgpu::shim {
namespace {

struct Counter {
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> ns{0};
};

std::atomic<Counter*> g_counters{nullptr};
// Set while the library loads, maybe before this file's dynamic initialisation: none may be needed.
constinit std::string* g_path = nullptr;

}  // namespace

void StartTrace(const std::string& path) {
  if (path.empty() || g_counters.load() != nullptr) return;
  g_path = new std::string(path);
  g_counters = new Counter[kCallCount];
}

void ResetTrace() {
  if (TraceOn()) g_counters = new Counter[kCallCount];
}

bool TraceOn() { return g_counters.load(std::memory_order_relaxed) != nullptr; }

void TraceCall(uint32_t index, uint64_t ns) {
  Counter* counters = g_counters.load(std::memory_order_relaxed);
  if (counters == nullptr || index >= kCallCount) return;
  counters[index].calls.fetch_add(1, std::memory_order_relaxed);
  counters[index].ns.fetch_add(ns, std::memory_order_relaxed);
}

void TraceBytes(uint64_t bytes) {
  Counter* counters = g_counters.load(std::memory_order_relaxed);
  if (counters == nullptr) return;
  const uint32_t index = ThisThread().call_index;
  if (index < kCallCount) counters[index].bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void WriteTrace(const Session& session) {
  const Channel& channel = session.channel();
  const transport::LaneStats lanes = session.LaneTotals();
  const Counter* counters = g_counters.load();
  if (counters == nullptr) return;
  FILE* file = fopen(g_path->c_str(), "ae");
  if (file == nullptr) {
    Say("the trace cannot be written to %s (RGPU_TRACE); choose another path", g_path->c_str());
    return;
  }
  for (uint32_t i = 0; i < kCallCount; ++i) {
    const uint64_t calls = counters[i].calls.load();
    if (calls == 0) continue;
    fprintf(file, "%s\t%llu\t%llu\t%llu\n", kCallNames[i], static_cast<unsigned long long>(calls),
            static_cast<unsigned long long>(counters[i].bytes.load()),
            static_cast<unsigned long long>(counters[i].ns.load()));
  }
  fprintf(file, "#commands\t%llu\twrites\t%llu\n",
          static_cast<unsigned long long>(channel.commands_sent()),
          static_cast<unsigned long long>(channel.writes()));
  fprintf(file, "#resumes\t%llu\tmoves\t%llu\tresent_bytes\t%llu\n",
          static_cast<unsigned long long>(lanes.resumes),
          static_cast<unsigned long long>(lanes.moves),
          static_cast<unsigned long long>(lanes.resent_bytes));
  const transport::zip::Savings& saved = session.savings();
  fprintf(file, "#compressed\t%llu\tinto\t%llu\tdecompressed\t%llu\tfrom\t%llu\n",
          static_cast<unsigned long long>(saved.sent_plain.load()),
          static_cast<unsigned long long>(saved.sent_packed.load()),
          static_cast<unsigned long long>(saved.received_plain.load()),
          static_cast<unsigned long long>(saved.received_packed.load()));
  fclose(file);
}

}  // namespace rgpu::shim
