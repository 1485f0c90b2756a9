#include "python/tensorflow/definitions.hpp"

#include <memory>
#include <stdexcept>

namespace hvd::tensorflow {

namespace {

struct DeleteShape {
  void operator()(TF_ShapeHandle* shape) const { tf.DeleteShapeHandle(shape); }
};
using Shape = std::unique_ptr<TF_ShapeHandle, DeleteShape>;

Shape new_shape() {
  return Shape(tf.NewShapeHandle());
}

bool is_ok(TF_Status* status) {
  return tf.GetCode(status) == code_ok;
}

// The shape of input i with any number of rows. An input of no dimensions is an error.
void set_other_rows(TF_ShapeInferenceContext* context, int i, TF_Status* status) {
  const Shape input = new_shape(), checked = new_shape(), rest = new_shape(), result = new_shape();
  tf.ShapeInferenceContextGetInput(context, i, input.get(), status);
  if (!is_ok(status)) return;
  if (tf.ShapeInferenceContextRankKnown(context, input.get()) == 0)
    return tf.ShapeInferenceContextSetOutput(context, i, input.get(), status);
  tf.ShapeInferenceContextWithRankAtLeast(context, input.get(), 1, checked.get(), status);
  if (!is_ok(status)) return;
  const Shape rows(tf.ShapeInferenceContextVectorFromSize(context, static_cast<std::size_t>(-1)));
  tf.ShapeInferenceContextSubshape(context, checked.get(), 1, INT64_MAX, rest.get(), status);
  if (!is_ok(status)) return;
  tf.ShapeInferenceContextConcatenateShapes(context, rows.get(), rest.get(), result.get(), status);
  if (is_ok(status)) tf.ShapeInferenceContextSetOutput(context, i, result.get(), status);
}

}  // namespace

void check(const Status& status, const char* name) {
  if (!status.ok()) throw std::runtime_error(std::string(name) + ": " + status.message());
}

void define(const Definition& definition) {
  TF_OpDefinitionBuilder* builder = tf.NewOpDefinitionBuilder(definition.name);
  for (const char* attribute : definition.attributes)
    if (attribute != nullptr) tf.OpDefinitionBuilderAddAttr(builder, attribute);
  for (const char* input : definition.inputs)
    if (input != nullptr) tf.OpDefinitionBuilderAddInput(builder, input);
  for (const char* output : definition.outputs)
    if (output != nullptr) tf.OpDefinitionBuilderAddOutput(builder, output);
  // TensorFlow computes other operations when it optimises a graph, merges equal ones, and drops unused ones: not with
  // all ranks at the same time.
  tf.OpDefinitionBuilderSetIsStateful(builder, true);
  tf.OpDefinitionBuilderSetShapeInferenceFunction(builder, definition.shape);
  const Status status;
  tf.RegisterOpDefinition(builder, status.get());  // which takes the builder
  check(status, definition.name);
}

void shape_of_input(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(tf.ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && is_ok(status); ++i) {
    const Shape input = new_shape();
    tf.ShapeInferenceContextGetInput(context, i, input.get(), status);
    if (is_ok(status)) tf.ShapeInferenceContextSetOutput(context, i, input.get(), status);
  }
}

void other_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(tf.ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && is_ok(status); ++i) set_other_rows(context, i, status);
}

void other_rows_and_splits(TF_ShapeInferenceContext* context, TF_Status* status) {
  set_other_rows(context, 0, status);
  if (!is_ok(status)) return;
  const Shape splits(tf.ShapeInferenceContextVectorFromSize(context, static_cast<std::size_t>(-1)));
  tf.ShapeInferenceContextSetOutput(context, 1, splits.get(), status);
}

void scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape shape(tf.ShapeInferenceContextScalar(context));
  tf.ShapeInferenceContextSetOutput(context, 0, shape.get(), status);
}

}  // namespace hvd::tensorflow
