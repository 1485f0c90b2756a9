#pragma once
// What an asynchronous kernel calls when it is done, possibly on another thread and long after it was begun.
#include <functional>

#include "python/tensorflow/c_interface.hpp"

namespace hvd::tensorflow {

// Older releases of TensorFlow give a kernel the address of a std::function on the stack of the thread that begins the
// kernel. It is gone when the kernel is called later, so it is copied here. Newer ones give one of the heap, which
// TF_RunAsyncOpKernelDoneCallback frees.
class Done {
 public:
  explicit Done(TF_AsyncOpKernelDoneCallback* given);
  void operator()() const;  // once

 private:
  TF_AsyncOpKernelDoneCallback* given_ = nullptr;
  std::function<void()> copy_;
};

}  // namespace hvd::tensorflow
