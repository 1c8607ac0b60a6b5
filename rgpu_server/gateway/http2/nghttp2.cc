#include "rgpu_server/gateway/http2/nghttp2.h"

#include "rgpu_common/native/base/library.h"

namespace rgpu::gateway::http2::lib {
namespace {

using Loaded = base::LoadedLibrary<Api>;

bool FindAll(void* library, Api* api, std::string* why) {
  const bool found = base::FindFunctions(
      library,
      {
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_new),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_del),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_set_on_begin_frame_callback),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_set_on_frame_recv_callback),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_set_on_frame_send_callback),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_set_on_begin_headers_callback),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_set_on_header_callback),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_set_on_data_chunk_recv_callback),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_set_on_stream_close_callback),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_set_send_data_callback),
          RGPU_FUNCTION(*api, nghttp2_session_callbacks_set_data_source_read_length_callback),
          RGPU_FUNCTION(*api, nghttp2_option_new),
          RGPU_FUNCTION(*api, nghttp2_option_del),
          RGPU_FUNCTION(*api, nghttp2_option_set_no_auto_window_update),
          RGPU_FUNCTION(*api, nghttp2_option_set_no_closed_streams),
          RGPU_FUNCTION(*api, nghttp2_option_set_max_settings),
          RGPU_FUNCTION(*api, nghttp2_option_set_max_outbound_ack),
          RGPU_FUNCTION(*api, nghttp2_option_set_max_continuations),
          RGPU_FUNCTION(*api, nghttp2_option_set_stream_reset_rate_limit),
          RGPU_FUNCTION(*api, nghttp2_session_server_new2),
          RGPU_FUNCTION(*api, nghttp2_session_client_new2),
          RGPU_FUNCTION(*api, nghttp2_session_del),
          RGPU_FUNCTION(*api, nghttp2_session_mem_recv),
          RGPU_FUNCTION(*api, nghttp2_session_mem_send),
          RGPU_FUNCTION(*api, nghttp2_session_want_read),
          RGPU_FUNCTION(*api, nghttp2_session_want_write),
          RGPU_FUNCTION(*api, nghttp2_session_get_outbound_queue_size),
          RGPU_FUNCTION(*api, nghttp2_session_get_last_proc_stream_id),
          RGPU_FUNCTION(*api, nghttp2_session_terminate_session),
          RGPU_FUNCTION(*api, nghttp2_session_set_local_window_size),
          RGPU_FUNCTION(*api, nghttp2_session_consume_connection),
          RGPU_FUNCTION(*api, nghttp2_session_consume_stream),
          RGPU_FUNCTION(*api, nghttp2_session_resume_data),
          RGPU_FUNCTION(*api, nghttp2_submit_settings),
          RGPU_FUNCTION(*api, nghttp2_submit_goaway),
          RGPU_FUNCTION(*api, nghttp2_submit_ping),
          RGPU_FUNCTION(*api, nghttp2_submit_request),
          RGPU_FUNCTION(*api, nghttp2_submit_response),
          RGPU_FUNCTION(*api, nghttp2_submit_trailer),
          RGPU_FUNCTION(*api, nghttp2_submit_rst_stream),
          RGPU_FUNCTION(*api, nghttp2_strerror),
      },
      why);
  if (!found) *why += ", so it is older than 1.61";
  return found;
}

Loaded LoadLibrary() {
  Loaded loaded;
  std::string reason;
  void* library = base::OpenLibrary("RGPU_LIBNGHTTP2", {"libnghttp2.so.14"}, &reason);
  if (library == nullptr || !FindAll(library, &loaded.api, &reason)) {
    loaded.failure =
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
  return loaded->Get(why);
}

}  // namespace rgpu::gateway::http2::lib
