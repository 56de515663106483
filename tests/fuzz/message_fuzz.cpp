// libFuzzer: whatever the helper program sends is content or a WireError, and what it means for a model is
// weights or a FileError.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "models/graph/graph.h"
#include "models/keras/optimizer_layout.h"
#include "models/keras/weight_layout.h"
#include "models/keras/wire.h"
#include "models/layers/core.h"
#include "runtime/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rondo;
  static const Graph graph = [] {
    auto x = layers::Input({.shape = {2}});
    auto y = layers::Dense{.units = 1, .name = "b"}(layers::Dense{.units = 2, .name = "a"}(x));
    return Graph({x}, {y}, 0);
  }();
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) return 0;
  keras::Wire sender(ends[0], 0);
  sender.send({reinterpret_cast<const char*>(data), std::min<size_t>(size, 60'000)});
  close(ends[0]);
  try {
    keras::Wire wire(ends[1], 1 << 20);
    const keras::FileContent content = keras::receive_content(wire);
    constexpr std::array<OptimizerConfig (*)(), 4> kOptimizers{
        +[]() -> OptimizerConfig { return SGD{}; },
        +[]() -> OptimizerConfig { return Adam{.amsgrad = true}; },
        +[]() -> OptimizerConfig { return Nadam{}; },
        +[]() -> OptimizerConfig { return RMSprop{.momentum = 0.5, .centered = true}; }};
    const OptimizerConfig optimizer = kOptimizers[size % kOptimizers.size()]();
    if (const keras::Group* state = content.root.find_group("optimizer_weights")) {
      keras::take_optimizer(*state, optimizer, "fuzz");
    }
    if (const keras::Group* state = content.root.find_group("optimizer/vars")) {
      keras::take_archive_optimizer(*state, optimizer, "fuzz");
    }
    keras::take_weights(content.root, graph, "fuzz",
                        size % 2 == 0 ? keras::Match::kOrder : keras::Match::kName);
  } catch (const keras::WireError&) {
  } catch (const FileError&) {
  }
  close(ends[1]);
  return 0;
}
