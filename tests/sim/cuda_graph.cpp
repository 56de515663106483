#include <cuda_runtime_api.h>

#include "tests/sim/api.h"
#include "tests/sim/graph.h"

using namespace rondo::sim;

namespace {

Graph* graph_of(cudaGraph_t handle) {
  return reinterpret_cast<Graph*>(handle);
}
GraphExec* exec_of(cudaGraphExec_t handle) {
  return reinterpret_cast<GraphExec*>(handle);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return with_stream(handle, [&](Stream& stream) {
    if (stream.options().is_default) return cudaErrorStreamCaptureUnsupported;
    if (stream.capture != nullptr) return cudaErrorIllegalState;
    stream.capture = std::make_shared<Capture>(stream, mode);
    stream.frontier.clear();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  return with_stream(handle, [&](Stream& stream) {
    if (stream.capture == nullptr) return cudaErrorIllegalState;
    if (!stream.capture->may_end()) return cudaErrorStreamCaptureWrongThread;
    auto made = std::make_unique<Graph>();
    const cudaError_t error = stream.capture->end(stream, *made);
    if (error == cudaSuccess) *graph = reinterpret_cast<cudaGraph_t>(made.release());
    return error;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return with_stream(handle, [&](Stream& stream) {
    *status = stream.capture == nullptr   ? cudaStreamCaptureStatusNone
              : stream.capture->invalid() ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return locked([&](Driver& sim) {
    *exec = nullptr;
    if (sim.out_of_memory_now()) return cudaErrorMemoryAllocation;
    *exec = reinterpret_cast<cudaGraphExec_t>(new GraphExec(*graph_of(graph)));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t handle) {
  return with_stream(handle, [](Stream&) { return cudaSuccess; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return with_stream(handle, [&](Stream& stream) { return exec_of(exec)->launch(stream); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes != nullptr) return result(cudaErrorNotSupported);
  *count = graph_of(graph)->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return locked([&](Driver&) {
    delete exec_of(exec);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return locked([&](Driver&) {
    delete graph_of(graph);
    return cudaSuccess;
  });
}

}  // extern "C"
