// The processes with a session in the lease.
#include <algorithm>
#include <vector>

#include "gen/nvml_calls.gen.h"
#include "rgpu_client/nvml/entry.h"
#include "rgpu_client/nvml/versions.h"

namespace rgpu::nvml {
namespace {

constexpr unsigned kNoInstance = 0xffffffff;
constexpr unsigned kComputeMode = 0;
constexpr unsigned kModes = 3;

// Copies rows to an array of the caller. NVML_ERROR_INSUFFICIENT_SIZE: `*count` is how many rows
// there are.
template <typename Row>
nvmlReturn_t CopyRows(const std::vector<Row>& rows, unsigned* count, Row* to) {
  const unsigned room = *count;
  *count = static_cast<unsigned>(rows.size());
  if (rows.size() > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (to == nullptr) return rows.empty() ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
  std::ranges::copy(rows, to);
  return NVML_SUCCESS;
}

template <typename Row>
nvmlReturn_t NoRows(unsigned* count, Row*) {
  *count = 0;
  return NVML_SUCCESS;
}

struct Used {
  unsigned pid = 0;
  unsigned percent = 0;
};

// The part of the time between two answers, about a second apart, in which each process had the
// device. A process that began meanwhile, or has the number of an ended one, counts from its
// beginning.
std::vector<Used> UsedBetween(const View& of) {
  std::vector<Used> rows;
  const wire::Observed* const before = of.before.observed.get();
  const wire::Observed& now = of.facts();
  if (before == nullptr || now.clock_ns <= before->clock_ns) return rows;
  const uint64_t passed = now.clock_ns - before->clock_ns;
  for (const wire::ObservedProcess& process : now.processes) {
    uint64_t since = 0;
    for (const wire::ObservedProcess& earlier : before->processes) {
      const bool same = earlier.pid == process.pid && earlier.device_ns <= process.device_ns;
      if (same) since = earlier.device_ns;
    }
    const uint64_t used = std::min(process.device_ns - since, passed);
    const double percent = 100.0 * static_cast<double>(used) / static_cast<double>(passed);
    rows.push_back({process.pid, static_cast<unsigned>(percent + 0.5)});
  }
  return rows;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(const View& of, unsigned* infoCount,
                                                     nvmlProcessInfo_t* infos) {
  std::vector<nvmlProcessInfo_t> rows;
  for (const wire::ObservedProcess& process : of.facts().processes) {
    rows.push_back({process.pid, process.memory_bytes, kNoInstance, kNoInstance});
  }
  return CopyRows(rows, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(const View& of, unsigned* infoCount,
                                                  nvmlProcessInfo_v1_t* infos) {
  std::vector<nvmlProcessInfo_v1_t> rows;
  for (const wire::ObservedProcess& process : of.facts().processes) {
    rows.push_back({process.pid, process.memory_bytes});
  }
  return CopyRows(rows, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(const View&, unsigned* infoCount,
                                                      nvmlProcessInfo_t* infos) {
  return NoRows(infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(const View&, unsigned* infoCount,
                                                   nvmlProcessInfo_v1_t* infos) {
  return NoRows(infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(const View&, unsigned* infoCount,
                                                        nvmlProcessInfo_t* infos) {
  return NoRows(infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(const View&, unsigned* infoCount,
                                                     nvmlProcessInfo_v1_t* infos) {
  return NoRows(infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(const View& of, nvmlProcessDetailList_t* plist) {
  if (plist->version != VersionOf<nvmlProcessDetailList_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  if (plist->mode >= kModes) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<nvmlProcessDetail_v1_t> rows;
  if (plist->mode == kComputeMode) {
    for (const wire::ObservedProcess& process : of.facts().processes) {
      rows.push_back({process.pid, process.memory_bytes, kNoInstance, kNoInstance, 0});
    }
  }
  return CopyRows(rows, &plist->numProcArrayEntries, plist->procArray);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(const View& of,
                                             nvmlProcessUtilizationSample_t* utilization,
                                             unsigned* processSamplesCount,
                                             unsigned long long lastSeenTimeStamp) {
  std::vector<nvmlProcessUtilizationSample_t> rows;
  if (of.now.at_us > lastSeenTimeStamp) {
    for (const Used& used : UsedBetween(of)) {
      rows.push_back({used.pid, of.now.at_us, used.percent, 0, 0, 0});
    }
  }
  if (rows.empty()) {
    *processSamplesCount = 0;
    return NVML_ERROR_NOT_FOUND;
  }
  return CopyRows(rows, processSamplesCount, utilization);
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(const View& of,
                                                   nvmlProcessesUtilizationInfo_t* info) {
  if (info->version != VersionOf<nvmlProcessesUtilizationInfo_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  std::vector<nvmlProcessUtilizationInfo_v1_t> rows;
  if (of.now.at_us > info->lastSeenTimeStamp) {
    for (const Used& used : UsedBetween(of)) {
      rows.push_back({of.now.at_us, used.pid, used.percent, 0, 0, 0, 0, 0});
    }
  }
  if (rows.empty()) {
    info->processSamplesCount = 0;
    return NVML_ERROR_NOT_FOUND;
  }
  return CopyRows(rows, &info->processSamplesCount, info->procUtilArray);
}

}  // namespace rgpu::nvml
