// Our declarations of nghttp2 beside its own (libnghttp2-dev).  It compiles, or they differ.
#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <type_traits>

#include "rgpu_server/gateway/http2/nghttp2.h"

namespace lib = rgpu::gateway::http2::lib;

#define SAME_PLACE(ours, our_field, theirs, their_field)                      \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) && \
                sizeof(ours::our_field) == sizeof(theirs::their_field))
#define SAME_VALUE(ours, theirs) static_assert(static_cast<long>(ours) == static_cast<long>(theirs))

static_assert(sizeof(lib::FrameHead) == sizeof(nghttp2_frame_hd));
SAME_PLACE(lib::FrameHead, length, nghttp2_frame_hd, length);
SAME_PLACE(lib::FrameHead, stream_id, nghttp2_frame_hd, stream_id);
SAME_PLACE(lib::FrameHead, type, nghttp2_frame_hd, type);
SAME_PLACE(lib::FrameHead, flags, nghttp2_frame_hd, flags);
static_assert(offsetof(nghttp2_frame, hd) == 0);

static_assert(sizeof(lib::NameValue) == sizeof(nghttp2_nv));
SAME_PLACE(lib::NameValue, name, nghttp2_nv, name);
SAME_PLACE(lib::NameValue, value, nghttp2_nv, value);
SAME_PLACE(lib::NameValue, name_bytes, nghttp2_nv, namelen);
SAME_PLACE(lib::NameValue, value_bytes, nghttp2_nv, valuelen);
SAME_PLACE(lib::NameValue, flags, nghttp2_nv, flags);

static_assert(sizeof(lib::Setting) == sizeof(nghttp2_settings_entry));
SAME_PLACE(lib::Setting, id, nghttp2_settings_entry, settings_id);
SAME_PLACE(lib::Setting, value, nghttp2_settings_entry, value);

static_assert(sizeof(lib::Provider) == sizeof(nghttp2_data_provider));
SAME_PLACE(lib::Provider, source, nghttp2_data_provider, source);
SAME_PLACE(lib::Provider, read, nghttp2_data_provider, read_callback);

SAME_VALUE(lib::kData, NGHTTP2_DATA);
SAME_VALUE(lib::kHeaders, NGHTTP2_HEADERS);
SAME_VALUE(lib::kResetStream, NGHTTP2_RST_STREAM);
SAME_VALUE(lib::kSettings, NGHTTP2_SETTINGS);
SAME_VALUE(lib::kFlagEndStream, NGHTTP2_FLAG_END_STREAM);
SAME_VALUE(lib::kFlagAck, NGHTTP2_FLAG_ACK);
SAME_VALUE(lib::kFlagNone, NGHTTP2_FLAG_NONE);
SAME_VALUE(lib::kSettingEnablePush, NGHTTP2_SETTINGS_ENABLE_PUSH);
SAME_VALUE(lib::kSettingMaxStreams, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
SAME_VALUE(lib::kSettingWindow, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE);
SAME_VALUE(lib::kSettingMaxFrame, NGHTTP2_SETTINGS_MAX_FRAME_SIZE);
SAME_VALUE(lib::kSettingMaxHeaderList, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE);
SAME_VALUE(lib::kSettingNoPriorities, NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES);
SAME_VALUE(lib::kNoError, NGHTTP2_NO_ERROR);
SAME_VALUE(lib::kProtocolError, NGHTTP2_PROTOCOL_ERROR);
SAME_VALUE(lib::kRefusedStream, NGHTTP2_REFUSED_STREAM);
SAME_VALUE(lib::kCancel, NGHTTP2_CANCEL);
SAME_VALUE(lib::kEnhanceYourCalm, NGHTTP2_ENHANCE_YOUR_CALM);
SAME_VALUE(lib::kDataEof, NGHTTP2_DATA_FLAG_EOF);
SAME_VALUE(lib::kDataNoEndStream, NGHTTP2_DATA_FLAG_NO_END_STREAM);
SAME_VALUE(lib::kDataNoCopy, NGHTTP2_DATA_FLAG_NO_COPY);
SAME_VALUE(lib::kNameValueNoIndex, NGHTTP2_NV_FLAG_NO_INDEX);
SAME_VALUE(lib::kWouldBlock, NGHTTP2_ERR_WOULDBLOCK);
SAME_VALUE(lib::kDeferred, NGHTTP2_ERR_DEFERRED);
SAME_VALUE(lib::kCallbackFailure, NGHTTP2_ERR_CALLBACK_FAILURE);
SAME_VALUE(lib::kFlooded, NGHTTP2_ERR_FLOODED);
SAME_VALUE(lib::kTooManyContinuations, NGHTTP2_ERR_TOO_MANY_CONTINUATIONS);

// What a type is passed as: pointers and structures are one register, whatever they point to.
template <typename Type>
struct Passed {
  using type = std::conditional_t<std::is_pointer_v<Type>, void*, Type>;
};
template <typename Type>
using PassedAs = typename Passed<Type>::type;

template <typename Ours, typename Theirs>
struct Alike : std::false_type {};
template <typename Return, typename... Arguments, typename TheirReturn, typename... TheirArguments>
struct Alike<Return (*)(Arguments...), TheirReturn (*)(TheirArguments...)>
    : std::is_same<PassedAs<Return>(PassedAs<Arguments>...),
                   PassedAs<TheirReturn>(PassedAs<TheirArguments>...)> {};

#define ALIKE(name) static_assert(Alike<decltype(lib::Api::name), decltype(&::name)>::value)
ALIKE(nghttp2_session_callbacks_new);
ALIKE(nghttp2_session_callbacks_del);
ALIKE(nghttp2_session_callbacks_set_on_begin_frame_callback);
ALIKE(nghttp2_session_callbacks_set_on_frame_recv_callback);
ALIKE(nghttp2_session_callbacks_set_on_frame_send_callback);
ALIKE(nghttp2_session_callbacks_set_on_begin_headers_callback);
ALIKE(nghttp2_session_callbacks_set_on_header_callback);
ALIKE(nghttp2_session_callbacks_set_on_data_chunk_recv_callback);
ALIKE(nghttp2_session_callbacks_set_on_stream_close_callback);
ALIKE(nghttp2_session_callbacks_set_send_data_callback);
ALIKE(nghttp2_session_callbacks_set_data_source_read_length_callback);
ALIKE(nghttp2_option_new);
ALIKE(nghttp2_option_del);
ALIKE(nghttp2_option_set_no_auto_window_update);
ALIKE(nghttp2_option_set_no_closed_streams);
ALIKE(nghttp2_option_set_max_settings);
ALIKE(nghttp2_option_set_max_outbound_ack);
ALIKE(nghttp2_option_set_max_continuations);
ALIKE(nghttp2_option_set_stream_reset_rate_limit);
ALIKE(nghttp2_session_server_new2);
ALIKE(nghttp2_session_client_new2);
ALIKE(nghttp2_session_del);
ALIKE(nghttp2_session_mem_recv);
ALIKE(nghttp2_session_mem_send);
ALIKE(nghttp2_session_want_read);
ALIKE(nghttp2_session_want_write);
ALIKE(nghttp2_session_get_outbound_queue_size);
ALIKE(nghttp2_session_get_last_proc_stream_id);
ALIKE(nghttp2_session_terminate_session);
ALIKE(nghttp2_session_set_local_window_size);
ALIKE(nghttp2_session_consume_connection);
ALIKE(nghttp2_session_consume_stream);
ALIKE(nghttp2_session_resume_data);
ALIKE(nghttp2_submit_settings);
ALIKE(nghttp2_submit_goaway);
ALIKE(nghttp2_submit_ping);
ALIKE(nghttp2_submit_request);
ALIKE(nghttp2_submit_response);
ALIKE(nghttp2_submit_trailer);
ALIKE(nghttp2_submit_rst_stream);
ALIKE(nghttp2_strerror);

// The functions that nghttp2 calls.
static_assert(Alike<lib::OnFrameHead, nghttp2_on_begin_frame_callback>::value);
static_assert(Alike<lib::OnFrameHead, nghttp2_on_frame_recv_callback>::value);
static_assert(Alike<lib::OnFrameHead, nghttp2_on_frame_send_callback>::value);
static_assert(Alike<lib::OnFrameHead, nghttp2_on_begin_headers_callback>::value);
static_assert(Alike<lib::OnHeader, nghttp2_on_header_callback>::value);
static_assert(Alike<lib::OnData, nghttp2_on_data_chunk_recv_callback>::value);
static_assert(Alike<lib::OnClose, nghttp2_on_stream_close_callback>::value);
static_assert(Alike<lib::SendData, nghttp2_send_data_callback>::value);
static_assert(Alike<lib::ReadLength, nghttp2_data_source_read_length_callback>::value);
static_assert(Alike<lib::ReadData, nghttp2_data_source_read_callback>::value);
