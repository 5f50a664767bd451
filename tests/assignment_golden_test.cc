// The tensors that are counted and their groups, against what the public code of the precision-assignment
// paper prints for two of its nets: golden/MODEL.txt.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/models/model.h"
#include "ulp/precision/groups.h"

namespace ulp {
namespace {

struct Row {
  int layer = 0;
  std::string op, kind;
  int slot = 0;
  size_t elements = 0;
  int group = 0;  // of the operator
  std::string half_format, op_format;
};

struct Golden {
  std::string model;
  int64_t batch = 0, classes = 0;
  size_t total = 0;
  std::vector<size_t> groups;
  std::map<std::string, std::vector<int>> chosen;  // by ratio
  std::vector<Row> rows;

  explicit Golden(const std::string& name) {
    std::ifstream file(std::string(ULP_GOLDEN_DIR) + "/" + name + ".txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string key, ratio;
      words >> key;
      if (key == "model") words >> model;
      if (key == "batch") words >> batch;
      if (key == "classes") words >> classes;
      if (key == "total") words >> total;
      if (key == "groups") {
        for (size_t elements; words >> elements;) groups.push_back(elements);
      }
      if (key == "chosen") {
        words >> ratio;
        for (int group; words >> group;) chosen[ratio].push_back(group);
      }
      if (key == "tensor") {
        Row& row = rows.emplace_back();
        words >> row.layer >> row.op >> row.kind >> row.slot >> row.elements >> row.group >>
            row.half_format >> row.op_format;
      }
    }
  }
};

// Its name for our operator.
std::string public_name(std::string_view op) {
  static const std::map<std::string_view, std::string> names = {{"input", "Input"},
                                                                {"conv2d", "Conv2d"},
                                                                {"batch_norm", "BatchNorm2d"},
                                                                {"relu", "ReLU"},
                                                                {"add", "Add"},
                                                                {"concat", "Cat"},
                                                                {"max_pool", "MaxPool2d"},
                                                                {"avg_pool", "AvgPool2d"},
                                                                {"linear", "Linear"},
                                                                {"log_softmax", "LogSoftmax"},
                                                                {"nll", "NLLLoss"}};
  const auto entry = names.find(op);
  return entry == names.end() ? std::string(op) : entry->second;
}

class AssignmentGolden : public testing::TestWithParam<const char*> {
 protected:
  const Golden golden{GetParam()};

  ClassifierGraph build() const {
    return build_classifier({.name = golden.model, .batch = golden.batch, .classes = golden.classes},
                            Mode::training);
  }
};

TEST_P(AssignmentGolden, GroupsAndTotalAgree) {
  ASSERT_FALSE(golden.groups.empty());
  ClassifierGraph made = build();
  const std::vector<size_t> groups = group_elements(counted_tensors(made.graph));
  EXPECT_EQ(groups, golden.groups);
  EXPECT_EQ(std::accumulate(groups.begin(), groups.end(), size_t{0}), golden.total);
  // Reverse mode and the step change nothing.
  differentiate(made.graph, made.loss);
  const std::string_view states[] = {"momentum"};
  add_updates(made.graph, {}, states);
  EXPECT_EQ(group_elements(counted_tensors(made.graph)), golden.groups);
}

TEST_P(AssignmentGolden, EveryTensorAgrees) {
  const ClassifierGraph made = build();
  const std::vector<CountedTensor> tensors = counted_tensors(made.graph);
  ASSERT_EQ(tensors.size(), golden.rows.size());
  // Which groups went low at 0.5, so that a tensor's format tells whether it is in one of them.
  const std::vector<int>& chosen = golden.chosen.at("0.5");
  int operator_group = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CountedTensor& t = tensors[i];
    const Row& row = golden.rows[i];
    SCOPED_TRACE(t.name);
    EXPECT_EQ(t.layer, row.layer);
    EXPECT_EQ(public_name(t.op), row.op);
    EXPECT_EQ(kind_name(t.kind), row.kind);
    EXPECT_EQ(t.slot, row.slot);
    EXPECT_EQ(t.elements, row.elements);
    const bool low = std::find(chosen.begin(), chosen.end(), t.group) != chosen.end();
    switch (t.kind) {
      case Kind::activation:
        EXPECT_EQ(t.group, row.group);
        EXPECT_EQ(row.half_format, low ? "434" : "690");
        operator_group = t.group;
        break;
      case Kind::activation_grad:
        EXPECT_EQ(t.group, row.group);
        EXPECT_EQ(row.half_format, low ? "520" : "690");
        break;
      case Kind::weight:
        // The file has the operator's group; the parameter's own is what decides its format.
        EXPECT_EQ(operator_group, row.group);
        EXPECT_EQ(row.half_format, low ? "434" : "690");
        break;
      default:
        EXPECT_EQ(row.half_format, "690");
        break;
    }
  }
}

// The rule for parameters, spelled out on the graph: the group of what made the operator's first input.
TEST_P(AssignmentGolden, ParametersAreGroupedWithWhatTheirOperatorReads) {
  const ClassifierGraph made = build();
  const Graph& graph = made.graph;
  std::map<std::string, int> group_of;
  for (const CountedTensor& t : counted_tensors(graph)) group_of[t.name] = t.group;
  size_t checked = 0;
  for (const Node& node : graph.nodes()) {
    for (size_t i = 1; i < node.in.size(); ++i) {
      if (graph[node.in[i]].kind != Kind::weight) continue;
      const std::string& read = graph[graph.format_of(node.in[0])].name;
      EXPECT_EQ(group_of.at(graph[node.in[i]].name), group_of.at(read)) << node.name;
      EXPECT_EQ(group_of.at(graph[node.in[i]].name + ".grad"), group_of.at(read)) << node.name;
      ++checked;
    }
  }
  EXPECT_EQ(2 * checked,
            static_cast<size_t>(std::count_if(golden.rows.begin(), golden.rows.end(), [](const Row& row) {
              return row.kind == "weight" || row.kind == "weight_grad";
            })));
}

INSTANTIATE_TEST_SUITE_P(Nets, AssignmentGolden, testing::Values("resnet18", "squeezenet"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace ulp
