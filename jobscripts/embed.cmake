# cmake -DFOLDER=… -DOUTPUT=… -P embed.cmake: the files of sites/ and templates/ as a C++ table.
string(CONCAT text "// Generated from the files of jobscripts/.\n#include \"jobscripts/site.hpp\"\n\n"
                   "namespace hvd::jobscripts {\n")
foreach(kind sites templates)
  file(GLOB files ${FOLDER}/${kind}/*.site ${FOLDER}/${kind}/*.sh)
  set(rows "")
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} content HEX)
    string(REGEX REPLACE "(..)" "\\\\x\\1" content "${content}")
    string(LENGTH "${content}" length)
    math(EXPR length "${length} / 4")
    string(APPEND rows "    {\"${name}\", std::string_view(\"${content}\", ${length})},\n")
  endforeach()
  string(APPEND text "std::span<const CompiledFile> compiled_${kind}() {\n"
                     "  static constexpr CompiledFile files[] = {\n${rows}  };\n  return files;\n}\n")
endforeach()
string(APPEND text "}  // namespace hvd::jobscripts\n")
file(WRITE ${OUTPUT} "${text}")
