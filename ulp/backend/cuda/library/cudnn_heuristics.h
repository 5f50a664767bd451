// Which cuDNN engine runs a convolution: the first that its heuristics name and that qualifies.
// Private to cudnn_conv.cc.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/backend/cuda/library/cudnn_conv.h"
#include "ulp/backend/cuda/library/cudnn_descriptor.h"

namespace ulp::cuda {

// Ids of the tensors in a graph and in the variant pack that runs it.
inline constexpr int64_t kConvA = 1, kConvB = 2, kConvOut = 3;

// "forward of 8x32x32x64 by ...", for messages.
std::string conv_name(ConvKind kind, const ConvExtents& shape, Unit unit, const ConvEnding& ending);

struct Candidate {
  const Descriptor* config = nullptr;  // owned by the search
  std::optional<Descriptor> plan;      // once compiled
  size_t workspace = 0;
  std::string name, note;
};

// The configurations for one problem in the order in which they are tried: by strictness, form and
// heuristic, then in the heuristic's own order. A heuristic is queried when its turn comes.
class ConvSearch {
 public:
  ConvSearch(ConvKind kind, const ConvExtents& shape, Unit unit, const ConvEnding& ending);

  // The next that qualifies within the limit; none when all are exhausted. It is compiled if its
  // workspace is not known otherwise.
  std::optional<Candidate> next(size_t limit);
  // The next of them that also compiles.
  std::optional<Candidate> next_compiled(size_t limit);
  // Compiles it if not done yet. False if it does not compile, or then needs more workspace.
  bool compile(Candidate& candidate, size_t limit);
  // Why nothing (more) was found.
  std::string summary() const;
  // One line per configuration, for people.
  std::vector<std::string> describe(size_t limit);

 private:
  // The configurations that a heuristic names for a form.
  struct List {
    ConvForm form;
    size_t mode;
    std::optional<std::vector<Descriptor>> configs = {};  // once queried
  };

  // An operation graph with everything it refers to.
  struct Graph {
    std::vector<Descriptor> parts;
    Descriptor graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  };

  std::optional<Graph> make_graph(ConvForm form);
  static std::vector<Descriptor> ask(const Graph& graph, size_t mode);
  const std::vector<Descriptor>& configs_of(List& list);

  ConvKind kind_;
  ConvExtents shape_;
  Unit unit_;
  Written written_;
  std::vector<List> lists_;
  size_t passes_ = 1;
  std::array<std::optional<Graph>, 2> graphs_;  // by form
  std::array<bool, 2> made_{};
  std::string no_graph_;
  std::map<std::string, int, std::less<>> declined_;
  size_t list_ = 0, at_ = 0;  // where next() continues
};

}  // namespace ulp::cuda
