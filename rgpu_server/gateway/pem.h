// Certificates and keys in PEM, used from memory: the gateway reads files only before it gives up
// the right to open them.  Later the daemon opens them and passes the descriptors.
#pragma once

#include <string>
#include <vector>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/tls/openssl.h"

namespace rgpu::gateway {

// The texts of the files.
struct Pem {
  std::string certificate;
  std::string key;
  std::string client_ca;  // empty: no certificates are asked for
};

// Reads an open file from its beginning.  False: errno says why; EFBIG: it is no certificate.
bool ReadText(int fd, std::string* text);

// The server's certificate and those that it is signed by, in the order of the file.
bool UseCertificates(const transport::tls::Api& api, transport::tls::Context* context,
                     const std::string& pem);
bool UseKey(const transport::tls::Api& api, transport::tls::Context* context,
            const std::string& pem);
// Who signs clients' certificates; clients learn which of their certificates is asked for.
bool UseClientCa(const transport::tls::Api& api, transport::tls::Context* context,
                 const std::string& pem);

}  // namespace rgpu::gateway
