#include "tests/sim/product.h"

#include <cstring>
#include <type_traits>

namespace rondo::sim {
namespace {

bool has(uint32_t epilogue, uint32_t bit) {
  return (epilogue & bit) != 0;
}

// A matrix as floats, and how to walk it.
struct Operand {
  std::vector<float> values;
  Matrix matrix;

  Operand(const void* data, const MatrixLayout& layout, bool transpose) {
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

size_t bytes_of(const MatrixLayout& layout) {
  return static_cast<size_t>(layout.all()) * size_of(*format_of(layout.type));
}

// Where matrix `index` of a batch begins.
template <class Void>
Void* matrix_at(Void* data, const MatrixLayout& layout, int64_t index) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  const auto elements = static_cast<size_t>(index * layout.batch_stride);
  return data == nullptr ? nullptr : static_cast<Byte*>(data) + elements * size_of(*format_of(layout.type));
}

}  // namespace

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

// `values`: m rows of n.
void Product::finish(std::vector<float>& values) const {
  const uint32_t epilogue = description.epilogue;
  auto* mask = static_cast<uint8_t*>(description.aux);  // one bit for each element of a column
  const int64_t column = description.aux_ld / 8;
  if (has(epilogue, 128) && has(epilogue, CUBLASLT_EPILOGUE_RELU)) {
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
  for (int64_t index = 0; index < d.batch; ++index) {
    Product one = *this;
    one.a_data = matrix_at(a_data, a, index);
    one.b_data = matrix_at(b_data, b, index);
    one.c_data = matrix_at(c_data, c, index);
    one.d_data = matrix_at(d_data, d, index);
    one.run_one();
  }
}

void Product::run_one() const {
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

cublasStatus_t supported(const ProductDescription& description, const MatrixLayout& a, const MatrixLayout& b,
                         const MatrixLayout& c, const MatrixLayout& d) {
  for (const MatrixLayout* each : {&a, &b, &c, &d}) {
    if (each->order != CUBLASLT_ORDER_COL && each->order != CUBLASLT_ORDER_ROW)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!format_of(each->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!each->good() || each->batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
    // Matrices of a batch must not share what they write.
    if (each == &d && d.batch > 1 && d.batch_stride < d.extent()) return CUBLAS_STATUS_INVALID_VALUE;
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
  if (d.batch > 1 && description.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
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

std::vector<Access> Product::accesses() const {
  std::vector<Access> all = {
      {a_data, bytes_of(a), false}, {b_data, bytes_of(b), false}, {d_data, bytes_of(d), true}};
  if (beta != 0.0f) all.push_back({c_data, bytes_of(c), false});
  const uint32_t epilogue = description.epilogue;
  const size_t bias =
      static_cast<size_t>(epilogue == CUBLASLT_EPILOGUE_BGRADB ? n : m) * size_of(bias_format);
  if (has(epilogue, CUBLASLT_EPILOGUE_BIAS)) all.push_back({description.bias, bias, false});
  if (has(epilogue, 16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) {
    all.push_back({description.bias, bias, true});
  }
  if (has(epilogue, 128)) {
    all.push_back({description.aux, aux_bytes(), has(epilogue, CUBLASLT_EPILOGUE_RELU)});
  }
  return all;
}

}  // namespace rondo::sim
