#include "rgpu_common/native/transport/ucx/ucp.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "rgpu_common/native/base/library.h"

namespace rgpu::transport::ucx {
namespace {

constexpr unsigned int kMajor = 1, kMinor = 13;

// rgpu's settings for UCX, where UCX's own variables leave them open:
// - TLS: no shared memory, because it fails unless both ends have the same user and /dev/shm; shm:
//   serves that case. No device memory, because it never reaches this code, and looking for it
//   would call the CUDA driver, which in a program is the shim itself.
// - Segments of 1 MiB make TCP three times as fast.
// - The keep-alive settings find a lost peer within ten seconds.
// - CM_REUSEADDR lets a gateway listen at the port of the gateway that it replaces.
constexpr const char* kSettings[][2] = {
    {"TLS", "^shm,cuda,rocm,ze"}, {"TCP_TX_SEG_SIZE", "1m"}, {"TCP_RX_SEG_SIZE", "1m"},
    {"TCP_KEEPIDLE", "3s"},       {"TCP_KEEPINTVL", "1s"},   {"TCP_KEEPCNT", "4"},
    {"KEEPALIVE_INTERVAL", "3s"}, {"CM_REUSEADDR", "y"},
};
// Settings of the whole library. They are left alone if the program itself uses UCX. By default UCX
// would log to stdout.
constexpr const char* kGlobalSettings[][2] = {
    {"LOG_LEVEL", "fatal"},
    {"MODULES", "^cuda,rocm,ze"},
    {"VFS_ENABLE", "n"},
};
constexpr int kFatalSignals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};

struct Loaded {
  Api api{};
  Engine* engine = nullptr;
  pid_t process = 0;
  std::string why;
};

// Restores the program's handlers of fatal signals, which UCX replaces when it is loaded.
class KeepHandlers {
 public:
  KeepHandlers() {
    for (int i = 0; i < 4; ++i) sigaction(kFatalSignals[i], nullptr, &old_[i]);
  }
  ~KeepHandlers() {
    for (int i = 0; i < 4; ++i) sigaction(kFatalSignals[i], &old_[i], nullptr);
  }
  KeepHandlers(const KeepHandlers&) = delete;
  KeepHandlers& operator=(const KeepHandlers&) = delete;

 private:
  struct sigaction old_[4];
};

// Opens the library of the libucx wheel, which lies in site-packages, as this library does.
void* OpenWheel() {
  Dl_info here{};
  char path[PATH_MAX];
  if (dladdr(reinterpret_cast<const void*>(&LoadUcx), &here) == 0) return nullptr;
  if (realpath(here.dli_fname, path) == nullptr) return nullptr;
  std::string folder = path;
  for (int up = 0; up < 4; ++up) {
    folder.resize(folder.find_last_of('/') == std::string::npos ? 0 : folder.find_last_of('/'));
    if (folder.empty()) return nullptr;
    const std::string there = folder + "/libucx/lib/libucp.so.0";
    if (access(there.c_str(), R_OK) == 0) return dlopen(there.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return nullptr;
}

// Opens the library. Sets `*shared` if the program has already loaded it.
void* Open(bool* shared, std::string* why) {
  const char* named = base::LibraryNamedBy("RGPU_LIBUCP");
  const char* name = named != nullptr ? named : "libucp.so.0";
  const KeepHandlers keep;
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  *shared = library != nullptr;
  if (library == nullptr) library = base::OpenLibrary({name}, why);
  if (library == nullptr && named == nullptr) library = OpenWheel();
  return library;
}

bool FindAll(void* library, Api* api, std::string* why) {
  const bool found = base::FindFunctions(library,
                                         {
                                             RGPU_FUNCTION(*api, ucp_get_version),
                                             RGPU_FUNCTION(*api, ucp_get_version_string),
                                             RGPU_FUNCTION(*api, ucs_status_string),
                                             RGPU_FUNCTION(*api, ucs_global_opts_set_value),
                                             RGPU_FUNCTION(*api, ucp_config_read),
                                             RGPU_FUNCTION(*api, ucp_config_modify),
                                             RGPU_FUNCTION(*api, ucp_config_release),
                                             RGPU_FUNCTION(*api, ucp_init_version),
                                             RGPU_FUNCTION(*api, ucp_worker_create),
                                             RGPU_FUNCTION(*api, ucp_worker_destroy),
                                             RGPU_FUNCTION(*api, ucp_worker_progress),
                                             RGPU_FUNCTION(*api, ucp_worker_get_efd),
                                             RGPU_FUNCTION(*api, ucp_worker_arm),
                                             RGPU_FUNCTION(*api, ucp_listener_create),
                                             RGPU_FUNCTION(*api, ucp_listener_destroy),
                                             RGPU_FUNCTION(*api, ucp_listener_query),
                                             RGPU_FUNCTION(*api, ucp_listener_reject),
                                             RGPU_FUNCTION(*api, ucp_conn_request_query),
                                             RGPU_FUNCTION(*api, ucp_ep_create),
                                             RGPU_FUNCTION(*api, ucp_ep_close_nbx),
                                             RGPU_FUNCTION(*api, ucp_stream_send_nbx),
                                             RGPU_FUNCTION(*api, ucp_stream_recv_nbx),
                                             RGPU_FUNCTION(*api, ucp_request_check_status),
                                             RGPU_FUNCTION(*api, ucp_request_free),
                                         },
                                         why);
  if (!found) return false;
  unsigned int major = 0, minor = 0, release = 0;
  api->ucp_get_version(&major, &minor, &release);
  if (major == kMajor && minor >= kMinor) return true;
  *why = std::string("the library is UCX ") + api->ucp_get_version_string();
  return false;
}

bool SetOutside(const char* name) {
  return std::getenv((std::string("UCX_") + name).c_str()) != nullptr;
}

// Applies the settings. A release that does not know a setting ignores it.
Config* Configure(const Api& api, bool shared) {
  for (const auto& [name, value] : kGlobalSettings) {
    if (!shared && !SetOutside(name)) api.ucs_global_opts_set_value(name, value);
  }
  Config* config = nullptr;
  if (api.ucp_config_read(nullptr, nullptr, &config) != kOk) return nullptr;
  for (const auto& [name, value] : kSettings) {
    if (!SetOutside(name)) api.ucp_config_modify(config, name, value);
  }
  return config;
}

bool Start(Loaded* loaded, bool shared, std::string* why) {
  const Api& api = loaded->api;
  const KeepHandlers keep;
  Config* config = Configure(api, shared);
  if (config == nullptr) {
    *why = "UCX cannot read its configuration";
    return false;
  }
  Params params{};
  params.field_mask = Params::kFeatures | Params::kSharedWorkers;
  params.features = kFeatureStream | kFeatureWakeup;
  params.mt_workers_shared = 1;
  Context* context = nullptr;
  const Status status = api.ucp_init_version(kMajor, kMinor, &params, config, &context);
  api.ucp_config_release(config);
  if (status != kOk) {
    *why = api.ucs_status_string(status);
    return false;
  }
  loaded->engine = new Engine{api, context};
  loaded->process = getpid();
  return true;
}

// Loads and starts UCX. Called once per process; a failure is not tried again.
Loaded* Load() {
  auto* loaded = new Loaded;
  std::string reason;
  bool shared = false;
  void* library = Open(&shared, &reason);
  if (library == nullptr || !FindAll(library, &loaded->api, &reason)) {
    loaded->why = "ucx: needs UCX 1.13 or later, which cannot be loaded (" + reason +
                  "): install libucx0 (Debian, Ubuntu) or ucx (Fedora), or name libucp.so.0 in "
                  "RGPU_LIBUCP";
  } else if (!Start(loaded, shared, &reason)) {
    loaded->why = "UCX does not start (" + reason + "): check UCX_TLS and UCX_NET_DEVICES";
  }
  return loaded;
}

}  // namespace

const Engine* LoadUcx(std::string* why) {
  static const Loaded* loaded = Load();
  if (loaded->engine == nullptr) {
    *why = loaded->why;
  } else if (loaded->process != getpid()) {
    *why =
        "a forked child cannot use ucx: if its parent has used it: start the child as a new "
        "process "
        "(multiprocessing's 'spawn')";
    return nullptr;
  }
  return loaded->engine;
}

}  // namespace rgpu::transport::ucx
