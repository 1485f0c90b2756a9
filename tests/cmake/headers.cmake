# Every header of src/ compiles alone: one translation unit each that includes nothing else; a header that the .cpp file
# of its name includes first is shown to by that. Part of the build, hence of every test run; once is enough, so not
# under a sanitizer. -O0 and no debug data: objects (rather than -fsyntax-only) are what Ninja and ccache need to skip a
# header that did not change.
if(HVD_SANITIZE)
  return()
endif()
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     ${PROJECT_SOURCE_DIR}/src/*.hpp ${PROJECT_SOURCE_DIR}/src/*.h)

# Headers over a library that this machine may lack.
set(lacking)
set(libraries)
find_package(PkgConfig QUIET)
foreach(library IN ITEMS pmix hwloc)
  if(PkgConfig_FOUND)
    pkg_check_modules(headers_${library} IMPORTED_TARGET QUIET ${library})
  endif()
  if(headers_${library}_FOUND)
    list(APPEND libraries PkgConfig::headers_${library})
  else()
    list(APPEND lacking ${library})
  endif()
endforeach()
# The Python extension's headers are compiled with it, by `pip install .`.
list(FILTER headers EXCLUDE REGEX "^src/python/")

set(units)
foreach(header IN LISTS headers)
  string(REGEX MATCH "^src/native/([a-z]+)/" in_native ${header})
  if(in_native AND CMAKE_MATCH_1 IN_LIST lacking)
    message(NOTICE "-- ${header} is not compiled alone: pkg-config does not know ${CMAKE_MATCH_1}")
    continue()
  endif()
  string(REGEX REPLACE "^src/" "" spelling ${header})
  string(REGEX REPLACE "\\.hpp$" ".cpp" partner ${PROJECT_SOURCE_DIR}/${header})
  if(EXISTS ${partner})
    file(STRINGS ${partner} includes REGEX "^#include" LIMIT_COUNT 1)
    if(includes STREQUAL "#include \"${spelling}\"")
      continue()
    endif()
  endif()
  string(MAKE_C_IDENTIFIER ${spelling} name)
  set(unit ${PROJECT_BINARY_DIR}/headers_alone/${name}.cpp)
  file(CONFIGURE OUTPUT ${unit} @ONLY CONTENT "#include \"${spelling}\"\n#include \"${spelling}\"\n")
  list(APPEND units ${unit})
  # The public header is C.
  if(header MATCHES "^src/api/.*\\.h$")
    set(unit ${PROJECT_BINARY_DIR}/headers_alone/${name}.c)
    file(CONFIGURE OUTPUT ${unit} @ONLY CONTENT "#include \"${spelling}\"\nint ${name};\n")
    list(APPEND units ${unit})
  endif()
endforeach()
add_library(headers_compile_alone OBJECT ${units})
target_include_directories(headers_compile_alone PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}
                           ${PROJECT_SOURCE_DIR}/src/api)
target_link_libraries(headers_compile_alone PRIVATE ${libraries} Threads::Threads)
target_compile_options(headers_compile_alone PRIVATE -O0 -g0 $<$<COMPILE_LANGUAGE:C>:-std=c99>)
