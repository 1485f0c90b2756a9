#include "python/tensorflow/done.hpp"

#include <pthread.h>

#include <cstdint>

namespace hvd::tensorflow {

namespace {

struct Stack {
  std::uintptr_t begin = 0, end = 0;

  Stack() {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    void* lowest = nullptr;
    std::size_t size = 0;
    if (pthread_attr_getstack(&attributes, &lowest, &size) == 0) {
      begin = reinterpret_cast<std::uintptr_t>(lowest);
      end = begin + size;
    }
    pthread_attr_destroy(&attributes);
  }
};

bool is_on_stack(const void* address) {
  thread_local const Stack stack;
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  return place >= stack.begin && place < stack.end;
}

}  // namespace

Done::Done(TF_AsyncOpKernelDoneCallback* given) {
  if (is_on_stack(given)) copy_ = *reinterpret_cast<const std::function<void()>*>(given);
  else given_ = given;
}

void Done::operator()() const {
  if (given_ != nullptr) tf.RunAsyncOpKernelDoneCallback(given_);
  else copy_();
}

}  // namespace hvd::tensorflow
