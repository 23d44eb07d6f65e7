// Elements that may meet at one place must be written in order, by one thread. Along a dimension of
// the points that is one of the result as well, none meet: such a dimension is free. Threads share
// the free dimensions in front; the others are walked in order, inside, and so are the free ones at
// the end (the columns of rows that are added up), which are walked by vectors. Where nothing
// stands in front for the threads, the columns are cut into parts, of a few cache lines each: every
// thread reads all indices, and none writes where another does. Where the order of a sum does not
// matter, a GPU shares all points; the kernel is an ordered one, whose back end adds atomically.

#include "schedule/write_update.h"

#include <algorithm>

#include "loops/simplify.h"
#include "schedule/domain.h"
#include "schedule/kernel_buffers.h"
#include "schedule/pull.h"

namespace smelt {
namespace {

class UpdateWriter {
 public:
  UpdateWriter(const Graph& graph, const Roles& roles, NodeId node, bool any_order)
      : graph_(graph),
        roles_(roles),
        node_(node),
        any_order_(any_order),
        form_(*roles.update[node]),
        builder_(made_.kernel),
        buffers_(graph, roles, made_, builder_) {}

  ScheduledKernel run() {
    made_.nodes = {node_};
    made_.kernel.name = kernel_name(graph_, made_.nodes);
    find_free();
    const Indices at = choose_dims();
    builder_.begin_stage(!made_.kernel.inner.empty());
    const ReadElement read = [this](ValueId value, const Indices& place) {
      return buffers_.load(value, place);
    };
    const auto [place, element] = pull_update(graph_, roles_, node_, at, builder_, read);
    const ValueId result = graph_.nodes[node_].results[0];
    const TensorType& type = graph_.type(result);
    const int32_t buffer = buffers_.updated(result, roles_.base_of(graph_, node_));
    const Index index = loops::linear(place, type.strides);
    const loops::Val value = element.to(type.dtype).value;
    if (form_.combine)
      builder_.accumulate(buffer, index, value, *form_.combine);
    else
      builder_.store(buffer, index, value);
    loops::simplify(made_.kernel);
    return std::move(made_);
  }

 private:
  // Asks the rule once, in a kernel that is thrown away.
  void find_free() {
    const Domain domain{.full = form_.points, .reduced = {}};
    loops::Kernel kernel;
    kernel.outer = form_.points;
    loops::Builder builder(kernel);
    builder.begin_stage(false);
    const ReadElement read = [&](ValueId value, const Indices& place) {
      const TensorType& type = graph_.type(value);
      const int32_t buffer = builder.add_buffer(type.dtype, loops::Buffer::Kind::input, 1);
      return Expr{&builder, builder.load(buffer, loops::linear(place, type.strides))};
    };
    const Indices place =
        pull_update(graph_, roles_, node_, domain.full_index(), builder, read).place;
    for (size_t d = 0; d < form_.points.size(); ++d) {
      const Index dim = Index::dim(static_cast<int32_t>(d));
      free_.push_back(form_.points[d].is(1) || std::ranges::find(place, dim) != place.end());
    }
  }

  // Gives the kernel its dimensions, and the place of each point in them.
  Indices choose_dims() {
    const Sizes& points = form_.points;
    size_t columns = points.size();  // the first of the free dimensions at the end
    while (columns > 0 && free_[columns - 1]) --columns;
    Sizes& outer = made_.kernel.outer;
    // Nothing can meet, or what meets is added by all threads at once: all of it is shared.
    made_.kernel.ordered = columns > 0 && is_shared_sum();
    if (columns == 0 || made_.kernel.ordered) {
      outer = points;
      return dims(0, points.size());
    }
    Indices at(points.size());
    Sizes inner;
    std::vector<size_t> inside;
    for (size_t d = 0; d < points.size(); ++d) {
      if (d < columns && free_[d]) {
        at[d] = Index::dim(static_cast<int32_t>(outer.size()));
        outer.push_back(points[d]);
        continue;
      }
      inside.push_back(d);
      inner.push_back(points[d]);
    }
    const int64_t parts = columns < points.size() ? parts_of(columns) : 1;
    if (parts > 1) outer.push_back(parts);
    for (size_t i = 0; i < inside.size(); ++i) {
      const size_t d = inside[i];
      at[d] = Index::dim(static_cast<int32_t>(outer.size() + i));
      if (d != columns || parts == 1) continue;
      const int64_t width = points[d].known() / parts;
      inner[i] = width;
      at[d] = Index::dim(static_cast<int32_t>(outer.size()) - 1) * width + at[d];
    }
    made_.kernel.inner = std::move(inner);
    return at;
  }

  bool is_shared_sum() const {
    const DType dtype = graph_.type(graph_.nodes[node_].results[0]).dtype;
    return any_order_ && !roles_.backend[node_]->runs_on_host() &&
           form_.combine == loops::Reduction::sum &&
           (dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32 ||
            dtype == DType::i64);
  }

  static Indices dims(size_t first, size_t end) {
    Indices at;
    for (size_t d = first; d < end; ++d) at.push_back(Index::dim(static_cast<int32_t>(d)));
    return at;
  }

  // How many parts the dimension is cut into: an even number of elements each.
  int64_t parts_of(size_t columns) const {
    const FusionLimits& limits = roles_.backend[node_]->limits();
    const Sizes& points = form_.points;
    const int64_t all = graph_.symbols.hint(product(points));
    const int64_t shared = graph_.symbols.hint(product(made_.kernel.outer));
    const auto extent = points[columns].as_known();
    const auto rest = product(Sizes(points.begin() + columns + 1, points.end())).as_known();
    const bool is_small = roles_.backend[node_]->runs_on_host() && all <= limits.small_work;
    if (!extent || !rest || is_small) return 1;
    for (int64_t parts = std::min(limits.update_parts / std::max<int64_t>(1, shared), *extent);
         parts > 1; --parts)
      if (*extent % parts == 0 && *extent / parts * *rest >= limits.update_part_width) return parts;
    return 1;
  }

  const Graph& graph_;
  const Roles& roles_;
  const NodeId node_;
  const bool any_order_;
  const UpdateForm& form_;
  ScheduledKernel made_;
  loops::Builder builder_;
  KernelBuffers buffers_;
  std::vector<bool> free_;  // by dimension of the points
};

}  // namespace

ScheduledKernel write_update(const Graph& graph, const Roles& roles, NodeId node, bool any_order) {
  return UpdateWriter(graph, roles, node, any_order).run();
}

}  // namespace smelt
