# NCCL, from NCCL_ROOT, the CUDA toolkit's folder, the system's packages, or the layout of the Python package
# nvidia-nccl (<site-packages>/nvidia/nccl/{include,lib}, with libnccl.so.2 only; put that folder into
# NCCL_ROOT or CMAKE_PREFIX_PATH).
#
# Defines NCCL_FOUND, NCCL_VERSION, NCCL_INCLUDE_DIR, NCCL_LIBRARY and the target NCCL::nccl.
include(${CMAKE_CURRENT_LIST_DIR}/GpuLibrary.cmake)

gpu_library(NCCL FOLDER nccl HEADER nccl.h VERSION_HEADER nccl.h VERSION_PARTS MAJOR MINOR PATCH
            LIBRARIES nccl libnccl.so.2 TARGET NCCL::nccl)
