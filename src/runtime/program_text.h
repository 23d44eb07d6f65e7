// A Program as text, complete: parse_program(to_text(p)) is p, but for the tensors of its
// constants, of which the text has the digests. (Program::str is shorter, for people.)
#pragma once

#include <string>
#include <string_view>

#include "runtime/program.h"

namespace smelt {

std::string to_text(const Program& program);
Program parse_program(std::string_view text);  // Error with line and column on bad text

}  // namespace smelt
