// Threads with a small stack: a gateway has two for each connection.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>
#include <utility>

namespace rgpu::gateway {

class Thread {
 public:
  // False: the system gives no thread, and nothing was started.
  bool Start(std::function<void()> body) {
    auto owned = std::make_unique<std::function<void()>>(std::move(body));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    const bool started = pthread_create(&thread_, &attributes, &Run, owned.get()) == 0;
    pthread_attr_destroy(&attributes);
    if (started) static_cast<void>(owned.release());  // Run owns the body
    return started;
  }
  void Join() { pthread_join(thread_, nullptr); }
  void Detach() { pthread_detach(thread_); }

 private:
  static constexpr size_t kStackBytes = 256U << 10;

  static void* Run(void* body) {
    const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(body));
    (*owned)();
    return nullptr;
  }

  pthread_t thread_{};
};

}  // namespace rgpu::gateway
