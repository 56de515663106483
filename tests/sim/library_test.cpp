// The double's library calls against plain loops in float64.
#include <cublasLt.h>
#include <cudnn.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "tests/sim/convolution.h"
#include "tests/sim/numbers.h"

namespace rondo::sim {
namespace {

std::vector<float> numbers(size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& value : values) value = std::uniform_real_distribution<float>(-1.0f, 1.0f)(engine);
  return values;
}

void expect_close(const std::vector<float>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], tolerance) << "at " << i;
}

// Device memory that starts as `values`.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<float>& values, Format format = Format::kF32)
      : format_(format), count_(values.size()) {
    std::vector<std::byte> bytes(count_ * size_of(format));
    store(format, values.data(), bytes.data(), count_);
    EXPECT_EQ(cudaMalloc(&data_, bytes.size()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
    cudaDeviceSynchronize();
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }
  void* data() const { return data_; }
  std::vector<float> values() const {
    std::vector<std::byte> bytes(count_ * size_of(format_));
    EXPECT_EQ(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    std::vector<float> values(count_);
    load(format_, bytes.data(), values.data(), count_);
    return values;
  }

 private:
  Format format_;
  size_t count_;
  void* data_ = nullptr;
};

TEST(Matmul, AgreesWithLoopsForAllStrides) {
  const int64_t m = 101, n = 37, k = 300;
  const auto a = numbers(static_cast<size_t>(m * k), 1), b = numbers(static_cast<size_t>(k * n), 2);
  for (const bool a_by_columns : {false, true}) {
    for (const bool b_by_columns : {false, true}) {
      const Matrix left{a.data(), a_by_columns ? 1 : k, a_by_columns ? m : 1};
      const Matrix right{b.data(), b_by_columns ? 1 : n, b_by_columns ? k : 1};
      std::vector<float> c(static_cast<size_t>(m * n), 1.0f);
      multiply(m, n, k, left, right, c.data(), n, a_by_columns);
      std::vector<double> expected;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = a_by_columns ? 1.0 : 0.0;
          for (int64_t l = 0; l < k; ++l) {
            sum += static_cast<double>(left.data[i * left.row + l * left.column]) *
                   right.data[l * right.row + j * right.column];
          }
          expected.push_back(sum);
        }
      }
      expect_close(c, expected, 1e-4);
    }
  }
}

struct MatmulCase {
  Format format;
  cudaDataType type;
  bool transpose_a, transpose_b;
  cublasLtEpilogue_t epilogue;
};

// d (m, n) by columns = epilogue(a b + bias of the rows).
void check_cublas(const MatmulCase& test) {
  constexpr int64_t m = 19, n = 7, k = 33;
  const auto a = numbers(m * k, 3), b = numbers(k * n, 4), bias = numbers(m, 5);
  const OnDevice a_data(a, test.format), b_data(b, test.format),
      d_data(std::vector<float>(m * n), test.format);
  const OnDevice bias_data(bias, test.format);
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t al = nullptr, bl = nullptr, dl = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&al, test.type, test.transpose_a ? k : m, test.transpose_a ? m : k,
                             test.transpose_a ? k : m);
  cublasLtMatrixLayoutCreate(&bl, test.type, test.transpose_b ? n : k, test.transpose_b ? k : n,
                             test.transpose_b ? n : k);
  cublasLtMatrixLayoutCreate(&dl, test.type, m, n, m);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, test.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, test.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, test.epilogue);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_data.data());
  const float one = 1.0f, zero = 0.0f;
  ASSERT_EQ(cublasLtMatmul(handle, desc, &one, a_data.data(), al, b_data.data(), bl, &zero, d_data.data(), dl,
                           d_data.data(), dl, nullptr, nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
  // What the formats keep of the inputs.
  const auto left = OnDevice(a, test.format).values(), right = OnDevice(b, test.format).values();
  const auto offsets = OnDevice(bias, test.format).values();
  std::vector<double> expected(m * n), sums(m);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) {
      double sum = 0.0, row = 0.0;
      for (int64_t l = 0; l < k; ++l) {
        const double x = left[static_cast<size_t>(test.transpose_a ? i * k + l : l * m + i)];
        sum += x * right[static_cast<size_t>(test.transpose_b ? l * n + j : j * k + l)];
        row += x;
      }
      const bool biased = (test.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
      if (biased) sum += offsets[static_cast<size_t>(i)];
      if ((test.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) sum = std::max(sum, 0.0);
      expected[static_cast<size_t>(j * m + i)] = sum;
      sums[static_cast<size_t>(i)] = row;
    }
  }
  const double tolerance = test.format == Format::kF32 ? 1e-5 : test.format == Format::kF16 ? 1e-2 : 8e-2;
  expect_close(d_data.values(), expected, tolerance);
  if (test.epilogue == CUBLASLT_EPILOGUE_BGRADA) expect_close(bias_data.values(), sums, tolerance);
  for (auto* layout : {al, bl, dl}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(desc);
  cublasLtDestroy(handle);
}

TEST(CublasLt, AgreesWithLoops) {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS,
                              CUBLASLT_EPILOGUE_BGRADA}) {
    for (const int transposed : {0, 1, 2, 3}) {
      check_cublas({Format::kF32, CUDA_R_32F, (transposed & 1) != 0, (transposed & 2) != 0, epilogue});
    }
    check_cublas({Format::kF16, CUDA_R_16F, true, false, epilogue});
    check_cublas({Format::kBf16, CUDA_R_16BF, false, true, epilogue});
  }
}

TEST(CublasLt, RefusesWhatItDoesNotDo) {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_64F, CUDA_R_64F);
  cublasLtMatrixLayoutCreate(&layout, CUDA_R_64F, 4, 4, 4);
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulHeuristicResult_t result;
  int found = 1;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(nullptr, desc, layout, layout, layout, layout, preference, 1,
                                           &result, &found),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(found, 0);
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(desc);
}

// Calls f(index in y, index in w, index in x) for each product of the convolution.
void each_product(const ConvolutionShape& s, const std::function<void(size_t, size_t, size_t)>& f) {
  for (int64_t n = 0; n < s.images; ++n) {
    for (int64_t oy = 0; oy < s.out_height(); ++oy) {
      for (int64_t ox = 0; ox < s.out_width(); ++ox) {
        for (int64_t k = 0; k < s.filters; ++k) {
          for (int64_t ky = 0; ky < s.kernel_height; ++ky) {
            for (int64_t kx = 0; kx < s.kernel_width; ++kx) {
              const int64_t y = oy * s.stride_height - s.pad_height + ky * s.dilation_height;
              const int64_t x = ox * s.stride_width - s.pad_width + kx * s.dilation_width;
              if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
              for (int64_t c = 0; c < s.group_channels(); ++c) {
                const int64_t channel = k / s.group_filters() * s.group_channels() + c;
                f(static_cast<size_t>(((n * s.out_height() + oy) * s.out_width() + ox) * s.filters + k),
                  static_cast<size_t>(
                      ((k * s.kernel_height + ky) * s.kernel_width + kx) * s.group_channels() + c),
                  static_cast<size_t>(((n * s.height + y) * s.width + x) * s.channels + channel));
              }
            }
          }
        }
      }
    }
  }
}

// All three directions through cuDNN's interface.
void check_cudnn(const ConvolutionShape& s) {
  const auto n = [](int64_t value) { return static_cast<int>(value); };
  const auto size = [](int64_t value) { return static_cast<size_t>(value); };
  const auto x = numbers(size(s.images * s.height * s.width * s.channels), 6);
  const auto w = numbers(size(s.filters * s.taps()), 7);
  const auto dy = numbers(size(s.images * s.positions() * s.filters), 8);
  std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
  each_product(s, [&](size_t at_y, size_t at_w, size_t at_x) {
    y[at_y] += static_cast<double>(x[at_x]) * w[at_w];
    dx[at_x] += static_cast<double>(dy[at_y]) * w[at_w];
    dw[at_w] += static_cast<double>(dy[at_y]) * x[at_x];
  });
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t images = nullptr, outputs = nullptr;
  cudnnFilterDescriptor_t filters = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  cudnnCreateTensorDescriptor(&images);
  cudnnCreateTensorDescriptor(&outputs);
  cudnnCreateFilterDescriptor(&filters);
  cudnnCreateConvolutionDescriptor(&conv);
  cudnnSetTensor4dDescriptor(images, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, n(s.images), n(s.channels),
                             n(s.height), n(s.width));
  cudnnSetTensor4dDescriptor(outputs, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, n(s.images), n(s.filters),
                             n(s.out_height()), n(s.out_width()));
  cudnnSetFilter4dDescriptor(filters, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, n(s.filters),
                             n(s.group_channels()), n(s.kernel_height), n(s.kernel_width));
  cudnnSetConvolution2dDescriptor(conv, n(s.pad_height), n(s.pad_width), n(s.stride_height),
                                  n(s.stride_width), n(s.dilation_height), n(s.dilation_width),
                                  CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
  cudnnSetConvolutionGroupCount(conv, n(s.groups));
  const OnDevice x_data(x), w_data(w), dy_data(dy), y_data(dy), dx_data(x), dw_data(w);
  const OnDevice workspace(std::vector<float>(4096));
  const size_t bytes = 4096 * sizeof(float);
  const float one = 1.0f, zero = 0.0f;
  ASSERT_EQ(cudnnConvolutionForward(handle, &one, images, x_data.data(), filters, w_data.data(), conv,
                                    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, workspace.data(), bytes,
                                    &zero, outputs, y_data.data()),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnConvolutionBackwardData(handle, &one, filters, w_data.data(), outputs, dy_data.data(), conv,
                                         CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, workspace.data(), bytes, &zero,
                                         images, dx_data.data()),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnConvolutionBackwardFilter(handle, &one, images, x_data.data(), outputs, dy_data.data(), conv,
                                           CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, workspace.data(), bytes,
                                           &zero, filters, dw_data.data()),
            CUDNN_STATUS_SUCCESS);
  expect_close(y_data.values(), y, 1e-4);
  expect_close(dx_data.values(), dx, 1e-4);
  expect_close(dw_data.values(), dw, 2e-4);
  cudnnDestroyTensorDescriptor(images);
  cudnnDestroyTensorDescriptor(outputs);
  cudnnDestroyFilterDescriptor(filters);
  cudnnDestroyConvolutionDescriptor(conv);
  cudnnDestroy(handle);
}

TEST(Cudnn, ConvolutionsAgreeWithLoops) {
  check_cudnn({.images = 2,
               .height = 7,
               .width = 6,
               .channels = 3,
               .filters = 5,
               .kernel_height = 3,
               .kernel_width = 2});
  check_cudnn({.images = 3,
               .height = 9,
               .width = 8,
               .channels = 4,
               .filters = 6,
               .kernel_height = 3,
               .kernel_width = 3,
               .groups = 2,
               .pad_height = 1,
               .pad_width = 2,
               .stride_height = 2,
               .stride_width = 1,
               .dilation_height = 1,
               .dilation_width = 2});
  check_cudnn({.images = 1,
               .height = 5,
               .width = 5,
               .channels = 8,
               .filters = 8,
               .kernel_height = 3,
               .kernel_width = 3,
               .groups = 8,
               .pad_height = 1,
               .pad_width = 1});
}

}  // namespace
}  // namespace rondo::sim
