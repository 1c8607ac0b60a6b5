// Readings of the node's management library that functions choose by an argument.
#include <array>

#include "gen/nvml_calls.gen.h"
#include "rgpu_client/nvml/entry.h"
#include "rgpu_client/nvml/versions.h"

namespace rgpu::nvml {
namespace {

using Key = wire::ReadingKey;

// By nvmlClockType_t.
constexpr std::array kClocks = {Key::kGraphicsMhz, Key::kSmMhz, Key::kMemoryMhz, Key::kVideoMhz};
constexpr std::array kMostClocks = {Key::kMostGraphicsMhz, Key::kMostSmMhz, Key::kMostMemoryMhz,
                                    Key::kMostVideoMhz};
static_assert(NVML_CLOCK_GRAPHICS == 0 && NVML_CLOCK_SM == 1 && NVML_CLOCK_MEM == 2 &&
              NVML_CLOCK_VIDEO == 3);
constexpr unsigned kPowerAverage = 185;  // NVML_FI_DEV_POWER_AVERAGE, _INSTANT
constexpr unsigned kPowerInstant = 186;
constexpr unsigned kValueIsUnsigned = 1;  // NVML_VALUE_TYPE_UNSIGNED_INT

nvmlReturn_t ReadClock(const View& of, const std::array<Key, 4>& keys, unsigned type,
                       unsigned* clock) {
  return type < keys.size() ? Read(of, keys[type], clock) : NVML_ERROR_INVALID_ARGUMENT;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetTemperature(const View& of, nvmlTemperatureSensors_t sensorType,
                                      unsigned* temp) {
  if (sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  return Read(of, Key::kTemperatureC, temp);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(const View& of, nvmlTemperature_t* temperature) {
  if (temperature->version != VersionOf<nvmlTemperature_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  unsigned degrees = 0;
  const nvmlReturn_t status = nvmlDeviceGetTemperature(of, temperature->sensorType, &degrees);
  if (status == NVML_SUCCESS) temperature->temperature = static_cast<int>(degrees);
  return status;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(const View& of, nvmlTemperatureThresholds_t type,
                                               unsigned* temp) {
  if (type == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN) return Read(of, Key::kShutdownC, temp);
  if (type == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN) return Read(of, Key::kSlowdownC, temp);
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetClockInfo(const View& of, nvmlClockType_t type, unsigned* clock) {
  return ReadClock(of, kClocks, type, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(const View& of, nvmlClockType_t type, unsigned* clock) {
  return ReadClock(of, kMostClocks, type, clock);
}

nvmlReturn_t nvmlDeviceGetClock(const View& of, nvmlClockType_t clockType, nvmlClockId_t clockId,
                                unsigned* clockMHz) {
  if (clockId != NVML_CLOCK_ID_CURRENT) return NVML_ERROR_NOT_SUPPORTED;
  return ReadClock(of, kClocks, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetEccMode(const View& of, nvmlEnableState_t* current,
                                  nvmlEnableState_t* pending) {
  const nvmlReturn_t status = Read(of, Key::kEcc, current);
  if (status == NVML_SUCCESS) *pending = *current;
  return status;
}

nvmlReturn_t nvmlDeviceGetFieldValues(const View& of, int valuesCount, nvmlFieldValue_t* values) {
  if (valuesCount < 0) return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < valuesCount; ++i) {
    nvmlFieldValue_t& field = values[i];
    const bool power = field.fieldId == kPowerAverage || field.fieldId == kPowerInstant;
    field.timestamp = static_cast<long long>(of.now.at_us);
    field.latencyUsec = 0;
    field.valueType = kValueIsUnsigned;
    field.value = {};
    field.nvmlReturn =
        power ? Read(of, Key::kPowerMw, &field.value.uiVal) : NVML_ERROR_NOT_SUPPORTED;
  }
  return NVML_SUCCESS;
}

}  // namespace rgpu::nvml
