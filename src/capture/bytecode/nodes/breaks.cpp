#include "capture/bytecode/nodes/breaks.h"

#include <cctype>

namespace smelt::bytecode {
namespace {

struct BreakRow {
  const char* name;
  const char* sentence;
  const char* remedy;
};

constexpr BreakRow kRows[] = {
#define SMELT_BREAK(name, sentence, remedy) {#name, sentence, remedy},
#include "capture/bytecode/nodes/breaks.def"
#undef SMELT_BREAK
};

const BreakRow& row_of(BreakReason reason) { return kRows[static_cast<size_t>(reason)]; }

}  // namespace

std::string Break::name() const { return row_of(reason).name; }

std::string Break::sentence() const {
  std::string text = row_of(reason).sentence;
  if (const size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, detail);
  return text;
}

std::string Break::remedy() const { return row_of(reason).remedy; }

std::string Break::str() const {
  std::string text;
  if (!file.empty()) text += file + ":" + std::to_string(line) + ", in " + function;
  if (!module.empty()) text += ", in " + module;
  if (!called_at.empty()) text += ", called at " + called_at;
  if (!text.empty()) text += ": ";
  std::string advice = remedy();
  advice[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(advice[0])));
  return text + sentence() + ". " + advice + ".";
}

}  // namespace smelt::bytecode
