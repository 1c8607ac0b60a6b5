#include "rgpu_server/executor/modes.h"

#include <poll.h>
#include <unistd.h>

#include <iterator>

#include "rgpu_server/executor/printed.h"

namespace rgpu::exec {

void WatchUntilEnd(Session& session, int also_fd, const std::function<bool()>& on_readable) {
  for (;;) {
    pollfd fds[] = {{session.ended_fd(), POLLIN, 0},
                    {PrintedFd(), POLLIN, 0},
                    {PrintedErrorsFd(), POLLIN, 0},
                    {also_fd, POLLIN, 0}};
    if (poll(fds, std::size(fds), -1) < 0) continue;
    if (fds[1].revents != 0 || fds[2].revents != 0) ForwardPrinted(session.outbox());
    if (fds[0].revents != 0) return;
    if (fds[3].revents != 0 && !on_readable()) also_fd = -1;
  }
}

void Leave(Session& session) {
  session.Finish();
  // Not exit(): kernels may be running and threads may be in the driver. The system frees
  // everything.
  _exit(0);
}

}  // namespace rgpu::exec
