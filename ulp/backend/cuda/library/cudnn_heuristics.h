// Which of cuDNN's engines runs a convolution: the first that its heuristics name and that will do. Private to
// convolution.cc.
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

// Names of the tensors in a graph and in what is handed over to run it.
inline constexpr int64_t kConvA = 1, kConvB = 2, kConvOut = 3;

// "forward of 8x32x32x64 by ...", for messages.
std::string conv_name(ConvKind kind, const ConvShape& shape, Unit unit, const ConvEnding& ending);

struct Candidate {
  const Descriptor* config = nullptr;  // the search owns it
  std::optional<Descriptor> plan;      // once it is compiled
  size_t workspace = 0;
  std::string name, note;
};

// The configurations for one problem in the order in which they are tried: by strictness, form and heuristic, and the
// heuristic's own order. Heuristics are asked when their turn comes.
class ConvSearch {
 public:
  ConvSearch(ConvKind kind, const ConvShape& shape, Unit unit, const ConvEnding& ending);

  // The next that will do within the limit; nothing when all are through. It is compiled if its workspace is not known
  // otherwise.
  std::optional<Candidate> next(size_t limit);
  // The next of them that also compiles.
  std::optional<Candidate> next_compiled(size_t limit);
  // Compiles it if that is not done; false where it does not, or then wants more.
  bool compile(Candidate& candidate, size_t limit);
  // Why nothing (more) was found.
  std::string summary() const;
  // A line for each configuration, for people.
  std::vector<std::string> describe(size_t limit);

 private:
  // What a heuristic names for a form.
  struct List {
    ConvForm form;
    size_t mode;
    std::optional<std::vector<Descriptor>> configs = {};  // once it was asked
  };

  // An operation graph with all that it refers to.
  struct Graph {
    std::vector<Descriptor> parts;
    Descriptor graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  };

  std::optional<Graph> make_graph(ConvForm form);
  static std::vector<Descriptor> ask(const Graph& graph, size_t mode);
  const std::vector<Descriptor>& configs_of(List& list);

  ConvKind kind_;
  ConvShape shape_;
  Unit unit_;
  Written written_;
  std::vector<List> lists_;
  size_t passes_ = 1;
  std::array<std::optional<Graph>, 2> graphs_;  // by form
  std::array<bool, 2> made_{};
  std::string no_graph_;
  std::map<std::string, int, std::less<>> declined_;
  size_t list_ = 0, at_ = 0;  // where next() goes on
};

}  // namespace ulp::cuda
