#include "ops/meanings/index_places.h"

#include <algorithm>

#include "ops/rules/element.h"

namespace smelt {
namespace {

// Where the dimensions of the broadcast indices stand among those of self[indices].
struct IndexBlock {
  size_t first = 0;
  size_t rank = 0;
};

IndexBlock index_block(const NodeReader& q) {
  const ArgList& list = q.arg(1).get<ArgList>();
  IndexBlock block;
  int runs = 0;
  for (size_t d = 0; d < list.size(); ++d) {
    if (!list[d].is<Ref>()) continue;
    const size_t rank = q.graph().type(list[d].get<Ref>().id).sizes.size();
    block.rank = std::max(block.rank, rank);
    const bool begins = d == 0 || !list[d - 1].is<Ref>();
    if (begins && ++runs == 1) block.first = d;
  }
  // Indexed dimensions that do not stand together are put in front.
  if (runs > 1) block.first = 0;
  return block;
}

}  // namespace

bool is_index(const TensorType& type) {
  return type.dtype == DType::i64 || type.dtype == DType::i32;
}

Sizes indexed_sizes(const NodeReader& q) {
  const ArgList& list = q.arg(1).get<ArgList>();
  const IndexBlock block = index_block(q);
  Sizes broadcast(block.rank, 1), sizes;
  for (size_t d = 0; d < q.type(0).sizes.size(); ++d) {
    if (d >= list.size() || !list[d].is<Ref>()) {
      sizes.push_back(q.type(0).sizes[d]);
      continue;
    }
    const Sizes& index = q.graph().type(list[d].get<Ref>().id).sizes;
    const size_t lead = block.rank - index.size();
    for (size_t i = 0; i < index.size(); ++i)
      if (!is_one(q.graph(), index[i])) broadcast[lead + i] = index[i];
  }
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(block.first), broadcast.begin(),
               broadcast.end());
  return sizes;
}

Indices indexed_place(ElementQuery& q, const Sizes& sizes) {
  const ArgList& list = q.arg(1).get<ArgList>();
  const IndexBlock block = index_block(q);
  const auto part = [&](const auto& all) {
    return std::remove_cvref_t<decltype(all)>(all.begin() + block.first,
                                              all.begin() + block.first + block.rank);
  };
  const Indices inside = part(q.at());
  const Sizes inside_sizes = part(sizes);
  Indices place;
  size_t next = 0;  // of the dimensions that are not indexed
  for (size_t d = 0; d < q.type(0).sizes.size(); ++d) {
    if (d < list.size() && list[d].is<Ref>()) {
      const ValueId tensor = list[d].get<Ref>().id;
      const Indices at =
          broadcast_place(q.graph(), inside, inside_sizes, q.graph().type(tensor).sizes);
      place.push_back(q.checked_index(q.load(tensor, at), q.type(0).sizes[d], true));
    } else {
      place.push_back(q.at()[next < block.first ? next : next + block.rank]);
      ++next;
    }
  }
  return place;
}

Decision allows_indices(const NodeReader& q) {
  bool any = false;
  for (ValueId tensor : q.values(1)) {
    if (!is_index(q.graph().type(tensor)))
      return Decision::forbid("indexing by a mask depends on its values");
    any = true;
  }
  if (!any) return Decision::forbid("no indices");
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("an index into nothing");
  return Decision::allow();
}

}  // namespace smelt
