// cuBLASLt: products with the epilogues that training uses, column-major or row-major. What is not done here
// returns CUBLAS_STATUS_NOT_SUPPORTED.
#include <cublasLt.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "tests/sim/api.h"
#include "tests/sim/numbers.h"

using namespace rondo::sim;

namespace {

struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0;
  int32_t batch = 1;
  int64_t batch_stride = 0;

  int64_t extent() const {  // elements from the first to the last
    const auto minor = static_cast<int64_t>(order == CUBLASLT_ORDER_COL ? rows : columns);
    const auto major = static_cast<int64_t>(order == CUBLASLT_ORDER_COL ? columns : rows);
    return major == 0 ? 0 : (major - 1) * ld + minor;
  }
  bool good() const {
    const uint64_t minor = order == CUBLASLT_ORDER_COL ? rows : columns;
    return ld >= static_cast<int64_t>(minor) && batch == 1;
  }
};

struct Description {
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

std::optional<Format> format_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
      return Format::kF32;
    case CUDA_R_16F:
      return Format::kF16;
    case CUDA_R_16BF:
      return Format::kBf16;
    default:
      return std::nullopt;
  }
}

bool has(uint32_t epilogue, uint32_t bit) {
  return (epilogue & bit) != 0;
}

// A matrix as floats, and how to walk it.
struct Operand {
  std::vector<float> values;
  Matrix matrix;

  Operand(const void* data, const Layout& layout, bool transpose) {
    const Format format = *format_of(layout.type);
    if (format == Format::kF32) {
      matrix.data = static_cast<const float*>(data);
    } else {
      values.resize(static_cast<size_t>(layout.extent()));
      load(format, data, values.data(), values.size());
      matrix.data = values.data();
    }
    const bool by_columns = (layout.order == CUBLASLT_ORDER_COL) != transpose;
    matrix.row = by_columns ? 1 : layout.ld;
    matrix.column = by_columns ? layout.ld : 1;
  }
};

struct Product {
  Description description;
  Layout a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  float alpha, beta;
  int64_t m, n, k;
  Format bias_format;

  int64_t at(int64_t i, int64_t j) const {
    return d.order == CUBLASLT_ORDER_COL ? i + j * d.ld : i * d.ld + j;
  }
  void run() const;
  void finish(std::vector<float>& values) const;
  size_t aux_bytes() const { return static_cast<size_t>(description.aux_ld / 8 * n); }
};

// `values`: m rows of n.
void Product::finish(std::vector<float>& values) const {
  const uint32_t epilogue = description.epilogue;
  auto* mask = static_cast<uint8_t*>(description.aux);  // one bit for each element of a column
  const int64_t column = description.aux_ld / 8;
  if (has(epilogue, CUBLASLT_EPILOGUE_RELU_AUX & 128) && has(epilogue, CUBLASLT_EPILOGUE_RELU)) {
    std::memset(mask, 0, aux_bytes());
  }
  const bool bias_gradient = epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD;
  std::vector<float> sums(static_cast<size_t>(m));
  for (int64_t i = 0; i < m; ++i) {
    const float bias = has(epilogue, CUBLASLT_EPILOGUE_BIAS)
                           ? load_one(bias_format, description.bias, static_cast<size_t>(i))
                           : 0.0f;
    for (int64_t j = 0; j < n; ++j) {
      float& value = values[static_cast<size_t>(i * n + j)];
      const auto bit = static_cast<uint8_t>(1 << (i % 8));
      value += bias;
      if (has(epilogue, CUBLASLT_EPILOGUE_RELU)) {
        const bool positive = value > 0.0f;
        if (!positive) value = 0.0f;
        if (has(epilogue, 128) && positive) mask[j * column + i / 8] = mask[j * column + i / 8] | bit;
      } else if (has(epilogue, 8) && (mask[j * column + i / 8] & bit) == 0) {
        value = 0.0f;
      }
      sums[static_cast<size_t>(i)] += value;
    }
  }
  if (bias_gradient) store(bias_format, sums.data(), description.bias, sums.size());
}

void Product::run() const {
  const Operand left(a_data, a, description.transpose_a != CUBLAS_OP_N);
  const Operand right(b_data, b, description.transpose_b != CUBLAS_OP_N);
  std::vector<float> values(static_cast<size_t>(m * n));
  multiply(m, n, k, left.matrix, right.matrix, values.data(), n, false);
  const Format result_format = *format_of(d.type);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float& value = values[static_cast<size_t>(i * n + j)];
      value *= alpha;
      if (beta != 0.0f) value += beta * load_one(*format_of(c.type), c_data, static_cast<size_t>(at(i, j)));
    }
  }
  if (description.epilogue == CUBLASLT_EPILOGUE_BGRADA || description.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    const bool of_a = description.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    const Matrix& source = of_a ? left.matrix : right.matrix;
    std::vector<float> sums(static_cast<size_t>(of_a ? m : n));
    for (int64_t i = 0; i < static_cast<int64_t>(sums.size()); ++i) {
      for (int64_t l = 0; l < k; ++l) {
        sums[static_cast<size_t>(i)] += of_a ? source.data[i * source.row + l * source.column]
                                             : source.data[l * source.row + i * source.column];
      }
    }
    store(bias_format, sums.data(), description.bias, sums.size());
  } else {
    finish(values);
  }
  const size_t size = size_of(result_format);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      store(result_format, &values[static_cast<size_t>(i * n + j)],
            static_cast<std::byte*>(d_data) + static_cast<size_t>(at(i, j)) * size, 1);
    }
  }
}

cublasStatus_t supported(const Description& description, const Layout& a, const Layout& b, const Layout& c,
                         const Layout& d) {
  for (const Layout* each : {&a, &b, &c, &d}) {
    if (each->order != CUBLASLT_ORDER_COL && each->order != CUBLASLT_ORDER_ROW)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!format_of(each->type) || each->batch != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!each->good()) return CUBLAS_STATUS_INVALID_VALUE;
  }
  switch (description.compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (description.scale != CUDA_R_32F || a.type != b.type || c.type != d.type || c.order != d.order ||
      description.transpose_c != CUBLAS_OP_N || description.pointer_mode != CUBLASLT_POINTER_MODE_HOST) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  switch (description.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
      break;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      // The epilogues see columns: row-major results have none of these.
      if (d.order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
      break;
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
      if (d.order != CUBLASLT_ORDER_COL || description.aux_ld % 128 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool ta = description.transpose_a != CUBLAS_OP_N;
  const bool tb = description.transpose_b != CUBLAS_OP_N;
  if ((ta ? a.columns : a.rows) != d.rows || (tb ? b.rows : b.columns) != d.columns ||
      (ta ? a.rows : a.columns) != (tb ? b.columns : b.rows) || c.rows != d.rows || c.columns != d.columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

size_t bytes_of(const Layout& layout) {
  return static_cast<size_t>(layout.extent()) * size_of(*format_of(layout.type));
}

std::vector<Access> accesses_of(const Product& product, void* workspace, size_t workspace_bytes) {
  std::vector<Access> accesses = {{product.a_data, bytes_of(product.a), false},
                                  {product.b_data, bytes_of(product.b), false},
                                  {product.d_data, bytes_of(product.d), true}};
  if (product.beta != 0.0f) accesses.push_back({product.c_data, bytes_of(product.c), false});
  if (workspace != nullptr && workspace_bytes > 0) accesses.push_back({workspace, workspace_bytes, true});
  const uint32_t epilogue = product.description.epilogue;
  const size_t bias = static_cast<size_t>(epilogue == CUBLASLT_EPILOGUE_BGRADB ? product.n : product.m) *
                      size_of(product.bias_format);
  if (has(epilogue, CUBLASLT_EPILOGUE_BIAS)) accesses.push_back({product.description.bias, bias, false});
  if (has(epilogue, 16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) {
    accesses.push_back({product.description.bias, bias, true});
  }
  if (has(epilogue, 128)) {
    accesses.push_back({product.description.aux, product.aux_bytes(), has(epilogue, CUBLASLT_EPILOGUE_RELU)});
  }
  return accesses;
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
      new Layout{.type = type, .rows = rows, .columns = columns, .ld = ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete as<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* from,
                                                size_t bytes) {
  Layout& layout = *as<Layout>(handle);
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
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete as<Description>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute, const void* from,
                                              size_t bytes) {
  Description& description = *as<Description>(handle);
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
  const cublasStatus_t status = supported(*as<Description>(description), *as<Layout>(a), *as<Layout>(b),
                                          *as<Layout>(c), *as<Layout>(d));
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
  Product product{*as<Description>(description),
                  *as<Layout>(a_layout),
                  *as<Layout>(b_layout),
                  *as<Layout>(c_layout),
                  *as<Layout>(d_layout),
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
  const auto accesses = accesses_of(product, workspace, workspace_bytes);
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
