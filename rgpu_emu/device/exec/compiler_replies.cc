#include "rgpu_emu/device/exec/compiler_replies.h"

#include <bit>

#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {
namespace {

constexpr uint32_t kMostItems = 1 << 20;
constexpr uint32_t kMostParamBytes = 32764;  // PTX 8.1; the driver's own limit
constexpr uint32_t kMostThreads = 1024;
constexpr uint64_t kMostGlobalBytes = uint64_t{1} << 40;

Outcome Garbage(const char* what) {
  return {CUDA_ERROR_INVALID_IMAGE, std::string("The PTX compiler answered with ") + what + "."};
}

std::string Text(wire::ByteView bytes) { return std::string(bytes.text()); }

// Reads the result and the log, which begin every reply. Returns false if nothing more may be read.
bool Begin(wire::Reader* reader, Outcome* outcome) {
  int32_t result = 0;
  wire::ByteView log;
  reader->Get(&result);
  reader->Get(&log);
  if (!reader->ok()) {
    *outcome = Garbage("a reply that is cut off");
    return false;
  }
  *outcome = {static_cast<CUresult>(result), Text(log)};
  return outcome->ok();
}

bool ReadParams(wire::ByteView bytes, EntryInfo* entry) {
  if (bytes.size % 8 != 0 || entry->param_bytes > kMostParamBytes) return false;
  wire::Reader reader(bytes.data, bytes.size);
  entry->params.resize(bytes.size / 8);
  for (ParamInfo& param : entry->params) {
    reader.Get(&param.offset);
    reader.Get(&param.bytes);
    if (param.offset > entry->param_bytes || param.bytes > entry->param_bytes - param.offset)
      return false;
  }
  return true;
}

bool ReadEntry(wire::Reader* reader, EntryInfo* entry) {
  wire::ByteView name;
  wire::ByteView params;
  reader->Get(&name);
  reader->Get(&params);
  for (uint32_t* field :
       {&entry->param_bytes, &entry->static_shared_bytes, &entry->local_bytes, &entry->max_threads,
        &entry->ptx_version, &entry->target, &entry->registers, &entry->const_bytes}) {
    reader->Get(field);
  }
  int32_t refused = 0;
  wire::ByteView why;
  reader->Get(&refused);
  reader->Get(&why);
  entry->name = Text(name);
  entry->refusal = {static_cast<CUresult>(refused), Text(why)};
  return reader->ok() && entry->max_threads <= kMostThreads && ReadParams(params, entry);
}

bool ReadRelocations(wire::ByteView bytes, GlobalInfo* global) {
  constexpr uint32_t kBytes = 24;
  if (bytes.size % kBytes != 0) return false;
  wire::Reader reader(bytes.data, bytes.size);
  global->relocations.resize(bytes.size / kBytes);
  for (GlobalReloc& relocation : global->relocations) {
    reader.Get(&relocation.offset);
    reader.Get(&relocation.kind);
    reader.Get(&relocation.ordinal);
    reader.Get(&relocation.addend);
    if (global->bytes < 8 || relocation.offset > global->bytes - 8) return false;
  }
  return true;
}

bool ReadGlobal(wire::Reader* reader, GlobalInfo* global) {
  wire::ByteView name;
  wire::ByteView initial;
  wire::ByteView relocations;
  uint32_t visible = 0;
  reader->Get(&name);
  reader->Get(&global->space);
  reader->Get(&global->bytes);
  reader->Get(&global->align);
  reader->Get(&visible);
  reader->Get(&initial);
  reader->Get(&relocations);
  global->name = Text(name);
  global->visible = visible != 0;
  global->initial.assign(initial.data, initial.data + initial.size);
  const bool space = global->space == GlobalSpace::kGlobal || global->space == GlobalSpace::kConst;
  return reader->ok() && space && global->bytes <= kMostGlobalBytes &&
         std::has_single_bit(global->align) && global->align <= 65536 &&
         initial.size <= global->bytes && ReadRelocations(relocations, global);
}

bool OrdinalsExist(const LoadedModule& module) {
  for (const GlobalInfo& global : module.globals) {
    for (const GlobalReloc& relocation : global.relocations) {
      const bool address = relocation.kind == GlobalRelocKind::kGlobalAddress;
      if (!address && relocation.kind != GlobalRelocKind::kFunctionToken) return false;
      if (relocation.ordinal >= (address ? module.globals.size() : module.functions.size()))
        return false;
    }
  }
  return true;
}

}  // namespace

Outcome DecodeLoaded(std::span<const uint8_t> body, LoadedModule* module) {
  wire::Reader reader(body.data(), body.size());
  Outcome outcome;
  if (!Begin(&reader, &outcome)) return outcome;
  module->log = std::move(outcome.message);
  wire::ByteView key;
  uint32_t counts[3] = {};
  reader.Get(&key);
  for (uint32_t& count : counts) {
    reader.Get(&count);
    if (count > kMostItems) return Garbage("an impossible number of entries");
  }
  if (!reader.ok() || key.size != module->key.size()) return Garbage("a module without a key");
  std::memcpy(module->key.data(), key.data, key.size);
  for (uint32_t i = 0; i < counts[0]; ++i) {
    if (!ReadEntry(&reader, &module->entries.emplace_back())) return Garbage("a damaged entry");
  }
  for (uint32_t i = 0; i < counts[1]; ++i) {
    if (!ReadGlobal(&reader, &module->globals.emplace_back())) return Garbage("a damaged global");
  }
  for (uint32_t i = 0; i < counts[2]; ++i) {
    wire::ByteView name;
    reader.Get(&name);
    module->functions.push_back(Text(name));
    if (!reader.ok()) return Garbage("a damaged function list");
  }
  if (!reader.done() || !OrdinalsExist(*module)) return Garbage("a damaged module");
  return {};
}

Outcome DecodeLowered(std::span<const uint8_t> body, KernelCode* code) {
  wire::Reader reader(body.data(), body.size());
  Outcome outcome;
  if (!Begin(&reader, &outcome)) return outcome;
  code->log = std::move(outcome.message);
  uint32_t abi = 0;
  uint32_t count = 0;
  wire::ByteView object;
  for (uint32_t* field :
       {&abi, &code->kind, &code->flags, &code->local_bytes, &code->static_shared_bytes}) {
    reader.Get(field);
  }
  reader.Get(&object);
  reader.Get(&count);
  if (!reader.ok() || count > body.size() / 4) return Garbage("a kernel that is cut off");
  if (abi != kKernelAbi)
    return Garbage("a kernel for another release; install matching versions of rgpu-cuda");
  code->object.assign(object.data, object.data + object.size);
  code->function_ordinals.resize(count);
  for (uint32_t& ordinal : code->function_ordinals) reader.Get(&ordinal);
  return reader.done() ? Outcome{} : Garbage("a damaged kernel");
}

Outcome DecodeLinked(std::span<const uint8_t> body, std::string* log) {
  wire::Reader reader(body.data(), body.size());
  Outcome outcome;
  if (!Begin(&reader, &outcome)) return outcome;
  *log = std::move(outcome.message);
  return {};
}

}  // namespace rgpu::emu
