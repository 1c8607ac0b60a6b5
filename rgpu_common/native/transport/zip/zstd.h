// zstd, found when it is first needed: no program needs it to start, and none to be built.  These
// are our own declarations of the public functions that are used, all of them stable since 1.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace rgpu::transport::zip {

// Opaque: only zstd knows what is in them.
struct Compressor;    // ZSTD_CCtx
struct Decompressor;  // ZSTD_DCtx

// Every zstd frame of today begins with it.  Frames without it are skipped or of formats before
// version 0.8, whose decoders a peer must not reach.
inline constexpr uint32_t kZstdMagic = 0xFD2FB528;
inline constexpr unsigned kLeastVersion = 10400;

struct Api {
  unsigned (*ZSTD_versionNumber)();
  Compressor* (*ZSTD_createCCtx)();
  size_t (*ZSTD_freeCCtx)(Compressor*);
  size_t (*ZSTD_compressCCtx)(Compressor*, void* to, size_t room, const void* from, size_t bytes,
                              int level);
  Decompressor* (*ZSTD_createDCtx)();
  size_t (*ZSTD_freeDCtx)(Decompressor*);
  size_t (*ZSTD_decompressDCtx)(Decompressor*, void* to, size_t room, const void* from,
                                size_t bytes);
  size_t (*ZSTD_findFrameCompressedSize)(const void* from, size_t bytes);
  unsigned (*ZSTD_isError)(size_t);
};

// The functions, for the life of the process.  Null: `why` says what is missing.  RGPU_LIBZSTD
// names the library where it lies at an unusual place.
const Api* LoadZstd(std::string* why);

// Packs and unpacks single blocks, in memory of the caller's.  Made when it is first used; one
// thread at a time.
class Packer {
 public:
  explicit Packer(const Api& api) : api_(api) {}
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // How many bytes it came to; 0: more than there is room for, or no memory.
  size_t Pack(uint8_t* to, size_t room, const uint8_t* from, size_t bytes, int level);

 private:
  const Api& api_;
  Compressor* compressor_ = nullptr;
};

class Unpacker {
 public:
  explicit Unpacker(const Api& api) : api_(api) {}
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // True: `from` was one frame of exactly `plain` bytes.
  bool Unpack(uint8_t* to, size_t plain, const uint8_t* from, size_t bytes);

 private:
  const Api& api_;
  Decompressor* decompressor_ = nullptr;
};

}  // namespace rgpu::transport::zip
