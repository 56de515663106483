#include "tests/sim/graph.h"

#include <algorithm>

namespace rondo::sim {

cudaError_t Capture::add(Stream& stream, const OperationMaker& make) {
  if (invalid_) return cudaErrorStreamCaptureInvalidated;
  graph_.nodes.push_back({make, stream.frontier});
  stream.frontier = {static_cast<int>(graph_.nodes.size()) - 1};
  return cudaSuccess;
}

void Capture::join(Stream& stream, const std::vector<int>& nodes) {
  if (stream.capture == nullptr) {
    stream.capture = origin_->capture;
    stream.frontier.clear();
    members_.push_back(stream.shared_from_this());
  }
  for (const int node : nodes) {
    if (std::find(stream.frontier.begin(), stream.frontier.end(), node) == stream.frontier.end()) {
      stream.frontier.push_back(node);
    }
  }
}

cudaError_t Capture::end(Stream& stream, Graph& graph) {
  if (&stream != origin_) return cudaErrorStreamCaptureUnmatched;
  std::vector<bool> reached(graph_.nodes.size());
  for (const int node : stream.frontier) reached[static_cast<size_t>(node)] = true;
  for (size_t i = graph_.nodes.size(); i-- > 0;) {
    if (!reached[i]) continue;
    for (const int node : graph_.nodes[i].after) reached[static_cast<size_t>(node)] = true;
  }
  const bool joined = std::find(reached.begin(), reached.end(), false) == reached.end();
  graph = std::move(graph_);
  const auto keep = origin_->capture;  // this object, until the function ends
  for (const auto& member : members_) {
    member->capture = nullptr;
    member->frontier.clear();
  }
  origin_->frontier.clear();
  origin_->capture = nullptr;
  if (invalid_) return cudaErrorStreamCaptureInvalidated;
  return joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

GraphExec::GraphExec(const Graph& graph) : graph_(graph) {
  std::vector<int> tails;  // last node of each lane so far
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    size_t lane = tails.size();
    for (const int node : graph_.nodes[i].after) {
      const size_t theirs = lane_of_[static_cast<size_t>(node)];
      if (tails[theirs] == node) lane = std::min(lane, theirs);
    }
    if (lane == tails.size()) tails.push_back(0);
    tails[lane] = static_cast<int>(i);
    lane_of_.push_back(lane);
  }
  lanes_.resize(std::max<size_t>(tails.size(), 1));
  for (size_t i = 1; i < lanes_.size(); ++i) {
    lanes_[i] = driver().make_stream(graph_.device, cudaStreamNonBlocking, 0);
  }
}

GraphExec::~GraphExec() {
  for (const auto& lane : lanes_) {
    if (lane != nullptr) driver().retire_stream(lane);
  }
}

cudaError_t GraphExec::launch(Stream& stream) {
  Driver& sim = driver();
  if (sim.sticky != cudaSuccess) return sim.sticky;
  if (stream.capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (stream.device() != graph_.device) return cudaErrorInvalidResourceHandle;
  ++sim.counters.graph_launches;
  sim.wait(stream, last_);  // a graph never runs beside itself
  const Mark start = sim.mark(stream);
  const auto on = [&](size_t lane) -> Stream& { return lane == 0 ? stream : *lanes_[lane]; };
  for (size_t lane = 1; lane < lanes_.size(); ++lane) sim.wait(*lanes_[lane], start);
  std::vector<Mark> marks;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    Stream& lane = on(lane_of_[i]);
    for (const int node : graph_.nodes[i].after) {
      if (lane_of_[static_cast<size_t>(node)] != lane_of_[i])
        sim.wait(lane, marks[static_cast<size_t>(node)]);
    }
    marks.push_back(sim.queue(lane, graph_.nodes[i].make()));
  }
  for (size_t lane = 1; lane < lanes_.size(); ++lane) sim.wait(stream, sim.mark(*lanes_[lane]));
  last_ = sim.mark(stream);
  return cudaSuccess;
}

}  // namespace rondo::sim
