// The exceptions Rondo throws, and the two ways to throw them.
//
// A message says what was wrong, what was expected and what to do; the type says who can act on it.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace rondo {

// Base of everything Rondo throws on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller's argument is wrong: an option, a shape, a root, a name. Local to the caller, nothing was
// changed.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// A file is missing, unreadable, malformed or cannot be written. The message starts with its path.
class FileError : public Error {
 public:
  using Error::Error;
};

// A device refused: absent, out of memory, driver failure.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// A device, or the host, has not enough memory. The message says how much was wanted and how much there is.
class OutOfMemory : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

// This build has no such part (a library was absent at configure time).
class Unavailable : public Error {
 public:
  using Error::Error;
};

// Ranks disagree: options, data, or the arguments of one collective. Raised on every rank; a communicator
// stays usable afterwards.
class MismatchError : public Error {
 public:
  using Error::Error;
};

// A peer or the transport between ranks failed, or a deadline passed. Sticky: the communicator repeats it.
class PeerError : public Error {
 public:
  using Error::Error;
};

// The numbers went wrong: a loss or gradient that is NaN or infinite.
class NumericError : public Error {
 public:
  using Error::Error;
};

// A broken invariant of Rondo itself; the message names the place.
class InternalError : public Error {
 public:
  using Error::Error;
};

template <class E, class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

// Checks a caller's argument; throws InvalidArgument with the formatted message when the condition is false.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) raise<InvalidArgument>(format, std::forward<Args>(args)...);
}

[[noreturn]] void fail_check(const char* expression, const char* file, int line);

}  // namespace rondo

// Checks an invariant that only a bug in Rondo can break.
#define RONDO_CHECK(condition)                                             \
  do {                                                                     \
    if (!(condition)) ::rondo::fail_check(#condition, __FILE__, __LINE__); \
  } while (false)
