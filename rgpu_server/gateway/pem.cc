#include "rgpu_server/gateway/pem.h"

#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>

namespace rgpu::gateway {
namespace {

namespace tls = transport::tls;

constexpr size_t kMaxFileBytes = 1U << 20;

// A key with a password is one that cannot be read: nobody is there to be asked.
int NoPassword(char*, int, int, void*) { return 0; }

using Source = std::unique_ptr<tls::Bio, int (*)(tls::Bio*)>;

Source Open(const tls::Api& api, const std::string& pem) {
  return {api.BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), api.BIO_free};
}

// Calls `use` with each certificate of the text.  False: there is none, or `use` answered false;
// OpenSSL's error says why.
bool EachCertificate(const tls::Api& api, const std::string& pem,
                     const std::function<bool(tls::Certificate*)>& use) {
  const Source source = Open(api, pem);
  if (source == nullptr) return false;
  bool any = false;
  while (tls::Certificate* read =
             api.PEM_read_bio_X509(source.get(), nullptr, &NoPassword, nullptr)) {
    const std::unique_ptr<tls::Certificate, void (*)(tls::Certificate*)> certificate(read,
                                                                                     api.X509_free);
    if (!use(certificate.get())) return false;
    any = true;
  }
  // The end of the text is an error too.
  if (any) api.ERR_clear_error();
  return any;
}

}  // namespace

bool ReadText(int fd, std::string* text) {
  text->assign(kMaxFileBytes, '\0');
  size_t bytes = 0;
  if (lseek(fd, 0, SEEK_SET) < 0) return false;
  for (;;) {
    const ssize_t got = read(fd, text->data() + bytes, text->size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
    if (bytes == text->size()) {
      errno = EFBIG;
      return false;
    }
  }
  text->resize(bytes);
  return true;
}

bool UseCertificates(const tls::Api& api, tls::Context* context, const std::string& pem) {
  bool first = true;
  return EachCertificate(api, pem, [&](tls::Certificate* certificate) {
    if (std::exchange(first, false)) return api.SSL_CTX_use_certificate(context, certificate) == 1;
    constexpr long kCountReference = 1;
    return api.SSL_CTX_ctrl(context, tls::kCtrlChainCertificate, kCountReference, certificate) == 1;
  });
}

bool UseKey(const tls::Api& api, tls::Context* context, const std::string& pem) {
  const Source source = Open(api, pem);
  if (source == nullptr) return false;
  const std::unique_ptr<tls::Key, void (*)(tls::Key*)> key(
      api.PEM_read_bio_PrivateKey(source.get(), nullptr, &NoPassword, nullptr), api.EVP_PKEY_free);
  return key != nullptr && api.SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

bool UseClientCa(const tls::Api& api, tls::Context* context, const std::string& pem) {
  tls::Store* store = api.SSL_CTX_get_cert_store(context);
  return EachCertificate(api, pem, [&](tls::Certificate* certificate) {
    return api.X509_STORE_add_cert(store, certificate) == 1 &&
           api.SSL_CTX_add_client_CA(context, certificate) == 1;
  });
}

}  // namespace rgpu::gateway
