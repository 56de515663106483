# cuDNN, from CUDNN_ROOT, the CUDA toolkit's folder, the system's packages, or the layout of the Python package
# nvidia-cudnn (<site-packages>/nvidia/cudnn/{include,lib}, with libcudnn.so.9 only; put that folder into
# CUDNN_ROOT or CMAKE_PREFIX_PATH).
#
# Defines CUDNN_FOUND, CUDNN_VERSION, CUDNN_INCLUDE_DIR, CUDNN_LIBRARY and the target CUDNN::cudnn.
include(${CMAKE_CURRENT_LIST_DIR}/GpuLibrary.cmake)

gpu_library(CUDNN FOLDER cudnn HEADER cudnn.h VERSION_HEADER cudnn_version.h VERSION_PARTS MAJOR MINOR PATCHLEVEL
            LIBRARIES cudnn libcudnn.so.9 TARGET CUDNN::cudnn)
