// OpenSSL, loaded when it is first needed, so that rgpu starts and builds without it. The
// declarations of OpenSSL's public functions below are rgpu's own. All these functions exist in
// 1.1.1 and in 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <string>

namespace rgpu::transport::tls {

// Opaque types of OpenSSL.
struct Context;      // SSL_CTX
struct Ssl;          // SSL
struct Method;       // SSL_METHOD
struct Bio;          // BIO
struct BioMethod;    // BIO_METHOD
struct Certificate;  // X509
struct Name;         // X509_NAME
struct NameEntry;    // X509_NAME_ENTRY
struct Asn1String;   // ASN1_STRING
struct GeneralName;  // GENERAL_NAME
struct Stack;        // OPENSSL_STACK
struct VerifyParam;  // X509_VERIFY_PARAM
struct Key;          // EVP_PKEY
struct Store;        // X509_STORE

using AlpnSelect = int (*)(Ssl*, const unsigned char** out, unsigned char* out_bytes,
                           const unsigned char* in, unsigned int in_bytes, void* arg);
using PasswordAsk = int (*)(char* to, int bytes, int writing, void* arg);

// Values of the documented constants.
inline constexpr int kCtrlMode = 33;
inline constexpr int kCtrlReadAhead = 41;
inline constexpr int kCtrlCacheMode = 44;
inline constexpr int kCtrlHostName = 55;
inline constexpr int kCtrlChainCertificate = 89;
inline constexpr int kCtrlMinVersion = 123;
inline constexpr long kTls13 = 0x0304;
inline constexpr long kPartialWrite = 1;
inline constexpr long kMovingBuffer = 2;
inline constexpr int kVerifyPeer = 1;
inline constexpr int kVerifyOrFail = 1 | 2;
inline constexpr int kPem = 1;
inline constexpr int kErrorSsl = 1;
inline constexpr int kErrorWantRead = 2;
inline constexpr int kErrorWantWrite = 3;
inline constexpr int kErrorZeroReturn = 6;
inline constexpr uint64_t kInitNoAtexit = 0x00080000;
inline constexpr int kNidCommonName = 13;
inline constexpr int kNidAltNames = 85;
inline constexpr int kNameUri = 6;
inline constexpr int kBioTypeSource = 0x0400;
inline constexpr int kBioFlush = 11;
inline constexpr int kBioRead = 1;
inline constexpr int kBioWrite = 2;
inline constexpr int kBioRetry = 8;
inline constexpr int kAlpnOk = 0;
inline constexpr int kAlpnFatal = 2;
inline constexpr int kAlpnNone = 3;

struct Api {
  int (*OPENSSL_init_crypto)(uint64_t, const void*);
  const Method* (*TLS_client_method)();
  const Method* (*TLS_server_method)();
  Context* (*SSL_CTX_new)(const Method*);
  void (*SSL_CTX_free)(Context*);
  long (*SSL_CTX_ctrl)(Context*, int, long, void*);
  void (*SSL_CTX_set_default_read_buffer_len)(Context*, size_t);
  int (*SSL_CTX_set_default_verify_paths)(Context*);
  int (*SSL_CTX_load_verify_locations)(Context*, const char* file, const char* folder);
  int (*SSL_CTX_use_certificate_chain_file)(Context*, const char*);
  int (*SSL_CTX_use_PrivateKey_file)(Context*, const char*, int);
  void (*SSL_CTX_set_default_passwd_cb)(Context*, PasswordAsk);
  void (*SSL_CTX_set_verify)(Context*, int, void*);
  int (*SSL_CTX_set_alpn_protos)(Context*, const unsigned char*, unsigned int);
  void (*SSL_CTX_set_alpn_select_cb)(Context*, AlpnSelect, void*);
  int (*SSL_CTX_set_num_tickets)(Context*, size_t);
  int (*SSL_CTX_use_certificate)(Context*, Certificate*);
  int (*SSL_CTX_use_PrivateKey)(Context*, Key*);
  Store* (*SSL_CTX_get_cert_store)(const Context*);
  int (*SSL_CTX_add_client_CA)(Context*, Certificate*);
  int (*X509_STORE_add_cert)(Store*, Certificate*);
  Bio* (*BIO_new_mem_buf)(const void*, int);
  int (*BIO_free)(Bio*);
  Certificate* (*PEM_read_bio_X509)(Bio*, Certificate**, PasswordAsk, void*);
  Key* (*PEM_read_bio_PrivateKey)(Bio*, Key**, PasswordAsk, void*);
  void (*EVP_PKEY_free)(Key*);

  Ssl* (*SSL_new)(Context*);
  void (*SSL_free)(Ssl*);
  long (*SSL_ctrl)(Ssl*, int, long, void*);
  void (*SSL_set_bio)(Ssl*, Bio*, Bio*);
  void (*SSL_set_connect_state)(Ssl*);
  void (*SSL_set_accept_state)(Ssl*);
  int (*SSL_set1_host)(Ssl*, const char*);
  VerifyParam* (*SSL_get0_param)(Ssl*);
  int (*X509_VERIFY_PARAM_set1_ip_asc)(VerifyParam*, const char*);
  int (*SSL_do_handshake)(Ssl*);
  int (*SSL_read)(Ssl*, void*, int);
  int (*SSL_write)(Ssl*, const void*, int);
  int (*SSL_shutdown)(Ssl*);
  int (*SSL_get_error)(const Ssl*, int);
  int (*SSL_has_pending)(const Ssl*);
  long (*SSL_get_verify_result)(const Ssl*);
  void (*SSL_get0_alpn_selected)(const Ssl*, const unsigned char** name, unsigned int* bytes);

  Bio* (*BIO_new)(const BioMethod*);
  BioMethod* (*BIO_meth_new)(int, const char*);
  int (*BIO_meth_set_write)(BioMethod*, int (*)(Bio*, const char*, int));
  int (*BIO_meth_set_read)(BioMethod*, int (*)(Bio*, char*, int));
  int (*BIO_meth_set_ctrl)(BioMethod*, long (*)(Bio*, int, long, void*));
  int (*BIO_get_new_index)();
  void (*BIO_set_data)(Bio*, void*);
  void* (*BIO_get_data)(Bio*);
  void (*BIO_set_init)(Bio*, int);
  void (*BIO_set_flags)(Bio*, int);
  void (*BIO_clear_flags)(Bio*, int);

  unsigned long (*ERR_get_error)();
  void (*ERR_clear_error)();
  const char* (*ERR_reason_error_string)(unsigned long);
  const char* (*X509_verify_cert_error_string)(long);

  Certificate* (*SSL_get1_peer_certificate)(const Ssl*);
  void (*X509_free)(Certificate*);
  Name* (*X509_get_subject_name)(const Certificate*);
  int (*X509_NAME_get_index_by_NID)(const Name*, int, int);
  NameEntry* (*X509_NAME_get_entry)(const Name*, int);
  Asn1String* (*X509_NAME_ENTRY_get_data)(const NameEntry*);
  int (*ASN1_STRING_to_UTF8)(unsigned char**, const Asn1String*);
  void (*CRYPTO_free)(void*, const char*, int);
  void* (*X509_get_ext_d2i)(const Certificate*, int, int*, int*);
  int (*OPENSSL_sk_num)(const Stack*);
  void* (*OPENSSL_sk_value)(const Stack*, int);
  void* (*GENERAL_NAME_get0_value)(const GeneralName*, int*);
  const unsigned char* (*ASN1_STRING_get0_data)(const Asn1String*);
  int (*ASN1_STRING_length)(const Asn1String*);
  void (*GENERAL_NAMES_free)(Stack*);
};

// Loads the library once per process and returns its functions. Null: `why` says what is missing
// and what to do. RGPU_LIBSSL names a library at an unusual place.
const Api* LoadOpenSsl(std::string* why);

// A thread holds a Use while it calls OpenSSL. The Use is false once Retire was called: the process
// is ending, and OpenSSL may have cleaned up. OpenSSL does so at exit if another part of the
// process initialised it with the default options.
class Use {
 public:
  Use();
  explicit operator bool() const { return allowed_; }

 private:
  std::shared_lock<std::shared_timed_mutex> lock_;
  bool allowed_;
};

// Makes every later Use false. Waits at most `timeout_ms` until the present ones are released.
void Retire(int timeout_ms);

// Returns the reason of this thread's first pending error that has one, and clears all its errors.
std::string TakeError(const Api& api);

}  // namespace rgpu::transport::tls
