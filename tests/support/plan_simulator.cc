#include "tests/support/plan_simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ulp/graph/ops/arithmetic.h"
#include "ulp/tensor/memory.h"

namespace ulp::harness {
namespace {

size_t at(TensorId id) { return static_cast<size_t>(id.index); }
size_t at(NodeId id) { return static_cast<size_t>(id.index); }

// What lies in a byte.
enum class Content : uint8_t { nothing, tensor, workspace, prepared, unfinished };
using Token = uint64_t;
Token token(Content content, size_t number, size_t version = 0) {
  return static_cast<uint64_t>(content) << 56 | static_cast<uint64_t>(number) << 24 | version;
}

// Bytes of the arena, or a state tensor, by its number, or behind all of them a tensor's range
// events.
struct Extent {
  bool state = false;
  size_t begin = 0, end = 0;

  bool meets(const Extent& other) const {
    return state == other.state && begin < other.end && other.begin < end;
  }
  bool operator==(const Extent&) const = default;
};

struct Access {
  Extent extent;
  Token holds;           // what is read, or written
  Token before = 0;      // of what is written: what must lie there; 0: anything
  TensorId tensor = {};  // none: not of a tensor
  size_t root = 0;       // whose bytes they are
  bool range = false;    // its range events, which several may report at once
};

// One node after the other of one step.
struct Part {
  std::vector<Access> reads, writes;
  bool in_place = false;
};

// What happens between a step and the one that waits for it.
struct Work {
  std::string name;
  std::vector<Part> parts;
  std::vector<Access> scribbled;  // workspaces
  int until = 0;
};

class Simulator {
 public:
  Simulator(const PlanImage& image, Phase last) : image_(image), graph_(*image.graph), last_(last) {}

  std::vector<PlanFinding> run() {
    find_versions();
    add(check_places(image_, root_));
    clear();
    for (size_t i = 0; i < image_.steps.size(); ++i) {
      const PlanImage::Step& step = image_.steps[i];
      if (!runs(step.phase) || step.merged) continue;
      wait_until(static_cast<int>(i));
      if (!step.prepares.empty()) prepare(i);
      const int when = static_cast<int>(i);
      start(work_of(i), when, std::max(when + 1, step.live_until), step.live_until > when + 1);
      check_phases(i);
    }
    wait_until(static_cast<int>(image_.steps.size()));
    check_results();
    // Which results take over which operands is only known once all steps have run.
    if (last_ == Phase::update) add(check_lives(image_, root_, handed_over_));
    return std::move(findings_);
  }

 private:
  bool runs(Phase phase) const { return phase <= last_; }
  template <typename... Args>
  void report(Fault fault, fmt::format_string<Args...> text, Args&&... args) {
    findings_.push_back({fault, fmt::format(text, std::forward<Args>(args)...)});
  }
  void add(const std::vector<PlanFinding>& more) {
    findings_.insert(findings_.end(), more.begin(), more.end());
  }
  const std::string& name(TensorId id) const { return graph_[id].name; }
  std::string step_name(size_t i) const {
    return fmt::format("step {} ({})", i, graph_[image_.steps[i].roots[0]].name);
  }
  const TensorPlace& place(TensorId id) const { return image_.places[at(id)]; }

  // In the graph's order: which tensor's bytes each one has, and which version of them each node
  // reads and leaves.
  void find_versions() {
    std::vector<int> at_root(graph_.node_count());
    std::vector<bool> inside(graph_.node_count());
    for (const PlanImage::Step& step : image_.steps) {
      for (const NodeId id : step.roots) ++at_root[at(id)];
      for (const NodeId id : step.inlined) inside[at(id)] = true;
      for (const auto* list : {&step.roots, &step.inlined}) {
        for (const NodeId id : *list) {
          if (graph_[id].phase != step.phase)
            report(Fault::order, "{} is in a step of another phase", graph_[id].name);
        }
      }
    }
    root_.resize(graph_.tensor_count());
    for (size_t i = 0; i < root_.size(); ++i) root_[i] = i;
    versions_.resize(graph_.tensor_count());
    reads_.resize(graph_.node_count());
    writes_.resize(graph_.node_count());
    for (size_t i = 0; i < graph_.node_count(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (at_root[i] == 0 && !inside[i]) {
        if (!is_nothing(node)) report(Fault::order, "{} never runs", node.name);
        root_[at(node.out[0])] = root_[at(node.in[0])];
        continue;
      }
      if (at_root[i] + inside[i] > 1) report(Fault::order, "{} runs twice", node.name);
      if (!runs(node.phase)) continue;
      for (const TensorId in : node.in) reads_[i].push_back(versions_[root_[at(in)]]);
      for (const TensorId out : node.out) {
        if (!inside[i]) writes_[i].push_back(++versions_[root_[at(out)]]);
      }
    }
  }

  // The output is the input.
  bool is_nothing(const Node& node) const {
    if (node.op->form == Form::view) return true;
    const TensorId in = node.op == &kCopy ? node.in[0] : TensorId{}, out = node.out[0];
    return in && !is_state(graph_[in].kind) && !is_state(graph_[out].kind) &&
           graph_[out].kind != Kind::grad_sum &&
           image_.formats[at(in)].storage == image_.formats[at(out)].storage &&
           std::holds_alternative<Plain>(image_.formats[at(in)].storage);
  }

  // Nothing lies in the arena, and in state what the step before left.
  void clear() {
    if (has(findings_, Fault::misaligned)) cell_ = 1;
    size_t end = image_.step_bytes;
    for (const TensorPlace& p : image_.places) end = std::max(end, p.offset + p.bytes);
    for (const PlanImage::Step& step : image_.steps)
      end = std::max(
          {end, step.workspace + step.workspace_bytes, step.prepared.value_or(0) + step.prepared_bytes});
    cells_.assign(end / cell_ + 1, token(Content::nothing, 0));
    for (size_t i = 0; i < 2 * graph_.tensor_count(); ++i)
      state_cells_.push_back(token(Content::tensor, i, 0));
  }

  // Range events: not there before somebody reports them.
  Access range(TensorId id) const {
    const size_t number = graph_.tensor_count() + at(id);
    return {{true, number, number + 1}, token(Content::tensor, number, 1), 0, {}, number, true};
  }

  Access access(TensorId id, size_t version) const {
    const size_t root = root_[at(id)];
    const TensorPlace& p = image_.places[root];
    const bool state = p.home == Home::state;
    return {{state, state ? root : place(id).offset, state ? root + 1 : place(id).offset + place(id).bytes},
            token(Content::tensor, root, version),
            0,
            id,
            root};
  }

  Part part_of(size_t number) {
    const PlanImage::Step& step = image_.steps[number];
    Part part;
    part.in_place =
        step.in_place && step.roots.size() == 1 && graph_[step.roots[0]].op->form == Form::elementwise;
    std::set<size_t> inside;  // made inside this step
    for (const NodeId id : step.inlined) inside.insert(root_[at(graph_[id].out[0])]);
    for (const auto* nodes : {&step.inlined, &step.roots}) {
      for (const NodeId id : *nodes) {
        const Node& node = graph_[id];
        for (size_t k = 0; k < node.in.size(); ++k) {
          if (inside.contains(root_[at(node.in[k])])) continue;
          if (image_.places[root_[at(node.in[k])]].home == Home::nowhere) {
            report(Fault::stale, "{} reads {}, which has no bytes", step_name(number), name(node.in[k]));
          } else {
            part.reads.push_back(access(node.in[k], reads_[at(id)][k]));
          }
        }
      }
    }
    for (const NodeId id : step.roots) {
      const Node& node = graph_[id];
      for (size_t k = 0; k < node.out.size(); ++k) {
        if (place(node.out[k]).home == Home::nowhere) {
          report(Fault::order, "{} writes {}, which has no bytes", step_name(number), name(node.out[k]));
          continue;
        }
        Access write = access(node.out[k], writes_[at(id)][k]);
        if (node.adds || is_state(graph_[node.out[k]].kind))
          write.before = token(Content::tensor, write.root, writes_[at(id)][k] - 1);
        part.writes.push_back(write);
      }
    }
    for (const TensorId id : step.reads_range) part.reads.push_back(range(id));
    for (const auto* nodes : {&step.inlined, &step.roots}) {
      for (const NodeId id : *nodes) {
        for (const TensorId out : graph_[id].out) part.writes.push_back(range(out));
      }
    }
    if (step.prepared) {
      const Extent extent{false, *step.prepared, *step.prepared + step.prepared_bytes};
      part.reads.push_back({extent, token(Content::prepared, number)});
    }
    return part;
  }

  Work work_of(size_t number) {
    const PlanImage::Step& step = image_.steps[number];
    Work work;
    work.name = step_name(number);
    work.parts.push_back(part_of(number));
    const bool pair = number + 1 < image_.steps.size() && image_.steps[number + 1].merged;
    if (step.merged_task != pair) report(Fault::order, "{} is half of a pair", work.name);
    if (step.merged_task && pair) {
      work.parts.push_back(part_of(number + 1));
      if (image_.steps[number + 1].phase != step.phase)
        report(Fault::order, "{} is merged with another phase", work.name);
      for (const size_t i : {number, number + 1}) {
        const PlanImage::Step& one = image_.steps[i];
        if (one.prepared || one.live_until > 0)
          report(Fault::order, "{} is merged, but something is prepared for it or it runs beside others",
                 step_name(i));
      }
    }
    if (step.workspace_bytes > 0)
      work.scribbled.push_back({{false, step.workspace, step.workspace + step.workspace_bytes},
                                token(Content::workspace, number)});
    return work;
  }

  // Reads the state that its members read.
  void prepare(size_t number) {
    const PlanImage::Step& step = image_.steps[number];
    Work work;
    work.name = "what prepares before " + step_name(number);
    work.parts.emplace_back();
    const int needed = *std::min_element(step.prepares.begin(), step.prepares.end());
    if (needed < static_cast<int>(number) || needed != step.prepares.front())
      report(Fault::order, "{} comes too late", work.name);
    for (const int m : step.prepares) {
      const auto member = static_cast<size_t>(m);
      const PlanImage::Step& other = image_.steps[member];
      if (!other.prepared || other.phase != step.phase || other.merged) {
        report(Fault::order, "{} cannot prepare for {}", work.name, step_name(member));
        continue;
      }
      for (const auto* nodes : {&other.inlined, &other.roots}) {
        for (const NodeId id : *nodes) {
          for (size_t k = 0; k < graph_[id].in.size(); ++k) {
            const TensorId in = graph_[id].in[k];
            if (is_state(graph_[TensorId{static_cast<int32_t>(root_[at(in)])}].kind))
              work.parts[0].reads.push_back(access(in, reads_[at(id)][k]));
          }
        }
      }
      work.parts[0].writes.push_back({{false, *other.prepared, *other.prepared + other.prepared_bytes},
                                      token(Content::prepared, member)});
    }
    start(std::move(work), static_cast<int>(number), needed, needed > static_cast<int>(number));
  }

  // What may run on in another phase would be cut off where the phases are not run together.
  void check_phases(size_t number) {
    const PlanImage::Step& step = image_.steps[number];
    for (size_t i = number + 1; i < image_.steps.size() && static_cast<int>(i) < step.live_until; ++i) {
      const Phase other = image_.steps[i].phase;
      if (other != step.phase && !(step.phase == Phase::forward && other == Phase::backward))
        report(Fault::order, "{} runs on in another phase", step_name(number));
    }
    if (step.live_until > static_cast<int>(image_.steps.size()))
      report(Fault::order, "{} runs on after the end", step_name(number));
  }

  // `beside`: it may be at work until it is waited for, else it is done at once.
  void start(Work work, int when, int until, bool beside) {
    work.until = until;
    for (const Work& other : open_) check_apart(work, other);
    check_within(work);
    for (const Part& part : work.parts) {
      for (const auto* list : {&part.reads, &part.writes}) {
        for (const Access& one : *list) check_life(work, one, when);
      }
    }
    for (const Access& one : work.scribbled) put(one.extent, one.holds);
    for (const Part& part : work.parts) {
      for (const Access& read : part.reads) check_holds(work, read, read.holds);
      for (const Access& write : part.writes) {
        if (write.before != 0) check_holds(work, write, write.before);
      }
      for (const Access& write : part.writes) put(write.extent, write.holds);
    }
    if (!beside) return;
    // Until it is waited for nothing is sure to be there.
    for (const Part& part : work.parts) {
      for (const Access& write : part.writes)
        put(write.extent, token(Content::unfinished, static_cast<size_t>(when)));
    }
    open_.push_back(std::move(work));
  }

  void wait_until(int when) {
    std::erase_if(open_, [&](const Work& work) {
      if (work.until > when) return false;
      for (const Access& one : work.scribbled) put(one.extent, one.holds);
      for (const Part& part : work.parts) {
        for (const Access& write : part.writes) put(write.extent, write.holds);
      }
      return true;
    });
  }

  template <typename Visit>
  static void for_each(const Work& work, bool writes, const Visit& visit) {
    for (const Part& part : work.parts) {
      for (const Access& one : writes ? part.writes : part.reads) visit(one);
    }
    if (!writes) return;
    for (const Access& one : work.scribbled) visit(one);
  }

  // Two that may run at the same time.
  void check_apart(const Work& a, const Work& b) {
    const auto against = [&](const Work& x, const Work& y, bool writes) {
      for_each(x, true, [&](const Access& one) {
        for_each(y, writes, [&](const Access& two) {
          if (one.extent.meets(two.extent) && !(writes && one.range && two.range))
            report(Fault::race, "{} writes what {} {}", x.name, y.name, writes ? "writes" : "reads");
        });
      });
    };
    against(a, b, true);
    against(a, b, false);
    against(b, a, false);
  }

  // Whether the result may lie where the operand lies.
  bool takes_over(const Part& part, const Access& read, const Access& write) const {
    if (!part.in_place || !read.tensor || !write.tensor || read.extent != write.extent) return false;
    const Storage& storage = image_.formats[at(write.tensor)].storage;
    return !write.extent.state && graph_[read.tensor].shape == graph_[write.tensor].shape &&
           graph_[read.tensor].element == Element::real && graph_[write.tensor].element == Element::real &&
           image_.formats[at(read.tensor)].storage == storage && std::holds_alternative<Plain>(storage);
  }

  void check_within(const Work& work) {
    for (const Access& one : work.scribbled) {
      for (const bool writes : {false, true}) {
        for_each(work, writes, [&](const Access& two) {
          if (&one != &two && one.extent.meets(two.extent))
            report(Fault::race, "the workspace of {} lies on what it touches", work.name);
        });
      }
    }
    for (size_t p = 0; p < work.parts.size(); ++p) {
      const Part& part = work.parts[p];
      for (const Access& write : part.writes) {
        for (const Access& read : part.reads) {
          if (!write.extent.meets(read.extent) ||
              (write.root == read.root && write.before != 0 && write.tensor))
            continue;
          if (takes_over(part, read, write)) {
            handed_over_[{read.root, write.root}] = work.until - 1;
          } else {
            report(Fault::in_place, "{} writes what it reads, {}", work.name, access_name(read));
          }
        }
        for (const Access& other : part.writes) {
          if (&other != &write && other.extent.meets(write.extent) && !write.range)
            report(Fault::race, "{} writes two things in one place", work.name);
        }
      }
    }
    if (work.parts.size() == 2) check_pair(work);
  }

  // The second's results may be written while the first's operands are read, each element after it
  // is read: under whatever shape the first reads them.
  void check_pair(const Work& work) {
    const Part &first = work.parts[0], &second = work.parts[1];
    const auto second_takes_over = [&](size_t root, const Access& write) {
      return std::any_of(second.reads.begin(), second.reads.end(), [&](const Access& read) {
        return read.tensor && read.root == root && takes_over(second, read, write);
      });
    };
    for (const Access& write : second.writes) {
      for (const Access& other : first.writes) {
        if (write.extent.meets(other.extent) && !write.range &&
            !(write.root == other.root && write.before != 0))
          report(Fault::race, "both halves of {} write in one place", work.name);
      }
      for (const Access& read : first.reads) {
        if (write.extent.meets(read.extent) && !(write.root == read.root && write.before != 0) &&
            !(read.tensor && second_takes_over(read.root, write)))
          report(Fault::in_place, "the second half of {} writes what the first reads, {}", work.name,
                 access_name(read));
      }
    }
    for (const Access& write : first.writes) {
      for (const Access& read : second.reads) {
        if (write.extent.meets(read.extent) && (read.range || read.root != write.root))
          report(Fault::in_place, "the first half of {} writes what the second reads, {}", work.name,
                 access_name(read));
      }
    }
  }

  std::string access_name(const Access& one) const {
    if (one.range) return "the range of " + graph_.tensors()[one.root - graph_.tensor_count()].name;
    return one.tensor ? name(one.tensor) : "what is prepared";
  }

  void check_life(const Work& work, const Access& one, int when) {
    if (!one.tensor || one.extent.state) return;
    const TensorPlace& p = image_.places[one.root];
    if (p.first > when || p.last < std::max(when, work.until - 1))
      report(Fault::life, "{} touches {} until {}, which lives from {} to {}", work.name, name(one.tensor),
             work.until, p.first, p.last);
  }

  void check_holds(const Work& work, const Access& one, Token wanted) {
    if (!holds(one.extent, wanted)) report(Fault::stale, "{} does not find {}", work.name, access_name(one));
  }

  std::pair<size_t, size_t> cells_of(const Extent& extent) const {
    return {extent.begin / cell_, (extent.end + cell_ - 1) / cell_};
  }
  bool holds(const Extent& extent, Token wanted) const {
    if (extent.state) return state_cells_[extent.begin] == wanted;
    const auto [begin, end] = cells_of(extent);
    for (size_t i = begin; i < end; ++i) {
      if (cells_[i] != wanted) return false;
    }
    return true;
  }
  void put(const Extent& extent, Token what) {
    if (extent.state) {
      state_cells_[extent.begin] = what;
      return;
    }
    const auto [begin, end] = cells_of(extent);
    std::fill(cells_.begin() + static_cast<ptrdiff_t>(begin), cells_.begin() + static_cast<ptrdiff_t>(end),
              what);
  }

  void check_results() {
    for (const TensorId id : image_.results) {
      if (place(id).home == Home::nowhere) {
        report(Fault::result, "{} has no bytes", name(id));
        continue;
      }
      const NodeId producer = graph_[id].producer;
      if (producer && !runs(graph_[producer].phase)) continue;
      if (place(id).last != static_cast<int>(image_.steps.size()) - 1)
        report(Fault::result, "{} lives to {} only", name(id), place(id).last);
      if (!holds(access(id, 0).extent, token(Content::tensor, root_[at(id)], versions_[root_[at(id)]])))
        report(Fault::result, "{} is not there at the end", name(id));
    }
  }

  const PlanImage& image_;
  const Graph& graph_;
  const Phase last_;
  std::vector<size_t> root_;                         // by tensor: whose bytes it has
  std::vector<size_t> versions_;                     // by root: after all nodes
  std::vector<std::vector<size_t>> reads_, writes_;  // by node: versions
  size_t cell_ = kMemoryAlignment;                   // bytes that are looked at together
  std::vector<Token> cells_, state_cells_;
  std::vector<Work> open_;  // runs beside
  HandedOver handed_over_;
  std::vector<PlanFinding> findings_;
};

}  // namespace

std::vector<PlanFinding> simulate(const PlanImage& image, Phase last) { return Simulator(image, last).run(); }
std::vector<PlanFinding> simulate(const Plan& plan, Phase last) { return simulate(PlanImage(plan), last); }

std::string faults_of(const Plan& plan) { return text_of(simulate(plan)); }

}  // namespace ulp::harness
