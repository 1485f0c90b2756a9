#include "native/cuda/context.hpp"

#include <array>
#include <cctype>

namespace hvd::cuda {
namespace {

// A part of a GPU (MIG) has a UUID of its own and the bus id of the whole. Only its name tells that it is one, such as
// "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
bool is_part(const std::string& name) {
  return name.find(" MIG ") != std::string::npos;
}

std::string text_of(const Uuid& uuid, bool of_part) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text = of_part ? "MIG-" : "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[uuid.bytes[i] / 16];
    text += digits[uuid.bytes[i] % 16];
  }
  return text;
}

}  // namespace

Error Context::error(Code code, const std::string& what, std::source_location origin) const {
  return error_of(driver_, code, what + " on cuda device " + std::to_string(ordinal_), origin);
}

Result<std::shared_ptr<const Context>> Context::open(const Driver& driver, int ordinal) {
  std::shared_ptr<Context> context(new Context(driver, ordinal));
  HVD_RETURN_IF_ERROR(context->find());
  HVD_RETURN_IF_ERROR(context->learn_facts());
  HVD_RETURN_IF_ERROR(context->retain());
  return std::shared_ptr<const Context>(std::move(context));
}

Result<DeviceFacts> Context::facts_of(const Driver& driver, int ordinal) {
  Context context(driver, ordinal);
  HVD_RETURN_IF_ERROR(context.find());
  HVD_RETURN_IF_ERROR(context.learn_facts());
  return context.facts_;
}

Status Context::find() {
  const Code code = driver_.device(&number_, ordinal_);
  if (code == Code::success) return {};
  int count = 0;
  static_cast<void>(driver_.device_count(&count));
  return error(code, "this process sees " + std::to_string(count) + " GPUs, and a tensor is");
}

Status Context::learn_facts() {
  auto attribute = [this](Attribute what, int& value) { return driver_.device_attribute(&value, what, number_); };
  int major = 0, minor = 0, maps = 0, unified = 0;
  std::array<char, 256> name{};
  std::array<char, 64> bus_id{};
  Uuid uuid{};
  for (const Code code :
       {attribute(Attribute::multiprocessors, facts_.multiprocessors), attribute(Attribute::capability_major, major),
        attribute(Attribute::capability_minor, minor), attribute(Attribute::can_map_host_memory, maps),
        attribute(Attribute::unified_addressing, unified),
        driver_.device_name(name.data(), static_cast<int>(name.size()), number_),
        driver_.device_bus_id(bus_id.data(), static_cast<int>(bus_id.size()), number_),
        driver_.device_uuid(&uuid, number_)})
    if (code != Code::success) return error(code, "the driver does not tell what it knows");
  facts_.name = name.data();
  for (const char* letter = bus_id.data(); *letter != '\0'; ++letter)
    facts_.bus_id += static_cast<char>(std::tolower(static_cast<unsigned char>(*letter)));
  facts_.uuid = text_of(uuid, is_part(facts_.name));
  facts_.capability = 10 * major + minor;
  if (facts_.capability < 70)
    return Error(ErrorCode::unsupported, "cuda device " + std::to_string(ordinal_) + " is a " + facts_.name +
                                             " of compute capability " + std::to_string(major) + "." +
                                             std::to_string(minor) + ", needed is 7.0 (V100) or later");
  if (maps == 0 || unified == 0)
    return Error(ErrorCode::unsupported, "cuda device " + std::to_string(ordinal_) + " (" + facts_.name +
                                             ") does not share addresses with the host, which Horovod needs");
  return {};
}

Status Context::retain() {
  const Code code = driver_.primary_retain(&handle_, number_);
  if (code == Code::success) return {};
  handle_ = nullptr;
  int mode = 0;
  static_cast<void>(driver_.device_attribute(&mode, Attribute::compute_mode, number_));
  std::string what = "no context could be made";
  if (static_cast<ComputeMode>(mode) == ComputeMode::exclusive_process) what += " (the GPU is in exclusive mode)";
  if (static_cast<ComputeMode>(mode) == ComputeMode::prohibited) what += " (the GPU is in prohibited mode)";
  return error(code, what);
}

Context::~Context() {
  if (handle_ != nullptr && !is_forked()) static_cast<void>(driver_.primary_release(number_));
}

Context::Use::Use(const Context& context) noexcept : driver_(context.driver_) {
  ContextHandle current = nullptr;
  const bool is_current = driver_.context_current(&current) == Code::success && current == context.handle_;
  if (!is_current) is_pushed_ = driver_.context_push(context.handle_) == Code::success;
  static_cast<void>(driver_.exchange_capture_mode(&mode_));
}

Context::Use::~Use() {
  static_cast<void>(driver_.exchange_capture_mode(&mode_));
  ContextHandle current = nullptr;
  if (is_pushed_) static_cast<void>(driver_.context_pop(&current));
}

}  // namespace hvd::cuda
