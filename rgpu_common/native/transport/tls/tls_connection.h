// TLS 1.3 over another Connection, for either end.
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
  // Owns `ssl`, on which nothing has been said yet, and `link`.  guarded: the memory that is sent
  // from and received into is perhaps not there, which is then kFault.
  TlsConnection(const Api& api, Ssl* ssl, std::unique_ptr<Connection> link, bool guarded);
  ~TlsConnection() override;

  // Blocks until the two ends agree.  False: LostReason says why; timed_out, if that is why.
  bool Handshake(int timeout_ms, bool* timed_out);
  // Of the handshake: X509_V_OK (0), or what is wrong with the peer's certificate.
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

  // What follows needs mutex_: OpenSSL lets no two threads use one connection.
  // Copies the parts together, at most a few records.  False: a part cannot be read.
  bool Gather(const iovec* parts, int count, size_t* bytes);
  IoResult Write(const uint8_t* from, size_t bytes);
  // Decrypts what is here.  kDone: at least one byte.
  IoResult Read(uint8_t* to, size_t bytes);
  IoResult Give(void* to, size_t bytes);
  // What a call that returned `result` came to; `wants`: the event to wait for.
  IoResult Failure(int result, int* wants);
  IoResult Gone() const;

  const Api& api_;
  Ssl* const ssl_;
  const std::unique_ptr<Connection> link_;
  const bool guarded_;
  mutable std::mutex mutex_;
  std::string reason_;
  IoResult link_state_;  // what the link said last, where that was bad
  // Plain text: what is to be encrypted, and (guarded) what has been decrypted.
  std::unique_ptr<uint8_t[]> out_;
  std::unique_ptr<uint8_t[]> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  size_t stuck_ = 0;  // bytes of a record that is encrypted and did not fit
  size_t ahead_ = 0;  // bytes that have gone although the caller was told that they have not
  std::atomic<bool> ready_{false};  // there is more to decrypt, or to give
  std::atomic<int> read_wants_{kReadable};
  std::atomic<int> write_wants_{kWritable};
  std::atomic<bool> closed_{false};
  bool abandoned_ = false;
};

// `tls:` + address, the client's end.
std::unique_ptr<Connection> ConnectTls(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why);

}  // namespace rgpu::transport::tls
