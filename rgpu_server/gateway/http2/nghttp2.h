// nghttp2, loaded when it is first needed. No program needs it to start or to be built. These are
// our own declarations of the public functions and constants that are used (nghttp2.h). All of them
// exist since 1.61, and in older releases with the security updates of distributions.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace rgpu::gateway::http2::lib {

// Opaque to callers.
struct Session;    // nghttp2_session
struct Callbacks;  // nghttp2_session_callbacks
struct Option;     // nghttp2_option

// The first member of every frame (nghttp2_frame_hd). Callbacks get a nghttp2_frame, a union whose
// members all begin with it.
struct FrameHead {
  size_t length;
  int32_t stream_id;
  uint8_t type;
  uint8_t flags;
  uint8_t reserved;
};

struct NameValue {  // nghttp2_nv
  const uint8_t* name;
  const uint8_t* value;
  size_t name_bytes;
  size_t value_bytes;
  uint8_t flags;
};

struct Setting {  // nghttp2_settings_entry
  int32_t id;
  uint32_t value;
};

union Source {  // nghttp2_data_source
  int fd;
  void* pointer;
};

using ReadData = ssize_t (*)(Session*, int32_t stream_id, uint8_t* to, size_t bytes,
                             uint32_t* data_flags, Source*, void* user);
struct Provider {  // nghttp2_data_provider
  Source source;
  ReadData read;
};

using OnFrameHead = int (*)(Session*, const FrameHead*, void* user);
using OnHeader = int (*)(Session*, const FrameHead*, const uint8_t* name, size_t name_bytes,
                         const uint8_t* value, size_t value_bytes, uint8_t flags, void* user);
using OnData = int (*)(Session*, uint8_t flags, int32_t stream_id, const uint8_t* data,
                       size_t bytes, void* user);
using OnClose = int (*)(Session*, int32_t stream_id, uint32_t error_code, void* user);
using SendData = int (*)(Session*, const FrameHead*, const uint8_t* head, size_t bytes, Source*,
                         void* user);
using ReadLength = ssize_t (*)(Session*, uint8_t frame_type, int32_t stream_id,
                               int32_t connection_window, int32_t stream_window, uint32_t max_frame,
                               void* user);

// Frame types, flags, settings and error codes are HTTP/2's (RFC 9113, sections 6 and 7).
inline constexpr uint8_t kData = 0;
inline constexpr uint8_t kHeaders = 1;
inline constexpr uint8_t kResetStream = 3;
inline constexpr uint8_t kSettings = 4;
inline constexpr uint8_t kFlagEndStream = 1;
inline constexpr uint8_t kFlagAck = 1;
inline constexpr int32_t kSettingEnablePush = 2;
inline constexpr int32_t kSettingMaxStreams = 3;
inline constexpr int32_t kSettingWindow = 4;
inline constexpr int32_t kSettingMaxFrame = 5;
inline constexpr int32_t kSettingMaxHeaderList = 6;
inline constexpr int32_t kSettingNoPriorities = 9;  // RFC 9218
inline constexpr uint32_t kNoError = 0;
inline constexpr uint32_t kProtocolError = 1;
inline constexpr uint32_t kRefusedStream = 7;
inline constexpr uint32_t kCancel = 8;
inline constexpr uint32_t kEnhanceYourCalm = 11;
// Constants of nghttp2.
inline constexpr uint32_t kDataEof = 1;
inline constexpr uint32_t kDataNoEndStream = 2;
inline constexpr uint32_t kDataNoCopy = 4;
inline constexpr uint8_t kNameValueNoIndex = 1;
inline constexpr uint8_t kFlagNone = 0;
inline constexpr int kWouldBlock = -504;
inline constexpr int kDeferred = -508;
inline constexpr int kCallbackFailure = -902;
inline constexpr int kFlooded = -904;
inline constexpr int kTooManyContinuations = -905;

struct Api {
  int (*nghttp2_session_callbacks_new)(Callbacks**);
  void (*nghttp2_session_callbacks_del)(Callbacks*);
  void (*nghttp2_session_callbacks_set_on_begin_frame_callback)(Callbacks*, OnFrameHead);
  void (*nghttp2_session_callbacks_set_on_frame_recv_callback)(Callbacks*, OnFrameHead);
  void (*nghttp2_session_callbacks_set_on_frame_send_callback)(Callbacks*, OnFrameHead);
  void (*nghttp2_session_callbacks_set_on_begin_headers_callback)(Callbacks*, OnFrameHead);
  void (*nghttp2_session_callbacks_set_on_header_callback)(Callbacks*, OnHeader);
  void (*nghttp2_session_callbacks_set_on_data_chunk_recv_callback)(Callbacks*, OnData);
  void (*nghttp2_session_callbacks_set_on_stream_close_callback)(Callbacks*, OnClose);
  void (*nghttp2_session_callbacks_set_send_data_callback)(Callbacks*, SendData);
  void (*nghttp2_session_callbacks_set_data_source_read_length_callback)(Callbacks*, ReadLength);

  int (*nghttp2_option_new)(Option**);
  void (*nghttp2_option_del)(Option*);
  void (*nghttp2_option_set_no_auto_window_update)(Option*, int);
  void (*nghttp2_option_set_no_closed_streams)(Option*, int);
  void (*nghttp2_option_set_max_settings)(Option*, size_t);
  void (*nghttp2_option_set_max_outbound_ack)(Option*, size_t);
  void (*nghttp2_option_set_max_continuations)(Option*, size_t);
  void (*nghttp2_option_set_stream_reset_rate_limit)(Option*, uint64_t burst, uint64_t a_second);

  int (*nghttp2_session_server_new2)(Session**, const Callbacks*, void* user, const Option*);
  int (*nghttp2_session_client_new2)(Session**, const Callbacks*, void* user, const Option*);
  void (*nghttp2_session_del)(Session*);
  ssize_t (*nghttp2_session_mem_recv)(Session*, const uint8_t*, size_t);
  ssize_t (*nghttp2_session_mem_send)(Session*, const uint8_t**);
  int (*nghttp2_session_want_read)(Session*);
  int (*nghttp2_session_want_write)(Session*);
  size_t (*nghttp2_session_get_outbound_queue_size)(Session*);
  int32_t (*nghttp2_session_get_last_proc_stream_id)(Session*);
  int (*nghttp2_session_terminate_session)(Session*, uint32_t error_code);
  int (*nghttp2_session_set_local_window_size)(Session*, uint8_t flags, int32_t stream_id,
                                               int32_t bytes);
  int (*nghttp2_session_consume_connection)(Session*, size_t bytes);
  int (*nghttp2_session_consume_stream)(Session*, int32_t stream_id, size_t bytes);
  int (*nghttp2_session_resume_data)(Session*, int32_t stream_id);
  int (*nghttp2_submit_settings)(Session*, uint8_t flags, const Setting*, size_t count);
  int (*nghttp2_submit_goaway)(Session*, uint8_t flags, int32_t last_stream_id, uint32_t error_code,
                               const uint8_t* text, size_t bytes);
  int (*nghttp2_submit_ping)(Session*, uint8_t flags, const uint8_t* payload);
  int32_t (*nghttp2_submit_request)(Session*, const void* priority, const NameValue*, size_t count,
                                    const Provider*, void* stream_user);
  int (*nghttp2_submit_response)(Session*, int32_t stream_id, const NameValue*, size_t count,
                                 const Provider*);
  int (*nghttp2_submit_trailer)(Session*, int32_t stream_id, const NameValue*, size_t count);
  int (*nghttp2_submit_rst_stream)(Session*, uint8_t flags, int32_t stream_id, uint32_t error_code);
  const char* (*nghttp2_strerror)(int);
};

// Returns the functions, which stay loaded. Null: `why` names what is missing and the remedy.
// RGPU_LIBNGHTTP2 names the library if it is at an unusual place. A library without the limits for
// rapid resets (CVE-2023-44487) and CONTINUATION frames (CVE-2024-28182) is refused.
const Api* Load(std::string* why);

}  // namespace rgpu::gateway::http2::lib
