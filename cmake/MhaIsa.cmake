# The ISA files of src/kernels: each is compiled with flags of its own and listed, best first, in kernels/isa_list.inc (build directory),
# which dispatch.cpp includes. Only these files see ISA flags; tools/check_isa_objects.sh proves that nothing of them leaks.

set_property(GLOBAL PROPERTY MHA_ISAS "")

# mha_add_isa(<name> [FLAGS <flag>...] [NEEDS <feature>...]): compiles isa_<name>.cpp of the calling room into `mha` with these flags and
# registers it as usable where the CPU and operating system have all features (names of __builtin_cpu_supports, and f16c, which clang's
# does not know: dispatch.cpp asks the CPU itself). Call best first.
# The warnings that are off are false with AVX-512 intrinsics (GCC PR105593).
function(mha_add_isa name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FLAGS;NEEDS")
  set(file ${CMAKE_CURRENT_SOURCE_DIR}/isa_${name}.cpp)
  set(options ${arg_FLAGS} -O3 -fno-exceptions -fno-rtti -fno-lto -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND options -Wno-maybe-uninitialized -Wno-uninitialized)
  endif()
  target_sources(mha PRIVATE ${file})
  set_source_files_properties(${file} TARGET_DIRECTORY mha PROPERTIES COMPILE_OPTIONS "${options}")
  set(supported true)
  foreach(feature ${arg_NEEDS})
    if(feature STREQUAL "f16c")
      string(APPEND supported " && cpu_has_f16c()")
    else()
      string(APPEND supported " && __builtin_cpu_supports(\"${feature}\")")
    endif()
  endforeach()
  set_property(GLOBAL APPEND_STRING PROPERTY MHA_ISAS "MHA_ISA(${name}, (${supported}))\n")
endfunction()

# mha_write_isa_list(): call once after the last mha_add_isa.
function(mha_write_isa_list)
  get_property(list GLOBAL PROPERTY MHA_ISAS)
  set(dir ${PROJECT_BINARY_DIR}/isa)
  file(CONFIGURE OUTPUT ${dir}/kernels/isa_list.inc CONTENT "${list}" @ONLY)
  target_include_directories(mha PRIVATE ${dir})
endfunction()
