#include "runtime/kernels/cuda/gemm.h"

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/check.h"

namespace rondo::cuda {
namespace {

constexpr size_t kMostScratch = size_t{32} << 20;  // what cuBLAS asks for on H100

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  RONDO_CHECK_CUBLAS(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)));
}

struct PreferenceTraits {
  static cublasLtMatmulPreference_t empty() { return nullptr; }
  static void destroy(cublasLtMatmulPreference_t preference) { cublasLtMatmulPreferenceDestroy(preference); }
};

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  RONDO_CHECK_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

cudaDataType_t data_type(DType dtype) {
  if (dtype == DType::kF32) return CUDA_R_32F;
  RONDO_CHECK(dtype == DType::kBF16 || dtype == DType::kF16);
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

}  // namespace

// cuBLASLt counts columns first: a row-major matrix is its transpose there.
Gemm::MatrixLayout Gemm::row_major(DType dtype, int64_t rows, int64_t columns, int64_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  RONDO_CHECK_CUBLAS(cublasLtMatrixLayoutCreate(&layout, data_type(dtype), static_cast<uint64_t>(columns),
                                                static_cast<uint64_t>(rows), columns));
  MatrixLayout owned(layout);
  if (batch > 1) {
    const auto count = static_cast<int32_t>(batch);
    const int64_t stride = rows * columns;
    RONDO_CHECK_CUBLAS(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
    RONDO_CHECK_CUBLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                        &stride, sizeof(stride)));
  }
  return owned;
}

// out^T = b^T a^T: cuBLASLt's A is our b, its B is our a.
void Gemm::describe(const GemmSpec& spec) {
  cublasLtMatmulDesc_t desc = nullptr;
  const bool rounds = spec.tf32 && spec.in == DType::kF32;
  RONDO_CHECK_CUBLAS(cublasLtMatmulDescCreate(
      &desc, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  desc_.reset(desc);
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, operation(spec.transpose_b));
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, operation(spec.transpose_a));
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  if (spec.extra == GemmSpec::Extra::kBias) epilogue = CUBLASLT_EPILOGUE_BIAS;
  if (spec.extra == GemmSpec::Extra::kBiasRelu) epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
  if (spec.extra == GemmSpec::Extra::kColumnSum) epilogue = CUBLASLT_EPILOGUE_BGRADA;
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  const auto matrix = [&](bool transposed, int64_t rows, int64_t columns) {
    return transposed ? row_major(spec.in, columns, rows, spec.batch)
                      : row_major(spec.in, rows, columns, spec.batch);
  };
  a_ = matrix(spec.transpose_b, spec.inner, spec.columns);
  b_ = matrix(spec.transpose_a, spec.rows, spec.inner);
  out_ = row_major(spec.out, spec.rows, spec.columns, spec.batch);
  alpha_ = spec.alpha;
  alignment_ = spec.alignment;
}

// The library's first choice among algorithms that give the same bits in every run: sums that are split over
// `inner` are added in a fixed order through working memory, or not split.
bool Gemm::choose() {
  cublasLtMatmulPreference_t handle = nullptr;
  RONDO_CHECK_CUBLAS(cublasLtMatmulPreferenceCreate(&handle));
  const Handle<cublasLtMatmulPreference_t, PreferenceTraits> preference(handle);
  set(handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostScratch);
  set(handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(handle, attribute, alignment_);
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(context_->cublas(), desc_.get(), a_.get(), b_.get(), out_.get(),
                                     out_.get(), handle, 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0 || result.state != CUBLAS_STATUS_SUCCESS) return false;
  algorithm_ = result.algo;
  scratch_bytes_ = static_cast<int64_t>(result.workspaceSize);
  return true;
}

std::optional<Gemm> Gemm::make(Context& context, const GemmSpec& spec) {
  Gemm gemm(context);
  gemm.describe(spec);
  if (!gemm.choose()) return std::nullopt;
  return gemm;
}

void Gemm::run(const Execution& on, const void* a, const void* b, void* out, const void* extra) {
  if (extra != nullptr) set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, extra);
  const float zero = 0.0f;
  RONDO_CHECK_CUBLAS(cublasLtMatmul(context_->cublas(), desc_.get(), &alpha_, b, a_.get(), a, b_.get(), &zero,
                                    out, out_.get(), out, out_.get(), &algorithm_, on.scratch,
                                    static_cast<size_t>(scratch_bytes_), handle_of(on.stream)));
}

}  // namespace rondo::cuda
