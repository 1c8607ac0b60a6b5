#include "rgpu_common/native/transport/zip/zstd.h"

#include <cstring>

#include "rgpu_common/native/base/library.h"

namespace rgpu::transport::zip {
namespace {

using Loaded = base::LoadedLibrary<Api>;

bool FindAll(void* library, Api* api, std::string* why) {
  const bool found = base::FindFunctions(library,
                                         {
                                             RGPU_FUNCTION(*api, ZSTD_versionNumber),
                                             RGPU_FUNCTION(*api, ZSTD_createCCtx),
                                             RGPU_FUNCTION(*api, ZSTD_freeCCtx),
                                             RGPU_FUNCTION(*api, ZSTD_compressCCtx),
                                             RGPU_FUNCTION(*api, ZSTD_createDCtx),
                                             RGPU_FUNCTION(*api, ZSTD_freeDCtx),
                                             RGPU_FUNCTION(*api, ZSTD_decompressDCtx),
                                             RGPU_FUNCTION(*api, ZSTD_findFrameCompressedSize),
                                             RGPU_FUNCTION(*api, ZSTD_isError),
                                         },
                                         why);
  if (!found) return false;
  if (api->ZSTD_versionNumber() >= kLeastVersion) return true;
  *why = "the library is older than 1.4";
  return false;
}

Loaded Load() {
  Loaded loaded;
  std::string reason;
  void* library = base::OpenLibrary("RGPU_LIBZSTD", {"libzstd.so.1"}, &reason);
  if (library == nullptr || !FindAll(library, &loaded.api, &reason)) {
    loaded.failure = "zstd 1.4 or later cannot be loaded (" + reason + ")";
  }
  return loaded;
}

}  // namespace

const Api* LoadZstd(std::string* why) {
  static const Loaded* loaded = new Loaded(Load());
  return loaded->Get(why);
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
