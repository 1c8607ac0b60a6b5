// What a process can do with files after it has restricted itself: a line per try, "name errno".
//
//   files none|read|devices FOLDER      FOLDER holds a file "there"
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

#include "rgpu_common/native/confine/rights.h"

namespace {

void Print(const char* name, int result) { std::printf("%s %d\n", name, result < 0 ? errno : 0); }

}  // namespace

int main(int argc, char** argv) {
  using rgpu::confine::Files;
  if (argc != 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
  const std::string_view which = argv[1];
  const std::string folder = argv[2];
  const std::string there = folder + "/there";
  rgpu::confine::Report report;
  RestrictFiles(which == "none"   ? Files::kNone
                : which == "read" ? Files::kReadOnly
                                  : Files::kDevices,
                &report);
  if (!report.text().empty()) return 2;
  Print("read", open(there.c_str(), O_RDONLY));
  Print("write", open(there.c_str(), O_WRONLY));
  Print("make", open((folder + "/new").c_str(), O_WRONLY | O_CREAT, 0600));
  Print("make a folder", mkdir((folder + "/folder").c_str(), 0700));
  Print("remove", unlink(there.c_str()));
  Print("rename", rename(there.c_str(), (folder + "/elsewhere").c_str()));
  Print("write to a device", open("/dev/null", O_WRONLY));
  // As NVIDIA's driver does it, for a thread that has begun after the restriction.
  std::thread([] {
    const std::string thread = "/proc/self/task/" + std::to_string(gettid());
    Print("name a thread", open((thread + "/comm").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666));
  }).join();
  Print("name the process", open("/proc/self/comm", O_WRONLY));
  std::fflush(stdout);
  _exit(0);
}
