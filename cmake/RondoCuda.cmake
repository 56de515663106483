# The CUDA backend: one loadable module, rondo_cuda, with everything under runtime/{device,kernels}/cuda,
# runtime/comm/nccl and runtime/launch/cuda.
#
# RONDO_CUDA=ON fails where a part is missing; AUTO builds the module where all parts are there.
# RONDO_CUDA_HEADERS tells whether the headers are there: they are all that the tests' simulated module needs,
# which compiles rondo_cuda_sources() as host C++.
set(RONDO_CUDA AUTO CACHE STRING "Build the CUDA, NCCL and cuDNN backend: AUTO, ON or OFF")
set_property(CACHE RONDO_CUDA PROPERTY STRINGS AUTO ON OFF)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})

# The sources of the module, with absolute paths.
function(rondo_cuda_sources out)
  set(sources)
  foreach(folder device/cuda kernels/cuda comm/nccl launch/cuda)
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/${folder}/*.cpp
                                      ${PROJECT_SOURCE_DIR}/runtime/${folder}/*.cu)
    list(APPEND sources ${found})
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# The static libraries that the module is linked from, each its own copy: they hold no state.
set(RONDO_CUDA_LIBRARIES rondo_kernels rondo_comm rondo_tensor rondo_device rondo_base)

# What is missing, as text; empty when nothing is.
function(rondo_find_cuda missing)
  set(lacks)
  if(NOT CUDAToolkit_ROOT AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CUDAToolkit_ROOT /usr/local/cuda)
  endif()
  find_package(CUDAToolkit 12.0 QUIET GLOBAL)
  find_package(NCCL 2.18 QUIET GLOBAL)
  find_package(CUDNN 9.0 QUIET GLOBAL)
  if(NOT CUDAToolkit_FOUND)
    list(APPEND lacks "the CUDA toolkit 12 or newer (CUDAToolkit_ROOT)")
  elseif(NOT EXISTS "${CUDAToolkit_NVCC_EXECUTABLE}")
    list(APPEND lacks "nvcc (CUDAToolkit_ROOT)")
  elseif(NOT TARGET CUDA::cublasLt)
    list(APPEND lacks "cuBLASLt (a part of the CUDA toolkit)")
  endif()
  if(NOT NCCL_FOUND)
    list(APPEND lacks "NCCL 2.18 or newer (NCCL_ROOT)")
  endif()
  if(NOT CUDNN_FOUND)
    list(APPEND lacks "cuDNN 9 (CUDNN_ROOT)")
  endif()
  set(headers OFF)
  if(CUDAToolkit_INCLUDE_DIRS AND NCCL_INCLUDE_DIR AND CUDNN_INCLUDE_DIR)
    set(headers ON)
  endif()
  set(RONDO_CUDA_HEADERS ${headers} PARENT_SCOPE)
  set(RONDO_CUDA_INCLUDE_DIRS ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR} PARENT_SCOPE)
  set(RONDO_CUDA_VERSION ${CUDAToolkit_VERSION} PARENT_SCOPE)
  set(RONDO_NVCC ${CUDAToolkit_NVCC_EXECUTABLE} PARENT_SCOPE)
  set(RONDO_NCCL_VERSION ${NCCL_VERSION} PARENT_SCOPE)
  set(RONDO_CUDNN_VERSION ${CUDNN_VERSION} PARENT_SCOPE)
  list(JOIN lacks ", " lacks)
  set(${missing} "${lacks}" PARENT_SCOPE)
endfunction()

rondo_find_cuda(rondo_cuda_missing)
set(RONDO_CUDA_FOUND OFF)
if(RONDO_CUDA STREQUAL "OFF")
  message(STATUS "CUDA backend: off (RONDO_CUDA=OFF)")
elseif(NOT rondo_cuda_missing STREQUAL "")
  if(NOT RONDO_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "RONDO_CUDA=${RONDO_CUDA}, but this is missing: ${rondo_cuda_missing}. Install it or "
                        "give its folder in the variable in parentheses; RONDO_CUDA=OFF builds without.")
  endif()
  message(STATUS "CUDA backend: not built, missing ${rondo_cuda_missing} (RONDO_CUDA=ON makes this an error)")
else()
  set(RONDO_CUDA_FOUND ON)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${RONDO_NVCC})
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Machine code for A100 and H100, and PTX that the driver compiles for what is newer.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  if(RONDO_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${RONDO_CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc speaks C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  message(STATUS "CUDA backend: CUDA ${RONDO_CUDA_VERSION}, NCCL ${RONDO_NCCL_VERSION}, cuDNN "
                 "${RONDO_CUDNN_VERSION}, for architectures ${CMAKE_CUDA_ARCHITECTURES}")
endif()

# After the targets it is linked from.
function(rondo_add_cuda_module)
  target_link_libraries(rondo_launch PRIVATE rondo_comm_staged ${CMAKE_DL_LIBS})  # which loads the module
  if(NOT RONDO_CUDA_FOUND)
    return()
  endif()
  rondo_cuda_sources(sources)
  add_library(rondo_cuda MODULE ${sources})
  # Beside the programs, which look for it there.
  set_target_properties(rondo_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                                              CUDA_VISIBILITY_PRESET default CUDA_SEPARABLE_COMPILATION OFF
                                              BUILD_RPATH_USE_ORIGIN OFF INSTALL_RPATH_USE_LINK_PATH ON)
  target_include_directories(rondo_cuda PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(rondo_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${RONDO_WERROR}>>:-Werror=all-warnings>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${RONDO_WERROR}>>:-Werror>)
  # -Bsymbolic: its own copies of the static libraries, also where a program exports its.
  target_link_options(rondo_cuda PRIVATE -Wl,-z,defs -Wl,-Bsymbolic)
  target_link_libraries(rondo_cuda PRIVATE ${RONDO_CUDA_LIBRARIES} CUDA::cudart CUDA::cublas CUDA::cublasLt
                                           NCCL::nccl CUDNN::cudnn)
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/runtime/launch/gpu_loader.cpp DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/launch
               APPEND PROPERTY COMPILE_DEFINITIONS RONDO_CUDA_VERSION="${RONDO_CUDA_VERSION}"
                               RONDO_NCCL_VERSION="${RONDO_NCCL_VERSION}"
                               RONDO_CUDNN_VERSION="${RONDO_CUDNN_VERSION}")
  install(TARGETS rondo_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/rondo)
endfunction()
