# cuDNN, from CUDNN_ROOT, the CUDA toolkit's folder, the system's packages, or the layout of the Python package
# nvidia-cudnn (<site-packages>/nvidia/cudnn/{include,lib}, with libcudnn.so.9 only; put that folder into
# CUDNN_ROOT or CMAKE_PREFIX_PATH).
#
# Defines CUDNN_FOUND, CUDNN_VERSION, CUDNN_INCLUDE_DIR, CUDNN_LIBRARY and the target CUDNN::cudnn.
include(FindPackageHandleStandardArgs)

# Folders that were named come before the toolkit's.
set(cudnn_hints)
foreach(prefix ${CMAKE_PREFIX_PATH})
  list(APPEND cudnn_hints ${prefix} ${prefix}/nvidia/cudnn ${prefix}/cudnn)
endforeach()
list(APPEND cudnn_hints ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT})
foreach(dir ${CUDAToolkit_INCLUDE_DIRS})
  list(APPEND cudnn_hints ${dir}/..)
endforeach()

find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${cudnn_hints} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR HINTS ${cudnn_hints} PATH_SUFFIXES lib lib64 lib/x64)

if(CUDNN_INCLUDE_DIR AND EXISTS ${CUDNN_INCLUDE_DIR}/cudnn_version.h)
  foreach(part MAJOR MINOR PATCHLEVEL)
    file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h line REGEX "#define CUDNN_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+" CUDNN_VERSION_${part} "${line}")
  endforeach()
  set(CUDNN_VERSION ${CUDNN_VERSION_MAJOR}.${CUDNN_VERSION_MINOR}.${CUDNN_VERSION_PATCHLEVEL})
endif()

find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
endif()
