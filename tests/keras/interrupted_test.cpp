// Saves that do not come to their end: killed at any moment, or on a full disk. The file under the name is
// then the old one, whole, and the next save works.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "models/files.h"
#include "models/layers/core.h"
#include "models/model.h"
#include "models/optimizer_state.h"
#include "runtime/base/error.h"
#include "tests/keras/golden.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

pid_t start_train(std::vector<std::string> words) {
  words.insert(words.begin(), {RONDO_TRAIN, "--data", "synthetic:64", "--batch-size", "64", "--threads", "1",
                               "--progress", "none"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  posix_spawn(&pid, RONDO_TRAIN, nullptr, nullptr, argv.data(), environ);
  return pid;
}

int status_of(pid_t pid) {
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

int parts_in(const test::Folder& folder) {
  int parts = 0;
  for (const std::string& name : folder.names()) parts += name.ends_with(".part") ? 1 : 0;
  return parts;
}

void wait_until(const std::function<bool()>& done) {
  for (int i = 0; i < 20'000 && !done(); ++i) std::this_thread::sleep_for(500us);
}

// A training that saves after every step and is killed while it does, again and again.
TEST(InterruptedSave, KilledAtAnyMomentLeavesTheOldFile) {
  const test::Folder folder;
  const std::string path = folder.file("m.keras");
  ASSERT_EQ(status_of(start_train({"--model", "mlp", "--epochs", "1", "--save", path})), 0);
  int64_t steps = load_model(path).optimizer_state().iterations;
  EXPECT_EQ(steps, 1);
  int interrupted = 0;
  for (int kill_number = 0; kill_number < 6; ++kill_number) {
    SCOPED_TRACE(kill_number);
    const auto before = std::filesystem::last_write_time(path);
    const pid_t pid = start_train({"--load", path, "--epochs", "1000000", "--checkpoint", path});
    ASSERT_GT(pid, 0);
    // In the middle of its second save, or a little later.
    wait_until([&] { return std::filesystem::last_write_time(path) != before; });
    wait_until([&] { return parts_in(folder) > 0; });
    std::this_thread::sleep_for(kill_number * 3ms);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_TRUE(WIFSIGNALED(status_of(pid)));
    interrupted += parts_in(folder);
    const int64_t now = load_model(path).optimizer_state().iterations;
    EXPECT_GT(now, steps);
    steps = now;
  }
  EXPECT_GT(interrupted, 0);
  ASSERT_EQ(status_of(start_train({"--load", path, "--epochs", "1", "--save", path})), 0);
  EXPECT_EQ(load_model(path).optimizer_state().iterations, steps + 1);
  EXPECT_THAT(folder.names(), ElementsAre("m.keras"));
}

Model dense(int64_t units) {
  return Sequential({layers::Input({.shape = {3}}), layers::Dense{.units = units}}, {.name = "dense"});
}

constexpr int kNoMount = 77;

// In a process of its own, because of the mount.
int save_on_full_disk(const std::string& where) {
  const int spaces = CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER);
  if (unshare(spaces) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", where.c_str(), "tmpfs", 0, "size=2m") != 0) {
    return kNoMount;
  }
  for (const char* name : {"/m.h5", "/m.keras"}) {
    const std::string path = where + name;
    const Model small = dense(5);
    small.save(path);
    try {
      dense(400'000).save(path);
      return 1;
    } catch (const FileError& error) {
      if (std::string(error.what()).find(path) == std::string::npos) return 2;
    }
    if (load_model(path).get_weights() != small.get_weights()) return 3;
    for (const auto& entry : std::filesystem::directory_iterator(where)) {
      if (entry.path().extension() == ".part") return 4;
    }
    const Model next = dense(6);
    next.save(path);
    if (load_model(path).get_weights() != next.get_weights()) return 5;
  }
  return 0;
}

TEST(InterruptedSave, OnAFullDiskLeavesTheOldFile) {
  const test::Folder folder;
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    int code = 99;
    try {
      code = save_on_full_disk(folder.file("."));
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
    }
    _exit(code);
  }
  const int status = status_of(pid);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoMount) GTEST_SKIP() << "no file system may be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(folder.names(), ElementsAre());
}

}  // namespace
}  // namespace rondo
