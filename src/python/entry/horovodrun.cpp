// The `horovodrun` that a wheel puts into PATH. It becomes the launcher inside the package, which finds its plugins in
// horovod/lib. It is a compiled program because a Python interpreter would take longer to start than the launcher.
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <string>

int main(int, char** arguments) {
  char own[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", own, sizeof own);
  if (length < 0) {
    std::perror("horovodrun: /proc/self/exe");
    return 127;
  }
  const std::string path(own, static_cast<std::size_t>(length));
  const std::string prefix = path.substr(0, path.rfind('/')) + "/..";
  // The folders of packages in a virtual environment or a user's prefix, in Debian's prefix, and after pip install
  // --target.
  const char* const places[] = {"/lib*/python3*/site-packages", "/lib*/python3*/dist-packages", ""};
  std::string launcher, looked_in;
  timespec newest{};
  for (const char* place : places) {
    const std::string pattern = prefix + place + "/horovod/bin/horovodrun";
    looked_in += "\n  " + pattern;
    glob_t found{};
    if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {  // NOLINT(concurrency-mt-unsafe): there is a single thread
      for (std::size_t i = 0; i < found.gl_pathc; ++i) {
        struct stat status {};
        // If several Pythons share the prefix, this file belongs to the package that was installed last. Take the
        // newest.
        if (::stat(found.gl_pathv[i], &status) != 0) continue;
        const timespec changed = status.st_ctim;
        const bool is_newer =
            changed.tv_sec > newest.tv_sec || (changed.tv_sec == newest.tv_sec && changed.tv_nsec > newest.tv_nsec);
        if (launcher.empty() || is_newer) {
          launcher = found.gl_pathv[i];
          newest = changed;
        }
      }
    }
    ::globfree(&found);
  }
  if (launcher.empty()) {
    std::fprintf(stderr, "horovodrun: the Python package horovod is not installed beside %s; looked for%s\n",
                 path.c_str(), looked_in.c_str());
    return 127;
  }
  arguments[0] = launcher.data();  // the launcher finds its folder by this path
  ::execv(launcher.c_str(), arguments);
  std::perror(("horovodrun: " + launcher).c_str());
  return 126;
}
