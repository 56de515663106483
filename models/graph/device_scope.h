// device_scope: which of a rank's devices the calls of layers run on.
//
//   const auto scope = device_scope("/gpu:1");
//   auto encoded = lstm(tweet);  // this call's steps run on the rank's second device
//
// A rank has a set of devices (BindOptions::devices_per_rank), numbered from 0; models/MULTI_GPU.md tells how
// a model is laid over them.
#pragma once

#include <string_view>

namespace rondo {

// Layers that this thread calls while the object lives run on one device of the set; the innermost scope
// counts. Objects end in the reverse order of their beginning. A call outside of any scope runs on device 0;
// of a call of a model, the scopes within that model decide then.
class [[nodiscard]] DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int outer_;
};

// The device at this place of the set; throws InvalidArgument for a negative one. Whether there are so many
// is seen when the model meets the devices: at the first fit, evaluate or predict.
DeviceScope device_scope(int device);
// By a name as in Keras: "/gpu:1", "/cpu:1", "/device:GPU:1", in any case, with or without the slash. Only
// the number counts, so that one program runs on GPUs and on groups of cores. Throws InvalidArgument for
// other text.
DeviceScope device_scope(std::string_view name);
inline DeviceScope device_scope(const char* name) {
  return device_scope(std::string_view(name));
}

// Of the innermost scope of this thread; -1: none.
int scoped_device();

}  // namespace rondo
