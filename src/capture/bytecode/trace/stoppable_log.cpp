#include "capture/bytecode/trace/stoppable_log.h"

#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {

void StoppableLog::stop(BreakReason reason, std::string detail) noexcept {
  if (break_) return;
  if (log_) log_->pause();
  break_.emplace();
  break_->reason = reason;
  break_->detail = std::move(detail);
  const SavedError error;
  end();
  if (!locate) return;
  try {
    locate(*break_);
  } catch (const std::exception&) {
    break_->file.clear();  // a break without a line
  }
}

void StoppableLog::end() noexcept {
  if (has_failed_) return;  // no segment is made of it, and it may lack parts
  try {
    note_end();
  } catch (const std::exception&) {
    has_failed_ = true;
  }
}

void StoppableLog::fail(const std::exception& problem) noexcept {
  has_failed_ = true;
  std::string detail;
  try {
    detail = problem.what();
  } catch (const std::exception&) {
  }
  stop(BreakReason::internal, std::move(detail));
}

void StoppableLog::stop_at(Break known) noexcept {
  if (break_) return;
  if (log_) log_->pause();
  break_ = std::move(known);
  end();
}

void StoppableLog::check_log(bool thorough) {
  if (!active()) return;
  if (auto trouble = log_->take_trouble(thorough)) stop(trouble->reason, trouble->detail);
}

}  // namespace smelt::bytecode
