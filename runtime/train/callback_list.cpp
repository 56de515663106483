#include "runtime/train/callback_list.h"

#include "runtime/base/error.h"

namespace rondo {

namespace {

template <class E>
[[noreturn]] void name_callback(const E& error, const Callback& callback) {
  raise<E>("{} (in callback {})", error.what(), callback.name());
}

// Calls `action`; an exception gets the callback's name behind its text and keeps its type if it is one of
// error.h.
template <class Action>
void call(Callback& callback, Action&& action) {
  try {
    action(callback);
  } catch (const PeerError&) {
    throw;
  } catch (const InvalidArgument& e) {
    name_callback(e, callback);
  } catch (const FileError& e) {
    name_callback(e, callback);
  } catch (const DeviceError& e) {
    name_callback(e, callback);
  } catch (const Unavailable& e) {
    name_callback(e, callback);
  } catch (const MismatchError& e) {
    name_callback(e, callback);
  } catch (const NumericError& e) {
    name_callback(e, callback);
  } catch (const InternalError& e) {
    name_callback(e, callback);
  } catch (const std::exception& e) {
    name_callback(Error(e.what()), callback);
  } catch (...) {
    name_callback(Error("an exception that is not a std::exception"), callback);
  }
}

}  // namespace

void set_log(Logs& logs, const std::string& name, double value) {
  for (auto& [known, old] : logs) {
    if (known != name) continue;
    old = value;
    return;
  }
  logs.emplace_back(name, value);
}

bool CallbackList::decides() const {
  for (const Callback* callback : callbacks_) {
    if (callback->decides()) return true;
  }
  return false;
}

void CallbackList::train_begin(const RunReport& report, TrainingControl& control) {
  stopper_ = nullptr;
  for (Callback* callback : callbacks_) callback->attach(control);
  for (Callback* callback : callbacks_) {
    call(*callback, [&](Callback& c) { c.on_train_begin(report); });
  }
}

void CallbackList::epoch_begin(int64_t epoch) {
  for (Callback* callback : callbacks_) {
    call(*callback, [&](Callback& c) { c.on_epoch_begin(epoch); });
  }
}

void CallbackList::step_end(const StepReport& report) {
  for (Callback* callback : callbacks_) {
    call(*callback, [&](Callback& c) {
      if (c.on_step_end(report) == Decision::kStop && stopper_ == nullptr) stopper_ = &c;
    });
  }
}

void CallbackList::epoch_end(EpochReport& report) {
  for (Callback* callback : callbacks_) {
    call(*callback, [&](Callback& c) {
      c.add_logs(report.logs);
      if (c.on_epoch_end(report) == Decision::kStop && stopper_ == nullptr) stopper_ = &c;
    });
  }
}

void CallbackList::train_end(const EndReport& report) {
  for (Callback* callback : callbacks_) {
    call(*callback, [&](Callback& c) { c.on_train_end(report); });
  }
}

}  // namespace rondo
