// The counters of one process. They lie in a mapped file, so they survive however the process ends.
// rgpu_client/trace_page.py reads the same layout.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace rgpu::shim {

struct TraceRow {
  static constexpr uint32_t kNameBytes = 96;  // longer names are cut; the last byte is zero
  char name[kNameBytes];
  std::atomic<uint64_t> calls;
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> ns;
  std::atomic<uint64_t> refused;  // answered with CUDA_ERROR_NOT_SUPPORTED
};
static_assert(sizeof(TraceRow) == 128);

// Totals of the process, as places in TracePage::totals.
enum class TraceTotal : uint32_t {
  kCommands = 0,
  kWrites = 1,
  kEnded = 2,  // 1: the process ended by exit, not by a signal
};

struct TracePage {
  static constexpr char kMagic[8] = {'R', 'G', 'P', 'U', 'T', 'R', 'C', '1'};
  static constexpr uint32_t kMissing = 512;
  static constexpr uint32_t kCompiled = 256;
  static constexpr uint32_t kFailureBytes = 1024;

  char magic[8];
  uint32_t calls;     // rows of functions, by CallId
  uint32_t missing;   // rows of names that cuGetProcAddress did not find
  uint32_t compiled;  // rows of kernels that the driver compiled or loaded; empty name: modules
  uint32_t pid;
  std::atomic<uint64_t> totals[16];
  std::atomic<uint32_t> failure_bytes;  // of the text behind the rows
  char reserved[256 - 8 - 5 * 4 - 16 * 8];
  TraceRow rows[];  // calls, missing, compiled; then the text

  TraceRow* missing_rows() { return rows + calls; }
  TraceRow* compiled_rows() { return rows + calls + missing; }
  // Why the session failed.
  char* failure() { return reinterpret_cast<char*>(rows + calls + missing + compiled); }
};
static_assert(sizeof(TracePage) == 256);

// The size of a page with rows for `calls` functions.
uint64_t TracePageBytes(uint32_t calls);
// Makes a page with all counters 0: in a new file in `folder`, or in private memory if `folder` is
// empty. Null: the file cannot be made (errno).
TracePage* MakeTracePage(const char* folder, uint32_t calls);
// The row of `name` among `count` rows. A new name takes a free row, or the last row, which all
// names share that find no free row. Only one thread may call it at a time.
TraceRow* FindRow(TraceRow* rows, uint32_t count, std::string_view name);
// Writes the name, cut to the length of the field.
void SetRowName(TraceRow* row, std::string_view name);

}  // namespace rgpu::shim
