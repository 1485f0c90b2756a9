#pragma once
// What an asynchronous kernel calls when it is done, possibly on another thread and long after it was begun.
#include <functional>

#include "python/tensorflow/c_interface.hpp"

namespace hvd::tensorflow {

// The releases that were seen (2.13 to 2.21) give a kernel the address of a std::function on the stack of the thread
// that begins the kernel. It is gone when the kernel is done later, so it is copied here. TensorFlow's sources of 2025
// make one on the heap, which TF_RunAsyncOpKernelDoneCallback frees.
class Done {
 public:
  explicit Done(TF_AsyncOpKernelDoneCallback* given);
  void operator()() const;  // once

 private:
  TF_AsyncOpKernelDoneCallback* given_ = nullptr;
  std::function<void()> copy_;
};

}  // namespace hvd::tensorflow
