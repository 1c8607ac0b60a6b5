// TLS 1.3 over another Connection, for the client's or the server's end.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "rgpu_common/native/transport/tls/openssl.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport::tls {

class TlsConnection final : public Connection {
 public:
  // Owns `link` and `ssl`, whose handshake must not have begun. With `guarded`, memory of a send or
  // a receive that is not accessible gives kFault.
  TlsConnection(const Api& api, Ssl* ssl, std::unique_ptr<Connection> link, bool guarded);
  ~TlsConnection() override;

  // Makes the handshake; blocks until it is complete. False: LostReason says why, or `*timed_out`
  // is true.
  bool Handshake(int timeout_ms, bool* timed_out);
  // The verdict on the peer's certificate: X509_V_OK (0), or a documented error number.
  long verify_result() const { return api_.SSL_get_verify_result(ssl_); }
  Ssl* ssl() const { return ssl_; }

  IoResult TrySend(const iovec* parts, int count) override;
  IoResult TryRecv(void* to, size_t bytes) override;
  int Wait(int events, int timeout_ms) override;
  void Wake() override { link_->Wake(); }
  void EndSending() override;
  void Shutdown() override;
  void Abandon() override;
  std::string LostReason() const override;
  const char* kind() const override { return "tls"; }
  int descriptor() const override { return link_->descriptor(); }

 private:
  static int BioWrite(Bio* bio, const char* data, int bytes);
  static int BioRead(Bio* bio, char* to, int bytes);
  static long BioControl(Bio* bio, int command, long number, void* pointer);
  static const BioMethod* Methods(const Api& api);

  // The functions below need mutex_, because only one thread at a time may use an OpenSSL
  // connection.
  //
  // Copies bytes of the parts to out_, at most a few records. False: the first part cannot be read.
  bool Gather(const iovec* parts, int count, size_t* bytes);
  IoResult Write(const uint8_t* from, size_t bytes);
  // Decrypts bytes that have arrived. kDone: at least one byte.
  IoResult Read(uint8_t* to, size_t bytes);
  IoResult Give(void* to, size_t bytes);
  // Translates the failure of a call that returned `result`. Sets `*wants` to the event to wait
  // for.
  IoResult Failure(int result, int* wants);
  IoResult Gone() const;

  const Api& api_;
  Ssl* const ssl_;
  const std::unique_ptr<Connection> link_;
  const bool guarded_;
  mutable std::mutex mutex_;
  std::string reason_;
  IoResult link_state_;  // the link's last result that ended it
  // Plain text: out_ is to be encrypted; in_ has been decrypted (only if guarded_).
  std::unique_ptr<uint8_t[]> out_;
  std::unique_ptr<uint8_t[]> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  size_t stuck_ = 0;  // bytes of a record that is encrypted and did not fit
  size_t ahead_ = 0;  // bytes that were sent, but not yet reported to the caller as sent
  std::atomic<bool> ready_{false};  // bytes are ready that TryRecv can return at once
  std::atomic<int> read_wants_{kReadable};
  std::atomic<int> write_wants_{kWritable};
  std::atomic<bool> closed_{false};
  bool abandoned_ = false;
};

// Connects a client to `tls:` + address.
std::unique_ptr<Connection> ConnectTls(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why);

}  // namespace rgpu::transport::tls
