#include "tests/sim/mistakes.h"

#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <utility>

namespace rondo::sim {
namespace {

struct Record {
  std::mutex mutex;
  bool on = false;
  std::vector<std::string> texts;
};

Record& record() {
  static Record* const kRecord = new Record;  // never destroyed: stream threads outlive main
  return *kRecord;
}

}  // namespace

void die(const std::string& text) {
  const std::string line = "rondo_cuda_sim: " + text + "\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
  std::abort();
}

void mistake(const std::string& text) {
  {
    const std::scoped_lock lock(record().mutex);
    if (record().on) {
      record().texts.push_back(text);
      return;
    }
  }
  die("MISTAKE: " + text);
}

void record_mistakes(bool on) {
  const std::scoped_lock lock(record().mutex);
  record().on = on;
}

std::vector<std::string> take_mistakes() {
  const std::scoped_lock lock(record().mutex);
  return std::exchange(record().texts, {});
}

}  // namespace rondo::sim
