#pragma once

#include <memory>

#include "models/graph/layer.h"

namespace rondo {

// The layer that an options struct of rondo::layers has become. The first call makes it; later calls use it
// again, so that they share its weights. A copy of the options starts anew.
class LayerSlot {
 public:
  LayerSlot() = default;
  LayerSlot(const LayerSlot&) {}
  LayerSlot& operator=(const LayerSlot&) {
    layer_.reset();
    return *this;
  }

  template <class Options>
  const std::shared_ptr<Layer>& of(const Options& options) const {
    if (!layer_) {
      layer_ = make_layer(options);
      if constexpr (requires { options.trainable; }) layer_->set_trainable(options.trainable);
    }
    return layer_;
  }

 private:
  mutable std::shared_ptr<Layer> layer_;
};

}  // namespace rondo
