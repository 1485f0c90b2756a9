# A folder of src/ is a layer, a namespace and a target. Adding a .cpp file to a folder is all it takes to build it.

# hvd_layer(transport USES base native …): the static library hvd_transport of all .cpp files below the folder, which is one
# of src/ or the one that IN names, as hvd_registry has it, too. A file whose
# first line is "// plugin: NAME" goes into the sources of that plugin instead (the global property hvd_plugin_NAME).
function(hvd_layer name)
  cmake_parse_arguments(layer "" "IN" "USES" ${ARGN})
  set(parent ${PROJECT_SOURCE_DIR}/src)
  if(layer_IN)
    set(parent ${layer_IN})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${parent}/${name}/*.cpp)
  set(core)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} first_line LIMIT_COUNT 1)
    if(first_line MATCHES "^// plugin: ([a-z0-9]+)")
      set_property(GLOBAL APPEND PROPERTY hvd_plugin_${CMAKE_MATCH_1} ${source})
    else()
      list(APPEND core ${source})
    endif()
  endforeach()
  if(core)
    add_library(hvd_${name} STATIC ${core})
    set(visibility PUBLIC)
  else()
    add_library(hvd_${name} INTERFACE)
    set(visibility INTERFACE)
  endif()
  target_include_directories(hvd_${name} ${visibility} ${PROJECT_SOURCE_DIR}/src ${parent} ${PROJECT_BINARY_DIR}/generated)
  list(TRANSFORM layer_USES PREPEND hvd_)
  target_link_libraries(hvd_${name} ${visibility} ${layer_USES} Threads::Threads)
endfunction()

# hvd_registry(transport INTERFACE Transport ARGUMENT "const Surroundings&"): every <name>.cpp
# directly in the folder defines make_<name>(); the table `registry()` of them all is written from the folder's listing.
function(hvd_registry folder)
  cmake_parse_arguments(registry "" "IN;INTERFACE;ARGUMENT" "EXCEPT" ${ARGN})
  set(parent ${PROJECT_SOURCE_DIR}/src)
  if(registry_IN)
    set(parent ${registry_IN})
  endif()
  file(GLOB files CONFIGURE_DEPENDS ${parent}/${folder}/*.cpp)
  set(declarations "")
  set(rows "")
  foreach(file IN LISTS files)
    get_filename_component(entry ${file} NAME_WE)
    file(STRINGS ${file} first_line LIMIT_COUNT 1)
    if(NOT first_line MATCHES "^// plugin: " AND NOT entry IN_LIST registry_EXCEPT)
      string(APPEND declarations "std::unique_ptr<${registry_INTERFACE}> make_${entry}(${registry_ARGUMENT});\n")
      string(APPEND rows "    {\"${entry}\", &make_${entry}},\n")
    endif()
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
endfunction()
