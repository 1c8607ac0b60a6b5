#include <fstream>
#include <string>

#include "rgpu_common/native/transport/transport.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

// tests/control/test_common.py reads the same list, for the client and the server in Python.
TEST(address, a_secret_is_seen_in_every_form_of_the_list) {
  std::ifstream list(RGPU_SECRET_ADDRESSES);
  std::string kind;
  std::string address;
  int forms = 0;
  while (list >> kind && list.ignore() && std::getline(list, address)) {
    ++forms;
    if (HoldsSecret(address) != (kind == "secret")) {
      testing::Fail(__FILE__, __LINE__, address + " is " + kind);
    }
    ConnectError why;
    if (kind != "secret") continue;
    CHECK(Connect(address, {}, &why) == nullptr);
    CHECK_EQ(why.sentence, kSecretSentence);
    CHECK(!IsAddress(address));
  }
  CHECK(forms > 0);
}

}  // namespace
}  // namespace rgpu::transport
