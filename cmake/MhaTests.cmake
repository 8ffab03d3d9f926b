# How tests are made and registered with ctest; included by tests/CMakeLists.txt, used by every tests/<room>/CMakeLists.txt.

include(GoogleTest)
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)

# A Python with tools/requirements-test.txt installed; ./test makes one. Without it the Python-driven tests are not registered.
set(MHA_TEST_PYTHON "" CACHE FILEPATH "Python of the tests' virtual environment")

add_custom_target(mha_tests_threads)  # everything that the thread sanitizer run needs

# mha_add_test(<room> SOURCES <file>... [LIBRARIES <target>...] [LABELS <label>]): one gtest executable `mha_test_<room>`.
# It sees include/, src/ and tests/. Label `threads`: also run under the thread sanitizer; such tests bring their own std::thread Executor;
# `threads_full`: there too, but by `./test --full` only.
# Label `no_asan`: left out of the address sanitizer run.
function(mha_add_test room)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;LABELS")
  list(LENGTH arg_LABELS count)
  if(count GREATER 1)
    message(FATAL_ERROR "mha_add_test(${room}): gtest_discover_tests can hand on one label only: ${arg_LABELS}")
  endif()
  if(arg_LABELS)
    set(labels LABELS ${arg_LABELS})
  endif()
  set(target mha_test_${room})
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE mha ${arg_LIBRARIES} mha_test_support GTest::gtest_main rapidcheck Threads::Threads)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  separate_arguments(flags NATIVE_COMMAND "${MHA_CLIENT_FLAGS}")
  target_compile_options(${target} PRIVATE ${flags})
  target_compile_definitions(${target} PRIVATE MHA_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${target} TEST_PREFIX ${room}/ DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600 ${labels})
  set_property(GLOBAL APPEND PROPERTY MHA_GTESTS ${room}=$<TARGET_FILE:${target}>)
  if(arg_LABELS STREQUAL "threads")
    add_dependencies(mha_tests_threads ${target})
  endif()
endfunction()

# mha_add_python_test(<name> <script> [<argument>...]): a Python program that fails with a non-zero exit code; exit code 77 = skipped.
function(mha_add_python_test name script)
  if(NOT MHA_TEST_PYTHON)
    message(STATUS "MHA_TEST_PYTHON is not set: test ${name} is left out")
    return()
  endif()
  add_test(NAME ${name} COMMAND ${MHA_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS python)
endfunction()
