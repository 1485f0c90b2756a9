#pragma once
// A rank whose program runs inside an image (--container). Its command runs horovodrun twice:
//
// 1. Outside of the image, on the rank's host and as the rank's process. This horovodrun looks for a runtime and for
//    the folders that the rank must see. Only a process below the launcher knows these. Then it becomes the runtime.
// 2. Inside the image, as the image's own horovodrun. It preloads the image's bridge for an MPICH without PMIx, and
//    becomes the user's program. It fails if its release differs from the release outside.
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "launcher/options/image_file.hpp"

namespace hvd::launcher {

// The first argument outside of the image; the image and the command follow.
inline constexpr const char* outside_of_image_flag = "--as-rank-outside-of-an-image";
// The first argument inside the image; the release of the horovodrun outside and the command follow.
inline constexpr const char* inside_of_image_flag = "--as-rank-inside-of-an-image";

// Returns the command of a rank. `horovodrun` is the path of this program on the hosts of the ranks.
std::vector<std::string> in_image(const Image& image, const std::string& horovodrun,
                                  const std::vector<std::string>& command);

// Runs the image on this host and asks it for its release. Fails if there is no runtime, if the image has no Horovod,
// or if it has another release.
Status check_image(const Image& image, const Environment& environment);

// `arguments` begin after the flag. These functions return (an exit code) only if the next program cannot be executed.
int run_outside_of_image(char** arguments);
int run_inside_of_image(char** arguments);

}  // namespace hvd::launcher
