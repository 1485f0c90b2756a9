#pragma once
// The image that the word after --container names: a file, a folder, or the name of an image that podman-hpc knows.
#include <string>

#include "base/result.hpp"

namespace hvd::launcher {

enum class ImageKind {
  sif,       // the image format of Apptainer and Singularity
  squashfs,  // a root file system in one file
  folder,    // a root file system in a folder
  oci,       // a folder with an OCI layout
  named,     // the name of an image that podman-hpc has in its store
};

struct Image {
  std::string word;  // an absolute path, if the image is a file or folder
  ImageKind kind = ImageKind::sif;
};

// Looks at the beginning of the file, not at the end of its name. Fails if there is no such file, or if the file is no
// image.
Result<Image> find_image(const std::string& word);

}  // namespace hvd::launcher
