#include "rgpu_common/native/transport/zip/zstd.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace rgpu::transport::zip {
namespace {

struct Loaded {
  Api api{};
  bool good = false;
  std::string why;
};

template <typename Function>
bool Find(void* library, const char* name, Function* to, std::string* why) {
  *to = reinterpret_cast<Function>(dlsym(library, name));
  if (*to == nullptr) *why = std::string("the library has no function ") + name;
  return *to != nullptr;
}

bool FindAll(void* library, Api* api, std::string* why) {
#define RGPU_FIND(name) \
  if (!Find(library, #name, &api->name, why)) return false
  RGPU_FIND(ZSTD_versionNumber);
  RGPU_FIND(ZSTD_createCCtx);
  RGPU_FIND(ZSTD_freeCCtx);
  RGPU_FIND(ZSTD_compressCCtx);
  RGPU_FIND(ZSTD_createDCtx);
  RGPU_FIND(ZSTD_freeDCtx);
  RGPU_FIND(ZSTD_decompressDCtx);
  RGPU_FIND(ZSTD_findFrameCompressedSize);
  RGPU_FIND(ZSTD_isError);
#undef RGPU_FIND
  if (api->ZSTD_versionNumber() >= kLeastVersion) return true;
  *why = "the library is older than 1.4";
  return false;
}

Loaded Load() {
  Loaded loaded;
  const char* named = std::getenv("RGPU_LIBZSTD");
  const bool is_named = named != nullptr && *named != '\0';
  // The library is never unloaded, because its functions are used until the process ends.
  void* library = dlopen(is_named ? named : "libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  std::string reason;
  if (library == nullptr) {
    reason = dlerror();
  } else {
    loaded.good = FindAll(library, &loaded.api, &reason);
  }
  if (!loaded.good) loaded.why = "zstd 1.4 or later cannot be loaded (" + reason + ")";
  return loaded;
}

}  // namespace

const Api* LoadZstd(std::string* why) {
  static const Loaded* loaded = new Loaded(Load());
  if (!loaded->good && why != nullptr) *why = loaded->why;
  return loaded->good ? &loaded->api : nullptr;
}

Packer::~Packer() {
  if (compressor_ != nullptr) api_.ZSTD_freeCCtx(compressor_);
}

size_t Packer::Pack(uint8_t* to, size_t room, const uint8_t* from, size_t bytes, int level) {
  if (compressor_ == nullptr) compressor_ = api_.ZSTD_createCCtx();
  if (compressor_ == nullptr) return 0;
  const size_t packed = api_.ZSTD_compressCCtx(compressor_, to, room, from, bytes, level);
  return api_.ZSTD_isError(packed) != 0 ? 0 : packed;
}

Unpacker::~Unpacker() {
  if (decompressor_ != nullptr) api_.ZSTD_freeDCtx(decompressor_);
}

bool Unpacker::Unpack(uint8_t* to, size_t plain, const uint8_t* from, size_t bytes) {
  uint32_t magic = 0;
  if (bytes < sizeof magic) return false;
  std::memcpy(&magic, from, sizeof magic);
  // Refuse bytes after the first frame: a second frame could have an old format.
  if (magic != kZstdMagic || api_.ZSTD_findFrameCompressedSize(from, bytes) != bytes) return false;
  if (decompressor_ == nullptr) decompressor_ = api_.ZSTD_createDCtx();
  return decompressor_ != nullptr &&
         api_.ZSTD_decompressDCtx(decompressor_, to, plain, from, bytes) == plain;
}

}  // namespace rgpu::transport::zip
