// What happens when the program under test makes a mistake that a real device would punish by luck only.
#pragma once

#include <string>
#include <vector>

namespace rondo::sim {

// Prints "rondo_cuda_sim: <text>" and aborts; while mistakes are recorded, keeps the text instead. Callable
// under any lock.
void mistake(const std::string& text);

// Prints and aborts, whatever the mode.
[[noreturn]] void die(const std::string& text);

// For the double's own tests: from here on mistakes are kept.
void record_mistakes(bool on);
std::vector<std::string> take_mistakes();

}  // namespace rondo::sim
