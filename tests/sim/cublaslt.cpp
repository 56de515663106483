// cuBLASLt: products with the epilogues that training uses, column-major or row-major. What is not done here
// returns CUBLAS_STATUS_NOT_SUPPORTED.
#include <cublasLt.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/sim/api.h"
#include "tests/sim/product.h"

using namespace rondo::sim;

namespace {

struct Preference {
  uint64_t workspace = 0;
  bool other = false;
};

template <class T>
T* as(void* handle) {
  return static_cast<T*>(handle);
}

template <class T>
cublasStatus_t take(T& to, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (ready() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(std::max(current_device(), 0)));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new MatrixLayout{.type = type, .rows = rows, .columns = columns, .ld = ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete as<MatrixLayout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* from,
                                                size_t bytes) {
  MatrixLayout& layout = *as<MatrixLayout>(handle);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return take(layout.order, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return take(layout.rows, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return take(layout.columns, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return take(layout.ld, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(layout.batch, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(layout.batch_stride, from, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *description =
      reinterpret_cast<cublasLtMatmulDesc_t>(new ProductDescription{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete as<ProductDescription>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute, const void* from,
                                              size_t bytes) {
  ProductDescription& description = *as<ProductDescription>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return take(description.pointer_mode, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(description.transpose_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(description.transpose_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return take(description.transpose_c, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(description.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(description.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(description.bias_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(description.aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(description.aux_ld, from, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete as<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* from, size_t bytes) {
  Preference& preference = *as<Preference>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference.workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return CUBLAS_STATUS_SUCCESS;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = 0;
  const cublasStatus_t status = supported(*as<ProductDescription>(description), *as<MatrixLayout>(a),
                                          *as<MatrixLayout>(b), *as<MatrixLayout>(c), *as<MatrixLayout>(d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = {};
  results[0].workspaceSize = std::min<size_t>(as<Preference>(preference)->workspace, 4096);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1.0f;
  results[0].algo.data[0] = results[0].workspaceSize;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t handle) {
  Product product{*as<ProductDescription>(description),
                  *as<MatrixLayout>(a_layout),
                  *as<MatrixLayout>(b_layout),
                  *as<MatrixLayout>(c_layout),
                  *as<MatrixLayout>(d_layout),
                  a,
                  b,
                  c,
                  d,
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta),
                  0,
                  0,
                  0,
                  Format::kF32};
  const cublasStatus_t status = supported(product.description, product.a, product.b, product.c, product.d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algorithm != nullptr && algorithm->data[0] > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  product.m = static_cast<int64_t>(product.d.rows);
  product.n = static_cast<int64_t>(product.d.columns);
  product.k = static_cast<int64_t>(product.description.transpose_a != CUBLAS_OP_N ? product.a.rows
                                                                                  : product.a.columns);
  const auto bias_format = format_of(product.description.bias_type < 0
                                         ? product.d.type
                                         : static_cast<cudaDataType_t>(product.description.bias_type));
  if (!bias_format) return CUBLAS_STATUS_NOT_SUPPORTED;
  product.bias_format = *bias_format;
  auto accesses = product.accesses();
  if (workspace != nullptr && workspace_bytes > 0) accesses.push_back({workspace, workspace_bytes, true});
  for (const Access& access : accesses) {
    if (access.data == nullptr && access.bytes > 0) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const cudaError_t error = with_stream(handle, [&](Stream& stream) {
    return driver().submit(stream, [=] {
      return Operation{.name = "cublasLtMatmul",
                       .accesses = accesses,
                       .body = [product] { product.run(); },
                       .kernel = true};
    });
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
