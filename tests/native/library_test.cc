#include "rgpu_common/native/base/library.h"

#include <cstdlib>
#include <string>

#include "tests/native/testing.h"

namespace rgpu::base {
namespace {

constexpr const char* kVariable = "RGPU_TEST_LIBRARY";

bool Has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

struct Text {
  size_t (*strlen)(const char*) = nullptr;
  int (*rgpu_no_such_function)() = nullptr;
  int (*rgpu_none_either)() = nullptr;
};

TEST(library, opens_the_first_name_that_loads) {
  std::string why;
  CHECK(OpenLibrary({"librgpu_none.so.1", "libc.so.6", "librgpu_none.so.2"}, &why) != nullptr);
  CHECK_EQ(why, "");
}

TEST(library, says_why_each_name_does_not_load) {
  std::string why;
  CHECK(OpenLibrary({"librgpu_none.so.1", "librgpu_none.so.2"}, &why) == nullptr);
  CHECK(Has(why, "librgpu_none.so.1: cannot open") && Has(why, "; librgpu_none.so.2: cannot open"));
}

TEST(library, a_variable_replaces_all_names) {
  std::string why;
  setenv(kVariable, "librgpu_none.so.3", 1);
  CHECK(OpenLibrary(kVariable, {"libc.so.6"}, &why) == nullptr);
  CHECK(Has(why, "librgpu_none.so.3") && !Has(why, "; "));
  setenv(kVariable, "libc.so.6", 1);
  CHECK(OpenLibrary(kVariable, {"librgpu_none.so.1"}, &why) != nullptr);
  setenv(kVariable, "", 1);
  CHECK(OpenLibrary(kVariable, {"libc.so.6"}, &why) != nullptr);
  CHECK(LibraryNamedBy(kVariable) == nullptr);
  unsetenv(kVariable);
  CHECK(OpenLibrary(kVariable, {"libc.so.6"}, &why) != nullptr);
}

TEST(library, sets_the_functions_and_names_the_first_that_is_missing) {
  std::string why;
  void* library = OpenLibrary({"libc.so.6"}, &why);
  Text text;
  CHECK(FindFunctions(library, {RGPU_FUNCTION(text, strlen)}, &why));
  CHECK_EQ(text.strlen("four"), 4U);
  CHECK(!FindFunctions(library,
                       {RGPU_FUNCTION(text, strlen), RGPU_FUNCTION(text, rgpu_no_such_function),
                        RGPU_FUNCTION(text, rgpu_none_either)},
                       &why));
  CHECK_EQ(why, "the library has no function rgpu_no_such_function");
  CHECK(text.rgpu_no_such_function == nullptr);
}

TEST(library, gives_functions_or_the_failure) {
  LoadedLibrary<Text> loaded;
  std::string why;
  CHECK(loaded.Get(&why) == &loaded.api && why.empty());
  loaded.failure = "it is not installed";
  CHECK(loaded.Get(&why) == nullptr && loaded.Get(nullptr) == nullptr);
  CHECK_EQ(why, "it is not installed");
}

}  // namespace
}  // namespace rgpu::base
