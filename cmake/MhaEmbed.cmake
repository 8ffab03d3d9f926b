# mha_embed(<target> <file> <function>): compiles a file's bytes into <target> as `std::string_view <function>()`, where <function> is
# a qualified name such as mha::analysis::plain_sentences_text. The .cpp is generated at build time, by this same file run as a script.

if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${INPUT} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n    " hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " bytes "${hex}")
  string(REGEX REPLACE "^(.+)::[^:]+$" "\\1" space ${FUNCTION})
  string(REGEX REPLACE "^.+::([^:]+)$" "\\1" name ${FUNCTION})
  file(SIZE ${INPUT} size)
  file(WRITE ${OUTPUT} "// Generated from ${NAME}. Do not edit.
#include <string_view>

namespace ${space} {
namespace {
const unsigned char kBytes[] = {
    ${bytes}0};
}  // namespace

std::string_view ${name}();
std::string_view ${name}() { return {reinterpret_cast<const char*>(kBytes), ${size}}; }

}  // namespace ${space}
")
  return()
endif()

set(MHA_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(mha_embed target file function)
  cmake_path(GET file FILENAME name)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D INPUT=${file} -D OUTPUT=${output} -D NAME=${name} -D FUNCTION=${function} -P ${MHA_EMBED_SCRIPT}
    DEPENDS ${file} ${MHA_EMBED_SCRIPT}
    COMMENT "Embedding ${name}"
    VERBATIM)
  # The target may live in another directory, where this one's custom commands are not seen: hence the target between them.
  add_custom_target(${target}_${name} DEPENDS ${output})
  add_dependencies(${target} ${target}_${name})
  set_source_files_properties(${output} TARGET_DIRECTORY ${target} PROPERTIES GENERATED TRUE)
  target_sources(${target} PRIVATE ${output})
endfunction()
