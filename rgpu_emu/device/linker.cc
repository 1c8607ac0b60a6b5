// Calls cuLink*. The linker collects PTX texts into a container; symbols between them are resolved
// when the container is loaded.
#include <cstring>

#include "rgpu_emu/device/archive.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/image.h"
#include "rgpu_emu/device/load.h"

namespace rgpu::emu {

namespace {

// Returns true for libcudadevrt.a. Its functions for cooperative grids are part of the compiler
// (rgpu_emu/ptx/runtime.py), which refuses by name the kernels that call its other functions.
bool IsDeviceRuntime(std::span<const uint8_t> archive) {
  return MembersOfArchive(archive) == std::vector<std::string>{"cuda_device_runtime.o"};
}

}  // namespace

class LinkState {
 public:
  explicit LinkState(const JitOptions& options) : options_(options) {}

  CUresult Add(CUjitInputType type, std::span<const uint8_t> data, const char* name,
               JitOptions* own) {
    const std::lock_guard lock(mutex_);
    ImageText text;
    Outcome outcome = Read(type, data, &text);
    if (outcome.ok()) {
      for (std::string& ptx : text.ptx) {
        linked_.ptx.push_back(std::move(ptx));
        names_.emplace_back(name == nullptr ? "" : name);
      }
      linked_.max_registers = TighterBound(linked_.max_registers, text.max_registers);
      linked_.max_registers = TighterBound(linked_.max_registers, own->max_registers());
      return CUDA_SUCCESS;
    }
    // The input's own log gets the message first, then the link's log.
    own->Error(outcome.message);
    return Report(outcome, &options_);
  }

  CUresult Complete(void** out, size_t* bytes) {
    const std::lock_guard lock(mutex_);
    if (linked_.ptx.empty()) return CUDA_ERROR_INVALID_VALUE;
    const std::vector<std::string_view> views(linked_.ptx.begin(), linked_.ptx.end());
    wire::compiler::Linked linked;
    Outcome outcome = TheDevice().compiler->Link(views, &linked);
    if (outcome.ok()) options_.Info(linked.log);
    if (!outcome.ok() && !linked.undefined.empty()) outcome.message = Undefined(linked);
    const CUresult result = Report(outcome, &options_);
    if (result != CUDA_SUCCESS) return result;
    linked_.max_registers = TighterBound(linked_.max_registers, options_.max_registers());
    image_ = WriteContainer(linked_);
    *out = image_.data();
    if (bytes != nullptr) *bytes = image_.size();
    return CUDA_SUCCESS;
  }

 private:
  // Programs look for NVIDIA's words.
  std::string Undefined(const wire::compiler::Linked& linked) const {
    const std::string name = linked.user < names_.size() ? names_[linked.user] : std::string();
    return "error   : Undefined reference to '" + linked.undefined + "' in '" + name + "'";
  }

  static Outcome Read(CUjitInputType type, std::span<const uint8_t> data, ImageText* text) {
    switch (type) {
      case CU_JIT_INPUT_PTX:
      case CU_JIT_INPUT_FATBINARY:
      case CU_JIT_INPUT_CUBIN:
      case CU_JIT_INPUT_OBJECT:
        return ReadSizedImage(data, text);
      case CU_JIT_INPUT_LIBRARY:
        if (IsDeviceRuntime(data)) return {};
        return {CUDA_ERROR_NO_BINARY_FOR_GPU,
                "the emulated device links PTX, not archives of device code: add the PTX of the "
                "functions instead"};
      default:
        return {CUDA_ERROR_INVALID_VALUE, "an unknown kind of linker input"};
    }
  }

  std::mutex mutex_;
  JitOptions options_;  // writes into the program's buffers, which must live until cuLinkDestroy
  ImageText linked_;
  std::vector<std::string> names_;  // what the program calls each text
  std::vector<uint8_t> image_;
};

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  const JitOptions jit(numOptions, options, optionValues);
  if (jit.status() != CUDA_SUCCESS) return jit.status();
  const uint64_t handle = NewHandle(HandleKind::kLink);
  TheDevice().links.Add(handle, std::make_shared<LinkState>(jit));
  *stateOut = As<CUlinkState>(handle);
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  const auto link = TheDevice().links.Find(Raw(state));
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  JitOptions own(numOptions, options, optionValues);
  if (own.status() != CUDA_SUCCESS) return own.status();
  return link->Add(type, {static_cast<const uint8_t*>(data), size}, name, &own);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<uint8_t> bytes;
  if (!ReadFile(path, &bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
  return emu::cuLinkAddData_v2(state, type, bytes.data(), bytes.size(), path, numOptions, options,
                               optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto link = TheDevice().links.Find(Raw(state));
  return link == nullptr ? CUDA_ERROR_INVALID_HANDLE : link->Complete(cubinOut, sizeOut);
}

CUresult cuLinkDestroy(CUlinkState state) {
  return TheDevice().links.Remove(Raw(state)) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace rgpu::emu
