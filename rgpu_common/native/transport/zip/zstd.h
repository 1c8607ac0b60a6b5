// zstd, loaded when it is first needed, so that rgpu starts and builds without it. The declarations
// of zstd's public functions below are rgpu's own. All these functions are stable since 1.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace rgpu::transport::zip {

// Opaque types of zstd.
struct Compressor;    // ZSTD_CCtx
struct Decompressor;  // ZSTD_DCtx

// The first bytes of every current zstd frame. Other frames are skippable ones, or have formats
// before version 0.8, whose decoders a peer must not reach.
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

// Loads the library once per process and returns its functions. Null: `why` says what is missing.
// RGPU_LIBZSTD names a library at an unusual place.
const Api* LoadZstd(std::string* why);

// Compresses single blocks into the caller's memory. zstd's context is created at the first use.
// One thread at a time may use it.
class Packer {
 public:
  explicit Packer(const Api& api) : api_(api) {}
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // Returns the number of compressed bytes. 0: they do not fit in `room`, or memory is short.
  size_t Pack(uint8_t* to, size_t room, const uint8_t* from, size_t bytes, int level);

 private:
  const Api& api_;
  Compressor* compressor_ = nullptr;
};

// Decompresses single blocks. One thread at a time may use it.
class Unpacker {
 public:
  explicit Unpacker(const Api& api) : api_(api) {}
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // False: `from` is not one valid frame of exactly `plain` bytes.
  bool Unpack(uint8_t* to, size_t plain, const uint8_t* from, size_t bytes);

 private:
  const Api& api_;
  Decompressor* decompressor_ = nullptr;
};

}  // namespace rgpu::transport::zip
