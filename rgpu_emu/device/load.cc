#include "rgpu_emu/device/load.h"

#include <cstdio>

#include "rgpu_common/native/base/log.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/hostile.h"
#include "rgpu_emu/device/image.h"

namespace rgpu::emu {

CUresult Report(const Outcome& outcome, JitOptions* options) {
  options->Time();
  if (outcome.ok()) return CUDA_SUCCESS;
  options->Error(outcome.message);
  base::Log(base::Level::kInfo, "%s", outcome.message.c_str());
  if (outcome.result == CUDA_ERROR_NO_BINARY_FOR_GPU) {
    // Most programs ask for no log. So print the sentence once per process: it names the setting
    // that helps.
    static std::atomic<bool> said{false};
    if (!said.exchange(true)) base::Log(base::Level::kError, "%s", outcome.message.c_str());
  }
  return outcome.result;
}

CUresult LoadCode(const void* image, JitOptions* options, std::shared_ptr<ModuleCode>* code) {
  if (options->status() != CUDA_SUCCESS) return options->status();
  ImageText text;
  Outcome outcome = ReadImage(image, &text);
  text.max_registers = TighterBound(text.max_registers, options->max_registers());
  if (outcome.ok()) outcome = ModuleCode::Load(text, code);
  if (outcome.ok()) {
    options->Info((*code)->info().log);
    const std::string& warnings = (*code)->info().log;
    if (!warnings.empty()) base::Log(base::Level::kInfo, "%s", warnings.c_str());
  }
  return Report(outcome, options);
}

bool ReadFile(const char* path, std::vector<uint8_t>* bytes) {
  std::FILE* file = std::fopen(path, "rbe");
  if (file == nullptr) return false;
  uint8_t piece[65536];
  for (size_t got = 0; (got = std::fread(piece, 1, sizeof(piece), file)) != 0;) {
    bytes->insert(bytes->end(), piece, piece + got);
  }
  const bool good = std::ferror(file) == 0;
  std::fclose(file);
  return good;
}

}  // namespace rgpu::emu
