#include "rgpu_server/gateway/control.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "rgpu_common/native/wire/text.h"

namespace rgpu::gateway {

bool Control::Say(std::initializer_list<std::string_view> words) const {
  std::string line;
  for (const std::string_view word : words) {
    if (!line.empty()) line += '\t';
    line += wire::CleanText(word, kMaxLineBytes);
  }
  line.resize(std::min(line.size(), kMaxLineBytes));
  return send(fd_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

bool Control::Hear(std::string* line, std::vector<base::UniqueFd>* files) const {
  char data[kMaxLineBytes];
  line->clear();
  pollfd wait{fd_, POLLIN, 0};
  if (poll(&wait, 1, 0) <= 0) return true;
  const ssize_t got = base::RecvMessage(fd_, data, sizeof data, files);
  if (got < 0 && (errno == EAGAIN || errno == EMSGSIZE)) return true;
  if (got <= 0) return false;
  line->assign(data, static_cast<size_t>(got));
  return true;
}

}  // namespace rgpu::gateway
