// Stream capture, and graphs made by it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/sim/driver.h"

namespace rondo::sim {

struct GraphNode {
  OperationMaker make;
  std::vector<int> after;  // earlier nodes
};

struct Graph {
  int device = 0;
  std::vector<GraphNode> nodes;
};

// A capture under way. All members need the driver's lock.
class Capture {
 public:
  Capture(Stream& origin, cudaStreamCaptureMode mode) : origin_(&origin), mode_(mode) {
    graph_.device = origin.device();
  }

  cudaError_t add(Stream& stream, const OperationMaker& make);
  // The stream joins the capture, or adds nodes to what its next one depends on.
  void join(Stream& stream, const std::vector<int>& nodes);
  cudaError_t end(Stream& stream, Graph& graph);  // takes all its streams out of the capture
  void invalidate() { invalid_ = true; }
  bool invalid() const { return invalid_; }
  cudaStreamCaptureMode mode() const { return mode_; }
  // May the calling thread make calls that could wait for other work, or end this capture?
  bool forbids() const {
    if (mode_ == cudaStreamCaptureModeRelaxed) return false;
    return mode_ == cudaStreamCaptureModeGlobal || thread_ == std::this_thread::get_id();
  }
  bool may_end() const {
    return mode_ == cudaStreamCaptureModeRelaxed || thread_ == std::this_thread::get_id();
  }

 private:
  Stream* origin_;
  cudaStreamCaptureMode mode_;
  std::thread::id thread_ = std::this_thread::get_id();  // that began it
  std::vector<std::shared_ptr<Stream>> members_;         // that joined
  Graph graph_;
  bool invalid_ = false;
};

// A graph ready to run: its nodes are dealt to lanes, chains that run one after another, each on a stream of
// its own (the first on the stream it is launched on).
class GraphExec {
 public:
  explicit GraphExec(const Graph& graph);
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;

  cudaError_t launch(Stream& stream);

 private:
  Graph graph_;
  std::vector<size_t> lane_of_;
  std::vector<std::shared_ptr<Stream>> lanes_;  // the first is empty
  Mark last_;
};

}  // namespace rondo::sim
