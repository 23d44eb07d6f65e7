#include "log/call_log.h"

#include <algorithm>

#include "base/error.h"

namespace smelt {

InputMemory::InputMemory(const CallLog& log) {
  for (const LoggedValue& value : log.values) {
    if (value.kind != LoggedValue::Kind::input) continue;
    const auto memory = static_cast<size_t>(value.memory);
    if (memory >= is_input_.size()) is_input_.resize(memory + 1);
    is_input_[memory] = true;
  }
}

bool CallLog::takes_dynamic(const LoggedCall& call) const {
  bool takes = false;
  each_argument(call, [&](LogValue id) { takes = takes || value(id).dynamic; });
  return takes;
}

bool CallLog::gives_dynamic(const LoggedCall& call) const {
  return std::ranges::any_of(call.results,
                             [&](LogValue id) { return id >= 0 && value(id).dynamic; });
}

bool is_argument(const LoggedCall& call, LogValue value) {
  bool found = false;
  each_argument(call, [&](LogValue argument) { found = found || argument == value; });
  return found;
}

LogValue first_argument(const LoggedCall& call) {
  LogValue first = -1;
  each_argument(call, [&](LogValue argument) { first = first < 0 ? argument : first; });
  return first;
}

std::optional<int64_t> elements_of(const LoggedValue& value) {
  if (!value.type) return std::nullopt;
  return value.type->numel().as_known();
}

uint64_t CallLog::hash() const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char character : str())
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3;
  return hash;
}

namespace {

class Verifier {
 public:
  explicit Verifier(const CallLog& log) : log_(log), is_made_(log.values.size()) {}

  void run() {
    SMELT_CHECK(!log_.ambients.empty(), "a log without an ambient");
    for (size_t i = 0; i < log_.values.size(); ++i) {
      const LoggedValue& value = log_.values[i];
      const bool is_result = value.kind == LoggedValue::Kind::result;
      SMELT_CHECK(is_result == (value.call >= 0) || value.inner,
                  name(i) + " is a result without a call, or has one and is none");
      SMELT_CHECK(value.call < static_cast<int32_t>(log_.calls.size()),
                  name(i) + " is made by a call that is not there");
      is_made_[i] = !is_result || value.inner;
    }
    for (size_t i = 0; i < log_.calls.size(); ++i) look_at(i);
    for (const LogValue output : log_.outputs)
      SMELT_CHECK(output < 0 || is_there(output), "an output that nothing makes");
  }

 private:
  static std::string name(size_t value) { return "%" + std::to_string(value); }
  bool is_there(LogValue id) const {
    return static_cast<size_t>(id) < is_made_.size() && is_made_[id];
  }

  void look_at(size_t index) {
    const LoggedCall& call = log_.calls[index];
    const std::string where = "call " + std::to_string(index) + ", " + call.op.str() + ": ";
    SMELT_CHECK(call.ambient >= 0 && static_cast<size_t>(call.ambient) < log_.ambients.size(),
                where + "an ambient that is not there");
    each_argument(call, [&](LogValue id) {
      SMELT_CHECK(is_there(id), where + "takes " + name(id) + ", which is not made yet");
    });
    for (const LogValue id : call.written)
      SMELT_CHECK(is_there(id), where + "changes " + name(id) + ", which is not made yet");
    for (const VersionRise& rise : call.rises)
      SMELT_CHECK(rise.value >= 0 && static_cast<size_t>(rise.value) < is_made_.size(),
                  where + "the version of a value that is not there");
    SMELT_CHECK(call.given.is_none() || call.number >= 0, where + "gives what is no number");
    for (const TakenNumber& number : call.takes)
      SMELT_CHECK(number.argument < call.args.size(), where + "a number without an argument");
    for (const LogValue id : call.results) {
      if (id < 0) continue;
      SMELT_CHECK(static_cast<size_t>(id) < is_made_.size(), where + "a result out of range");
      const bool is_own = log_.value(id).call == static_cast<int32_t>(index);
      SMELT_CHECK(is_own || is_there(id), where + name(id) + " is made by another call");
      is_made_[id] = true;
    }
  }

  const CallLog& log_;
  std::vector<bool> is_made_;
};

}  // namespace

void CallLog::verify() const { Verifier(*this).run(); }

}  // namespace smelt
