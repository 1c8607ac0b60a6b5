#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_emu/device/exec/compiler_replies.h"
#include "rgpu_emu/device/kernel_abi.h"
#include "tests/emu_exec/device.h"
#include "tests/native/testing.h"

namespace rgpu::emu::testing {
namespace {

using Bytes = std::vector<uint8_t>;

int ResultOf(const Outcome& outcome) { return static_cast<int>(outcome.result); }

template <typename... T>
Bytes Body(const T&... fields) {
  Bytes bytes;
  wire::Writer writer(&bytes);
  (writer.Put(fields), ...);
  return bytes;
}

wire::ByteView View(std::string_view text) { return wire::Bytes(text); }
wire::ByteView View(const Bytes& bytes) { return wire::Bytes(bytes.data(), bytes.size()); }

Bytes GoodModule() {
  const Bytes params = Body(0u, 8u, 8u, 4u);
  const Bytes relocations = Body(uint64_t{8}, 2u, 0u, int64_t{0});
  return Body(0, View("note"), View(std::string(32, 'k')), 1u, 1u, 1u, View("saxpy"), View(params),
              12u, 16u, 32u, 0u, 0u, 0u, 0u, 80u, 75u, 20u, 0u, 801, View("why"), View("table"), 1u,
              uint64_t{64}, 16u, 1u, View("abc"), View(relocations), View("callee"));
}

Bytes GoodKernel() {
  return Body(0, View(""), kKernelAbi, 0u, 0u, 0u, 0u, View(ReadObject("saxpy")), 1u, 0u);
}

Bytes Refusal(int result, std::string_view log) {
  return Body(result, View(log), kKernelAbi, 0u, 0u, 0u, 0u, View(""), 0u);
}

// Answers each request as `answer(type, body)` says; an empty reply closes the connection.
class FakeCompiler {
 public:
  using Answer = std::function<Bytes(uint32_t, const Bytes&)>;

  explicit FakeCompiler(Answer answer) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    client_fd = pair[0];
    thread_ = std::thread([fd = pair[1], answer = std::move(answer)] {
      Serve(fd, answer);
      close(fd);
    });
  }
  ~FakeCompiler() { thread_.join(); }

  int client_fd;

 private:
  static bool ReadAll(int fd, void* out, size_t bytes) {
    return bytes == 0 || recv(fd, out, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }
  static void Serve(int fd, const Answer& answer) {
    uint8_t head[16];
    while (ReadAll(fd, head, sizeof(head))) {
      wire::Reader reader(head, sizeof(head));
      uint32_t type = 0;
      uint32_t zero = 0;
      uint64_t bytes = 0;
      reader.Get(&type);
      reader.Get(&zero);
      reader.Get(&bytes);
      Bytes body(bytes);
      if (!ReadAll(fd, body.data(), bytes)) return;
      const Bytes reply = answer(type, body);
      if (reply.empty()) return;
      const Bytes answer_head = Body(type + 1, 0u, uint64_t{reply.size()});
      send(fd, answer_head.data(), answer_head.size(), MSG_NOSIGNAL);
      send(fd, reply.data(), reply.size(), MSG_NOSIGNAL);
    }
  }
  std::thread thread_;
};

TEST(compiler, load_and_lower) {
  FakeCompiler compiler(
      [](uint32_t type, const Bytes&) { return type == 1 ? GoodModule() : GoodKernel(); });
  CompilerOptions options;
  options.fd = compiler.client_fd;
  CompilerClient client(options);
  LoadedModule module;
  const std::string_view text = ".version 8.0";
  CHECK_EQ(ResultOf(client.Load({&text, 1}, &module)), 0);
  CHECK_EQ(module.log, "note");
  CHECK_EQ(module.entries.size(), 1u);
  CHECK_EQ(module.entries[0].name, "saxpy");
  CHECK_EQ(module.entries[0].params[1].offset, 8u);
  CHECK_EQ(module.entries[0].target, 75u);
  CHECK_EQ(ResultOf(RefusalOf(module.entries[0])), 801);
  CHECK_EQ(RefusalOf(module.entries[0]).message, "why");
  CHECK_EQ(module.globals[0].initial.size(), 3u);
  CHECK(wire::compiler::RelocationKind{module.globals[0].relocations[0].kind} ==
        wire::compiler::RelocationKind::kFunctionToken);
  CHECK_EQ(module.functions[0], "callee");
  wire::compiler::Lowered code;
  CHECK_EQ(ResultOf(client.Lower(&module, "saxpy", &code)), 0);
  CHECK_EQ(code.function_ordinals.size(), 1u);
  code.function_ordinals.clear();
  std::shared_ptr<const Kernel> kernel;
  CHECK(Kernel::Make(code, 1, &kernel).ok());
}

// For other sessions of its tenant it may forget a module; the next kernel loads it again.
TEST(compiler, a_module_that_it_forgot_is_loaded_again) {
  int loads = 0;
  FakeCompiler compiler([&](uint32_t type, const Bytes&) {
    if (type == 1) ++loads;
    if (type == 1) return GoodModule();
    return loads < 2 ? Refusal(500, "load it again") : GoodKernel();
  });
  CompilerOptions options;
  options.fd = compiler.client_fd;
  {
    CompilerClient client(options);
    LoadedModule module;
    wire::compiler::Lowered code;
    const std::string_view text = ".version 8.0";
    CHECK_EQ(ResultOf(client.Load({&text, 1}, &module)), 0);
    CHECK_EQ(ResultOf(client.Lower(&module, "saxpy", &code)), 0);
  }
  CHECK_EQ(loads, 2);
}

TEST(compiler, its_errors_come_through) {
  FakeCompiler compiler([](uint32_t, const Bytes&) {
    return Body(218, View("line 3: no such thing"), View("f"), 0u);
  });
  CompilerOptions options;
  options.fd = compiler.client_fd;
  CompilerClient client(options);
  wire::compiler::Linked reply;
  const std::string_view text = "x";
  const Outcome linked = client.Link({&text, 1}, &reply);
  CHECK_EQ(ResultOf(linked), static_cast<int>(CUDA_ERROR_INVALID_PTX));
  CHECK_EQ(linked.message, "line 3: no such thing");
  CHECK_EQ(reply.undefined, "f");
}

TEST(compiler, every_cut_of_a_reply_is_refused) {
  const Bytes whole = GoodModule();
  LoadedModule module;
  CHECK_EQ(ResultOf(DecodeLoaded(whole, &module)), 0);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    LoadedModule cut;
    CHECK(!DecodeLoaded({whole.data(), bytes}, &cut).ok());
  }
  const Bytes kernel = GoodKernel();
  for (size_t bytes = 0; bytes < kernel.size(); bytes += 7) {
    wire::compiler::Lowered cut;
    CHECK(!DecodeLowered({kernel.data(), bytes}, &cut).ok());
  }
}

TEST(compiler, every_changed_byte_is_survived) {
  const Bytes whole = GoodModule();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int change : {0xff, 0x80, 0x01}) {
      Bytes changed = whole;
      changed[at] = static_cast<uint8_t>(changed[at] ^ change);
      LoadedModule module;
      DecodeLoaded(changed, &module);
      for (const GlobalInfo& global : module.globals) CHECK(global.initial.size() <= whole.size());
    }
  }
}

TEST(compiler, another_kernel_abi_is_refused) {
  wire::compiler::Lowered code;
  const Outcome outcome =
      DecodeLowered(Body(0, View(""), kKernelAbi + 1, 0u, 0u, 0u, 0u, View(""), 0u), &code);
  CHECK(outcome.message.find("matching versions") != std::string::npos);
}

TEST(compiler, one_that_dies_gives_an_error_and_not_a_hang) {
  FakeCompiler compiler([](uint32_t, const Bytes&) { return Bytes(); });
  CompilerOptions options;
  options.fd = compiler.client_fd;
  CompilerClient client(options);
  LoadedModule module;
  const std::string_view text = "x";
  for (int i = 0; i < 2; ++i) {
    CHECK_EQ(ResultOf(client.Load({&text, 1}, &module)),
             static_cast<int>(CUDA_ERROR_JIT_COMPILER_NOT_FOUND));
  }
}

TEST(compiler, one_that_is_silent_runs_into_the_deadline) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  CompilerOptions options;
  options.fd = pair[0];
  options.deadline_seconds = 0;
  CompilerClient client(options);
  LoadedModule module;
  const std::string_view text = "x";
  CHECK(client.Load({&text, 1}, &module).message.find("did not answer") != std::string::npos);
  close(pair[1]);
}

TEST(compiler, one_that_cannot_start) {
  CompilerOptions options;
  options.command = "/nonexistent/compiler";
  CompilerClient client(options);
  LoadedModule module;
  const std::string_view text = "x";
  const Outcome outcome = client.Load({&text, 1}, &module);
  CHECK_EQ(ResultOf(outcome), static_cast<int>(CUDA_ERROR_JIT_COMPILER_NOT_FOUND));
  CHECK(outcome.message.find("RGPU_EMU_COMPILER") != std::string::npos);
}

// A started compiler is the process of a command; `cat` sends every request back, which is no
// reply.
TEST(compiler, started_ones_are_reaped_and_started_again) {
  CompilerOptions options;
  options.command = "sh -c exit";
  CompilerClient client(options);
  LoadedModule module;
  const std::string_view text = "x";
  for (int i = 0; i < 3; ++i) {
    CHECK(client.Load({&text, 1}, &module).message.find("ended before it answered") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace rgpu::emu::testing
