# NCCL, from NCCL_ROOT, the CUDA toolkit's folder, the system's packages, or the layout of the Python package
# nvidia-nccl (<site-packages>/nvidia/nccl/{include,lib}, with libnccl.so.2 only; put that folder into
# NCCL_ROOT or CMAKE_PREFIX_PATH).
#
# Defines NCCL_FOUND, NCCL_VERSION, NCCL_INCLUDE_DIR, NCCL_LIBRARY and the target NCCL::nccl.
include(FindPackageHandleStandardArgs)

# Folders that were named come before the toolkit's.
set(nccl_hints)
foreach(prefix ${CMAKE_PREFIX_PATH})
  list(APPEND nccl_hints ${prefix} ${prefix}/nvidia/nccl ${prefix}/nccl)
endforeach()
list(APPEND nccl_hints ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT})
foreach(dir ${CUDAToolkit_INCLUDE_DIRS})
  list(APPEND nccl_hints ${dir}/..)
endforeach()

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_hints} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${nccl_hints} PATH_SUFFIXES lib lib64 lib/x64)

if(NCCL_INCLUDE_DIR AND EXISTS ${NCCL_INCLUDE_DIR}/nccl.h)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "#define NCCL_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+" NCCL_VERSION_${part} "${line}")
  endforeach()
  set(NCCL_VERSION ${NCCL_VERSION_MAJOR}.${NCCL_VERSION_MINOR}.${NCCL_VERSION_PATCH})
endif()

find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
