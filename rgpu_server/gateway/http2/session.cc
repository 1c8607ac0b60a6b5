#include "rgpu_server/gateway/http2/session.h"

#include <algorithm>
#include <array>
#include <utility>

namespace rgpu::gateway::http2 {
namespace {

// The window of all streams together. It is given back at once, since each stream has its own.
constexpr int32_t kConnectionWindow = 16 << 20;
constexpr uint32_t kMaxFrameBytes = 1U << 20;
// Other streams wait while a frame is sent, so frames have a limit.
constexpr ssize_t kMaxSentBytes = 256 << 10;
// The most frames that wait to be sent. A peer that causes more does not read.
constexpr size_t kMaxWaiting = 10'000;
constexpr size_t kMaxSettings = 32;
constexpr size_t kMaxContinuations = 8;
// Streams that a peer may reset: in a burst, and in a second.
constexpr uint64_t kResetBurst = 2000;
constexpr uint64_t kResetsASecond = 100;

std::string_view Text(const uint8_t* data, size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

}  // namespace

std::string_view Value(const Fields& fields, std::string_view name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return {};
}

// The callbacks. `user` is the Session.
struct Session::Callbacks {
  static Session& Of(void* user) { return *static_cast<Session*>(user); }

  static int BeginFrame(lib::Session*, const lib::FrameHead* head, void* user) {
    Session& self = Of(user);
    if (self.owner_->OnFrame(*head, self.Find(head->stream_id) != nullptr)) return 0;
    return self.Fail(lib::kEnhanceYourCalm, "too many frames without data");
  }

  static int FrameCame(lib::Session*, const lib::FrameHead* head, void* user) {
    Session& self = Of(user);
    if (head->type == lib::kSettings) self.begun_ = true;
    const bool last = (head->flags & lib::kFlagEndStream) != 0;
    if (head->type == lib::kHeaders) self.HeadersCame(head->stream_id, last);
    if (last && (head->type == lib::kHeaders || head->type == lib::kData)) {
      if (Stream* stream = self.Find(head->stream_id); stream != nullptr) {
        stream->heard_all_ = true;
        stream->OnEnd();
      }
    }
    return 0;
  }

  static int BeginHeaders(lib::Session*, const lib::FrameHead*, void* user) {
    Session& self = Of(user);
    self.fields_.clear();
    self.field_bytes_ = 0;
    return 0;
  }

  static int Header(lib::Session*, const lib::FrameHead*, const uint8_t* name, size_t name_bytes,
                    const uint8_t* value, size_t value_bytes, uint8_t, void* user) {
    Session& self = Of(user);
    self.field_bytes_ += name_bytes + value_bytes + kFieldCost;
    if (self.field_bytes_ > kMaxHeaderBytes) {
      return self.Fail(lib::kEnhanceYourCalm, "too many headers");
    }
    self.fields_.emplace_back(Text(name, name_bytes), Text(value, value_bytes));
    return 0;
  }

  static int Data(lib::Session* session, uint8_t, int32_t id, const uint8_t* data, size_t bytes,
                  void* user) {
    Session& self = Of(user);
    self.api_.nghttp2_session_consume_connection(session, bytes);
    if (Stream* stream = self.Find(id); stream != nullptr) {
      stream->OnData(data, bytes);
    } else {
      self.api_.nghttp2_session_consume_stream(session, id, bytes);
    }
    return 0;
  }

  static int Closed(lib::Session*, int32_t id, uint32_t error_code, void* user) {
    Session& self = Of(user);
    const auto found = self.streams_.find(id);
    if (found == self.streams_.end()) return 0;
    const std::unique_ptr<Stream> stream = std::move(found->second);
    self.streams_.erase(found);
    stream->OnClosed(error_code);
    return 0;
  }

  // Returns how many bytes of the stream the next frame has.
  static ssize_t Read(lib::Session* session, int32_t id, uint8_t*, size_t bytes, uint32_t* flags,
                      lib::Source* source, void* user) {
    Session& self = Of(user);
    auto* stream = static_cast<Stream*>(source->pointer);
    const size_t some = std::min(bytes, stream->out_.bytes());
    if (some == 0 && !stream->out_ends_) return lib::kDeferred;
    *flags |= lib::kDataNoCopy;
    if (stream->out_ends_ && some == stream->out_.bytes()) {
      *flags |= lib::kDataEof;
      if (!stream->trailers_.empty()) {
        *flags |= lib::kDataNoEndStream;
        const auto names = self.Names(stream->trailers_);
        self.api_.nghttp2_submit_trailer(session, id, names.data(), names.size());
      }
    }
    return static_cast<ssize_t>(some);
  }

  static int SendData(lib::Session*, const lib::FrameHead*, const uint8_t* head, size_t bytes,
                      lib::Source* source, void* user) {
    Session& self = Of(user);
    if (self.blocked()) return lib::kWouldBlock;
    auto* stream = static_cast<Stream*>(source->pointer);
    const std::array<iovec, 2> parts{iovec{const_cast<uint8_t*>(head), kFrameHeadBytes},
                                     iovec{const_cast<uint8_t*>(stream->out_.data()), bytes}};
    if (!self.SendParts(parts.data(), 2)) return lib::kCallbackFailure;
    stream->out_.Drop(bytes);
    if (stream->out_.bytes() == 0) stream->OnSent();
    return 0;
  }

  static ssize_t ReadLength(lib::Session*, uint8_t, int32_t, int32_t connection_window,
                            int32_t stream_window, uint32_t max_frame, void*) {
    return std::min({static_cast<ssize_t>(connection_window), static_cast<ssize_t>(stream_window),
                     static_cast<ssize_t>(max_frame), kMaxSentBytes});
  }

  // The gateway ignores what a client sends after the end of an answer, so it resets the stream.
  static int FrameSent(lib::Session*, const lib::FrameHead* head, void* user) {
    Session& self = Of(user);
    const bool says = head->type == lib::kHeaders || head->type == lib::kData;
    if (!self.serves_ || !says || (head->flags & lib::kFlagEndStream) == 0) return 0;
    const Stream* stream = self.Find(head->stream_id);
    if (stream == nullptr || !stream->heard_all_) self.Reset(head->stream_id, lib::kNoError);
    return 0;
  }

  static constexpr size_t kFieldCost = 32;  // RFC 9113, 6.5.2
  static constexpr size_t kFrameHeadBytes = 9;
};

Session::Session(const lib::Api& api, Role role, Owner* owner)
    : api_(api), owner_(owner), serves_(role == Role::kServer) {
  lib::Callbacks* callbacks = nullptr;
  lib::Option* option = nullptr;
  api_.nghttp2_session_callbacks_new(&callbacks);
  api_.nghttp2_option_new(&option);
  api_.nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, &Callbacks::BeginFrame);
  api_.nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, &Callbacks::FrameCame);
  api_.nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, &Callbacks::FrameSent);
  api_.nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, &Callbacks::BeginHeaders);
  api_.nghttp2_session_callbacks_set_on_header_callback(callbacks, &Callbacks::Header);
  api_.nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, &Callbacks::Data);
  api_.nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &Callbacks::Closed);
  api_.nghttp2_session_callbacks_set_send_data_callback(callbacks, &Callbacks::SendData);
  api_.nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks,
                                                                      &Callbacks::ReadLength);
  api_.nghttp2_option_set_no_auto_window_update(option, 1);
  api_.nghttp2_option_set_no_closed_streams(option, 1);
  api_.nghttp2_option_set_max_settings(option, kMaxSettings);
  api_.nghttp2_option_set_max_outbound_ack(option, kMaxWaiting);
  api_.nghttp2_option_set_max_continuations(option, kMaxContinuations);
  api_.nghttp2_option_set_stream_reset_rate_limit(option, kResetBurst, kResetsASecond);
  const auto make = serves_ ? api_.nghttp2_session_server_new2 : api_.nghttp2_session_client_new2;
  if (make(&session_, callbacks, this, option) != 0) session_ = nullptr;
  api_.nghttp2_option_del(option);
  api_.nghttp2_session_callbacks_del(callbacks);
  if (session_ != nullptr) Greet();
}

Session::~Session() {
  if (session_ != nullptr) api_.nghttp2_session_del(session_);
}

void Session::Close() {
  const auto streams = std::exchange(streams_, {});
  for (const auto& [id, stream] : streams) stream->OnClosed(lib::kCancel);
}

void Session::Greet() {
  const std::array settings{
      lib::Setting{lib::kSettingWindow, kStreamWindow},
      lib::Setting{lib::kSettingMaxFrame, kMaxFrameBytes},
      lib::Setting{lib::kSettingMaxHeaderList, kMaxHeaderBytes},
      serves_ ? lib::Setting{lib::kSettingMaxStreams, kMaxStreams}
              : lib::Setting{lib::kSettingEnablePush, 0},
      lib::Setting{lib::kSettingNoPriorities, 1},
  };
  api_.nghttp2_submit_settings(session_, lib::kFlagNone, settings.data(), settings.size());
  api_.nghttp2_session_set_local_window_size(session_, lib::kFlagNone, 0, kConnectionWindow);
}

bool Session::Receive(const uint8_t* data, size_t bytes) {
  if (failed_ || session_ == nullptr) return false;
  const ssize_t taken = api_.nghttp2_session_mem_recv(session_, data, bytes);
  if (taken >= 0) {
    if (api_.nghttp2_session_get_outbound_queue_size(session_) <= kMaxWaiting) return true;
    Fail(lib::kEnhanceYourCalm, "the peer causes answers that it does not read");
  } else if (!failed_) {
    const bool flood = taken == lib::kFlooded || taken == lib::kTooManyContinuations;
    Fail(flood ? lib::kEnhanceYourCalm : lib::kProtocolError,
         api_.nghttp2_strerror(static_cast<int>(taken)));
  }
  return false;
}

int Session::Fail(uint32_t error_code, const char* why) {
  failed_ = true;
  why_ = why;
  Terminate(error_code);
  return lib::kCallbackFailure;
}

void Session::HeadersCame(int32_t id, bool last) {
  if (Stream* stream = Find(id); stream != nullptr) {
    stream->OnFields(fields_, last);
  } else if (serves_) {
    std::unique_ptr<Stream> made = owner_->OnRequest(id, fields_);
    if (made == nullptr) return;
    made->id_ = id;
    streams_.emplace(id, std::move(made));
  }
}

Stream* Session::Find(int32_t id) const {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.get();
}

bool Session::over() const {
  return session_ == nullptr || (api_.nghttp2_session_want_read(session_) == 0 &&
                                 api_.nghttp2_session_want_write(session_) == 0);
}

std::vector<lib::NameValue> Session::Names(const Fields& fields) const {
  std::vector<lib::NameValue> names;
  for (const auto& [name, value] : fields) {
    // A secret stays out of HPACK's table, whose state can be measured.
    const uint8_t flags = name == "authorization" ? lib::kNameValueNoIndex : lib::kFlagNone;
    names.push_back({reinterpret_cast<const uint8_t*>(name.data()),
                     reinterpret_cast<const uint8_t*>(value.data()), name.size(), value.size(),
                     flags});
  }
  return names;
}

lib::Provider Session::ProviderOf(Stream* stream) const {
  lib::Provider provider{};
  provider.source.pointer = stream;
  provider.read = &Callbacks::Read;
  return provider;
}

bool Session::Request(const Fields& fields, std::unique_ptr<Stream> stream) {
  if (failed_ || session_ == nullptr) return false;
  const auto names = Names(fields);
  const lib::Provider provider = ProviderOf(stream.get());
  const int32_t id = api_.nghttp2_submit_request(session_, nullptr, names.data(), names.size(),
                                                 &provider, nullptr);
  if (id < 0) return false;
  stream->id_ = id;
  streams_.emplace(id, std::move(stream));
  return true;
}

void Session::Answer(Stream* stream, const Fields& fields) {
  const auto names = Names(fields);
  const lib::Provider provider = ProviderOf(stream);
  api_.nghttp2_submit_response(session_, stream->id_, names.data(), names.size(), &provider);
}

void Session::AnswerAtOnce(int32_t id, const Fields& fields) {
  const auto names = Names(fields);
  api_.nghttp2_submit_response(session_, id, names.data(), names.size(), nullptr);
}

void Session::Resume(const Stream& stream) {
  api_.nghttp2_session_resume_data(session_, stream.id_);
}

void Session::Consume(const Stream& stream, size_t bytes) {
  if (bytes > 0) api_.nghttp2_session_consume_stream(session_, stream.id_, bytes);
}

void Session::SetWindow(const Stream& stream, int32_t bytes) {
  api_.nghttp2_session_set_local_window_size(session_, lib::kFlagNone, stream.id_, bytes);
}

void Session::Reset(int32_t id, uint32_t error_code) {
  api_.nghttp2_submit_rst_stream(session_, lib::kFlagNone, id, error_code);
}

void Session::Ping() { api_.nghttp2_submit_ping(session_, lib::kFlagNone, nullptr); }

void Session::Leave() {
  const int32_t last = api_.nghttp2_session_get_last_proc_stream_id(session_);
  api_.nghttp2_submit_goaway(session_, lib::kFlagNone, last, lib::kNoError, nullptr, 0);
}

void Session::Terminate(uint32_t error_code) {
  if (session_ != nullptr) api_.nghttp2_session_terminate_session(session_, error_code);
}

// Sending

bool Session::Send(transport::Connection* to) {
  if (session_ == nullptr) return false;
  to_ = to;
  while (SendUnsent() && unsent_.empty()) {
    const uint8_t* data = nullptr;
    const ssize_t bytes = api_.nghttp2_session_mem_send(session_, &data);
    if (bytes < 0) lost_ = true;
    if (bytes <= 0 && unsent_.empty()) break;
    const iovec part{const_cast<uint8_t*>(data), static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
    if (part.iov_len > 0) SendParts(&part, 1);
  }
  to_ = nullptr;
  return !lost_;
}

bool Session::SendUnsent() {
  while (!lost_ && unsent_at_ < unsent_.size()) {
    const iovec part{unsent_.data() + unsent_at_, unsent_.size() - unsent_at_};
    const transport::IoResult sent = to_->TrySend(&part, 1);
    if (sent.state == transport::IoState::kWouldBlock) return false;
    if (!sent.ok()) lost_ = true;
    unsent_at_ += sent.bytes;
  }
  unsent_.clear();
  unsent_at_ = 0;
  return !lost_;
}

// Sends as much as the connection takes, and keeps the rest. Returns false if it is lost.
bool Session::SendParts(const iovec* parts, int count) {
  size_t sent_bytes = 0;
  if (unsent_.empty()) {
    const transport::IoResult sent = to_->TrySend(parts, count);
    if (sent.lost()) lost_ = true;
    if (sent.ok()) sent_bytes = sent.bytes;
  }
  for (int i = 0; i < count && !lost_; ++i) {
    const size_t skip = std::min(sent_bytes, parts[i].iov_len);
    sent_bytes -= skip;
    unsent_.append(static_cast<const char*>(parts[i].iov_base) + skip, parts[i].iov_len - skip);
  }
  return !lost_;
}

}  // namespace rgpu::gateway::http2
