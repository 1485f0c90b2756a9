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
  named,     // an image in a store that podman-hpc looks into
};

struct Image {
  std::string word;  // absolute if it is a path
  ImageKind kind = ImageKind::sif;
};

// Looks at the beginning of the file, not at the end of its name. Fails if there is no such file, or if the file is no
// image.
Result<Image> find_image(const std::string& word);

}  // namespace hvd::launcher
