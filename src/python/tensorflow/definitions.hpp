#pragma once
// The operations that TensorFlow gets: their names, arguments and shapes.
#include <string>

#include "python/tensorflow/c_interface.hpp"

namespace hvd::tensorflow {

// An operation's arguments, as TensorFlow writes them.
struct Definition {
  const char* name;
  const char* inputs[2];   // null: none
  const char* outputs[2];  // null: none
  const char* attributes[6];
  ShapeFunction shape;
};

// All collectives have these.
inline constexpr const char* name_attribute = "tensor_name: string";
inline constexpr const char* set_attribute = "process_set_id: int = 0";

// Throws std::runtime_error with TensorFlow's message.
void define(const Definition& definition);
// Throws if the status is not ok.
void check(const Status& status, const char* name);

// Functions of shapes. Each serves an operation with any number of tensors.
void shape_of_input(TF_ShapeInferenceContext* context, TF_Status* status);
void other_rows(TF_ShapeInferenceContext* context, TF_Status* status);
void other_rows_and_splits(TF_ShapeInferenceContext* context, TF_Status* status);
void scalar(TF_ShapeInferenceContext* context, TF_Status* status);

}  // namespace hvd::tensorflow
