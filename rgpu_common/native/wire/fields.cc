#include "rgpu_common/native/wire/fields.h"

#include <algorithm>

#include "rgpu_common/native/wire/text.h"

namespace rgpu::wire {
namespace {

constexpr size_t kBandBytes = 16;
constexpr size_t kWishBytes = 10;

void ReadBand(Reader& r, Band* band) {
  r.Get(&band->base);
  r.Get(&band->size);
}

void PutWish(Writer& w, const Wish& wish) {
  w.Put(wish.key);
  w.Put(wish.value);
}

void ReadWish(Reader& r, Wish* wish) {
  r.Get(&wish->key);
  r.Get(&wish->value);
}

// True if the band does not pass the end of the address space.
bool Valid(const Band& band) { return band.base + band.size >= band.base; }

}  // namespace

void PutText(Writer& w, std::string_view text) { w.Put(Bytes(text)); }

bool GetText(Reader& r, std::string* text, uint32_t limit) {
  ByteView bytes;
  r.Get(&bytes);
  if (!r.ok() || bytes.size > limit || !IsCleanText(bytes.text())) return false;
  *text = bytes.text();
  return true;
}

bool GetMagic(Reader& r) {
  uint32_t magic = 0;
  r.Get(&magic);
  return r.ok() && magic == kMagic;
}

bool GetZero(Reader& r) {
  uint32_t zero = 0;
  r.Get(&zero);
  return r.ok() && zero == 0;
}

bool GetBytes(Reader& r, std::vector<uint8_t>* bytes, uint32_t limit) {
  ByteView view;
  r.Get(&view);
  if (!r.ok() || view.size > limit) return false;
  bytes->assign(view.data, view.data + view.size);
  return true;
}

bool GetString(Reader& r, std::string* text, uint32_t limit) {
  ByteView view;
  r.Get(&view);
  if (!r.ok() || view.size > limit) return false;
  *text = view.text();
  return true;
}

bool GetLine(Reader& r, std::string* text, uint32_t limit) {
  if (!GetString(r, text, limit)) return false;
  *text = CleanText(*text, limit);
  return true;
}

void PutStrings(Writer& w, const std::vector<std::string>& strings) {
  std::string all;
  for (const std::string& one : strings) all.append(one).push_back('\0');
  PutText(w, all);
}

bool GetStrings(Reader& r, std::vector<std::string>* strings, uint32_t limit) {
  std::string all;
  if (!GetString(r, &all, limit) || (!all.empty() && all.back() != '\0')) return false;
  strings->clear();
  for (size_t at = 0, end = 0; at < all.size(); at = end + 1) {
    end = all.find('\0', at);
    strings->push_back(all.substr(at, end - at));
  }
  return true;
}

void PutItem(Writer& w, uint32_t item) { w.Put(item); }
void PutItem(Writer& w, const std::string& item) { PutText(w, item); }
void PutItem(Writer& w, const std::vector<uint8_t>& item) {
  w.Put(Bytes(item.data(), item.size()));
}

bool GetItem(Reader& r, uint32_t* item) {
  r.Get(item);
  return r.ok();
}
bool GetItem(Reader& r, std::string* item) { return GetString(r, item, UINT32_MAX); }
bool GetItem(Reader& r, std::vector<uint8_t>* item) { return GetBytes(r, item, UINT32_MAX); }

void PutBand(Writer& w, const Band& band) {
  w.Put(band.base);
  w.Put(band.size);
}

bool GetBand(Reader& r, Band* band) {
  ReadBand(r, band);
  return r.ok() && Valid(*band);
}

void PutBands(Writer& w, const std::vector<Band>& bands) { PutRows(w, bands, kBandBytes, PutBand); }

bool GetBands(Reader& r, std::vector<Band>* bands) {
  return GetRows(r, bands, kBandBytes, kMaxBands, ReadBand) &&
         std::all_of(bands->begin(), bands->end(), Valid);
}

void PutWishes(Writer& w, const std::vector<Wish>& wishes) {
  PutRows(w, wishes, kWishBytes, PutWish);
}

bool GetWishes(Reader& r, std::vector<Wish>* wishes) {
  return GetRows(r, wishes, kWishBytes, kMaxWishes, ReadWish);
}

uint64_t Granted(const std::vector<Wish>& grants, WishKey key) {
  for (const Wish& grant : grants) {
    if (grant.key == static_cast<uint16_t>(key)) return grant.value;
  }
  return 0;
}

bool SameSecret(const std::array<uint8_t, kSecretBytes>& a,
                const std::array<uint8_t, kSecretBytes>& b) {
  unsigned different = 0;
  for (size_t i = 0; i < kSecretBytes; ++i) different |= static_cast<unsigned>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace rgpu::wire
