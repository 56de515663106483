# One target per folder, linked along the arrow of the README.

# rondo_library(<folder> [DEPENDS <libraries that its headers need>] [PRIVATE <libraries only its sources need>])
# builds all sources of the folder (not of its subfolders) into the target rondo_<name>.
function(rondo_library name)
  cmake_parse_arguments(arg "" "" "DEPENDS;PRIVATE;SOURCES" ${ARGN})
  if(NOT arg_SOURCES)
    file(GLOB arg_SOURCES CONFIGURE_DEPENDS *.cpp)
  endif()
  set(target rondo_${name})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    rondo_warnings(${target})
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  set_property(GLOBAL APPEND PROPERTY RONDO_TARGETS ${target})
  add_library(rondo::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/rondo>)
  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} ${arg_DEPENDS})
endfunction()

function(rondo_warnings target)
  # GCC 12 warns of overlaps inside std::string that cannot happen (its bug 105651): -Wno-restrict.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                           $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                                           $<$<BOOL:${RONDO_WERROR}>:-Werror>)
endfunction()

# rondo_test(<name> SOURCES <files> DEPENDS <targets> [LABEL unit|multirank|fault|mpi|gpu] [TIMEOUT <seconds>]
#            [RANKS <numbers of ranks, for mpi tests: one CTest entry each>])
# A GoogleTest program that CTest runs as one entry; of two at a time only unit tests run beside others.
function(rondo_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SOURCES;DEPENDS;RANKS" ${ARGN})
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  set(cores 2)
  if(arg_LABEL STREQUAL "unit")
    set(cores 1)
  endif()
  if(RONDO_TIMEOUT_FACTOR)  # sanitizers slow programs down
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${RONDO_TIMEOUT_FACTOR}")
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  rondo_warnings(${name})
  # A test's own source is compiled longer than it runs: less optimization takes 4.1 s instead of 7.0 s for each.
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1 -g1>)
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gmock)
  if(arg_RANKS)
    foreach(ranks ${arg_RANKS})
      add_test(NAME ${name}_np${ranks}
               COMMAND ${RONDO_MPIRUN} -np ${ranks} --oversubscribe $<TARGET_FILE:${name}>)
      set_tests_properties(${name}_np${ranks} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} PROCESSORS ${cores}
        ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    endforeach()
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} PROCESSORS ${cores})
  endif()
endfunction()
