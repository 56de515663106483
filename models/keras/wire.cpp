#include "models/keras/wire.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace rondo::keras {
namespace {

int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

template <class T>
std::span<const char> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Memory grows with what has arrived: a size alone takes none.
template <class T>
std::vector<T> receive_values(Wire& wire, int64_t count) {
  constexpr int64_t kPiece = int64_t{4} << 20;
  wire.expect(count * static_cast<int64_t>(sizeof(T)));
  std::vector<T> values;
  while (static_cast<int64_t>(values.size()) < count) {
    const size_t before = values.size();
    const int64_t more = std::min<int64_t>(count - static_cast<int64_t>(before), kPiece);
    values.resize(before + static_cast<size_t>(more));
    wire.receive({reinterpret_cast<char*>(values.data() + before), static_cast<size_t>(more) * sizeof(T)});
  }
  return values;
}

StoredText receive_stored_text(Wire& wire) {
  StoredText text;
  text.is_list = wire.receive_number() != 0;
  const int64_t count = wire.receive_number();
  if (count < 0 || count > kMostThings) throw WireError("a list without measure");
  for (int64_t i = 0; i < count; ++i) text.values.push_back(wire.receive_text());
  if (!text.is_list && count != 1) throw WireError("a text that is none");
  return text;
}

StoredArray receive_array(Wire& wire) {
  StoredArray array;
  const bool whole = wire.receive_number() != 0;
  const int64_t rank = wire.receive_number();
  if (rank < 0 || rank > kMostExtents) throw WireError("an array without measure");
  for (int64_t i = 0; i < rank; ++i) array.shape.push_back(wire.receive_number());
  const int64_t count = count_elements(array.shape);
  if (count < 0) throw WireError("an array without measure");
  if (whole) {
    array.values = receive_values<int64_t>(wire, count);
  } else {
    array.values = receive_values<float>(wire, count);
  }
  return array;
}

}  // namespace

void Wire::wait(short events) {
  for (;;) {
    int patience = -1;
    if (deadline_ != 0) {
      const int64_t left = deadline_ - now();
      patience = left <= 0 ? 0 : static_cast<int>(std::min<int64_t>(left / 1'000'000 + 1, 1'000'000));
    }
    pollfd waiting{.fd = socket_, .events = events, .revents = 0};
    const int ready = poll(&waiting, 1, patience);
    if (ready > 0) return;
    if (ready == 0 && deadline_ != 0 && now() >= deadline_) {
      timed_out_ = true;
      throw WireError("time is up");
    }
    if (ready < 0 && errno != EINTR) throw WireError(strerror(errno));
  }
}

void Wire::send(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait(POLLOUT);
    } else if (errno != EINTR) {
      throw WireError(strerror(errno));
    }
  }
}

void Wire::expect(int64_t bytes) const {
  if (bytes > left_) throw WireError("more data than the file can hold");
}

void Wire::receive(std::span<char> bytes) {
  expect(static_cast<int64_t>(bytes.size()));
  left_ -= static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      throw WireError("the other side is gone");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait(POLLIN);
    } else if (errno != EINTR) {
      throw WireError(strerror(errno));
    }
  }
}

void Wire::send_number(int64_t value) {
  send({reinterpret_cast<const char*>(&value), sizeof(value)});
}

void Wire::send_text(std::string_view text) {
  send_number(static_cast<int64_t>(text.size()));
  send(text);
}

int64_t Wire::receive_number() {
  int64_t value = 0;
  receive({reinterpret_cast<char*>(&value), sizeof(value)});
  return value;
}

std::string Wire::receive_text() {
  const int64_t size = receive_number();
  if (size < 0 || size > kMostText) throw WireError("a text without measure");
  expect(size);
  std::string text(static_cast<size_t>(size), '\0');
  receive(text);
  return text;
}

void send_attribute(Wire& wire, std::string_view name, const StoredText& text) {
  wire.send_number(static_cast<int64_t>(Record::kText));
  wire.send_text(name);
  wire.send_number(text.is_list);
  wire.send_number(static_cast<int64_t>(text.values.size()));
  for (const std::string& value : text.values) wire.send_text(value);
}

void send_array(Wire& wire, std::string_view name, const StoredArray& array) {
  wire.send_number(static_cast<int64_t>(Record::kArray));
  wire.send_text(name);
  wire.send_number(static_cast<int64_t>(array.values.index()));
  wire.send_number(static_cast<int64_t>(array.shape.size()));
  for (const int64_t extent : array.shape) wire.send_number(extent);
  std::visit([&](const auto& values) { wire.send(bytes_of(values)); }, array.values);
}

void send_group(Wire& wire, const Group& group) {
  for (const auto& [name, text] : group.attributes) send_attribute(wire, name, text);
  for (const auto& [name, array] : group.arrays) send_array(wire, name, array);
  for (const auto& [name, inner] : group.groups) {
    wire.send_number(static_cast<int64_t>(Record::kBeginGroup));
    wire.send_text(name);
    send_group(wire, *inner);
    wire.send_number(static_cast<int64_t>(Record::kEndGroup));
  }
}

FileContent receive_content(Wire& wire) {
  FileContent content;
  std::vector<Group*> open{&content.root};
  for (int64_t things = 0; things < kMostThings; ++things) {
    const auto record = static_cast<Record>(wire.receive_number());
    switch (record) {
      case Record::kBeginGroup: {
        if (static_cast<int>(open.size()) > kMostDepth) throw WireError("groups too deep");
        auto& group = open.back()->groups[wire.receive_text()];
        if (!group) group = std::make_unique<Group>();
        open.push_back(group.get());
        break;
      }
      case Record::kEndGroup:
        if (open.size() < 2) throw WireError("a group ends that was not begun");
        open.pop_back();
        break;
      case Record::kText: {
        std::string name = wire.receive_text();
        open.back()->attributes.insert_or_assign(std::move(name), receive_stored_text(wire));
        break;
      }
      case Record::kArray: {
        std::string name = wire.receive_text();
        open.back()->arrays.insert_or_assign(std::move(name), receive_array(wire));
        break;
      }
      case Record::kConfig:
        content.config_json = wire.receive_text();
        break;
      case Record::kMetadata:
        content.metadata_json = wire.receive_text();
        break;
      case Record::kError:
        throw ToldError(wire.receive_text());
      case Record::kEnd:
        if (open.size() != 1) throw WireError("a group that does not end");
        return content;
      default:
        throw WireError("an unknown record");
    }
  }
  throw WireError("more than a million things");
}

int64_t count_elements(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count) || count > (int64_t{1} << 40)) return -1;
  }
  return count;
}

}  // namespace rondo::keras
