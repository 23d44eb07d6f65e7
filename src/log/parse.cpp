// Reads the text form that the head of print.cpp shows, line by line. Values are numbered from 0
// on, in any order, and none is left out.
#include <map>
#include <utility>

#include "base/error.h"
#include "base/reader.h"
#include "log/call_log.h"

namespace smelt {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : reader_(text) {}

  CallLog run() {
    using Kind = LoggedValue::Kind;
    reader_.skip_empty_lines();
    if (!reader_.accept_word("log")) reader_.fail("'log {'");
    reader_.expect("{");
    reader_.end_line();
    while (reader_.accept_word("ambient")) parse_ambient();
    while (true) {
      if (reader_.accept_word("input"))
        define(Kind::input, false);
      else if (reader_.accept_word("const"))
        define(Kind::constant, false);
      else if (reader_.accept_word("inner"))
        define(Kind::result, true);
      else
        break;
      reader_.end_line();
    }
    while (!reader_.accept_word("return")) parse_call();
    log_.outputs = parse_list();
    reader_.end_line();
    reader_.expect("}");
    reader_.end_line();
    if (!reader_.at_end()) reader_.fail("the end of the text");
    place_values();
    return std::move(log_);
  }

 private:
  void parse_ambient() {
    if (reader_.accept_word("grad"))
      log_.ambients.push_back({.grad = true});
    else if (reader_.accept_word("no_grad"))
      log_.ambients.push_back({.grad = false});
    else if (reader_.accept_word("inference"))
      log_.ambients.push_back({.grad = false, .inference = true});
    else
      reader_.fail("one of grad, no_grad, inference");
    reader_.end_line();
  }

  LogValue parse_ref() {
    if (reader_.accept_word("none")) return -1;
    reader_.expect("%");
    return reader_.index("the number of a value");
  }

  std::vector<LogValue> parse_list() {
    std::vector<LogValue> ids;
    reader_.expect("(");
    if (reader_.accept(")")) return ids;
    do ids.push_back(parse_ref());
    while (reader_.accept(","));
    reader_.expect(")");
    return ids;
  }

  // %0: f32[2] memory 1 requires_grad
  void define(LoggedValue::Kind kind, bool inner) {
    const size_t place = reader_.place();
    const LogValue id = parse_ref();
    reader_.expect(":");
    define(id, kind, inner, place);
  }
  void define(LogValue id, LoggedValue::Kind kind, bool inner, size_t place) {
    LoggedValue value;
    value.kind = kind;
    value.inner = inner;
    if (kind == LoggedValue::Kind::result && !inner)
      value.call = static_cast<int32_t>(log_.calls.size());
    if (!reader_.accept("?")) value.type = read_type(reader_);
    if (!reader_.accept_word("memory")) reader_.fail("'memory' and its number");
    value.memory = reader_.index("the number of the memory");
    while (true) {
      if (reader_.accept_word("requires_grad"))
        value.requires_grad = true;
      else if (reader_.accept_word("dynamic"))
        value.dynamic = true;
      else if (reader_.accept_word("dual"))
        value.dual = true;
      else if (reader_.accept_word("retains_grad"))
        value.retains_grad = true;
      else if (reader_.accept_word("apart"))
        value.apart = true;
      else
        break;
    }
    if (id < 0 || !defined_.emplace(id, std::move(value)).second)
      reader_.fail_at(place, "a value that is made twice, or has no number");
  }

  void parse_results(LoggedCall& call) {
    if (!reader_.next_is("%") && reader_.peek_word() != "_") return;
    do {
      if (reader_.accept_word("_")) {
        call.results.push_back(-1);
        continue;
      }
      const size_t place = reader_.place();
      call.results.push_back(parse_ref());
      if (reader_.accept(":")) define(call.results.back(), LoggedValue::Kind::result, false, place);
    } while (reader_.accept(","));
    reader_.expect("=");
  }

  void parse_taken(LoggedCall& call) {
    reader_.expect("(");
    do {
      TakenNumber number;
      const size_t place = reader_.place();
      const std::string_view name = reader_.word("a number, as s0");
      if (name.size() < 2 || name[0] != 's') reader_.fail_at(place, "expected a number, as s0");
      number.id = static_cast<uint32_t>(std::stoul(std::string(name.substr(1))));
      if (!reader_.accept_word("at")) reader_.fail("'at' and the place of an argument");
      number.argument = static_cast<uint32_t>(reader_.natural("the place of an argument"));
      if (reader_.accept_word("element")) number.element = reader_.index("the place in a list");
      number.is_tensor = reader_.accept_word("tensor");
      call.takes.push_back(number);
    } while (reader_.accept(","));
    reader_.expect(")");
  }

  void parse_rises(LoggedCall& call) {
    reader_.expect("(");
    do {
      VersionRise& rise = call.rises.emplace_back();
      rise.value = parse_ref();
      if (!reader_.accept_word("by")) reader_.fail("'by' and a number");
      rise.by = static_cast<uint32_t>(reader_.natural("by how much a version rises"));
    } while (reader_.accept(","));
    reader_.expect(")");
  }

  void parse_call() {
    LoggedCall call;
    parse_results(call);
    call.op = OpName(reader_.word("a call, as '%2: f32[3] memory 1 = op(%1)', or 'return'", ":."));
    reader_.expect("(");
    if (!reader_.accept(")")) {
      do call.args.push_back(read_arg(reader_));
      while (reader_.accept(","));
      reader_.expect(")");
    }
    while (!reader_.peek_word().empty()) parse_trait(call);
    log_.calls.push_back(std::move(call));
    reader_.end_line();
  }

  void parse_trait(LoggedCall& call) {
    if (reader_.accept_word("writes"))
      call.written = parse_list();
    else if (reader_.accept_word("takes"))
      parse_taken(call);
    else if (reader_.accept_word("rises"))
      parse_rises(call);
    else if (reader_.accept_word("gives"))
      call.given = read_arg(reader_);
    else if (reader_.accept_word("ambient"))
      call.ambient = reader_.index("the number of an ambient");
    else if (reader_.accept_word("number"))
      call.number = reader_.index("the place of a number");
    else if (reader_.accept_word("recomputed"))
      call.recomputed = reader_.index("the number of a piece");
    else if (reader_.accept_word("effect"))
      call.effect = true;
    else if (reader_.accept_word("random"))
      call.random = true;
    else if (reader_.accept_word("sized"))
      call.sized = true;
    else if (reader_.accept_word("expected"))
      call.expected = true;
    else if (reader_.accept_word("has_effects"))
      call.has_effects = true;
    else if (reader_.accept_word("counts"))
      call.counts = true;
    else if (reader_.accept_word("calls_back"))
      call.calls_back = true;
    else if (reader_.accept_word("registers_hook"))
      call.registers_hook = true;
    else
      reader_.fail("a trait of the call, as 'writes (%1)', 'random' or 'ambient 1'");
  }

  void place_values() {
    for (auto& [id, value] : defined_) {
      if (static_cast<size_t>(id) != log_.values.size())
        throw Error("%" + std::to_string(log_.values.size()) + " is never made");
      log_.values.push_back(std::move(value));
    }
  }

  Reader reader_;
  CallLog log_;
  std::map<LogValue, LoggedValue> defined_;
};

}  // namespace

CallLog CallLog::parse(std::string_view text) { return Parser(text).run(); }

}  // namespace smelt
