// What a log takes for granted although contents decide it: the size of what a mask selects, a
// number that C code reads to index with. The run that wrote it down knows it, each later run
// checks it, and a run for which it does not hold is none (Mispredicted). It is guessed only where
// whole numbers decide (positions, labels, padding), which are most often of the same kind in each
// call; what comes out of floating-point arithmetic is another in each.
#include <algorithm>

#include "capture/log/grad_ops.h"
#include "capture/log/op_log.h"
#include "log/contents.h"
#include "log/own_ops.h"

namespace smelt {
namespace {

bool is_mask(const LoggedValue& value) {
  return value.type && (value.type->dtype == DType::b8 || value.type->dtype == DType::u8);
}

// Of repeat_interleave(self, repeats, dim).
int repeated_dim(const CallLog& log, const LoggedCall& call) {
  const Size* dim = std::get_if<Size>(&call.args.at(2));
  const std::optional<TensorType>& self = log.value(first_argument(call)).type;
  if (dim == nullptr || !dim->is_known() || !self) return 0;
  return static_cast<int>(dim->known() < 0 ? dim->known() + std::ssize(self->sizes) : dim->known());
}

// The dimension of the results that has a place for each element that is selected; -1: none.
int selected_dim(const CallLog& log, const LoggedCall& call, const OpInfo& op) {
  switch (op.facts.selects) {
    case Selection::none: return -1;
    case Selection::places:
    case Selection::place_columns:
    case Selection::masked:
    case Selection::unique: return 0;
    case Selection::repeated: return repeated_dim(log, call);
    case Selection::indexed: break;
  }
  int dim = -1;
  for (const Arg& arg : call.args) {
    const ArgList* indices = std::get_if<ArgList>(&arg);
    if (indices == nullptr) continue;
    for (size_t i = 0; i < indices->size(); ++i) {
      const Ref* index = std::get_if<Ref>(&(*indices)[i]);
      if (index == nullptr) continue;
      if (dim >= 0 || !is_mask(log.value(index->id))) return -1;  // beside other indices
      dim = static_cast<int>(i);
    }
  }
  return dim;
}

}  // namespace

// Whole numbers alone.
bool OpLog::may_decide(const OpenCall& open) const {
  const LoggedCall& call = open.plain;
  if (call.has_effects || has_effects()) return false;  // a wrong guess would call it again
  const auto has_type = [&](LogValue value) { return value >= 0 && plain_.value(value).type; };
  if (!std::ranges::all_of(call.results, has_type)) return false;
  const int deciding = open.real.op->facts.sized_by_argument;
  const bool masks_only = open.real.op->facts.by_masks_only;
  bool is_known = true;
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (deciding >= 0 && i != static_cast<size_t>(deciding)) continue;
    each_tensor_of(call.args[i], [&](LogValue value) {
      const bool matters = !masks_only || is_mask(plain_.value(value));
      is_known = is_known && (!matters || is_steady(plain_, value));
    });
  }
  return is_known && keeps_numbers_;
}

bool OpLog::guess_sizes(const OpenCall& open) {
  return may_decide(open) && may_guess_ && may_guess_();
}

// Sizes 0 and 1 compute differently: they are guessed.
bool OpLog::count_sizes(const OpenCall& open) {
  if (open.plain.results.empty() || !may_decide(open)) return false;
  const int dim = selected_dim(plain_, open.plain, *open.real.op);
  const Sizes& sizes = plain_.value(open.plain.results[0]).type->sizes;
  return dim >= 0 && dim < static_cast<int>(sizes.size()) &&
         sizes[static_cast<size_t>(dim)].known() >= 2 && may_count_ && may_count_();
}

// Behind the last call, which counts.
void OpLog::read_count() {
  const LoggedCall& by = plain_.calls.back();
  const int dim = selected_dim(plain_, by, *real_calls_.back().op);
  const LogValue of = by.results[0];
  const Size& size = plain_.value(of).type->sizes[static_cast<size_t>(dim)];
  OpenCall call = open(size_op());
  call.plain.args = {Arg(Ref{of}), Arg(Size(dim))};
  call.plain.number = numbers_++;
  call.plain.given = Arg(size);
  call.plain.counts = true;
  call.plain.ambient = by.ambient;
  close(std::move(call));
}

void OpLog::count_number(int32_t number) {
  const auto call = std::ranges::find(plain_.calls, number, &LoggedCall::number);
  if (call != plain_.calls.end()) call->counts = true;
}

bool OpLog::expect_numbers(int32_t first) {
  if (has_effects()) return false;
  for (LoggedCall& call : plain_.calls) {
    if (call.number < first || call.op == own_ops::kSize) continue;
    const LogValue source = first_argument(call);
    if (is_fixed(plain_, source)) continue;
    if (!is_steady(plain_, source) || !may_guess_ || !may_guess_()) return false;
    call.expected = true;
  }
  return true;
}

void OpLog::expect_sizes_but(std::span<const NumberStep> numbers) {
  for (LoggedCall& call : plain_.calls)
    if (call.op == own_ops::kSize &&
        std::ranges::find(numbers, call.number, &NumberStep::item) == numbers.end())
      call.expected = true;
}

}  // namespace smelt
