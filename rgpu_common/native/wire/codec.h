// Writer and Reader: the only code that turns fields into bytes, and bytes into fields.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rgpu::wire {

// A byte string inside the reader's private memory. It is valid until the next frame is read.
struct ByteView {
  const uint8_t* data = nullptr;
  uint32_t size = 0;
  std::string_view text() const { return {reinterpret_cast<const char*>(data), size}; }
};

inline ByteView Bytes(const void* data, size_t size) {
  return {static_cast<const uint8_t*>(data), static_cast<uint32_t>(size)};
}
inline ByteView Bytes(std::string_view text) { return Bytes(text.data(), text.size()); }

// Appends fields to a vector. Its owner reuses the vector, so the hot path does not allocate.
class Writer {
 public:
  explicit Writer(std::vector<uint8_t>* out) : out_(out) {}

  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Put(T value) {
    const size_t at = out_->size();
    out_->resize(at + sizeof(T));
    std::memcpy(out_->data() + at, &value, sizeof(T));
  }
  void Put(ByteView bytes) {
    Put(bytes.size);
    out_->insert(out_->end(), bytes.data, bytes.data + bytes.size);
  }
  void PutRaw(const void* data, size_t size) {
    const auto* p = static_cast<const uint8_t*>(data);
    out_->insert(out_->end(), p, p + size);
  }

 private:
  std::vector<uint8_t>* out_;
};

// Reads fields from untrusted bytes. The first field that does not fit makes ok() false for good,
// and all later fields read as zero. A decoder therefore checks done() once, at its end.
class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : p_(data), end_(data + size) {}

  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Get(T* value) {
    if (!ok_ || static_cast<size_t>(end_ - p_) < sizeof(T)) return Fail(value);
    std::memcpy(value, p_, sizeof(T));
    p_ += sizeof(T);
  }
  void Get(ByteView* bytes) {
    uint32_t size = 0;
    Get(&size);
    if (!ok_ || static_cast<size_t>(end_ - p_) < size) return Fail(bytes);
    *bytes = {p_, size};
    p_ += size;
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && p_ == end_; }

 private:
  template <typename T>
  void Fail(T* value) {
    ok_ = false;
    *value = T{};
  }
  const uint8_t* p_;
  const uint8_t* end_;
  bool ok_ = true;
};

}  // namespace rgpu::wire
