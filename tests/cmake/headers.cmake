# Every header of src/ compiles alone: each has a translation unit that includes nothing else. A header needs no such
# unit if the .cpp file of the same name includes that header first. The check is a part of the build, and therefore of
# every test run; sanitizer builds leave it out, because once is enough. The units are compiled to objects with -O0 and
# without debug data, not with -fsyntax-only: Ninja and ccache need an object to skip a header that did not change.
if(HVD_SANITIZE)
  return()
endif()
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     ${PROJECT_SOURCE_DIR}/src/*.hpp ${PROJECT_SOURCE_DIR}/src/*.h)

# Libraries that some headers need and that this machine may lack.
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
# `pip install .` compiles the headers of the Python extension, together with the extension.
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
  # The public header must also compile as C.
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
