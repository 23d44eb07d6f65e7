#include "log/contents.h"

#include <algorithm>
#include <ranges>

#include "log/own_ops.h"
#include "ops/facts.h"

namespace smelt {
namespace {

using Kind = LoggedValue::Kind;

// The call that made it; nullptr: none of the log's.
const LoggedCall* maker_of(const CallLog& log, const LoggedValue& value) {
  return value.kind == Kind::result && value.call >= 0 ? &log.calls[static_cast<size_t>(value.call)]
                                                       : nullptr;
}

// Whether `accept` takes the value and all that it is computed from. `each_part` gives the
// arguments of a call that count.
template <class Accept, class EachPart>
bool is_made_of(const CallLog& log, LogValue value, const Accept& accept,
                const EachPart& each_part) {
  std::vector<LogValue> open{value};
  std::vector<bool> seen(log.values.size());
  for (size_t i = 0; i < open.size(); ++i) {
    const LoggedValue& known = log.value(open[i]);
    if (known.dynamic || !accept(known)) return false;
    const LoggedCall* maker = maker_of(log, known);
    if (maker == nullptr) continue;
    each_part(*maker, [&](LogValue argument) {
      if (seen[argument]) return;
      seen[argument] = true;
      open.push_back(argument);
    });
  }
  return true;
}

template <class Accept>
bool is_made_of(const CallLog& log, LogValue value, const Accept& accept) {
  return is_made_of(log, value, accept,
                    [](const LoggedCall& call, const auto& visit) { each_argument(call, visit); });
}

bool holds_integers(const LoggedValue& value) {
  return value.type && (is_integral(value.type->dtype) || value.type->dtype == DType::b8);
}

// By a call so far.
bool is_written(const CallLog& log, int32_t memory) {
  return std::ranges::any_of(log.calls, [&](const LoggedCall& call) {
    return std::ranges::any_of(call.written,
                               [&](LogValue to) { return log.value(to).memory == memory; });
  });
}

// An index says which elements are taken, not what they are: a shuffled mask is full if the mask
// is.
template <class Visit>
void each_source(const LoggedCall& call, const Visit& visit) {
  const size_t count =
      facts_of(call.op).takes_elements && !call.args.empty() ? 1 : call.args.size();
  for (size_t i = 0; i < count; ++i) each_tensor_of(call.args[i], visit);
}

// Whether a memory may be an input's: of what has none that is known, it may.
class OutsideMemory {
 public:
  explicit OutsideMemory(const CallLog& log) : inputs_(log) {}
  bool contains(int32_t memory) const { return memory == 0 || inputs_.contains(memory); }

 private:
  const InputMemory inputs_;
};

// Random numbers alone decide about it.
bool is_drawn(const CallLog& log, LogValue value) {
  const OutsideMemory outside(log);
  bool draws = false;
  const auto takes = [&](const LoggedValue& known) {
    if (known.kind == Kind::input || outside.contains(known.memory)) return false;
    if (const LoggedCall* maker = maker_of(log, known)) draws |= maker->random;
    return true;
  };
  const bool has_no_inputs =
      is_made_of(log, value, takes,
                 [](const LoggedCall& call, const auto& visit) { each_source(call, visit); });
  return has_no_inputs && draws;
}

// A comparison of numbers from [0, 1) with one that is not among them. `is_exact`: none of them is
// rounded to 1.
bool is_certain(const LoggedCall& call, const LoggedCall& drawn, bool is_exact) {
  if (!call.takes.empty() || !drawn.takes.empty() || call.args.size() != 2 ||
      !call.args[1].is_number() || call.args[1].is<std::complex<double>>() ||
      !facts_of(drawn.op).draws_unit_interval)
    return false;
  const Arg& bound = call.args[1];
  const double number = bound.is<double>() ? bound.get<double>()
                        : bound.is<bool>() ? static_cast<double>(bound.get<bool>())
                                           : static_cast<double>(bound.get<Size>().known());
  const bool is_above = is_exact ? number >= 1 : number > 1;
  switch (facts_of(call.op).compares) {
    case Comparison::none:
    case Comparison::equal:
    case Comparison::unequal: return false;
    case Comparison::below: return number <= 0 || is_above;
    case Comparison::above: return number < 0 || is_above;
  }
  return false;
}

}  // namespace

bool is_single(const CallLog& log, LogValue value) {
  return is_made_of(log, value, [](const LoggedValue& known) { return elements_of(known) == 1; });
}

// A comparison of random numbers that is no gamble has one outcome as well. On a GPU only integers
// are the same each time: its kernels may add floating numbers in any order.
bool is_fixed(const CallLog& log, LogValue value) {
  if (is_drawn(log, value)) return !is_gamble(log, value);
  const OutsideMemory outside(log);
  const auto is_exact = [](const LoggedValue& known) {
    return known.type &&
           (known.type->device.is_cpu() || (known.type->device.is_cuda() && holds_integers(known)));
  };
  const auto gives_the_same = [](const LoggedCall& call) {
    return !call.random && call.takes.empty() && call.written.empty() &&
           !own_ops::is_custom(call.op) && !facts_of(call.op).is_uninitialized;
  };
  return is_made_of(log, value, [&](const LoggedValue& known) {
    if (known.kind == Kind::input || known.inner || !is_exact(known) ||
        outside.contains(known.memory))
      return false;
    if (const LoggedCall* maker = maker_of(log, known);
        known.kind == Kind::result && (maker == nullptr || !gives_the_same(*maker)))
      return false;
    return !is_written(log, known.memory);
  });
}

bool is_gamble(const CallLog& log, LogValue value) {
  if (!is_drawn(log, value)) return false;
  const LoggedCall* call = maker_of(log, log.value(value));
  if (call == nullptr || call->random || !call->written.empty()) return true;
  std::vector<LogValue> arguments;
  each_argument(*call, [&](LogValue argument) { arguments.push_back(argument); });
  if (arguments.size() != 1 || is_written(log, log.value(value).memory) ||
      is_written(log, log.value(arguments[0]).memory))
    return true;
  const LoggedValue& source = log.value(arguments[0]);
  const LoggedCall* drawn = maker_of(log, source);
  const bool is_exact =
      source.type && (source.type->dtype == DType::f32 || source.type->dtype == DType::f64);
  return drawn == nullptr || !is_certain(*call, *drawn, is_exact);
}

// What is computed from them may be of floating point: a mask that is scaled, resized, compared.
bool is_steady(const CallLog& log, LogValue value) {
  const auto packs = [](const LoggedCall& call) { return facts_of(call.op).packs_sequences; };
  const auto takes = [&](const LoggedValue& known) {
    if (known.kind == Kind::input) return holds_integers(known);
    const LoggedCall* maker = maker_of(log, known);
    return maker == nullptr || (!maker->random && (!packs(*maker) || holds_integers(known)));
  };
  return is_made_of(log, value, takes, [&](const LoggedCall& call, const auto& visit) {
    for (size_t i = packs(call) ? 1 : 0; i < call.args.size(); ++i)
      each_tensor_of(call.args[i], visit);
  });
}

// What `any` finds may stay as it is either way: an expert that gets tokens gets some again.
bool is_check(const CallLog& log, LogValue value, bool truth) {
  const LoggedCall* maker = maker_of(log, log.value(value));
  if (maker == nullptr) return false;
  // Computed from what ops gave between two numbers that were read before, it is a loop's that has
  // gone on until now, no one knows for how long.
  const auto reads = [](const LoggedCall& call) { return call.number >= 0 && !call.counts; };
  const auto is_new = [&](const LoggedValue& known) {
    if (maker_of(log, known) == nullptr) return true;
    const auto at = log.calls.begin() + known.call;
    return std::ranges::none_of(log.calls.begin(), at, reads) ||
           std::ranges::none_of(at, log.calls.end(), reads);
  };
  const OpFacts& facts = facts_of(maker->op);
  if (facts.asks == Quantifier::any) return !truth || is_made_of(log, value, is_new);
  if (truth && facts.asks == Quantifier::all) return true;
  // Numbers are equal by design, not by chance (mask.sum() == mask.numel()), unless they are drawn.
  return facts.compares == (truth ? Comparison::equal : Comparison::unequal) &&
         is_made_of(log, value, [&](const LoggedValue& known) {
           const LoggedCall* call = maker_of(log, known);
           return call == nullptr || !call->random;
         });
}

LogValue source_of_number(const CallLog& log, int32_t number) {
  const auto call = std::ranges::find(log.calls, number, &LoggedCall::number);
  return call == log.calls.end() ? -1 : first_argument(*call);
}

}  // namespace smelt
