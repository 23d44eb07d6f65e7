// Guesses about what is in tensors: where a run depends on it, the program takes it for what it was
// and checks it.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace smelt::bytecode {

struct Guesses {
  bool are_allowed = true;  // else the graph ends where one would be made
  bool any = false;         // one was made
  bool were_wrong = false;  // in an earlier run from here
  bool about_flag = false;  // about a flag, without a backward pass
  // By file and line of the program: how often.
  std::map<std::pair<std::string, int>, int> at;
};

}  // namespace smelt::bytecode
