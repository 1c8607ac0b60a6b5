#include "rgpu_common/native/transport/tls/openssl.h"

#include <atomic>
#include <chrono>
#include <mutex>

#include "rgpu_common/native/base/library.h"

namespace rgpu::transport::tls {
namespace {

using Loaded = base::LoadedLibrary<Api>;

bool FindAll(void* library, Api* api, std::string* why) {
  const bool found =
      base::FindFunctions(library,
                          {
                              RGPU_FUNCTION(*api, OPENSSL_init_crypto),
                              RGPU_FUNCTION(*api, TLS_client_method),
                              RGPU_FUNCTION(*api, TLS_server_method),
                              RGPU_FUNCTION(*api, SSL_CTX_new),
                              RGPU_FUNCTION(*api, SSL_CTX_free),
                              RGPU_FUNCTION(*api, SSL_CTX_ctrl),
                              RGPU_FUNCTION(*api, SSL_CTX_set_default_read_buffer_len),
                              RGPU_FUNCTION(*api, SSL_CTX_set_default_verify_paths),
                              RGPU_FUNCTION(*api, SSL_CTX_load_verify_locations),
                              RGPU_FUNCTION(*api, SSL_CTX_use_certificate_chain_file),
                              RGPU_FUNCTION(*api, SSL_CTX_use_PrivateKey_file),
                              RGPU_FUNCTION(*api, SSL_CTX_set_default_passwd_cb),
                              RGPU_FUNCTION(*api, SSL_CTX_set_verify),
                              RGPU_FUNCTION(*api, SSL_CTX_set_alpn_protos),
                              RGPU_FUNCTION(*api, SSL_CTX_set_alpn_select_cb),
                              RGPU_FUNCTION(*api, SSL_CTX_set_num_tickets),
                              RGPU_FUNCTION(*api, SSL_CTX_use_certificate),
                              RGPU_FUNCTION(*api, SSL_CTX_use_PrivateKey),
                              RGPU_FUNCTION(*api, SSL_CTX_get_cert_store),
                              RGPU_FUNCTION(*api, SSL_CTX_add_client_CA),
                              RGPU_FUNCTION(*api, X509_STORE_add_cert),
                              RGPU_FUNCTION(*api, BIO_new_mem_buf),
                              RGPU_FUNCTION(*api, BIO_free),
                              RGPU_FUNCTION(*api, PEM_read_bio_X509),
                              RGPU_FUNCTION(*api, PEM_read_bio_PrivateKey),
                              RGPU_FUNCTION(*api, EVP_PKEY_free),
                              RGPU_FUNCTION(*api, SSL_new),
                              RGPU_FUNCTION(*api, SSL_free),
                              RGPU_FUNCTION(*api, SSL_ctrl),
                              RGPU_FUNCTION(*api, SSL_set_bio),
                              RGPU_FUNCTION(*api, SSL_set_connect_state),
                              RGPU_FUNCTION(*api, SSL_set_accept_state),
                              RGPU_FUNCTION(*api, SSL_set1_host),
                              RGPU_FUNCTION(*api, SSL_get0_param),
                              RGPU_FUNCTION(*api, X509_VERIFY_PARAM_set1_ip_asc),
                              RGPU_FUNCTION(*api, SSL_do_handshake),
                              RGPU_FUNCTION(*api, SSL_read),
                              RGPU_FUNCTION(*api, SSL_write),
                              RGPU_FUNCTION(*api, SSL_shutdown),
                              RGPU_FUNCTION(*api, SSL_get_error),
                              RGPU_FUNCTION(*api, SSL_has_pending),
                              RGPU_FUNCTION(*api, SSL_get_verify_result),
                              RGPU_FUNCTION(*api, SSL_get0_alpn_selected),
                              RGPU_FUNCTION(*api, BIO_new),
                              RGPU_FUNCTION(*api, BIO_meth_new),
                              RGPU_FUNCTION(*api, BIO_meth_set_write),
                              RGPU_FUNCTION(*api, BIO_meth_set_read),
                              RGPU_FUNCTION(*api, BIO_meth_set_ctrl),
                              RGPU_FUNCTION(*api, BIO_get_new_index),
                              RGPU_FUNCTION(*api, BIO_set_data),
                              RGPU_FUNCTION(*api, BIO_get_data),
                              RGPU_FUNCTION(*api, BIO_set_init),
                              RGPU_FUNCTION(*api, BIO_set_flags),
                              RGPU_FUNCTION(*api, BIO_clear_flags),
                              RGPU_FUNCTION(*api, ERR_get_error),
                              RGPU_FUNCTION(*api, ERR_clear_error),
                              RGPU_FUNCTION(*api, ERR_reason_error_string),
                              RGPU_FUNCTION(*api, X509_verify_cert_error_string),
                              RGPU_FUNCTION(*api, X509_free),
                              RGPU_FUNCTION(*api, X509_get_subject_name),
                              RGPU_FUNCTION(*api, X509_NAME_get_index_by_NID),
                              RGPU_FUNCTION(*api, X509_NAME_get_entry),
                              RGPU_FUNCTION(*api, X509_NAME_ENTRY_get_data),
                              RGPU_FUNCTION(*api, ASN1_STRING_to_UTF8),
                              RGPU_FUNCTION(*api, CRYPTO_free),
                              RGPU_FUNCTION(*api, X509_get_ext_d2i),
                              RGPU_FUNCTION(*api, OPENSSL_sk_num),
                              RGPU_FUNCTION(*api, OPENSSL_sk_value),
                              RGPU_FUNCTION(*api, GENERAL_NAME_get0_value),
                              RGPU_FUNCTION(*api, ASN1_STRING_get0_data),
                              RGPU_FUNCTION(*api, ASN1_STRING_length),
                              RGPU_FUNCTION(*api, GENERAL_NAMES_free),
                          },
                          why);
  if (!found) return false;
  // The function's name is SSL_get1_peer_certificate in OpenSSL 3, and SSL_get_peer_certificate in
  // 1.1.1.
  std::string ignored;
  auto** certificate = &api->SSL_get1_peer_certificate;
  return base::FindFunctions(library, {{"SSL_get1_peer_certificate", certificate}}, &ignored) ||
         base::FindFunctions(library, {{"SSL_get_peer_certificate", certificate}}, why);
}

Loaded Load() {
  Loaded loaded;
  std::string reason;
  void* library = base::OpenLibrary("RGPU_LIBSSL", {"libssl.so.3", "libssl.so.1.1"}, &reason);
  // OpenSSL must not clean up at exit before the shim has sent the last commands and BYE.
  if (library == nullptr || !FindAll(library, &loaded.api, &reason) ||
      loaded.api.OPENSSL_init_crypto(kInitNoAtexit, nullptr) != 1) {
    loaded.failure =
        "tls: needs OpenSSL 3 or 1.1.1, which cannot be loaded (" + reason +
        "): install libssl3 (Debian, Ubuntu) or openssl-libs (Fedora), or name the library in "
        "RGPU_LIBSSL";
  }
  return loaded;
}

// The lock that Use holds. Never destroyed, because threads use it while the process ends.
std::shared_timed_mutex& UseLock() {
  static auto& lock = *new std::shared_timed_mutex;
  return lock;
}

std::atomic<bool> g_retired{false};

}  // namespace

const Api* LoadOpenSsl(std::string* why) {
  static const Loaded* loaded = new Loaded(Load());
  return loaded->Get(why);
}

Use::Use() : lock_(UseLock()), allowed_(!g_retired) {}

void Retire(int timeout_ms) {
  const bool alone = UseLock().try_lock_for(std::chrono::milliseconds(timeout_ms));
  g_retired = true;
  if (alone) UseLock().unlock();
}

std::string TakeError(const Api& api) {
  std::string text;
  while (const unsigned long code = api.ERR_get_error()) {
    const char* reason = api.ERR_reason_error_string(code);
    if (text.empty() && reason != nullptr) text = reason;
  }
  return text;
}

}  // namespace rgpu::transport::tls
