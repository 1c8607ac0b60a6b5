// What the environment may say.
#include "rgpu_client/shim/settings.h"
#include "rgpu_client/shim/tests/check.h"

namespace {
using namespace rgpu::shim;
}

TEST(SizesHaveUnits) {
  uint64_t bytes = 0;
  CHECK(ParseBytes("2GiB", &bytes) && bytes == 2ULL << 30);
  CHECK(ParseBytes("512MiB", &bytes) && bytes == 512ULL << 20);
  CHECK(ParseBytes("1.5KiB", &bytes) && bytes == 1536);
  CHECK(ParseBytes("1000000", &bytes) && bytes == 1000000);
  CHECK(ParseBytes("1GB", &bytes) && bytes == 1000000000);
  CHECK(!ParseBytes("", &bytes) && !ParseBytes("GiB", &bytes) && !ParseBytes("2 apples", &bytes));
  CHECK(!ParseBytes("-1", &bytes) && !ParseBytes("1e30TiB", &bytes) && !ParseBytes("nan", &bytes));
}

TEST(SharesAreFractions) {
  uint32_t ppm = 0;
  CHECK(ParseFraction("0.4", &ppm) && ppm == 400000);
  CHECK(ParseFraction("1", &ppm) && ppm == 1000000);
  CHECK(!ParseFraction("0", &ppm) && !ParseFraction("1.1", &ppm) && !ParseFraction("40%", &ppm));
}
