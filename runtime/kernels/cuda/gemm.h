// Matrix products through cuBLASLt, prepared once.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/handle.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/kernel.h"

namespace rondo::cuda {

// out (rows, columns) = a (rows, inner) * b (inner, columns), all row-major, added up in float32.
// `transpose_a`: a lies as (inner, rows); `transpose_b`: b lies as (columns, inner).
struct GemmSpec {
  int64_t rows = 0, columns = 0, inner = 0;
  bool transpose_a = false, transpose_b = false;
  DType in = DType::kF32;   // of a and b: float32, bfloat16 or float16
  DType out = DType::kF32;  // of the result and of vectors: float32 or as `in`
  bool tf32 = false;        // float32 inputs may be rounded
  int64_t batch = 1;        // as many products, one behind the other in memory; no extra then
  float alpha = 1.0f;       // factor of the product
  uint32_t alignment = 16;  // of every operand, in bytes
  enum class Extra : uint8_t {
    kNone,
    kBias,       // adds a vector of `columns` to every row
    kBiasRelu,   // and applies relu
    kColumnSum,  // writes the sum of b over `inner` into a vector of `columns`
  } extra = Extra::kNone;
};

class Gemm {
 public:
  // Nothing where cuBLASLt has no such product.
  static std::optional<Gemm> make(Context& context, const GemmSpec& spec);

  // `extra` is the vector of GemmSpec::Extra.
  void run(const Execution& on, const void* a, const void* b, void* out, const void* extra = nullptr);
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  struct MatmulTraits {
    static cublasLtMatmulDesc_t empty() { return nullptr; }
    static void destroy(cublasLtMatmulDesc_t desc) { cublasLtMatmulDescDestroy(desc); }
  };
  struct LayoutTraits {
    static cublasLtMatrixLayout_t empty() { return nullptr; }
    static void destroy(cublasLtMatrixLayout_t layout) { cublasLtMatrixLayoutDestroy(layout); }
  };
  using MatrixLayout = Handle<cublasLtMatrixLayout_t, LayoutTraits>;

  explicit Gemm(Context& context) : context_(&context) {}
  static MatrixLayout row_major(DType dtype, int64_t rows, int64_t columns, int64_t batch);
  void describe(const GemmSpec& spec);
  bool choose();

  Context* context_;
  Handle<cublasLtMatmulDesc_t, MatmulTraits> desc_;
  MatrixLayout a_, b_, out_;
  cublasLtMatmulAlgo_t algorithm_{};
  int64_t scratch_bytes_ = 0;
  float alpha_ = 1.0f;
  uint32_t alignment_ = 16;
};

}  // namespace rondo::cuda
