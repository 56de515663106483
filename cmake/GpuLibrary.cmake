# What FindNCCL and FindCUDNN do alike.

# gpu_library(<NAME> FOLDER <folder of the Python package> HEADER <header> VERSION_HEADER <header with the version>
#             VERSION_PARTS <macros behind NAME_> LIBRARIES <names> TARGET <imported target>)
# Looks in NAME_ROOT, folders that were named in CMAKE_PREFIX_PATH, the CUDA toolkit's folder and the system's, and
# defines NAME_FOUND, NAME_VERSION, NAME_INCLUDE_DIR, NAME_LIBRARY and the target.
include(FindPackageHandleStandardArgs)

macro(gpu_library name)
  cmake_parse_arguments(gpu "" "FOLDER;HEADER;VERSION_HEADER;TARGET" "VERSION_PARTS;LIBRARIES" ${ARGN})
  # Folders that were named come before the toolkit's.
  set(gpu_hints)
  foreach(prefix ${CMAKE_PREFIX_PATH})
    list(APPEND gpu_hints ${prefix} ${prefix}/nvidia/${gpu_FOLDER} ${prefix}/${gpu_FOLDER})
  endforeach()
  list(APPEND gpu_hints ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT})
  foreach(dir ${CUDAToolkit_INCLUDE_DIRS})
    list(APPEND gpu_hints ${dir}/..)
  endforeach()

  find_path(${name}_INCLUDE_DIR ${gpu_HEADER} HINTS ${gpu_hints} PATH_SUFFIXES include)
  find_library(${name}_LIBRARY NAMES ${gpu_LIBRARIES} NAMES_PER_DIR HINTS ${gpu_hints}
               PATH_SUFFIXES lib lib64 lib/x64)

  if(${name}_INCLUDE_DIR AND EXISTS ${${name}_INCLUDE_DIR}/${gpu_VERSION_HEADER})
    set(gpu_numbers)
    foreach(part ${gpu_VERSION_PARTS})
      file(STRINGS ${${name}_INCLUDE_DIR}/${gpu_VERSION_HEADER} line REGEX "#define ${name}_${part} +[0-9]+")
      string(REGEX MATCH "[0-9]+" number "${line}")
      list(APPEND gpu_numbers ${number})
    endforeach()
    list(JOIN gpu_numbers . ${name}_VERSION)
  endif()

  find_package_handle_standard_args(${name} REQUIRED_VARS ${name}_LIBRARY ${name}_INCLUDE_DIR
                                    VERSION_VAR ${name}_VERSION)
  mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
  if(${name}_FOUND AND NOT TARGET ${gpu_TARGET})
    add_library(${gpu_TARGET} UNKNOWN IMPORTED)
    set_target_properties(${gpu_TARGET} PROPERTIES IMPORTED_LOCATION ${${name}_LIBRARY}
                                                   INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
  endif()
endmacro()
