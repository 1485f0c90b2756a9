# Parts that need an optional library are shared objects beside the core, opened at run time
# (native/posix/plugins/plugin.hpp).
option(HVD_LIBRARIES_BY_NAME "Open PMIx and hwloc by name at run time, as wheels do, instead of linking to them" OFF)
include(by_name)

# What every plugin has whose undefined symbols are all in the libraries that it is linked to.
function(hvd_finish_plugin target)
  hvd_exports(${target} ${HVD_PLUGIN_MAP})
  if(NOT HVD_SANITIZE)  # only the program may contain a sanitizer's runtime, not a shared object
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set_property(GLOBAL APPEND PROPERTY hvd_plugins ${target})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# hvd_plugin(pmix LIBRARY PMIx PKGCONFIG pmix USES base native): builds libhorovod_pmix.so from the files given to
# hvd_plugin_files. If pkg-config does not know the library, one notice is printed and there is no such plugin. SONAME
# and FUNCTIONS: see by_name.cmake.
function(hvd_plugin name)
  cmake_parse_arguments(plugin "" "LIBRARY;PKGCONFIG;LACKING;SONAME" "USES;FUNCTIONS" ${ARGN})
  get_property(sources GLOBAL PROPERTY hvd_plugin_${name})
  pkg_check_modules(${name} IMPORTED_TARGET QUIET ${plugin_PKGCONFIG})
  if(NOT ${name}_FOUND)
    message(NOTICE "-- ${plugin_LIBRARY} was not found by pkg-config (${plugin_PKGCONFIG}): "
                   "without it ${plugin_LACKING}")
    return()
  endif()
  add_library(horovod_${name} MODULE ${sources})
  list(TRANSFORM plugin_USES PREPEND hvd_)
  target_link_libraries(horovod_${name} PRIVATE ${plugin_USES})
  if(HVD_LIBRARIES_BY_NAME)
    target_include_directories(horovod_${name} SYSTEM PRIVATE ${${name}_INCLUDE_DIRS})
    hvd_library_by_name(TARGET horovod_${name} SONAME ${plugin_SONAME} FUNCTIONS ${plugin_FUNCTIONS})
  else()
    target_link_libraries(horovod_${name} PRIVATE PkgConfig::${name})
  endif()
  hvd_finish_plugin(horovod_${name})
  # A site's PMIx and hwloc lie in folders of their own. Users should not have to name these folders in LD_LIBRARY_PATH.
  set_target_properties(horovod_${name} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()

# hvd_plugin_without_library(cuda LINKS hvd_devices): builds libhorovod_cuda.so, which is linked to no library of
# others: it finds them at run time. ALSO: files of another plugin that this one has, too.
function(hvd_plugin_without_library name)
  cmake_parse_arguments(plugin "" "" "LINKS;ALSO" ${ARGN})
  get_property(sources GLOBAL PROPERTY hvd_plugin_${name})
  add_library(horovod_${name} MODULE ${sources} ${plugin_ALSO})
  target_link_libraries(horovod_${name} PRIVATE ${plugin_LINKS})
  hvd_finish_plugin(horovod_${name})
endfunction()

# Builds libhorovod_mpi-ABI.so from the sources of the plugin mpi. It is compiled against the mpi.h of that ABI and
# linked to no MPI, because its names are bound to the MPI library of this ABI that the process has
# (native/mpi/process.cpp).
function(hvd_mpi_plugin abi)
  cmake_parse_arguments(plugin "" "" "INCLUDE;DEFINE" ${ARGN})
  get_property(sources GLOBAL PROPERTY hvd_plugin_mpi)
  set(target horovod_mpi_${abi})
  add_library(${target} MODULE ${sources})
  target_include_directories(${target} SYSTEM PRIVATE ${plugin_INCLUDE})
  target_compile_definitions(${target} PRIVATE HVD_MPI_ABI="${abi}" OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX ${plugin_DEFINE})
  target_link_libraries(${target} PRIVATE hvd_base hvd_native)
  hvd_exports(${target} ${HVD_PLUGIN_MAP})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME horovod_mpi-${abi}
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set_property(GLOBAL APPEND PROPERTY hvd_plugins ${target})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# The folder of an ABI's mpi.h: HVD_MPI_<ABI>_INCLUDE if it is set, otherwise the folder that pkg-config knows.
function(hvd_mpi_plugins)
  set(packages_mpich mpich)
  set(packages_openmpi ompi-c ompi)
  foreach(abi mpich openmpi)
    string(TOUPPER ${abi} upper)
    foreach(package IN LISTS packages_${abi})
      if(NOT HVD_MPI_${upper}_INCLUDE AND PkgConfig_FOUND)
        pkg_check_modules(mpi_${abi}_${package} QUIET ${package})
        set(HVD_MPI_${upper}_INCLUDE "${mpi_${abi}_${package}_INCLUDE_DIRS}")
      endif()
    endforeach()
    if(HVD_MPI_${upper}_INCLUDE)
      hvd_mpi_plugin(${abi} INCLUDE ${HVD_MPI_${upper}_INCLUDE})
    else()
      message(NOTICE "-- no mpi.h of ${abi} was found by pkg-config (${packages_${abi}}): no plugin for MPI "
                     "libraries of that ABI; HVD_MPI_${upper}_INCLUDE names its folder")
    endif()
  endforeach()
  # The MPI standard defines its ABI down to the values of constants, so this build needs no MPI.
  hvd_mpi_plugin(abi INCLUDE ${CMAKE_CURRENT_SOURCE_DIR}/native/mpi/standard_abi)
endfunction()

# libhorovod_pmi_bridge.so is preloaded into programs. libhorovod_bridge.so is opened when an MPI library starts.
function(hvd_pmi_bridge)
  if(HVD_SANITIZE)  # a sanitizer's runtime must be the first that is loaded
    return()
  endif()
  get_property(sources GLOBAL PROPERTY hvd_plugin_bridge)
  add_library(horovod_bridge MODULE ${sources})
  target_link_libraries(horovod_bridge PRIVATE hvd_bootstrap)
  hvd_exports(horovod_bridge ${HVD_PLUGIN_MAP})
  target_link_options(horovod_bridge PRIVATE -Wl,--no-undefined)
  add_library(horovod_pmi_bridge MODULE bootstrap/pmi_bridge/preload.c)
  target_link_libraries(horovod_pmi_bridge PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(horovod_bridge horovod_pmi_bridge PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set_property(GLOBAL APPEND PROPERTY hvd_plugins horovod_bridge horovod_pmi_bridge)
  install(TARGETS horovod_bridge horovod_pmi_bridge LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

find_package(PkgConfig QUIET)
if(NOT PkgConfig_FOUND)
  message(NOTICE "-- pkg-config was not found: no plugin is built (PMIx, hwloc)")
  return()
endif()
