// Functions whose instructions in line cover nearly all arguments, and the C library the rest.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>

#include "codegen/cpu/vector_math/value.h"

namespace smelt::vector_math {

// `fast` in the lanes where `covered`; in the others, if there are some, the C library's function
// (`name` of f64, `name` + "f" of f32), called for each lane. A lane's result does not depend on
// its neighbours. The branch is in a function of the module that is written once per name and type
// ("smelt.sin.f32x8"), so that the caller's block stays whole.
struct Guarded {
  Mask covered;
  Num fast;
};
Num call_guarded(const std::string& name, std::initializer_list<Num> args,
                 const std::function<Guarded(std::span<const Num>)>& body);

}  // namespace smelt::vector_math
