#pragma once
// A rank whose program runs inside of an image (--container). horovodrun stands twice in its command:
//
// 1. Outside, on the rank's host and as the rank's process: it looks for a runtime and for what the rank must see, of
//    which only a process below the launcher knows. It becomes the runtime.
// 2. Inside, the image's own horovodrun: it preloads the image's bridge for an MPICH without PMIx, and becomes the
//    user's program. It is of the same release, or refuses.
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "launcher/options/image_file.hpp"

namespace hvd::launcher {

// The first argument outside; the image and the command follow.
inline constexpr const char* outside_of_image_flag = "--as-rank-outside-of-an-image";
// The first argument inside; the release of horovodrun outside and the command follow.
inline constexpr const char* inside_of_image_flag = "--as-rank-inside-of-an-image";

// The command of a rank. `horovodrun` is the path of this program on the hosts of the ranks.
std::vector<std::string> in_image(const Image& image, const std::string& horovodrun,
                                  const std::vector<std::string>& command);

// Asks the image for its release, by the runtime of this host. Fails if there is no runtime, the image has no Horovod,
// or one of another release.
Status check_image(const Image& image, const Environment& environment);

// `arguments` come after the flag. They return an exit code only if the next program cannot be executed.
int run_outside_of_image(char** arguments);
int run_inside_of_image(char** arguments);

}  // namespace hvd::launcher
