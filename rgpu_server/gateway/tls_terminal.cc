#include "rgpu_server/gateway/tls_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/wire/fields.h"
#include "rgpu_common/native/wire/text.h"

namespace rgpu::gateway {
namespace {

namespace tls = transport::tls;

constexpr size_t kReadBufferBytes = 64U << 10;
constexpr uint8_t kTlsHandshakeRecord = 0x16;
constexpr int kLingerMs = 1000;
constexpr int32_t kUnknownError = 999;
constexpr unsigned int kMaxNames = 64;
constexpr int kNothing = -1;
constexpr int kLeft = -2;
constexpr std::string_view kHttp2 = "h2";

// The client's list is bytes of length and name; what we speak is told apart behind this door.
int SelectProtocol(tls::Ssl*, const unsigned char** out, unsigned char* out_bytes,
                   const unsigned char* in, unsigned int in_bytes, void* only_http2) {
  for (unsigned int at = 0; at < in_bytes;) {
    const unsigned int bytes = in[at];
    if (at + 1 + bytes > in_bytes) break;
    const std::string_view name(reinterpret_cast<const char*>(in) + at + 1, bytes);
    if (name == kHttp2 || (name == "rgpu" && only_http2 == nullptr)) {
      *out = in + at + 1;
      *out_bytes = static_cast<unsigned char>(bytes);
      return tls::kAlpnOk;
    }
    at += 1 + bytes;
  }
  return tls::kAlpnFatal;
}

// The first byte, which stays there.  kNothing: none came in time; kLeft: none will.
int FirstByte(int socket, int timeout_ms) {
  const base::Deadline deadline(timeout_ms);
  for (;;) {
    pollfd wait{socket, POLLIN, 0};
    const int ready = poll(&wait, 1, deadline.left_ms());
    if (ready == 0) return kNothing;
    uint8_t byte = 0;
    const ssize_t got = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 1) return byte;
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return kLeft;
  }
}

// Says so in the frames that a client without TLS understands.
void TurnAway(base::UniqueFd socket, const std::string& sentence) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(wire::Handshake::kRefused);
  header.status = kUnknownError;
  transport::FrameBuffer frame;
  wire::Writer head = frame.Begin(header);
  wire::Refused refused{sentence};
  Put(head, refused);
  frame.End();
  if (send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  shutdown(socket.get(), SHUT_WR);
  // A close with unread bytes would reset the connection, and the frame be lost with it.
  const base::Deadline deadline(kLingerMs);
  uint8_t scratch[4096];
  for (;;) {
    pollfd wait{socket.get(), POLLIN, 0};
    if (poll(&wait, 1, deadline.left_ms()) <= 0) return;
    if (recv(socket.get(), scratch, sizeof scratch, MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace

TlsTerminal::TlsTerminal(const tls::Api& api, TlsOptions options)
    : api_(api), options_(std::move(options)) {}

bool TlsTerminal::Configure(tls::Context* context, const Pem& pem, std::string* why) const {
  if (!UseCertificates(api_, context, pem.certificate)) {
    *why = Files()[0].path + Files()[0].unreadable;
  } else if (!UseKey(api_, context, pem.key)) {
    *why = options_.key + " (tls.key) is not the key of " + options_.certificate +
           ", or has a password: ";
  } else if (options_.client_ca.empty()) {
    return true;
  } else if (!UseClientCa(api_, context, pem.client_ca)) {
    *why = Files()[2].path + Files()[2].unreadable;
  } else {
    api_.SSL_CTX_set_verify(
        context, options_.require_client_certificate ? tls::kVerifyOrFail : tls::kVerifyPeer,
        nullptr);
    return true;
  }
  *why += tls::TakeError(api_);
  return false;
}

TlsTerminal::Context TlsTerminal::Make(const Pem& pem, std::string* why) const {
  api_.ERR_clear_error();
  const Context context(api_.SSL_CTX_new(api_.TLS_server_method()), api_.SSL_CTX_free);
  tls::Context* raw = context.get();
  api_.SSL_CTX_ctrl(raw, tls::kCtrlMinVersion, tls::kTls13, nullptr);
  api_.SSL_CTX_ctrl(raw, tls::kCtrlMode, tls::kPartialWrite | tls::kMovingBuffer, nullptr);
  api_.SSL_CTX_ctrl(raw, tls::kCtrlReadAhead, 1, nullptr);
  api_.SSL_CTX_ctrl(raw, tls::kCtrlCacheMode, 0, nullptr);
  api_.SSL_CTX_set_default_read_buffer_len(raw, kReadBufferBytes);
  api_.SSL_CTX_set_num_tickets(raw, 0);
  void* only_http2 = options_.only_http2 ? const_cast<TlsOptions*>(&options_) : nullptr;
  api_.SSL_CTX_set_alpn_select_cb(raw, &SelectProtocol, only_http2);
  return Configure(raw, pem, why) ? context : nullptr;
}

// The files in the order in which they are opened and passed, and what is wrong with one that
// cannot be read.
std::array<TlsTerminal::File, 3> TlsTerminal::Files() const {
  return {{{options_.certificate, " (tls.certificate) holds no certificate that can be read: "},
           {options_.key, " (tls.key) holds no key that can be read: "},
           {options_.client_ca, " (tls.client_ca) holds no certificates that can be read: "}}};
}

bool TlsTerminal::Open(std::string* why) {
  std::vector<base::UniqueFd> files;
  for (const File& file : Files()) {
    if (file.path.empty()) continue;
    files.emplace_back(open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (files.back().valid()) continue;
    *why = file.path + file.unreadable + base::ErrnoText(errno);
    return false;
  }
  return Reload(std::move(files), why);
}

bool TlsTerminal::Reload(std::vector<base::UniqueFd> files, std::string* why) {
  Pem pem;
  const std::array texts{&pem.certificate, &pem.key, &pem.client_ca};
  if (files.size() != (options_.client_ca.empty() ? 2U : 3U)) {
    *why = "the server did not pass the files";
    return false;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (ReadText(files[i].get(), texts[i])) continue;
    *why = Files()[i].path + Files()[i].unreadable + base::ErrnoText(errno);
    return false;
  }
  Context made = Make(pem, why);
  if (made == nullptr) return false;
  const std::lock_guard lock(mutex_);
  context_ = std::move(made);
  return true;
}

TlsTerminal::Context TlsTerminal::Current() {
  const std::lock_guard lock(mutex_);
  return context_;
}

std::unique_ptr<transport::Connection> TlsTerminal::Welcome(Arrival arrival, int timeout_ms,
                                                            wire::Preface* preface,
                                                            Refusal* refusal) {
  base::UniqueFd socket = std::move(arrival.socket);
  const base::Deadline deadline(timeout_ms);
  const int first = FirstByte(socket.get(), timeout_ms);
  if (first < 0) {
    if (first == kNothing) refusal->reason = Reason::kLate;
    return nullptr;
  }
  if (first != kTlsHandshakeRecord) {
    *refusal = {Reason::kNotTls, "it does not speak TLS"};
    if (!options_.only_http2) {
      TurnAway(std::move(socket),
               "this port speaks TLS: write tls:HOST:PORT (--server or RGPU_SERVER)");
    }
    return nullptr;
  }
  const Context context = Current();
  tls::Ssl* ssl = api_.SSL_new(context.get());
  if (ssl == nullptr) return nullptr;
  api_.SSL_set_accept_state(ssl);
  auto connection = std::make_unique<tls::TlsConnection>(
      api_, ssl, transport::Adopt(socket.release()), /*guarded=*/false);
  bool timed_out = false;
  if (!connection->Handshake(deadline.left_ms(), &timed_out)) {
    *refusal = WhyNot(*connection, timed_out);
    return nullptr;
  }
  if (options_.only_http2 && !AgreedOnHttp2(ssl)) {
    *refusal = {Reason::kHandshake, "the client does not ask for HTTP/2"};
    return nullptr;
  }
  Introduce(ssl, preface);
  return connection;
}

bool TlsTerminal::AgreedOnHttp2(tls::Ssl* ssl) const {
  const unsigned char* name = nullptr;
  unsigned int bytes = 0;
  api_.SSL_get0_alpn_selected(ssl, &name, &bytes);
  return std::string_view(reinterpret_cast<const char*>(name), bytes) == kHttp2;
}

Refusal TlsTerminal::WhyNot(const tls::TlsConnection& connection, bool timed_out) const {
  if (const long verdict = connection.verify_result(); verdict != 0) {
    return {Reason::kCertificate, api_.X509_verify_cert_error_string(verdict)};
  }
  const std::string reason = connection.LostReason();
  if (timed_out) return {Reason::kLate, reason};
  if (reason.empty()) return {};  // it left
  // None was shown, or the client does not like ours: OpenSSL says so in words alone.
  const bool about = reason.find("certificate") != std::string::npos ||
                     reason.find("unknown ca") != std::string::npos;
  return {about ? Reason::kCertificate : Reason::kHandshake, reason};
}

// Says whom the client's certificate names.  The handshake has verified it.
void TlsTerminal::Introduce(tls::Ssl* ssl, wire::Preface* preface) const {
  const std::unique_ptr<tls::Certificate, void (*)(tls::Certificate*)> certificate(
      api_.SSL_get1_peer_certificate(ssl), api_.X509_free);
  if (certificate == nullptr) return;
  preface->authenticated = true;
  std::string name =
      options_.tenant_is_uri ? Uri(certificate.get()) : CommonName(certificate.get());
  if (name.size() <= wire::kMaxNameBytes && wire::IsCleanText(name)) {
    preface->tenant = std::move(name);
  }
}

std::string TlsTerminal::CommonName(tls::Certificate* certificate) const {
  tls::Name* subject = api_.X509_get_subject_name(certificate);
  const int at = api_.X509_NAME_get_index_by_NID(subject, tls::kNidCommonName, -1);
  // Two names are none: nobody knows which of them was checked by whom.
  if (at < 0 || api_.X509_NAME_get_index_by_NID(subject, tls::kNidCommonName, at) >= 0) return {};
  unsigned char* text = nullptr;
  const tls::Asn1String* data =
      api_.X509_NAME_ENTRY_get_data(api_.X509_NAME_get_entry(subject, at));
  const int bytes = api_.ASN1_STRING_to_UTF8(&text, data);
  if (bytes < 0) return {};
  std::string name(reinterpret_cast<const char*>(text), static_cast<size_t>(bytes));
  api_.CRYPTO_free(text, "", 0);
  return name;
}

std::string TlsTerminal::Uri(tls::Certificate* certificate) const {
  const std::unique_ptr<tls::Stack, void (*)(tls::Stack*)> names(
      static_cast<tls::Stack*>(
          api_.X509_get_ext_d2i(certificate, tls::kNidAltNames, nullptr, nullptr)),
      api_.GENERAL_NAMES_free);
  if (names == nullptr) return {};
  std::string found;
  const int count = api_.OPENSSL_sk_num(names.get());
  for (int i = 0; i < count && i < static_cast<int>(kMaxNames); ++i) {
    int type = 0;
    const auto* value = static_cast<const tls::Asn1String*>(api_.GENERAL_NAME_get0_value(
        static_cast<const tls::GeneralName*>(api_.OPENSSL_sk_value(names.get(), i)), &type));
    if (type != tls::kNameUri) continue;
    const std::string_view uri(reinterpret_cast<const char*>(api_.ASN1_STRING_get0_data(value)),
                               static_cast<size_t>(api_.ASN1_STRING_length(value)));
    if (!uri.starts_with(options_.uri_prefix)) continue;
    if (!found.empty()) return {};  // two are none
    found = uri.substr(options_.uri_prefix.size());
  }
  return found;
}

}  // namespace rgpu::gateway
