# `cmake --install` puts headers, static libraries and the program into place, so that another project can say
#   find_package(rondo REQUIRED)
#   target_link_libraries(app PRIVATE rondo::rondo)
include(CMakePackageConfigHelpers)

# Everything at once, for users who do not want to choose among the rooms.
add_library(rondo_rondo INTERFACE)
add_library(rondo::rondo ALIAS rondo_rondo)
set_target_properties(rondo_rondo PROPERTIES EXPORT_NAME rondo)

get_property(rondo_targets GLOBAL PROPERTY RONDO_TARGETS)
list(REMOVE_ITEM rondo_targets rondo_program)  # the inside of train, no part of the library
target_link_libraries(rondo_rondo INTERFACE ${rondo_targets})

set(rondo_package ${CMAKE_INSTALL_LIBDIR}/cmake/rondo)
install(TARGETS ${rondo_targets} rondo_rondo EXPORT rondo)
install(EXPORT rondo NAMESPACE rondo:: DESTINATION ${rondo_package} FILE rondo-targets.cmake)
install(DIRECTORY runtime models DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rondo FILES_MATCHING PATTERN "*.h"
        PATTERN program EXCLUDE)
if(TARGET train)
  install(PROGRAMS $<TARGET_FILE:train> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME rondo-train)
endif()

# The library has it inside; this copy is for systems that refuse to run programs from memory.
install(PROGRAMS $<TARGET_FILE:keras_file_helper> DESTINATION ${CMAKE_INSTALL_LIBEXECDIR})

configure_package_config_file(cmake/rondo-config.cmake.in ${CMAKE_BINARY_DIR}/rondo-config.cmake
                              INSTALL_DESTINATION ${rondo_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/rondo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/rondo-config.cmake ${CMAKE_BINARY_DIR}/rondo-config-version.cmake
        DESTINATION ${rondo_package})
