// What gateway and daemon say to each other: a line of words, separated by tabs, in each datagram.
//
//   gateway: isolation REPORT, before it is ready | ready [PORTS] | error TEXT | reloaded |
//            stale TEXT | refused PEER TEXT | figures NAME=NUMBER...
//   daemon:  reload, with the open files of certificate, key and clients' CA; or it closes its
//            end: take nobody new and end with the last connection
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "rgpu_common/native/base/fd.h"

namespace rgpu::gateway {

inline constexpr size_t kMaxLineBytes = 1024;

class Control {
 public:
  explicit Control(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  // Never blocks.  False: there is no room, and it is lost.  Words are cleaned (wire/text.h).
  bool Say(std::initializer_list<std::string_view> words) const;
  // False: the daemon has closed its end.
  bool Hear(std::string* line, std::vector<base::UniqueFd>* files) const;

 private:
  const int fd_;
};

}  // namespace rgpu::gateway
