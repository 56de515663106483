// A product of matrices with an epilogue, as cuBLASLt describes it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/sim/driver.h"
#include "tests/sim/numbers.h"

namespace rondo::sim {

struct MatrixLayout {
  cudaDataType_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0;
  int32_t batch = 1;
  int64_t batch_stride = 0;

  int64_t extent() const {  // elements from the first to the last, of one matrix
    const auto minor = static_cast<int64_t>(order == CUBLASLT_ORDER_COL ? rows : columns);
    const auto major = static_cast<int64_t>(order == CUBLASLT_ORDER_COL ? columns : rows);
    return major == 0 ? 0 : (major - 1) * ld + minor;
  }
  int64_t all() const { return extent() + (batch - 1) * batch_stride; }  // of all matrices
  bool good() const {
    const uint64_t minor = order == CUBLASLT_ORDER_COL ? rows : columns;
    return ld >= static_cast<int64_t>(minor) && batch >= 1 && batch_stride >= 0;
  }
};

struct ProductDescription {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N, transpose_c = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int32_t bias_type = -1;  // as d
  void* aux = nullptr;
  int64_t aux_ld = 0;
};

struct Product {
  ProductDescription description;
  MatrixLayout a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  float alpha, beta;
  int64_t m, n, k;
  Format bias_format;

  int64_t at(int64_t i, int64_t j) const {
    return d.order == CUBLASLT_ORDER_COL ? i + j * d.ld : i * d.ld + j;
  }
  void run() const;  // one product for each of the batch
  // What it reads and writes, working memory apart.
  std::vector<Access> accesses() const;
  size_t aux_bytes() const { return static_cast<size_t>(description.aux_ld / 8 * n); }

 private:
  void run_one() const;
  void finish(std::vector<float>& values) const;
};

// Nothing where the double does not know the type.
std::optional<Format> format_of(cudaDataType_t type);
// CUBLAS_STATUS_SUCCESS where the double does this, and the shapes fit.
cublasStatus_t supported(const ProductDescription& description, const MatrixLayout& a, const MatrixLayout& b,
                         const MatrixLayout& c, const MatrixLayout& d);

}  // namespace rondo::sim
