// What the ranks of a job must agree on before GPUs work together, and the communicator that joins them.
#pragma once

#include <memory>
#include <string>

namespace rondo {

class Communicator;
struct Binding;
struct BindOptions;

// Collective over `host`, on host devices too. Checks that all ranks are bound to the same kind of device
// with the same libraries, that those of a host see equally many GPUs, and that no GPU is bound twice, in
// whichever place of a rank's set, unless options.oversubscribe_gpus; throws MismatchError on every rank
// otherwise. Returns the communicator of the ranks' device memory: NCCL; for GPUs with several ranks one that
// goes through `host`; null where `host` itself serves (host devices). `host` and the binding's device
// outlive it.
std::unique_ptr<Communicator> connect_devices(Communicator& host, Binding& binding,
                                              const BindOptions& options);

}  // namespace rondo
