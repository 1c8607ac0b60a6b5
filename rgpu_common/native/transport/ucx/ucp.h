// UCX's protocol layer (UCP), loaded when it is first needed, so that rgpu starts and builds
// without it. The declarations of its public functions and structures below are rgpu's own, as of
// UCX 1.13. Later releases only append fields, and the field masks tell UCX not to read those.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace rgpu::transport::ucx {

// Opaque types of UCX.
struct Context;      // ucp_context
struct Config;       // ucp_config
struct Worker;       // ucp_worker
struct Endpoint;     // ucp_ep
struct Listener;     // ucp_listener
struct ConnRequest;  // ucp_conn_request

using Status = int8_t;  // ucs_status_t: 0 is success, below 0 is an error

// Values of the documented constants.
inline constexpr Status kOk = 0;
inline constexpr Status kUnreachable = -6;
inline constexpr Status kBusy = -15;
inline constexpr Status kTimedOut = -20;
inline constexpr Status kRejected = -23;
inline constexpr Status kNotConnected = -24;
inline constexpr Status kConnectionReset = -25;
inline constexpr Status kEndpointTimeout = -80;
inline constexpr intptr_t kLastStatus = -100;
inline constexpr uint64_t kFeatureWakeup = 1U << 4;
inline constexpr uint64_t kFeatureStream = 1U << 5;
inline constexpr int kThreadSerialized = 1;
inline constexpr int kErrorModePeer = 1;
inline constexpr unsigned int kEndpointClientServer = 1;
inline constexpr uint32_t kCloseForce = 1;

struct Params {  // ucp_params_t
  static constexpr uint64_t kFeatures = 1, kSharedWorkers = 1U << 5;
  uint64_t field_mask;
  uint64_t features;
  size_t request_size;
  void (*request_init)(void*);
  void (*request_cleanup)(void*);
  uint64_t tag_sender_mask;
  int mt_workers_shared;
  size_t estimated_num_eps;
  size_t estimated_num_ppn;
  const char* name;
};

struct WorkerParams {  // ucp_worker_params_t
  static constexpr uint64_t kThreadMode = 1;
  uint64_t field_mask;
  int thread_mode;
  unsigned long cpu_mask[1024 / 8 / sizeof(unsigned long)];
  unsigned int events;
  void* user_data;
  int event_fd;
  uint64_t flags;
  const char* name;
  size_t am_alignment;
  uint64_t client_id;
};

struct Address {  // ucs_sock_addr_t
  const sockaddr* address;
  socklen_t bytes;
};

struct ErrorHandler {  // ucp_err_handler_t
  void (*call)(void* argument, Endpoint* endpoint, Status status);
  void* argument;
};

struct EndpointParams {  // ucp_ep_params_t
  static constexpr uint64_t kErrorMode = 1U << 1, kErrorHandler = 1U << 2, kSocketAddress = 1U << 4,
                            kFlags = 1U << 5, kConnRequest = 1U << 6;
  uint64_t field_mask;
  const void* worker_address;
  int error_mode;
  ErrorHandler error_handler;
  void* user_data;
  unsigned int flags;
  Address socket_address;
  ConnRequest* conn_request;
  const char* name;
  Address local_address;
};

struct ListenerParams {  // ucp_listener_params_t
  static constexpr uint64_t kSocketAddress = 1, kConnHandler = 1U << 2;
  uint64_t field_mask;
  Address socket_address;
  struct {
    void (*call)(Endpoint*, void* argument);
    void* argument;
  } accept_handler;
  struct {
    void (*call)(ConnRequest*, void* argument);
    void* argument;
  } conn_handler;
};

struct ListenerFacts {  // ucp_listener_attr_t
  static constexpr uint64_t kSocketAddress = 1;
  uint64_t field_mask;
  sockaddr_storage address;
};

struct ConnRequestFacts {  // ucp_conn_request_attr_t
  static constexpr uint64_t kClientAddress = 1;
  uint64_t field_mask;
  sockaddr_storage client;
  uint64_t client_id;
};

struct RequestParams {  // ucp_request_param_t
  static constexpr uint32_t kCallback = 1U << 1, kUserData = 1U << 2, kFlags = 1U << 4;
  uint32_t field_mask;
  uint32_t flags;
  void* request;
  union {
    void (*sent)(void* request, Status status, void* user_data);
    void (*received)(void* request, Status status, size_t bytes, void* user_data);
  } call;
  uint64_t data_type;
  void* user_data;
  void* reply_buffer;
  int memory_type;
  void* received_bytes;
  void* memory;
};

struct Api {
  void (*ucp_get_version)(unsigned int*, unsigned int*, unsigned int*);
  const char* (*ucp_get_version_string)();
  const char* (*ucs_status_string)(Status);
  Status (*ucs_global_opts_set_value)(const char*, const char*);
  Status (*ucp_config_read)(const char*, const char*, Config**);
  Status (*ucp_config_modify)(Config*, const char*, const char*);
  void (*ucp_config_release)(Config*);
  Status (*ucp_init_version)(unsigned int, unsigned int, const Params*, const Config*, Context**);
  Status (*ucp_worker_create)(Context*, const WorkerParams*, Worker**);
  void (*ucp_worker_destroy)(Worker*);
  unsigned int (*ucp_worker_progress)(Worker*);
  Status (*ucp_worker_get_efd)(Worker*, int*);
  Status (*ucp_worker_arm)(Worker*);
  Status (*ucp_listener_create)(Worker*, const ListenerParams*, Listener**);
  void (*ucp_listener_destroy)(Listener*);
  Status (*ucp_listener_query)(Listener*, ListenerFacts*);
  Status (*ucp_listener_reject)(Listener*, ConnRequest*);
  Status (*ucp_conn_request_query)(ConnRequest*, ConnRequestFacts*);
  Status (*ucp_ep_create)(Worker*, const EndpointParams*, Endpoint**);
  // These return null (done), a request, or a status as a pointer (FailureOf).
  void* (*ucp_ep_close_nbx)(Endpoint*, const RequestParams*);
  void* (*ucp_stream_send_nbx)(Endpoint*, const void*, size_t, const RequestParams*);
  void* (*ucp_stream_recv_nbx)(Endpoint*, void*, size_t, size_t*, const RequestParams*);
  Status (*ucp_request_check_status)(void*);
  void (*ucp_request_free)(void*);
};

// The status in a returned pointer: an error below 0, or else 0.
inline Status FailureOf(const void* pointer) {
  const auto value = reinterpret_cast<intptr_t>(pointer);
  return value < 0 && value >= kLastStatus ? static_cast<Status>(value) : kOk;
}

// UCX in this process: one context for all its connections.
struct Engine {
  const Api& api;
  Context* context;
};

// Loads UCX once per process. Null: `why` says what is missing and what to do. RGPU_LIBUCP names a
// library at an unusual place. UCX's own variables (UCX_TLS, ...) take precedence over rgpu's
// settings. The environment is not changed.
const Engine* LoadUcx(std::string* why);

}  // namespace rgpu::transport::ucx
