#include "python/tensorflow/c_interface.hpp"

#include <dlfcn.h>
#include <link.h>

#include <vector>

namespace hvd::tensorflow {

Functions tf;

namespace {

// The paths of the loaded libraries whose name has "tensorflow" in it. Releases differ in which library has the C
// functions; Python loads all of them where other libraries cannot see them.
std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  const auto note = [](dl_phdr_info* info, std::size_t, void* into) {
    const std::string path = info->dlpi_name;
    const std::size_t file = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
    if (path.find("tensorflow", file) != std::string::npos)
      static_cast<std::vector<std::string>*>(into)->push_back(path);
    return 0;
  };
  dl_iterate_phdr(note, &paths);
  return paths;
}

// Keeps the libraries open, which they are anyhow.
void* find(const std::vector<void*>& libraries, const char* name) {
  for (void* library : libraries)
    if (void* found = dlsym(library, name); found != nullptr) return found;
  return nullptr;
}

}  // namespace

std::string find_functions() {
  std::vector<void*> libraries;
  for (const std::string& path : loaded_libraries())
    if (void* library = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY); library != nullptr) libraries.push_back(library);
  if (libraries.empty()) return "no library of TensorFlow is loaded in this process";
  std::string missing;
#define HVD_FUNCTION(result, name, parameters)                                                        \
  tf.name = reinterpret_cast<result(*) parameters>(find(libraries, "TF_" #name)); /* NOLINT: dlsym */ \
  if (tf.name == nullptr) missing += missing.empty() ? "TF_" #name : ", TF_" #name;
  HVD_TENSORFLOW_FUNCTIONS(HVD_FUNCTION)
#undef HVD_FUNCTION
#define HVD_FUNCTION(result, name, parameters) \
  tf.name = reinterpret_cast<result(*) parameters>(find(libraries, "TF_" #name)); /* NOLINT: dlsym */
  HVD_TENSORFLOW_OPTIONAL_FUNCTIONS(HVD_FUNCTION)
#undef HVD_FUNCTION
  return missing.empty() ? "" : "this TensorFlow lacks functions of its C interface: " + missing;
}

}  // namespace hvd::tensorflow
