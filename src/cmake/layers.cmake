# A folder of src/ is a layer, a namespace and a target. A .cpp file that is added to a folder is built.

# hvd_plugin_files(pmix native/pmix/client.cpp …): these files, named from src/, become the sources of that plugin (the
# global property hvd_plugin_pmix). They belong to no layer.
function(hvd_plugin_files name)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(GLOBAL APPEND PROPERTY hvd_plugin_${name} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY hvd_plugin_files ${ARGN})
endfunction()

# hvd_layer(transport USES base native …): makes the static library hvd_transport of all .cpp files below the folder
# that belong to no plugin. The folder is in src/, or in the folder that IN names. hvd_registry has IN, too.
function(hvd_layer name)
  cmake_parse_arguments(layer "" "IN" "USES" ${ARGN})
  set(parent ${PROJECT_SOURCE_DIR}/src)
  if(layer_IN)
    set(parent ${layer_IN})
  endif()
  file(GLOB_RECURSE core CONFIGURE_DEPENDS ${parent}/${name}/*.cpp)
  get_property(of_plugins GLOBAL PROPERTY hvd_plugin_files)
  list(REMOVE_ITEM core ${of_plugins})
  if(core)
    add_library(hvd_${name} STATIC ${core})
    set(visibility PUBLIC)
  else()
    add_library(hvd_${name} INTERFACE)
    set(visibility INTERFACE)
  endif()
  target_include_directories(hvd_${name} ${visibility} ${PROJECT_SOURCE_DIR}/src ${parent}
                             ${PROJECT_BINARY_DIR}/generated)
  list(TRANSFORM layer_USES PREPEND hvd_)
  target_link_libraries(hvd_${name} ${visibility} ${layer_USES} Threads::Threads)
endfunction()

# hvd_registry(transport INTERFACE Transport ARGUMENT "const Surroundings&"): every <name>.cpp directly in the folder
# defines make_<name>(). This function writes the table `registry()` of all these functions from the list of files.
function(hvd_registry folder)
  cmake_parse_arguments(registry "" "IN;INTERFACE;ARGUMENT" "" ${ARGN})
  set(parent ${PROJECT_SOURCE_DIR}/src)
  if(registry_IN)
    set(parent ${registry_IN})
  endif()
  file(GLOB files CONFIGURE_DEPENDS ${parent}/${folder}/*.cpp)
  set(declarations "")
  set(rows "")
  foreach(file IN LISTS files)
    get_filename_component(entry ${file} NAME_WE)
    string(APPEND declarations "std::unique_ptr<${registry_INTERFACE}> make_${entry}(${registry_ARGUMENT});\n")
    string(APPEND rows "    {\"${entry}\", &make_${entry}},\n")
  endforeach()
  string(REPLACE "/" "::" namespace ${folder})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${folder}/registry.cpp @ONLY CONTENT
"// Generated from the listing of ${folder}/.
#include \"${folder}/registry.hpp\"
namespace hvd::${namespace} {
${declarations}
std::span<const Maker> registry() {
  static constexpr Maker makers[] = {
${rows}  };
  return makers;
}
}  // namespace hvd::${namespace}
")
  target_sources(hvd_${folder} PRIVATE ${PROJECT_BINARY_DIR}/generated/${folder}/registry.cpp)
  # Alone in its object file, so that a test's program can have a table of its own.
  set_source_files_properties(${PROJECT_BINARY_DIR}/generated/${folder}/registry.cpp
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# A shared object exports what the file lists and nothing else, whatever is linked into it.
function(hvd_exports target map)
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
endfunction()
set(HVD_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/plugin.map)
