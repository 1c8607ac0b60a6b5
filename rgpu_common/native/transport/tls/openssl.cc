#include "rgpu_common/native/transport/tls/openssl.h"

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>

namespace rgpu::transport::tls {
namespace {

struct Loaded {
  Api api{};
  bool good = false;
  std::string why;
};

template <typename Function>
bool Find(void* library, const char* name, Function* to, std::string* why) {
  *to = reinterpret_cast<Function>(dlsym(library, name));
  if (*to == nullptr) *why = std::string("the library has no function ") + name;
  return *to != nullptr;
}

// Opens the library. Null: `why` says for each tried name why that failed.
void* Open(std::string* why) {
  const char* named = std::getenv("RGPU_LIBSSL");
  if (named != nullptr && *named != '\0') {
    void* library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) *why = dlerror();
    return library;
  }
  for (const char* name : {"libssl.so.3", "libssl.so.1.1"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    *why += (why->empty() ? "" : "; ") + std::string(dlerror());
  }
  return nullptr;
}

bool FindAll(void* library, Api* api, std::string* why) {
#define RGPU_FIND(name) \
  if (!Find(library, #name, &api->name, why)) return false
  RGPU_FIND(OPENSSL_init_crypto);
  RGPU_FIND(TLS_client_method);
  RGPU_FIND(TLS_server_method);
  RGPU_FIND(SSL_CTX_new);
  RGPU_FIND(SSL_CTX_free);
  RGPU_FIND(SSL_CTX_ctrl);
  RGPU_FIND(SSL_CTX_set_default_read_buffer_len);
  RGPU_FIND(SSL_CTX_set_default_verify_paths);
  RGPU_FIND(SSL_CTX_load_verify_locations);
  RGPU_FIND(SSL_CTX_use_certificate_chain_file);
  RGPU_FIND(SSL_CTX_use_PrivateKey_file);
  RGPU_FIND(SSL_CTX_set_default_passwd_cb);
  RGPU_FIND(SSL_CTX_set_verify);
  RGPU_FIND(SSL_CTX_set_alpn_protos);
  RGPU_FIND(SSL_CTX_set_alpn_select_cb);
  RGPU_FIND(SSL_CTX_set_num_tickets);
  RGPU_FIND(SSL_CTX_use_certificate);
  RGPU_FIND(SSL_CTX_use_PrivateKey);
  RGPU_FIND(SSL_CTX_get_cert_store);
  RGPU_FIND(SSL_CTX_add_client_CA);
  RGPU_FIND(X509_STORE_add_cert);
  RGPU_FIND(BIO_new_mem_buf);
  RGPU_FIND(BIO_free);
  RGPU_FIND(PEM_read_bio_X509);
  RGPU_FIND(PEM_read_bio_PrivateKey);
  RGPU_FIND(EVP_PKEY_free);
  RGPU_FIND(SSL_new);
  RGPU_FIND(SSL_free);
  RGPU_FIND(SSL_ctrl);
  RGPU_FIND(SSL_set_bio);
  RGPU_FIND(SSL_set_connect_state);
  RGPU_FIND(SSL_set_accept_state);
  RGPU_FIND(SSL_set1_host);
  RGPU_FIND(SSL_get0_param);
  RGPU_FIND(X509_VERIFY_PARAM_set1_ip_asc);
  RGPU_FIND(SSL_do_handshake);
  RGPU_FIND(SSL_read);
  RGPU_FIND(SSL_write);
  RGPU_FIND(SSL_shutdown);
  RGPU_FIND(SSL_get_error);
  RGPU_FIND(SSL_has_pending);
  RGPU_FIND(SSL_get_verify_result);
  RGPU_FIND(SSL_get0_alpn_selected);
  RGPU_FIND(BIO_new);
  RGPU_FIND(BIO_meth_new);
  RGPU_FIND(BIO_meth_set_write);
  RGPU_FIND(BIO_meth_set_read);
  RGPU_FIND(BIO_meth_set_ctrl);
  RGPU_FIND(BIO_get_new_index);
  RGPU_FIND(BIO_set_data);
  RGPU_FIND(BIO_get_data);
  RGPU_FIND(BIO_set_init);
  RGPU_FIND(BIO_set_flags);
  RGPU_FIND(BIO_clear_flags);
  RGPU_FIND(ERR_get_error);
  RGPU_FIND(ERR_clear_error);
  RGPU_FIND(ERR_reason_error_string);
  RGPU_FIND(X509_verify_cert_error_string);
  RGPU_FIND(X509_free);
  RGPU_FIND(X509_get_subject_name);
  RGPU_FIND(X509_NAME_get_index_by_NID);
  RGPU_FIND(X509_NAME_get_entry);
  RGPU_FIND(X509_NAME_ENTRY_get_data);
  RGPU_FIND(ASN1_STRING_to_UTF8);
  RGPU_FIND(CRYPTO_free);
  RGPU_FIND(X509_get_ext_d2i);
  RGPU_FIND(OPENSSL_sk_num);
  RGPU_FIND(OPENSSL_sk_value);
  RGPU_FIND(GENERAL_NAME_get0_value);
  RGPU_FIND(ASN1_STRING_get0_data);
  RGPU_FIND(ASN1_STRING_length);
  RGPU_FIND(GENERAL_NAMES_free);
#undef RGPU_FIND
  // The function's name is SSL_get1_peer_certificate in OpenSSL 3, and SSL_get_peer_certificate in
  // 1.1.1.
  std::string ignored;
  return Find(library, "SSL_get1_peer_certificate", &api->SSL_get1_peer_certificate, &ignored) ||
         Find(library, "SSL_get_peer_certificate", &api->SSL_get1_peer_certificate, why);
}

Loaded Load() {
  Loaded loaded;
  std::string reason;
  void* library = Open(&reason);
  // The library is never unloaded, because its functions are used until the process ends.
  if (library != nullptr && FindAll(library, &loaded.api, &reason)) {
    // OpenSSL must not clean up at exit before the shim has sent the last commands and BYE.
    loaded.good = loaded.api.OPENSSL_init_crypto(kInitNoAtexit, nullptr) == 1;
  }
  if (!loaded.good) {
    loaded.why =
        "tls: needs OpenSSL 3 or 1.1.1, which cannot be loaded (" + reason +
        "): install libssl3 (Debian, Ubuntu) or openssl-libs (Fedora), or name the library in "
        "RGPU_LIBSSL";
  }
  return loaded;
}

// The lock that Use holds. Never destroyed, because threads use it while the process ends.
std::shared_timed_mutex& Gate() {
  static auto& gate = *new std::shared_timed_mutex;
  return gate;
}

std::atomic<bool> g_retired{false};

}  // namespace

const Api* LoadOpenSsl(std::string* why) {
  static const Loaded* loaded = new Loaded(Load());
  if (!loaded->good) *why = loaded->why;
  return loaded->good ? &loaded->api : nullptr;
}

Use::Use() : lock_(Gate()), allowed_(!g_retired) {}

void Retire(int timeout_ms) {
  const bool alone = Gate().try_lock_for(std::chrono::milliseconds(timeout_ms));
  g_retired = true;
  if (alone) Gate().unlock();
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
