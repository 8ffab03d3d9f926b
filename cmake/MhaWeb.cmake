# mha_web_page(<target> <page function> <notices function>): embeds the page of `mha serve` and its third-party notices into <target>. Built
# by web/build.mjs where Node 18 or later and web/node_modules are there (tools/setup.sh: setup_web), else a page that says how to get it.
include(MhaEmbed)

option(MHA_BUILD_PAGE "Build the page of mha serve, where Node and web/node_modules are there" ON)
find_program(MHA_NODE NAMES node nodejs)

# Whether the page can be built here; says why not.
function(mha_web_ready web result)
  set(${result} FALSE PARENT_SCOPE)
  if(NOT MHA_BUILD_PAGE)
    return()
  elseif(NOT MHA_NODE)
    message(STATUS "The page of mha serve is left out: no Node here")
    return()
  endif()
  execute_process(COMMAND ${MHA_NODE} --version OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  string(REGEX REPLACE "^v" "" version "${version}")
  if(NOT version OR version VERSION_LESS 18)
    message(STATUS "The page of mha serve is left out: Node ${version} is older than 18")
  elseif(NOT EXISTS ${web}/node_modules/vite)
    message(STATUS "The page of mha serve is left out: no web/node_modules (npm --prefix web ci)")
  else()
    set(${result} TRUE PARENT_SCOPE)
  endif()
endfunction()

function(mha_web_page target page notices)
  set(web ${PROJECT_SOURCE_DIR}/web)
  mha_web_ready(${web} ready)
  if(NOT ready)
    mha_embed(${target} ${web}/fallback.html ${page})
    mha_embed(${target} ${web}/fallback-notices.txt ${notices})
    return()
  endif()
  set(out ${CMAKE_CURRENT_BINARY_DIR}/page)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${web}/src/*)
  add_custom_command(
    OUTPUT ${out}/index.html ${out}/notices.txt
    COMMAND ${MHA_NODE} ${web}/build.mjs ${out}
    DEPENDS ${sources} ${web}/index.html ${web}/build.mjs ${web}/notices.ts ${web}/vite.config.ts ${web}/package-lock.json
    COMMENT "Building the page of mha serve"
    VERBATIM)
  # Two commands embed what one command makes: the target between them has it made once.
  add_custom_target(${target}_page DEPENDS ${out}/index.html ${out}/notices.txt)
  mha_embed(${target} ${out}/index.html ${page})
  mha_embed(${target} ${out}/notices.txt ${notices})
  add_dependencies(${target}_index.html ${target}_page)
  add_dependencies(${target}_notices.txt ${target}_page)
endfunction()
