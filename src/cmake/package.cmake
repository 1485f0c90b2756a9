# Installs the core library, its headers, and the files by which pkg-config and CMake find them. In a wheel all of this
# is in the Python package, and python/ has the rules for that. plugins.cmake has the rules for the
# plugins.
if(NOT TARGET horovod)
  return()
endif()
set(libraries ${CMAKE_INSTALL_LIBDIR})
set(headers ${CMAKE_INSTALL_INCLUDEDIR})
set(HVD_LINK_NAME horovod)
set(symbolic_link "")
if(SKBUILD)
  set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME python)
  set(libraries horovod/lib)
  set(headers horovod/include)
  set(symbolic_link NAMELINK_SKIP)  # a wheel has no pkg-config file
  set(HVD_LINK_NAME :libhorovod.so.${PROJECT_VERSION_MAJOR})
endif()
include(CMakePackageConfigHelpers)
set(package_folder ${libraries}/cmake/Horovod)

file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/api/horovod.h
     ${PROJECT_SOURCE_DIR}/src/api/horovod.hpp)
install(FILES ${public_headers} DESTINATION ${headers})
install(TARGETS horovod EXPORT HorovodTargets LIBRARY DESTINATION ${libraries} ${symbolic_link}
        INCLUDES DESTINATION ${headers})
install(EXPORT HorovodTargets NAMESPACE Horovod:: DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/HorovodConfig.cmake.in ${PROJECT_BINARY_DIR}/HorovodConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/HorovodConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/HorovodConfig.cmake ${PROJECT_BINARY_DIR}/HorovodConfigVersion.cmake
        DESTINATION ${package_folder})

# The .pc file computes its prefix from its own place, so an installed tree may be moved.
set(HVD_LIBRARIES ${libraries})
set(HVD_HEADERS ${headers})
file(RELATIVE_PATH HVD_PREFIX_FROM_PKGCONFIG /${libraries}/pkgconfig /)
string(REGEX REPLACE "/$" "" HVD_PREFIX_FROM_PKGCONFIG "${HVD_PREFIX_FROM_PKGCONFIG}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/horovod.pc.in ${PROJECT_BINARY_DIR}/horovod.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/horovod.pc DESTINATION ${libraries}/pkgconfig)
