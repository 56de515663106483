#include "tests/sim/stream.h"

#include <sys/prctl.h>

#include <chrono>
#include <thread>
#include <utility>

#include "tests/sim/driver.h"

namespace rondo::sim {

bool Point::done() const {
  return stream == nullptr || stream->completed() >= tick;
}
void Point::wait() const {
  if (stream != nullptr) stream->wait_completed(tick);
}

Stream::Stream(const Options& options)
    : submitted(options.first), options_(options), completed_(options.first) {}

std::shared_ptr<Stream> Stream::start(const Options& options) {
  std::shared_ptr<Stream> stream(new Stream(options));
  std::thread([stream] { stream->run(); }).detach();
  return stream;
}

std::string Stream::name() const {
  const std::string device = " of device " + std::to_string(options_.device);
  return options_.is_default ? "the default stream" + device
                             : "stream " + std::to_string(options_.number) + device;
}

void Stream::push(Task task) {
  const std::scoped_lock lock(mutex_);
  queue_.push_back(std::move(task));
  if (queue_.size() == 1) queued_.notify_one();
}

void Stream::close() {
  const std::scoped_lock lock(mutex_);
  closing_ = true;
  queued_.notify_one();
}

void Stream::wait_completed(uint64_t tick) {
  if (completed() >= tick) return;
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return completed() >= tick; });
}

void Stream::run() {
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds: short delays shall be short
  prctl(PR_SET_NAME, "sim stream");
  driver().memory.unlock_thread();
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      queued_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
    }
    for (const Point& point : task.after) point.wait();
    if (task.delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(task.delay_us));
    if (task.body) {
      if (!task.opens.empty()) {
        const std::scoped_lock lock(driver().mutex);
        driver().memory.open(task.opens);
      }
      task.body();
      if (!task.opens.empty()) {
        const std::scoped_lock lock(driver().mutex);
        driver().memory.close(task.opens);
      }
    }
    const std::scoped_lock lock(mutex_);
    queue_.pop_front();
    completed_.store(task.tick, std::memory_order_release);
    done_.notify_all();
  }
}

}  // namespace rondo::sim
