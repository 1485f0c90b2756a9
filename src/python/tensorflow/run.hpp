#pragma once
// One run of a kernel of a collective.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "python/kernels/use.hpp"
#include "python/tensorflow/c_interface.hpp"
#include "python/tensorflow/done.hpp"

namespace hvd::tensorflow {

// What a kernel knows from the node of the graph.
struct Node {
  std::string name;
  int process_set = 0;
  kernels::Description what;
  bool is_group = false;
};

// Where the tensors of a run are.
struct Place {
  hvd_device kind = HVD_HOST;
  int ordinal = 0;
  void* stream = nullptr;  // TensorFlow's, of the device
};

struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { tf.DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, DeleteTensor>;

class Run final : public kernels::Use {
 public:
  Run(const Node& node, TF_OpKernelContext* context, Done done, const Place& place);

  // Takes the inputs and makes the outputs whose shape is known. Returns false if something is wrong with them; fail()
  // was called then.
  bool prepare(const Node& node);

  void* allocate(std::size_t member, int dimensions, const std::int64_t* shape, std::size_t bytes) override;
  void take(std::size_t member, const hvd_completion& completion) override;
  void end(const kernels::Ending& ending) override;
  bool fail(Code code, const std::string& message);
  void fail_because_of(hvd_status status, const std::string& message);
  void be_done();

 private:
  bool add(const std::string& name, int index);
  bool take_splits();
  bool take_kept(std::size_t member, const hvd_completion& completion);
  Tensor input(int index);
  Tensor output(int index, int type, const std::int64_t* shape, int dimensions, std::size_t bytes);

  TF_OpKernelContext* const context_;
  const Done done_;
  kernels::Description what_;
  std::vector<Tensor> inputs_, outputs_;
  bool has_failed_ = false;
};

// How many operations of this process have failed because the job has, such as by the end of another rank.
std::uint64_t failures();

}  // namespace hvd::tensorflow
