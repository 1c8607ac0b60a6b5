// Tests of the forms of sizes, shares and numbers, which are those of rgpu_common/units.py, of
// names of devices and routes to their servers, and of program names.
#include "rgpu_client/shim/program.h"
#include "rgpu_client/shim/routes.h"
#include "rgpu_client/shim/tests/check.h"
#include "rgpu_client/shim/units.h"

namespace {
using namespace rgpu::shim;

bool Bytes(const char* text, uint64_t expected) {
  MemorySize size;
  return ParseMemory(text, &size) && size.bytes == expected && size.ppm == 0;
}
bool Part(const char* text, uint32_t expected) {
  MemorySize size;
  return ParseMemory(text, &size) && size.bytes == 0 && size.ppm == expected;
}
bool Share(const char* text, uint32_t expected) {
  uint32_t ppm = 0;
  return ParseShare(text, &ppm) && ppm == expected;
}
}  // namespace

TEST(SizesHaveUnits) {
  CHECK(Bytes("2GiB", 2ULL << 30) && Bytes("512mib", 512ULL << 20) && Bytes("1.5KiB", 1536));
  CHECK(Bytes("1000000", 1000000) && Bytes("1GB", 1000000000) && Bytes(" 1.5 GB ", 1500000000));
  CHECK(Bytes("4vmem", 1ULL << 30) && Bytes("1vcuda-memory", 256ULL << 20));
  CHECK(Bytes("0.1TiB", 109951162777) && Bytes("4611686018427387904", 1ULL << 62));
  CHECK(Bytes("1.00000000000000001TiB", 1ULL << 40));
  CHECK(Bytes("8 vmem", 2ULL << 30) && Bytes("1  vcuda-memory ", 256ULL << 20));
  CHECK(Bytes(".5GiB", 512ULL << 20) && Part(".5%", 5000));
  CHECK(Bytes("2Gi", 2ULL << 30) && Bytes("512mi", 512ULL << 20) && Bytes("1.5Ki", 1536));
  CHECK(Bytes("2g", 2ULL << 30) && Bytes("512m", 512ULL << 20) && Bytes("1.5 k", 1536));
  CHECK(Bytes("2G", 2000000000) && Bytes("512M", 512000000) && Bytes("1.5K", 1500));
  CHECK(Bytes("256B", 256) && Bytes("256 b", 256) && Bytes("1000000", 1000000));
  CHECK(Part("25%", 250000) && Part("100 %", 1000000) && Part("0.5%", 5000));
  MemorySize size;
  for (const char* bad :
       {"", "GiB", "2 apples", "-1", "1e3", "nan", "0x10", "2GB i", "1.5vmem", "3.5", "0", "0%",
        "101%", "9999999TiB", "4611686018427387905", "1.GiB", "99999999999999999999"}) {
    CHECK(!ParseMemory(bad, &size));
  }
  for (const char* bad : {"256", "999999", "8\tvmem", "2GiB\n", "1 000"})
    CHECK(!ParseMemory(bad, &size));
}

TEST(SharesAreFractionsPercentagesOrCores) {
  CHECK(Share("0.4", 400000) && Share("1", 1000000) && Share("40%", 400000));
  CHECK(Share("12.5%", 125000) && Share("40vcore", 400000) && Share("100vcuda-core", 1000000));
  CHECK(Share(".5", 500000) && Share(" .25 ", 250000) && Share(".5%", 5000));
  CHECK(Share("40 %", 400000) && Share(" 40 vcore ", 400000) && Share("100 vcuda-core", 1000000));
  uint32_t ppm = 0;
  for (const char* bad :
       {"",  "0",   "0%",  "1.1",     "101%", "0vcore", "200vcore", "0.4vcore", "40core", "inf",
        ".", "-.5", "..5", ".5vcore", "4e-1", "half",   "1%%",      "40\t%",    "0.4\n",  "4 0%"}) {
    CHECK(!ParseShare(bad, &ppm));
  }
}

TEST(PoliciesAndNumbers) {
  uint64_t value = 9;
  CHECK(ParsePolicy("none", &value) && value == 0);
  CHECK(ParsePolicy("fixed", &value) && value == 1);
  CHECK(ParsePolicy("best-effort", &value) && value == 3);
  CHECK(!ParsePolicy("", &value) && !ParsePolicy("Burst", &value));
  CHECK(ParseWhole("100", 0, 100, &value) && value == 100);
  CHECK(!ParseWhole("101", 0, 100, &value) && !ParseWhole("0", 1, 9, &value));
  CHECK(!ParseWhole("1.0", 0, 9, &value) && !ParseWhole("", 0, 9, &value));
}

TEST(ADeviceMayNameItsServer) {
  const auto plain = ParseDeviceName("3");
  CHECK(plain && plain->number == 3 && plain->server.empty() && plain->text() == "3");
  const auto of_another = ParseDeviceName("0@unix:/a@b");
  CHECK(of_another && of_another->number == 0 && of_another->server == "unix:/a@b");
  CHECK(of_another->text() == "0@unix:/a@b" && *of_another != *plain);
  for (const char* bad : {"", "@", "1@", "@b:7700", "x@b", "-1@b", "1024"}) {
    CHECK(!ParseDeviceName(bad));
  }
}

TEST(AServerIsReachedByItsLine) {
  const std::string lines =
      "a:1;;;tcp:10.0.0.1:1;tls:a:2\nb:1;/run/agent;grpc:b:80;unix:/t\nc;;\nd";
  const Route a = RouteTo("a:1", lines);
  CHECK(a.uri == "tcp:10.0.0.1:1" && a.others == std::vector<std::string>({"tls:a:2"}));
  CHECK(a.agent.empty() && !a.tunnelled);
  const Route b = RouteTo("b:1", lines);
  CHECK(b.uri == "unix:/t" && b.others.empty() && b.agent == "/run/agent" && b.tunnelled);
  for (const char* name : {"c", "d", "e:1", ""}) CHECK(RouteTo(name, lines).uri == name);
}

TEST(AServerMayHaveATokenFileOfItsOwn) {
  const std::string list = "a:1=/run/a;b:1=/run/b=;c:1;=/run/d";
  CHECK(TokenFileOf("a:1", list) == "/run/a" && TokenFileOf("b:1", list) == "/run/b=");
  for (const char* name : {"c:1", "a", "d", "/run/a"}) CHECK(TokenFileOf(name, list).empty());
}

TEST(AProgramIsCalledByItsScript) {
  CHECK(ProgramName({"/usr/bin/python3.11", "-u", "-X", "dev", "/home/a/train.py", "--token=x"}) ==
        "python3.11 train.py");
  CHECK(ProgramName({"python", "-m", "trainer.main", "secret"}) == "python -m trainer.main");
  CHECK(ProgramName({"python", "-c", "import secret"}) == "python -c");
  CHECK(ProgramName({"python3"}) == "python3" && ProgramName({"python", "-m"}) == "python");
  CHECK(ProgramName({"./saxpy", "secret"}) == "saxpy");
  CHECK(ProgramName({"pythonic", "secret"}) == "pythonic" && ProgramName({}).empty());
}
