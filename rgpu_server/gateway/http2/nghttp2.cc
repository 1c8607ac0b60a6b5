#include "rgpu_server/gateway/http2/nghttp2.h"

#include <dlfcn.h>

#include <cstdlib>

namespace rgpu::gateway::http2::lib {
namespace {

struct Loaded {
  Api api{};
  bool good = false;
  std::string why;
};

template <typename Function>
bool Find(void* library, const char* name, Function* to, std::string* why) {
  *to = reinterpret_cast<Function>(dlsym(library, name));
  if (*to == nullptr) *why = std::string("it has no ") + name + ", so it is older than 1.61";
  return *to != nullptr;
}

bool FindAll(void* library, Api* api, std::string* why) {
#define RGPU_FIND(name) \
  if (!Find(library, #name, &api->name, why)) return false
  RGPU_FIND(nghttp2_session_callbacks_new);
  RGPU_FIND(nghttp2_session_callbacks_del);
  RGPU_FIND(nghttp2_session_callbacks_set_on_begin_frame_callback);
  RGPU_FIND(nghttp2_session_callbacks_set_on_frame_recv_callback);
  RGPU_FIND(nghttp2_session_callbacks_set_on_frame_send_callback);
  RGPU_FIND(nghttp2_session_callbacks_set_on_begin_headers_callback);
  RGPU_FIND(nghttp2_session_callbacks_set_on_header_callback);
  RGPU_FIND(nghttp2_session_callbacks_set_on_data_chunk_recv_callback);
  RGPU_FIND(nghttp2_session_callbacks_set_on_stream_close_callback);
  RGPU_FIND(nghttp2_session_callbacks_set_send_data_callback);
  RGPU_FIND(nghttp2_session_callbacks_set_data_source_read_length_callback);
  RGPU_FIND(nghttp2_option_new);
  RGPU_FIND(nghttp2_option_del);
  RGPU_FIND(nghttp2_option_set_no_auto_window_update);
  RGPU_FIND(nghttp2_option_set_no_closed_streams);
  RGPU_FIND(nghttp2_option_set_max_settings);
  RGPU_FIND(nghttp2_option_set_max_outbound_ack);
  RGPU_FIND(nghttp2_option_set_max_continuations);
  RGPU_FIND(nghttp2_option_set_stream_reset_rate_limit);
  RGPU_FIND(nghttp2_session_server_new2);
  RGPU_FIND(nghttp2_session_client_new2);
  RGPU_FIND(nghttp2_session_del);
  RGPU_FIND(nghttp2_session_mem_recv);
  RGPU_FIND(nghttp2_session_mem_send);
  RGPU_FIND(nghttp2_session_want_read);
  RGPU_FIND(nghttp2_session_want_write);
  RGPU_FIND(nghttp2_session_get_outbound_queue_size);
  RGPU_FIND(nghttp2_session_get_last_proc_stream_id);
  RGPU_FIND(nghttp2_session_terminate_session);
  RGPU_FIND(nghttp2_session_set_local_window_size);
  RGPU_FIND(nghttp2_session_consume_connection);
  RGPU_FIND(nghttp2_session_consume_stream);
  RGPU_FIND(nghttp2_session_resume_data);
  RGPU_FIND(nghttp2_submit_settings);
  RGPU_FIND(nghttp2_submit_goaway);
  RGPU_FIND(nghttp2_submit_ping);
  RGPU_FIND(nghttp2_submit_request);
  RGPU_FIND(nghttp2_submit_response);
  RGPU_FIND(nghttp2_submit_trailer);
  RGPU_FIND(nghttp2_submit_rst_stream);
  RGPU_FIND(nghttp2_strerror);
#undef RGPU_FIND
  return true;
}

Loaded LoadLibrary() {
  Loaded loaded;
  const char* named = std::getenv("RGPU_LIBNGHTTP2");
  const bool elsewhere = named != nullptr && *named != '\0';
  std::string reason;
  // The library is never closed: connections use it until the process ends.
  void* library = dlopen(elsewhere ? named : "libnghttp2.so.14", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    reason = dlerror();
  } else {
    loaded.good = FindAll(library, &loaded.api, &reason);
  }
  if (!loaded.good) {
    loaded.why =
        "grpc: needs nghttp2 1.61, or an older one with its distribution's security updates, which "
        "cannot be loaded (" +
        reason +
        "): install or update libnghttp2-14 (Debian, Ubuntu) or libnghttp2 (Fedora), or name the "
        "library in RGPU_LIBNGHTTP2";
  }
  return loaded;
}

}  // namespace

const Api* Load(std::string* why) {
  static const Loaded* loaded = new Loaded(LoadLibrary());
  if (!loaded->good) *why = loaded->why;
  return loaded->good ? &loaded->api : nullptr;
}

}  // namespace rgpu::gateway::http2::lib
