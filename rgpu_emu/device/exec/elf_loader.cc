// Loads the compiler's object file. The file came over a socket, so every offset, size, index and
// name is checked.
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <optional>

#include "rgpu_common/native/base/lengths.h"
#include "rgpu_emu/device/exec/elf_reloc.h"
#include "rgpu_emu/device/exec/kernel.h"
#include "rgpu_emu/device/exec/symbols.h"

namespace rgpu::emu {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
constexpr auto kRelocate = RelocateX86;
constexpr uint8_t kStub[] = {0xff, 0x25, 2, 0,
                             0,    0,    0, 0};  // jmp *[rip + 2]; 8 bytes, then the address
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr auto kRelocate = RelocateAarch64;
constexpr uint8_t kStub[] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6};  // ldr x16, .+8; br x16
#else
#error "rgpu runs on x86-64 and aarch64"
#endif
constexpr size_t kStubBytes = 16;
static_assert(sizeof(kStub) == 8);

constexpr size_t kMaxSections = 65280;  // SHN_LORESERVE
constexpr size_t kMaxSymbols = 1 << 20;
constexpr uint64_t kMaxImage = uint64_t{256} << 20;

// The parts of the mapping in order; each has its own protection.
enum Part : size_t { kCode, kConstant, kData, kParts };

}  // namespace

class ElfLoader {
 public:
  struct Section {
    Elf64_Shdr header;
    std::string_view name;
    bool loaded = false;
    uint64_t offset = 0;  // in the mapping
  };

  struct Symbol {
    std::string_view name;
    uint64_t value = 0;   // address; for an external function that of its stub
    uint64_t target = 0;  // the content of its GOT slot
    uint16_t section = 0;
    bool external = false;
  };

  ElfLoader(std::span<const uint8_t> elf, LoadedObject* object) : elf_(elf), object_(object) {}

  bool Run() {
    return ReadSections() && ReadSymbols() && LayOut() && Map() && PlaceSymbols() && Relocate() &&
           Protect();
  }
  const std::string& error() const { return error_; }

 private:
  bool Fail(std::string why) {
    error_ = "the compiled object is damaged: " + std::move(why);
    return false;
  }
  template <typename T>
  bool Read(uint64_t offset, T* value) const {
    if (offset > elf_.size() || elf_.size() - offset < sizeof(T)) return false;
    std::memcpy(value, elf_.data() + offset, sizeof(T));
    return true;
  }
  bool Inside(uint64_t offset, uint64_t bytes) const {
    return offset <= elf_.size() && bytes <= elf_.size() - offset;
  }
  std::optional<std::string_view> Name(const Elf64_Shdr& table, uint64_t at) const {
    if (at >= table.sh_size) return std::nullopt;
    const char* text = reinterpret_cast<const char*>(elf_.data() + table.sh_offset + at);
    const size_t room = table.sh_size - at;
    const size_t length = strnlen(text, room);
    if (length == room) return std::nullopt;
    return std::string_view(text, length);
  }

  bool ReadSections();
  bool CheckSection(const Section& section);
  bool ReadSymbols();
  bool ReadSymbol(const Elf64_Shdr& strings, const Elf64_Sym& raw, Symbol* symbol);
  bool LayOut();
  bool Map();
  bool PlaceSymbols();
  bool Relocate();
  bool RelocateSection(const Section& table);
  bool Protect();

  const std::span<const uint8_t> elf_;
  LoadedObject* const object_;
  std::string error_;
  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
  std::vector<Elf64_Sym> raw_symbols_;
  size_t symbol_table_ = 0;  // index of its section; 0: none
  size_t externals_ = 0;
  uint64_t stubs_ = 0;  // offsets in the mapping
  uint64_t got_ = 0;
  uint64_t part_end_[kParts] = {};
};

namespace {

Part PartOf(const Elf64_Shdr& header) {
  if ((header.sh_flags & SHF_EXECINSTR) != 0) return kCode;
  return (header.sh_flags & SHF_WRITE) != 0 ? kData : kConstant;
}

bool IsLoaded(const ElfLoader::Section& section) {
  const Elf64_Shdr& header = section.header;
  const bool kind = header.sh_type == SHT_PROGBITS || header.sh_type == SHT_NOBITS;
  return kind && (header.sh_flags & SHF_ALLOC) != 0 && section.name != ".eh_frame";
}

}  // namespace

bool ElfLoader::ReadSections() {
  Elf64_Ehdr head;
  if (!Read(0, &head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
    return Fail("it is not an ELF file");
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB ||
      head.e_type != ET_REL || head.e_machine != kMachine) {
    return Fail("it is not a relocatable ELF64 file for this machine");
  }
  if (head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum == 0 || head.e_shnum > kMaxSections) {
    return Fail("its section table has an impossible size");
  }
  if (!Inside(head.e_shoff, uint64_t{head.e_shnum} * sizeof(Elf64_Shdr)))
    return Fail("its section table is cut off");
  sections_.resize(head.e_shnum);
  for (size_t i = 0; i < sections_.size(); ++i) {
    Read(head.e_shoff + i * sizeof(Elf64_Shdr), &sections_[i].header);
    if (!CheckSection(sections_[i])) return false;
  }
  if (head.e_shstrndx >= sections_.size()) return Fail("it has no section names");
  const Elf64_Shdr& names = sections_[head.e_shstrndx].header;
  if (names.sh_type != SHT_STRTAB) return Fail("it has no section names");
  for (Section& section : sections_) {
    const auto name = Name(names, section.header.sh_name);
    if (!name) return Fail("a section name is cut off");
    section.name = *name;
    section.loaded = IsLoaded(section);
  }
  return true;
}

bool ElfLoader::CheckSection(const Section& section) {
  const Elf64_Shdr& header = section.header;
  if (header.sh_type != SHT_NULL && header.sh_type != SHT_NOBITS &&
      !Inside(header.sh_offset, header.sh_size)) {
    return Fail("a section reaches past its end");
  }
  if (header.sh_addralign > 65536 ||
      (header.sh_addralign != 0 && !std::has_single_bit(header.sh_addralign))) {
    return Fail("a section has an impossible alignment");
  }
  if (header.sh_size > kMaxImage) return Fail("a section is larger than 256 MiB");
  if ((header.sh_flags & SHF_TLS) != 0) return Fail("it has thread-local data");
  return true;
}

bool ElfLoader::ReadSymbols() {
  for (size_t i = 1; i < sections_.size(); ++i) {
    if (sections_[i].header.sh_type != SHT_SYMTAB) continue;
    if (symbol_table_ != 0) return Fail("it has two symbol tables");
    symbol_table_ = i;
  }
  if (symbol_table_ == 0) return Fail("it has no symbols");
  const Elf64_Shdr& table = sections_[symbol_table_].header;
  if (table.sh_link >= sections_.size() || sections_[table.sh_link].header.sh_type != SHT_STRTAB) {
    return Fail("its symbols have no names");
  }
  const Elf64_Shdr& strings = sections_[table.sh_link].header;
  const size_t count = table.sh_size / sizeof(Elf64_Sym);
  if (count > kMaxSymbols) return Fail("it has more than a million symbols");
  symbols_.resize(count);
  raw_symbols_.resize(count);
  for (size_t i = 1; i < count; ++i) {
    Read(table.sh_offset + i * sizeof(Elf64_Sym), &raw_symbols_[i]);
    if (!ReadSymbol(strings, raw_symbols_[i], &symbols_[i])) return false;
  }
  return true;
}

bool ElfLoader::ReadSymbol(const Elf64_Shdr& strings, const Elf64_Sym& raw, Symbol* symbol) {
  const auto name = Name(strings, raw.st_name);
  if (!name) return Fail("a symbol name is cut off");
  symbol->name = *name;
  symbol->section = raw.st_shndx;
  if (raw.st_shndx == SHN_ABS) return true;
  if (raw.st_shndx == SHN_UNDEF) {
    if (*name == "_GLOBAL_OFFSET_TABLE_") return true;
    symbol->target = RuntimeSymbol(*name);
    if (symbol->target == 0)
      return Fail("it calls " + std::string(*name) + ", which compiled kernels may not call");
    symbol->external = true;
    ++externals_;
    return true;
  }
  if (raw.st_shndx >= sections_.size())
    return Fail("symbol " + std::string(*name) + " is in no section");
  if (raw.st_value > sections_[raw.st_shndx].header.sh_size) {
    return Fail("symbol " + std::string(*name) + " lies past its section");
  }
  return true;
}

bool ElfLoader::LayOut() {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  uint64_t at = 0;
  for (const Part part : {kCode, kConstant, kData}) {
    at = base::RoundedUp(at, page);
    for (Section& section : sections_) {
      if (!section.loaded || PartOf(section.header) != part) continue;
      at = base::RoundedUp(at, std::max<uint64_t>(section.header.sh_addralign, 16));
      section.offset = at;
      at += section.header.sh_size;
      if (at > kMaxImage) return Fail("it is larger than 256 MiB");
    }
    at = base::RoundedUp(at, 16);
    if (part == kCode) {
      stubs_ = at;
      at += externals_ * kStubBytes;
    } else if (part == kConstant) {
      got_ = at;
      at += symbols_.size() * 8;
    }
    part_end_[part] = base::RoundedUp(at, page);
  }
  return true;
}

bool ElfLoader::Map() {
  object_->bytes_ = std::max<uint64_t>(part_end_[kData], 1);
  object_->code_bytes_ = part_end_[kCode];
  void* base =
      mmap(nullptr, object_->bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return Fail("there is no memory for it");
  object_->base_ = static_cast<uint8_t*>(base);
  for (const Section& section : sections_) {
    if (!section.loaded || section.header.sh_type == SHT_NOBITS || section.header.sh_size == 0)
      continue;
    std::memcpy(object_->base_ + section.offset, elf_.data() + section.header.sh_offset,
                section.header.sh_size);
  }
  return true;
}

bool ElfLoader::PlaceSymbols() {
  uint8_t* const base = object_->base_;
  uint64_t stub = stubs_;
  for (size_t i = 1; i < symbols_.size(); ++i) {
    Symbol& symbol = symbols_[i];
    const Elf64_Sym& raw = raw_symbols_[i];
    if (symbol.external) {
      std::memcpy(base + stub, kStub, sizeof(kStub));
      std::memcpy(base + stub + sizeof(kStub), &symbol.target, 8);
      symbol.value = reinterpret_cast<uint64_t>(base + stub);
      stub += kStubBytes;
    } else if (raw.st_shndx == SHN_UNDEF) {
      symbol.value = symbol.target = reinterpret_cast<uint64_t>(base + got_);
    } else if (raw.st_shndx == SHN_ABS) {
      symbol.value = symbol.target = raw.st_value;
    } else if (const Section& section = sections_[raw.st_shndx]; section.loaded) {
      uint8_t* address = base + section.offset + raw.st_value;
      symbol.value = symbol.target = reinterpret_cast<uint64_t>(address);
      if (ELF64_ST_BIND(raw.st_info) != STB_LOCAL && !symbol.name.empty()) {
        object_->symbols_[std::string(symbol.name)] = {
            address, section.header.sh_size - raw.st_value, PartOf(section.header) == kCode};
      }
    }
    std::memcpy(base + got_ + i * 8, &symbol.target, 8);
  }
  return true;
}

bool ElfLoader::Relocate() {
  for (const Section& table : sections_) {
    if (table.header.sh_type == SHT_REL) return Fail("it has relocations without addends");
    if (table.header.sh_type == SHT_RELA && !RelocateSection(table)) return false;
  }
  return true;
}

bool ElfLoader::RelocateSection(const Section& table) {
  if (table.header.sh_info >= sections_.size()) return Fail("relocations of no section");
  const Section& target = sections_[table.header.sh_info];
  if (!target.loaded) return true;
  if (table.header.sh_link != symbol_table_) return Fail("relocations with foreign symbols");
  if (target.header.sh_type == SHT_NOBITS) return Fail("relocations in an empty section");
  const uint64_t count = table.header.sh_size / sizeof(Elf64_Rela);
  for (uint64_t i = 0; i < count; ++i) {
    Elf64_Rela raw;
    Read(table.header.sh_offset + i * sizeof(raw), &raw);
    const uint64_t index = ELF64_R_SYM(raw.r_info);
    if (index >= symbols_.size()) return Fail("a relocation names no symbol");
    if (raw.r_offset >= target.header.sh_size) return Fail("a relocation lies past its section");
    const Symbol& symbol = symbols_[index];
    if (index != 0 && symbol.value == 0 && symbol.section != SHN_ABS) {
      return Fail("a relocation names a symbol of a section that is not loaded");
    }
    uint8_t* where = object_->base_ + target.offset + raw.r_offset;
    const uint64_t got = reinterpret_cast<uint64_t>(object_->base_ + got_);
    const auto type = static_cast<uint32_t>(ELF64_R_TYPE(raw.r_info));
    const RelocResult result = kRelocate(
        type, {where, target.header.sh_size - raw.r_offset, reinterpret_cast<uint64_t>(where),
               symbol.value, raw.r_addend, got + index * 8, got});
    if (result != RelocResult::kDone) {
      return Fail("relocation type " + std::to_string(type) +
                  (result == RelocResult::kUnknown ? " is not known" : " does not fit"));
    }
  }
  return true;
}

bool ElfLoader::Protect() {
  uint8_t* const base = object_->base_;
  const uint64_t code = part_end_[kCode];
  const uint64_t constant = part_end_[kConstant] - code;
  __builtin___clear_cache(reinterpret_cast<char*>(base), reinterpret_cast<char*>(base + code));
  if (code != 0 && mprotect(base, code, PROT_READ | PROT_EXEC) != 0) {
    return Fail("this system does not allow memory to become executable (SELinux execmem?)");
  }
  return constant == 0 || mprotect(base + code, constant, PROT_READ) == 0 ||
         Fail("mprotect failed");
}

Outcome LoadedObject::Load(std::span<const uint8_t> elf, std::unique_ptr<LoadedObject>* object) {
  std::unique_ptr<LoadedObject> loaded(new LoadedObject());
  ElfLoader loader(elf, loaded.get());
  if (!loader.Run()) return {CUDA_ERROR_INVALID_IMAGE, loader.error()};
  *object = std::move(loaded);
  return {};
}

LoadedObject::~LoadedObject() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

void* LoadedObject::Symbol(const std::string& name, size_t bytes) const {
  const auto found = symbols_.find(name);
  return found != symbols_.end() && found->second.room >= bytes ? found->second.address : nullptr;
}

bool LoadedObject::IsCode(const void* address) const {
  const auto* at = static_cast<const uint8_t*>(address);
  return at >= base_ && at < base_ + code_bytes_;
}

}  // namespace rgpu::emu
