# The flags every target shares, and one-line helpers for the targets of a folder.

add_library(ulp_flags INTERFACE)
# The same bits everywhere: no fused multiply-add that the source does not spell out, no fast-math.
# Nobody reads errno or floating-point exceptions, and without them loops with roots and choices
# become vector code, of the same bits.
target_compile_options(ulp_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math -Wall -Wextra -Wshadow>
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr
    -Xcompiler=-ffp-contract=off,-Wall,-Wextra>)
if(ULP_WERROR)
  target_compile_options(ulp_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
target_include_directories(ulp_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
if(ULP_SANITIZE)
  target_compile_options(ulp_flags INTERFACE -fsanitize=${ULP_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(ulp_flags INTERFACE -fsanitize=${ULP_SANITIZE})
endif()

# ulp_sources(variable): all sources of this folder but tests. For folders where each new thing is a
# new source.
macro(ulp_sources variable)
  file(GLOB ${variable} CONFIGURE_DEPENDS *.cc)
  list(FILTER ${variable} EXCLUDE REGEX "_test\\.cc$")
endmacro()

# ulp_room(ulp_name SOURCES ... DEPS ...): the target of folder ulp/<name>; slashes become underscores.
function(ulp_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ulp_flags ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# ulp_test(name SOURCES ... DEPS ... [LABEL label]): a GoogleTest program, one CTest entry.
function(ulp_test name)
  if(NOT ULP_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} test_main GTest::gtest rapidcheck)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(NOT ARG_LABEL)
    set(ARG_LABEL quick)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 3600)
endfunction()
