// Which user a process becomes that gives up root in a user namespace of 65536 users, as a
// container has it: "UID REPORT".
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "rgpu_common/native/confine/rights.h"

namespace {

void WriteMap(pid_t of, const char* name) {
  const std::string path = "/proc/" + std::to_string(of) + "/" + name;
  std::FILE* map = std::fopen(path.c_str(), "w");
  if (map == nullptr) return;
  std::fputs("0 100000 65536\n", map);
  std::fclose(map);
}

}  // namespace

int main() {
  int apart[2];
  int mapped[2];
  if (pipe(apart) != 0 || pipe(mapped) != 0) return 1;
  char byte = 0;
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER) != 0 || write(apart[1], &byte, 1) != 1) _exit(1);
    if (read(mapped[0], &byte, 1) != 1 || setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) {
      _exit(1);
    }
    rgpu::confine::Report report;
    rgpu::confine::DropUser(&report);
    std::printf("%u %s\n", getuid(), report.text().c_str());
    std::fflush(stdout);
    _exit(0);
  }
  close(apart[1]);  // a child that may not do so ends, and is not waited for
  if (read(apart[0], &byte, 1) != 1) return 1;
  WriteMap(child, "uid_map");
  WriteMap(child, "gid_map");
  if (write(mapped[1], &byte, 1) != 1) return 1;
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
