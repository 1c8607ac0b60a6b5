#include "rgpu_common/native/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "rgpu_common/native/base/fd.h"

namespace rgpu::base {

bool ReadText(const std::string& path, size_t most, std::string* text) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  text->resize(most);
  size_t done = 0;
  while (done < most) {
    const ssize_t got = read(file.get(), text->data() + done, most - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text->resize(done);
  return true;
}

std::vector<std::string> Pieces(std::string_view list, char separator) {
  std::vector<std::string> pieces;
  while (!list.empty()) {
    const size_t end = std::min(list.find(separator), list.size());
    pieces.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return pieces;
}

void CopyText(std::string_view text, char* out, size_t capacity) {
  if (capacity == 0) return;
  const size_t size = std::min(text.size(), capacity - 1);
  std::memcpy(out, text.data(), size);
  out[size] = '\0';
}

}  // namespace rgpu::base
