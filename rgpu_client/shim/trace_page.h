// The counters of one process.  They lie in a file that is mapped, so that they are there whatever
// ends the process; rgpu_client/trace_page.py reads the same layout.
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
  kEnded = 2,  // 1: the process has ended by itself
};

struct TracePage {
  static constexpr char kMagic[8] = {'R', 'G', 'P', 'U', 'T', 'R', 'C', '1'};
  static constexpr uint32_t kMissing = 512;
  static constexpr uint32_t kCompiled = 256;

  char magic[8];
  uint32_t calls;     // rows of functions, by CallId
  uint32_t missing;   // rows of names that cuGetProcAddress did not find
  uint32_t compiled;  // rows of kernels that the driver compiled or loaded; no name: modules
  uint32_t pid;
  std::atomic<uint64_t> totals[16];
  char reserved[256 - 8 - 4 * 4 - 16 * 8];
  TraceRow rows[];  // calls, missing, compiled

  TraceRow* missing_rows() { return rows + calls; }
  TraceRow* compiled_rows() { return rows + calls + missing; }
};
static_assert(sizeof(TracePage) == 256);

// Bytes of a page with so many functions.
uint64_t TracePageBytes(uint32_t calls);
// Makes a page of zeros: in a new file of `folder`, or in memory of this process where `folder` is
// empty.  Null: the file cannot be made (errno).
TracePage* MakeTracePage(const char* folder, uint32_t calls);
// The row of `name` among `count`, which is made if there is none; the last row is for all others
// when the others are taken.  One caller at a time.
TraceRow* FindRow(TraceRow* rows, uint32_t count, std::string_view name);
// Writes the name, cut where it is too long.
void SetRowName(TraceRow* row, std::string_view name);

}  // namespace rgpu::shim
