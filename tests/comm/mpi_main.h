#pragma once

#include <memory>

namespace rondo {
class MpiSession;
// The session of this test program; made by main.
std::shared_ptr<MpiSession> test_session();
}  // namespace rondo
