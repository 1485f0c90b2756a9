#include "launcher/options/image_file.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

Error no_image(const std::string& word, const std::string& found) {
  return Error(ErrorCode::invalid_argument,
               "--container " + word + ": expected an image (a .sif or squashfs file, a folder with a root file " +
                   "system or an OCI layout), found " + found);
}

Result<ImageKind> kind_of_file(const std::string& path) {
  std::array<char, 64> bytes{};
  std::ifstream file(path, std::ios::binary);
  if (!file) return no_image(path, "a file that cannot be read");
  file.read(bytes.data(), bytes.size());
  const std::string_view begin(bytes.data(), static_cast<std::size_t>(file.gcount()));
  if (begin.starts_with("hsqs")) return ImageKind::squashfs;
  // the first 32 bytes are a line that makes the file executable
  if (begin.find("SIF_MAGIC") == 32) return ImageKind::sif;
  return no_image(path, "a file of another kind");
}

Result<ImageKind> kind_of_folder(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path + "/oci-layout", ignored)) return ImageKind::oci;
  if (fs::is_directory(path + "/usr", ignored) || fs::is_directory(path + "/bin", ignored)) return ImageKind::folder;
  return no_image(path, "a folder with neither usr, bin nor oci-layout in it");
}

}  // namespace

Result<Image> find_image(const std::string& word) {
  std::error_code failed;
  const fs::file_status status = fs::status(word, failed);
  if (!fs::exists(status)) {
    if (word.find('/') == std::string::npos && word.find(':') != std::string::npos)
      return Image{word, ImageKind::named};
    return no_image(word, "nothing there (a name in the store of podman-hpc has a tag: name:tag)");
  }
  std::string path = fs::absolute(word, failed).lexically_normal().string();
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  auto kind = fs::is_directory(status) ? kind_of_folder(path) : kind_of_file(path);
  if (!kind) return kind.error();
  return Image{std::move(path), *kind};
}

}  // namespace hvd::launcher
