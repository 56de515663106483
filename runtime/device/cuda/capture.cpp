#include "runtime/device/cuda/capture.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/handle.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/cuda_device.h"

namespace rondo::cuda {
namespace {

struct GraphTraits {
  static cudaGraph_t empty() { return nullptr; }
  static void destroy(cudaGraph_t graph) { cudaGraphDestroy(graph); }
};
struct GraphExecTraits {
  static cudaGraphExec_t empty() { return nullptr; }
  static void destroy(cudaGraphExec_t graph) { cudaGraphExecDestroy(graph); }
};
using GraphExec = Handle<cudaGraphExec_t, GraphExecTraits>;

class CudaCapturedWork final : public CapturedWork {
 public:
  CudaCapturedWork(GraphExec graph, Hung hung) : graph_(std::move(graph)), hung_(std::move(hung)) {}
  ~CudaCapturedWork() override {
    if (*hung_) new GraphExec(std::move(graph_));  // NOLINT: left alone on purpose
  }
  void launch(Stream& stream) override { RONDO_CHECK_CUDA(cudaGraphLaunch(graph_.get(), handle_of(stream))); }

 private:
  GraphExec graph_;
  Hung hung_;
};

class CudaCapture final : public Capture {
 public:
  CudaCapture(Stream& stream, std::string device_name, Hung hung)
      : stream_(handle_of(stream)), device_name_(std::move(device_name)), hung_(std::move(hung)) {
    RONDO_CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ~CudaCapture() override {
    if (ended_) return;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_, &graph) != cudaSuccess) cudaGetLastError();
    if (graph != nullptr) cudaGraphDestroy(graph);
  }

  std::unique_ptr<CapturedWork> end() override {
    RONDO_CHECK(!ended_);
    ended_ = true;
    cudaGraph_t captured = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &captured);
    const Handle<cudaGraph_t, GraphTraits> graph(captured);
    check(ended, "cudaStreamEndCapture");
    cudaGraphExec_t made = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&made, graph.get(), 0);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      raise<OutOfMemory>("{}: out of memory for a CUDA graph", device_name_);
    }
    check(error, "cudaGraphInstantiate");
    return std::make_unique<CudaCapturedWork>(GraphExec(made), hung_);
  }

 private:
  cudaStream_t stream_;
  std::string device_name_;
  Hung hung_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<Capture> begin_capture(Stream& stream, const std::string& device_name, const Hung& hung) {
  return std::make_unique<CudaCapture>(stream, device_name, hung);
}

}  // namespace rondo::cuda
