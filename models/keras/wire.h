// How the library and its helper program tell each other what is in a file: a stream of records over a
// socket. Neither side trusts the other's numbers: sizes are bounded, and memory is taken as bytes arrive.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "models/keras/file_content.h"

namespace rondo::keras {

// The stream ended, broke, or says something that no counterpart of ours would say.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes to and from the other side. A wait that passes `deadline` (CLOCK_MONOTONIC, ns; 0: none) throws
// WireError.
class Wire {
 public:
  // Borrows the socket. `budget` is the number of bytes it will take in altogether.
  Wire(int socket, int64_t budget, int64_t deadline = 0)
      : socket_(socket), left_(budget), deadline_(deadline) {}

  void send(std::span<const char> bytes);
  void receive(std::span<char> bytes);

  void send_number(int64_t value);
  void send_text(std::string_view text);
  int64_t receive_number();
  std::string receive_text();

  // Throws WireError for more bytes than are left of the budget: before memory is taken for them.
  void expect(int64_t bytes) const;
  bool timed_out() const { return timed_out_; }

 private:
  void wait(short events);

  int socket_;
  int64_t left_;
  int64_t deadline_;
  bool timed_out_ = false;
};

constexpr int64_t kMostText = int64_t{64} << 20;  // bytes of an attribute or a JSON member
constexpr int kMostDepth = 24;                    // groups in groups
constexpr int64_t kMostThings = 1'000'000;        // groups, arrays and texts
constexpr int kMostExtents = 32;

// One record each; a tree is sent as its records, in any order, inside begin_group and end_group.
enum class Record : int64_t { kBeginGroup = 1, kEndGroup, kText, kArray, kConfig, kMetadata, kError, kEnd };

void send_attribute(Wire& wire, std::string_view name, const StoredText& text);
void send_array(Wire& wire, std::string_view name, const StoredArray& array);
void send_group(Wire& wire, const Group& group);  // what is inside

// Records up to kEnd. Throws WireError, also for kError: its text is then `told`.
struct ToldError : WireError {
  using WireError::WireError;
};
FileContent receive_content(Wire& wire);

// Elements of a shape; -1 where it is negative or overflows.
int64_t count_elements(std::span<const int64_t> shape);

}  // namespace rondo::keras
