# This script is a part of `cmake --install`. It writes horovod/VERSION.lua for Lmod and horovod/VERSION for Environment
# Modules. If this version is to be the default, it also writes horovod/.version, which both programs read.
set(prefix "${CMAKE_INSTALL_PREFIX}")
if(prefix MATCHES "[][{}:;\"$\\ \n]")
  message(WARNING "No modulefiles were written, for they cannot name the prefix ${prefix}: colons separate folders in "
                  "PATH, and blanks, brackets, quotes, dollars and backslashes mean something to Lmod or to Tcl.")
  return()
endif()
if(IS_ABSOLUTE "${HVD_MODULEFILES}")
  set(tree "${HVD_MODULEFILES}")
  set(place "")
else()
  set(tree "${prefix}/${HVD_MODULEFILES}")
  set(place "/${HVD_MODULEFILES}/horovod/")  # a modulefile with this part in its path is still where it was installed;
                                             # the text before it is the prefix
endif()
set(folder "$ENV{DESTDIR}${tree}/horovod")

# A prefix has one version. A modulefile of an earlier version would load the new version under the old name.
if(place)
  file(GLOB earlier "${folder}/[0-9]*")
  if(earlier)
    file(REMOVE ${earlier})
  endif()
endif()

set(has_python OFF)
if(EXISTS "$ENV{DESTDIR}${prefix}/${CMAKE_INSTALL_LIBDIR}/horovod/pythonpath")
  set(has_python ON)
endif()
set(gives "horovodrun, and the library for C and C++ (CMake: find_package(Horovod), pkg-config: horovod)")
if(has_python)
  set(gives "import horovod.torch in any Python from 3.9 on, ${gives}")
endif()

configure_file("${CMAKE_CURRENT_LIST_DIR}/horovod.lua.in" "${folder}/${HVD_RELEASE}.lua" @ONLY)
configure_file("${CMAKE_CURRENT_LIST_DIR}/horovod.tcl.in" "${folder}/${HVD_RELEASE}" @ONLY)
message(STATUS "Modulefiles: ${folder}/${HVD_RELEASE}[.lua]")
if(HVD_MODULE_DEFAULT)
  file(WRITE "${folder}/.version" "#%Module1.0\nset ModulesVersion \"${HVD_RELEASE}\"\n")
endif()
