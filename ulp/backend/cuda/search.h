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

#include "ulp/backend/cuda/convolution.h"
#include "ulp/backend/cuda/descriptor.h"

namespace ulp::cuda {

// Names of the tensors in a graph and in what is handed over to run it.
inline constexpr int64_t kConvA = 1, kConvB = 2, kConvOut = 3;

// "forward of 8x32x32x64 by ...", for messages.
std::string conv_name(ConvKind kind, const ConvShape& shape, Unit unit);

// Nothing where the configuration does not compile.
std::optional<Descriptor> compile_config(const Descriptor& config);
size_t plan_workspace(const Descriptor& plan);

struct Candidate {
  const Descriptor* config = nullptr;  // the search owns it
  std::optional<Descriptor> plan;      // where it had to be compiled to know its workspace
  size_t workspace = 0;
  std::string name, note;
};

// The configurations for one problem in the order in which they are tried: by strictness, form, heuristic, and the
// heuristic's own order. Heuristics are asked when their turn comes.
class ConvSearch {
 public:
  ConvSearch(ConvKind kind, const ConvShape& shape, Unit unit);

  // The next that will do within the limit; nothing when all are through.
  std::optional<Candidate> next(size_t limit);
  // Why nothing (more) was found.
  std::string summary() const;
  // A line for each configuration, for people.
  std::vector<std::string> describe(size_t limit);

 private:
  // How the graph ends. Engines for 16-bit operands write 16 bits, unless what they compute is a virtual fp32
  // tensor that an identity writes; those for fp32 operands write fp32 themselves.
  enum class Form : uint8_t { identity, direct };
  static constexpr size_t kModes = 3, kLists = 2 * kModes;

  // An operation graph with all that it refers to.
  struct Graph {
    std::vector<Descriptor> parts;
    Descriptor graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  };

  std::optional<Graph> make_graph(Form form);
  static std::vector<Descriptor> ask(const Graph& graph, size_t mode);
  const std::vector<Descriptor>& list(size_t which);

  ConvKind kind_;
  ConvShape shape_;
  Unit unit_;
  std::array<Form, 2> forms_{};
  size_t passes_ = 1;
  std::array<std::optional<Graph>, 2> graphs_;
  std::array<bool, 2> asked_{};
  std::array<std::optional<std::vector<Descriptor>>, kLists> lists_;
  std::string no_graph_;
  std::map<std::string, int, std::less<>> declined_;
  size_t list_ = 0, at_ = 0;  // where next() goes on
};

}  // namespace ulp::cuda
