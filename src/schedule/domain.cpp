#include "schedule/domain.h"

#include <algorithm>

namespace smelt {

bool Domain::is_reduced(int dim) const {
  return std::find(reduced.begin(), reduced.end(), dim) != reduced.end();
}

Sizes Domain::outer() const { return kept(false); }

Sizes Domain::inner() const {
  Sizes sizes;
  for (int dim : reduced) sizes.push_back(full[dim]);
  return sizes;
}

Sizes Domain::kept(bool keepdim) const {
  Sizes sizes;
  for (size_t dim = 0; dim < full.size(); ++dim) {
    if (!is_reduced(static_cast<int>(dim)))
      sizes.push_back(full[dim]);
    else if (keepdim)
      sizes.push_back(1);
  }
  return sizes;
}

loops::Indices Domain::full_index() const {
  loops::Indices at;
  int outer = 0;
  int inner = static_cast<int>(full.size() - reduced.size());
  for (size_t dim = 0; dim < full.size(); ++dim) {
    const int number = is_reduced(static_cast<int>(dim)) ? inner++ : outer++;
    at.push_back(full[dim].is(1) ? loops::Index(0) : loops::Index::dim(number));
  }
  return at;
}

loops::Indices Domain::outer_index(bool keepdim) const {
  loops::Indices at;
  int outer = 0;
  for (size_t dim = 0; dim < full.size(); ++dim) {
    if (is_reduced(static_cast<int>(dim))) {
      if (keepdim) at.emplace_back(0);
      continue;
    }
    at.push_back(full[dim].is(1) ? loops::Index(0) : loops::Index::dim(outer));
    ++outer;
  }
  return at;
}

}  // namespace smelt
