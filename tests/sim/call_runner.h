// Runs the calls of one operation: moves bytes between ranks and reduces them, on the stream's thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/sim/comm.h"

namespace rondo::sim {

class CallRunner {
 public:
  CallRunner(Comm& comm, uint64_t sequence) : comm_(comm), sequence_(sequence) {}
  Outcome run(const std::vector<Call>& calls, std::string& why);
  static const char* name(Kind kind);

 private:
  // What goes in front of every message.
  struct Header {
    uint64_t sequence = 0;
    uint64_t count = 0;
    int32_t kind = 0, type = 0, op = 0, root = 0;
    bool operator==(const Header&) const = default;
  };

  void collective(const Call& call);
  void all_reduce(const Call& call, const std::byte* in, std::byte* out);
  void reduce_on_root(const Call& call, const std::byte* in, std::byte* out);
  void reduce_scatter(const Call& call, const std::byte* in, std::byte* out);
  void move(const Call& call, const std::byte* in, std::byte* out);
  void point_to_point(const std::vector<Call>& calls);

  void begin(const Call& call);
  void send(int to, const std::byte* data, size_t bytes);
  void receive(int from, std::byte* data, size_t bytes);
  void exchange();  // what was begun; remembers a failure, after which nothing happens any more

  Comm& comm_;
  uint64_t sequence_;
  Header header_;
  std::vector<Transfer> transfers_;
  std::vector<int> peers_;                        // of the transfers
  std::vector<std::unique_ptr<Header>> headers_;  // that came
  std::vector<std::byte> scaled_;
  Outcome outcome_ = Outcome::kDone;
  std::string why_;
};

}  // namespace rondo::sim
