"""Where this installation keeps what programs in C and C++ are built against.

    cmake -DCMAKE_PREFIX_PATH="$(python -m horovod --cmake-dir)" …
    PKG_CONFIG_PATH="$(python -m horovod --pkg-config-dir)" pkg-config --cflags --libs horovod
"""
import argparse
import pathlib
import sys

from horovod import __version__

# In a wheel everything is in the package; in a prefix the package is below <prefix>/lib*/horovod/python.
_PACKAGE = pathlib.Path(__file__).resolve().parent
_PLACES = {
    "cmake-dir": ("HorovodConfig.cmake", ("lib/cmake/Horovod", "../../../cmake/Horovod")),
    "include-dir": ("horovod.h", ("include", "../../../../include", "../../../../../include")),
    "pkg-config-dir": ("horovod.pc", ("lib/pkgconfig", "../../../pkgconfig")),
}


def _folder_of(wanted):
    file, places = _PLACES[wanted]
    for place in places:
        folder = (_PACKAGE / place).resolve()
        if (folder / file).is_file():
            return str(folder)
    sys.exit(f"horovod: {file} is in none of {', '.join(str(_PACKAGE / place) for place in places)}: this package runs "
             "from a build folder; install a wheel, or use `cmake --install`")


def main():
    parser = argparse.ArgumentParser(prog="python -m horovod", description=__doc__.partition("\n")[0])
    parser.add_argument("--version", action="version", version=__version__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--cmake-dir", dest="wanted", action="store_const", const="cmake-dir",
                        help="folder of HorovodConfig.cmake, for CMAKE_PREFIX_PATH or Horovod_DIR")
    choice.add_argument("--include-dir", dest="wanted", action="store_const", const="include-dir",
                        help="folder of horovod.h and horovod.hpp")
    choice.add_argument("--pkg-config-dir", dest="wanted", action="store_const", const="pkg-config-dir",
                        help="folder of horovod.pc, for PKG_CONFIG_PATH")
    print(_folder_of(parser.parse_args().wanted))


if __name__ == "__main__":
    main()
