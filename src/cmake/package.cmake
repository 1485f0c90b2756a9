# What `cmake --install` puts where: the core library, its headers, horovodrun, and what pkg-config and CMake need to
# find them. The plugins have their rule in plugins.cmake, the wheel its own in python/.
if(SKBUILD OR NOT TARGET horovod)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Horovod)

file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/api/horovod.h
     ${PROJECT_SOURCE_DIR}/src/api/horovod.hpp)
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS horovod EXPORT HorovodTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET horovodrun)
  install(TARGETS horovodrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(EXPORT HorovodTargets NAMESPACE Horovod:: DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/HorovodConfig.cmake.in ${PROJECT_BINARY_DIR}/HorovodConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/HorovodConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/HorovodConfig.cmake ${PROJECT_BINARY_DIR}/HorovodConfigVersion.cmake
        DESTINATION ${package_folder})

# The .pc file finds its prefix from where it lies, so that an installed tree may be moved.
file(RELATIVE_PATH HVD_PREFIX_FROM_PKGCONFIG /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" HVD_PREFIX_FROM_PKGCONFIG "${HVD_PREFIX_FROM_PKGCONFIG}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/horovod.pc.in ${PROJECT_BINARY_DIR}/horovod.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/horovod.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
