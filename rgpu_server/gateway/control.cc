#include "rgpu_server/gateway/control.h"

#include <errno.h>
#include <sys/socket.h>

namespace rgpu::gateway {

bool Control::Say(std::initializer_list<std::string_view> words) const {
  std::string line;
  for (const std::string_view word : words) {
    if (!line.empty()) line += '\t';
    for (const char c : word) line += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
  }
  line.resize(std::min(line.size(), kMaxLineBytes));
  return send(fd_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

bool Control::Hear(std::string* line) const {
  char data[kMaxLineBytes];
  ssize_t got = 0;
  do {
    got = recv(fd_, data, sizeof data, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) {
    line->clear();
    return true;
  }
  if (got <= 0) return false;
  line->assign(data, static_cast<size_t>(got));
  return true;
}

}  // namespace rgpu::gateway
