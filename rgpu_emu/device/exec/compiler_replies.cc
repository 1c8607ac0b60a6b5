#include "rgpu_emu/device/exec/compiler_replies.h"

#include <algorithm>
#include <bit>

#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {
namespace {

using wire::compiler::Relocation;
using wire::compiler::RelocationKind;

constexpr uint64_t kAddressBytes = 8;

Outcome Garbage(const char* what) {
  return {CUDA_ERROR_INVALID_IMAGE, std::string("The PTX compiler answered with ") + what + "."};
}

bool IsGood(const EntryInfo& entry) {
  return std::ranges::all_of(entry.params, [&](const ParamInfo& param) {
    return param.offset <= entry.param_bytes && param.size <= entry.param_bytes - param.offset;
  });
}

bool IsGood(const GlobalInfo& global) {
  return std::has_single_bit(global.align) && global.initial.size() <= global.size &&
         std::ranges::all_of(global.relocations, [&](const Relocation& relocation) {
           return global.size >= kAddressBytes && relocation.offset <= global.size - kAddressBytes;
         });
}

bool OrdinalExists(const LoadedModule& module, const Relocation& relocation) {
  switch (RelocationKind{relocation.kind}) {
    case RelocationKind::kGlobalAddress:
      return relocation.ordinal < module.globals.size();
    case RelocationKind::kFunctionToken:
      return relocation.ordinal < module.functions.size();
  }
  return false;
}

bool IsGood(const LoadedModule& module) {
  const auto exists = [&](const Relocation& one) { return OrdinalExists(module, one); };
  return std::ranges::all_of(module.entries, [](const EntryInfo& one) { return IsGood(one); }) &&
         std::ranges::all_of(module.globals, [&](const GlobalInfo& one) {
           return IsGood(one) && std::ranges::all_of(one.relocations, exists);
         });
}

// Reads a reply. Its result and log are the outcome if the compiler refused the request.
template <typename T>
Outcome Decode(std::span<const uint8_t> body, T* reply, const char* garbage) {
  wire::Reader reader(body.data(), body.size());
  if (!wire::compiler::Get(reader, reply)) return Garbage(garbage);
  if (reply->result != CUDA_SUCCESS) return {static_cast<CUresult>(reply->result), reply->log};
  return {};
}

}  // namespace

Outcome DecodeLoaded(std::span<const uint8_t> body, LoadedModule* module) {
  const Outcome outcome =
      Decode(body, static_cast<wire::compiler::Loaded*>(module), "a damaged module");
  return outcome.ok() && !IsGood(*module) ? Garbage("a damaged module") : outcome;
}

Outcome DecodeLowered(std::span<const uint8_t> body, wire::compiler::Lowered* code) {
  const Outcome outcome = Decode(body, code, "a damaged kernel");
  return outcome.ok() && code->abi != kKernelAbi
             ? Garbage("a kernel for another release; install matching versions of rgpu-cuda")
             : outcome;
}

Outcome DecodeLinked(std::span<const uint8_t> body, wire::compiler::Linked* linked) {
  return Decode(body, linked, "a reply that is cut off");
}

}  // namespace rgpu::emu
