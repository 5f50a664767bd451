// Every gradient rule against differences of the loss, through reverse mode and the reference
// kernels.
#include <functional>

#include "tests/support/numeric_gradient.h"

namespace ulp::ref {
namespace {

// Builds a loss, one element an example.
struct Case {
  std::string name;
  std::function<TensorId(Trial&)> loss;
  bool vanishes = false;  // all gradients are 0
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class Gradient : public testing::TestWithParam<Case> {};

TEST_P(Gradient, EqualsDifferences) {
  Trial trial;
  trial.state.seed = 7;
  trial.check(GetParam().loss(trial));
  // Fifty times the noise: a factor or a term that is missing shows.
  EXPECT_TRUE(GetParam().vanishes || trial.largest() >= 50) << trial.largest();
  RecordProperty("worst", std::to_string(trial.worst()));
}

std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name; }

// Elementwise -------------------------------------------------------------------------------------

Case unary(const std::string& name, TensorId (*op)(Builder&, const std::string&, TensorId),
           const Shape& shape) {
  return {name, [=](Trial& t) { return t.distance(op(t.b, "op", t.operand("x", shape))); }};
}

// Every activation of the table, by itself.
std::vector<Case> activation_cases() {
  std::vector<Case> cases;
  elementwise::Activations::for_each([&]<typename Op>(Op) {
    cases.push_back({Op::kName, [](Trial& t) {
                       const double attribute = Op::kLeast + 0.1 * (Op::kMost - Op::kLeast);
                       return t.distance(activation<Op>(t.b, "op", t.operand("x", {4, 5}), attribute));
                     }});
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Activation, Gradient, testing::ValuesIn(activation_cases()), case_name);

std::vector<Case> elementwise_cases() {
  return {
      unary("relu_image", relu, {2, 3, 1, 2}),
      unary("one_element", sigmoid, {1}),
      Case{"dropout",
           [](Trial& t) {
             return t.distance(dropout(t.b, "op", t.operand("x", {4, 9}), 0.4));
           }},
      Case{"dropout_other_step",
           [](Trial& t) {
             t.state.step = 3;
             t.state.micro_batch = 1;
             return t.distance(dropout(t.b, "op", t.operand("x", {4, 9}), 0.4));
           }},
      Case{"add",
           [](Trial& t) {
             return t.distance(add(t.b, "op", t.operand("x", {2, 3}), t.operand("y", {2, 3})));
           }},
      Case{"add_of_a_row",
           [](Trial& t) {
             return t.distance(add(t.b, "op", t.operand("x", {4, 3}), t.operand("y", {3})));
           }},
      Case{"add_repeats_both",
           [](Trial& t) {
             return t.distance(add(t.b, "op", t.operand("x", {2, 1, 3}), t.operand("y", {4, 1})));
           }},
      Case{"add_repeats_in_the_middle",
           [](Trial& t) {
             return t.distance(add(t.b, "op", t.operand("x", {3, 1, 2, 2}), t.operand("y", {3, 2, 2, 1})));
           }},
      Case{"add_of_a_number_to_data",
           [](Trial& t) {
             return t.distance(add(t.b, "op", t.operand("x", {1}), t.input("y", {2, 3})));
           }},
      Case{"multiply",
           [](Trial& t) {
             return t.distance(multiply(t.b, "op", t.operand("x", {2, 3}), t.operand("y", {2, 3})));
           }},
      Case{"multiply_by_data", [](Trial& t) {
             return t.distance(multiply(t.b, "op", t.input("x", {2, 3}), t.operand("y", {2, 3})));
           }}};
}

INSTANTIATE_TEST_SUITE_P(Elementwise, Gradient, testing::ValuesIn(elementwise_cases()), case_name);

// Tensors that are read more than once ------------------------------------------------------------

std::vector<Case> shared_cases() {
  return {
      Case{"square",
           [](Trial& t) {
             const TensorId x = t.operand("x", {2, 3});
             return t.distance(multiply(t.b, "op", x, x));
           }},
      Case{"twice_itself",
           [](Trial& t) {
             const TensorId x = t.operand("x", {2, 3});
             return t.distance(add(t.b, "op", x, x));
           }},
      Case{"three_readers",
           [](Trial& t) {
             const TensorId x = t.operand("x", {2, 3});
             const TensorId y =
                 multiply(t.b, "product", ulp::tanh(t.b, "tanh", x), sigmoid(t.b, "sigmoid", x));
             return t.distance(add(t.b, "op", y, x));
           }},
      Case{"weight_in_two_layers",
           [](Trial& t) {
             const TensorId w = t.weight("w", {4, 4}), bias = t.weight("bias", {4});
             const TensorId first = nodes(t.b).add_one(kLinear, "first", {t.operand("x", {3, 4}), w, bias});
             return t.distance(
                 nodes(t.b).add_one(kLinear, "second", {ulp::tanh(t.b, "tanh", first), w, bias}));
           }},
      Case{"weight_squared",
           [](Trial& t) {
             const TensorId w = t.weight("w", {3, 2});
             return t.distance(multiply(t.b, "op", w, w));
           }},
      Case{"reader_beside_the_loss",
           [](Trial& t) {
             const TensorId x = t.operand("x", {2, 3});
             ulp::tanh(t.b, "unused", x);
             return t.distance(sigmoid(t.b, "op", x));
           }},
      Case{"tied_embedding", [](Trial& t) {
             const TensorId table = t.weight("table", {5, 3});
             const TensorId x =
                 nodes(t.b).add_one(kEmbedding, "embedding", {table, t.indices("i", {4}, {1, 4, 1, 0})});
             return t.distance(nodes(t.b).add_one(kLinear, "scores", {x, table}));
           }}};
}

INSTANTIATE_TEST_SUITE_P(Shared, Gradient, testing::ValuesIn(shared_cases()), case_name);

// Convolutions ------------------------------------------------------------------------------------

Case conv(const std::string& name, const Shape& x, const ConvOptions& options) {
  return {"conv_" + name,
          [=](Trial& t) { return t.distance(conv2d(t.b, "conv", t.operand("x", x), options)); }};
}

std::vector<Case> conv_cases() {
  return {conv("plain", {2, 4, 5, 2}, {.out = 3, .kernel = 3}),
          conv("padded", {2, 4, 3, 2}, {.out = 3, .kernel = 3, .padding = 1, .bias = true}),
          conv("wide_padding", {1, 2, 3, 1}, {.out = 2, .kernel = 3, .padding = 3}),
          conv("stride", {2, 5, 6, 2}, {.out = 2, .kernel = 3, .stride = 2, .padding = 1}),
          conv("stride_above_kernel", {2, 7, 6, 2}, {.out = 2, .kernel = 2, .stride = 3}),
          conv("stride_one_by_one", {2, 5, 4, 3}, {.out = 2, .kernel = 1, .stride = 2, .bias = true}),
          conv("one_by_one_map", {3, 1, 1, 4}, {.out = 2, .kernel = 3, .padding = 1}),
          conv("one_channel", {1, 4, 4, 1}, {.out = 1, .kernel = 2}),
          conv("groups", {2, 3, 4, 4}, {.out = 6, .kernel = 2, .groups = 2, .bias = true}),
          conv("depthwise", {1, 4, 3, 4}, {.out = 4, .kernel = 3, .padding = 1, .groups = 4}),
          conv("depthwise_more_out", {1, 3, 3, 2}, {.out = 4, .kernel = 2, .groups = 2}),
          Case{"conv_uneven",
               [](Trial& t) {
                 const TensorId x = t.operand("x", {2, 6, 5, 2}), w = t.weight("w", {3, 2, 3, 2});
                 return t.distance(nodes(t.b).add_one(
                     kConv2d, "conv", {x, w},
                     {{"stride_h", 3}, {"stride_w", 1}, {"padding_h", 0}, {"padding_w", 2}, {"groups", 1}}));
               }},
          Case{"conv_of_data", [](Trial& t) {
                 return t.distance(conv2d(t.b, "conv", t.input("x", {2, 4, 4, 2}), {.out = 3, .kernel = 3}));
               }}};
}

INSTANTIATE_TEST_SUITE_P(Conv, Gradient, testing::ValuesIn(conv_cases()), case_name);

// Pooling -----------------------------------------------------------------------------------------

Case pool(const std::string& name, const Shape& x, const PoolOptions& options,
          TensorId (*op)(Builder&, const std::string&, TensorId, const PoolOptions&)) {
  return {(op == max_pool ? "max_pool_" : "avg_pool_") + name, [=](Trial& t) {
            return t.distance(op(t.b, "pool", t.operand("x", x, t.spaced(x.elements())), options));
          }};
}

std::vector<Case> pools() {
  std::vector<Case> cases;
  for (const auto op : {max_pool, avg_pool}) {
    cases.push_back(pool("plain", {2, 4, 4, 2}, {.kernel = 2}, op));
    cases.push_back(pool("rest", {1, 5, 3, 2}, {.kernel = 2}, op));
    cases.push_back(pool("overlap", {1, 5, 4, 2}, {.kernel = 3, .stride = 1}, op));
    cases.push_back(pool("padded", {1, 5, 4, 2}, {.kernel = 3, .stride = 2, .padding = 1}, op));
    cases.push_back(pool("gaps", {2, 6, 5, 1}, {.kernel = 2, .stride = 3}, op));
    cases.push_back(pool("one_by_one", {2, 1, 1, 3}, {.kernel = 1}, op));
    cases.push_back(pool("one_by_one_padded", {1, 1, 1, 2}, {.kernel = 2, .stride = 1, .padding = 1}, op));
    cases.push_back({op == max_pool ? "max_pool_uneven" : "avg_pool_uneven", [=](Trial& t) {
                       const TensorId x = t.operand("x", {2, 5, 4, 2}, t.spaced(80));
                       return t.distance(nodes(t.b).add(op == max_pool ? kMaxPool : kAvgPool, "pool", {x},
                                                        {{"kernel_h", 2},
                                                         {"kernel_w", 3},
                                                         {"stride_h", 1},
                                                         {"stride_w", 2},
                                                         {"padding_h", 0},
                                                         {"padding_w", 1}})[0]);
                     }});
  }
  for (const Shape& shape : {Shape{2, 3, 4, 2}, Shape{3, 1, 1, 2}, Shape{1, 2, 1, 1}}) {
    cases.push_back({"global_average_" + shape_text(shape), [=](Trial& t) {
                       return t.distance(global_average(t.b, "pool", t.operand("x", shape)));
                     }});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Pool, Gradient, testing::ValuesIn(pools()), case_name);

// Norms -------------------------------------------------------------------------------------------

// An epsilon that is not small beside the variance shows a rule that forgets it. A product follows,
// so that the gradient that comes back is not a constant in each channel, which norms do not pass
// on.
Case norm(const std::string& name, const Shape& x, bool batch, double epsilon = 1e-5, bool vanishes = false) {
  return {(batch ? "batch_norm_" : "layer_norm_") + name,
          [=](Trial& t) {
            const TensorId in = t.operand("x", x);
            const TensorId y = batch ? batch_norm(t.b, "norm", in, {.epsilon = epsilon})
                                     : layer_norm(t.b, "norm", in, epsilon);
            return t.distance(multiply(t.b, "product", y, t.input("factor", x)));
          },
          vanishes};
}

std::vector<Case> norm_cases() {
  return {norm("image", {2, 3, 2, 3}, true),
          norm("rows", {5, 4}, true),
          norm("one_channel", {6, 1}, true),
          norm("epsilon", {3, 2, 2, 2}, true, 0.5),
          norm("one_row", {1, 3}, true, 0.5),
          norm("rows", {5, 4}, false),
          norm("sequence", {2, 3, 4}, false, 0.5),
          norm("image", {2, 2, 2, 3}, false),
          norm("one_channel", {4, 1}, false, 0.5),
          norm("one_row", {1, 5}, false),
          Case{"batch_norm_of_data",
               [](Trial& t) {
                 const TensorId y = batch_norm(t.b, "norm", t.input("x", {5, 3}));
                 return t.distance(multiply(t.b, "product", y, t.input("factor", {5, 3})));
               }},
          Case{"batch_norm_read_twice", [](Trial& t) {
                 const TensorId x = t.operand("x", {2, 3, 2, 2});
                 const TensorId y = relu(t.b, "relu", x), z = batch_norm(t.b, "norm", x);
                 return t.distance(multiply(t.b, "product", y, z));
               }}};
}

INSTANTIATE_TEST_SUITE_P(Norm, Gradient, testing::ValuesIn(norm_cases()), case_name);

// Matrix products ---------------------------------------------------------------------------------

Case product(const std::string& name, const Shape& x, const Shape& y, bool tx, bool ty) {
  return {"matmul_" + name, [=](Trial& t) {
            return t.distance(matmul(t.b, "op", t.operand("x", x), t.operand("y", y), tx, ty));
          }};
}

Case layer(const std::string& name, const Shape& x, int64_t out, bool bias) {
  return {"linear_" + name, [=](Trial& t) {
            return t.distance(linear(t.b, "op", t.operand("x", x), {.out = out, .bias = bias}));
          }};
}

std::vector<Case> matmul_cases() {
  return {
      product("nn", {2, 3}, {3, 4}, false, false),
      product("nt", {2, 3}, {4, 3}, false, true),
      product("tn", {3, 2}, {3, 4}, true, false),
      product("tt", {3, 2}, {4, 3}, true, true),
      product("batch_nn", {2, 2, 3}, {2, 3, 4}, false, false),
      product("batch_nt", {2, 2, 3}, {2, 4, 3}, false, true),
      product("batch_tn", {2, 3, 2}, {2, 3, 4}, true, false),
      product("batch_tt", {2, 3, 2}, {2, 4, 3}, true, true),
      product("heads_nt", {2, 3, 2, 3}, {2, 3, 4, 3}, false, true),
      product("ones", {1, 1}, {1, 1}, false, false),
      product("outer", {3, 1}, {1, 4}, false, false),
      Case{"dot_interaction",
           [](Trial& t) {
             return t.distance(dot_interaction(t.b, "op", t.operand("x", {2, 4, 3})));
           }},
      Case{"dot_interaction_of_two",
           [](Trial& t) {
             return t.distance(dot_interaction(t.b, "op", t.operand("x", {3, 2, 1})));
           }},
      Case{"dot_interaction_of_joined_vectors",
           [](Trial& t) {
             const TensorId joined = concat(t.b, "joined", {t.operand("x", {2, 3}), t.operand("y", {2, 6})});
             return t.distance(dot_interaction(t.b, "op", reshape(t.b, "vectors", joined, {2, 3, 3})));
           }},
      Case{"matmul_with_itself",
           [](Trial& t) {
             const TensorId x = t.operand("x", {3, 4});
             return t.distance(matmul(t.b, "op", x, x, false, true));
           }},
      Case{"matmul_of_data",
           [](Trial& t) {
             return t.distance(matmul(t.b, "op", t.input("x", {3, 4}), t.operand("y", {4, 2})));
           }},
      layer("bias", {3, 4}, 2, true),
      layer("sequence", {2, 3, 4}, 3, true),
      layer("bare", {3, 4}, 5, false),
      layer("one_example", {1, 4}, 3, true),
      layer("one_to_one", {3, 1}, 1, true),
      Case{"embedding_repeated",
           [](Trial& t) {
             return t.distance(embedding(t.b, "op", t.indices("i", {5}, {2, 0, 2, 2, 3}), 6, 3));
           }},
      Case{"embedding_sequence",
           [](Trial& t) {
             return t.distance(embedding(t.b, "op", t.indices("i", {2, 3}, {1, 1, 0, 3, 1, 2}), 4, 2));
           }},
      Case{"embedding_by_rows",
           [](Trial& t) {
             t.by_rows = true;
             return t.distance(embedding(t.b, "op", t.indices("i", {2, 3}, {5, 1, 0, 5, 1, 5}), 9, 8));
           }},
      Case{"embedding_wide", [](Trial& t) {
             return t.distance(embedding(t.b, "op", t.indices("i", {3}, {1, 0, 1}), 2, 67));
           }}};
}

INSTANTIATE_TEST_SUITE_P(Matmul, Gradient, testing::ValuesIn(matmul_cases()), case_name);

// Losses ------------------------------------------------------------------------------------------

Case labelled(const std::string& name, int64_t n, int64_t k, double smoothing, bool in_one) {
  return {(in_one ? "cross_entropy_" : "nll_") + name,
          [=](Trial& t) {
            const TensorId x = t.operand("x", {n, k});
            std::vector<int32_t> classes;
            for (int64_t i = 0; i < n; ++i) classes.push_back(static_cast<int32_t>((3 * i + 2) % k));
            const TensorId labels = t.indices("labels", {n}, classes);
            if (in_one) return cross_entropy(t.b, "loss", x, labels, smoothing);
            return nll(t.b, "loss", log_softmax(t.b, "log_p", x), labels, smoothing);
          },
          k == 1};
}

std::vector<Case> loss_cases() {
  return {unary("softmax", softmax, {3, 4}),
          unary("softmax_sequence", softmax, {2, 3, 4}),
          unary("log_softmax", log_softmax, {3, 4}),
          labelled("plain", 4, 5, 0, true),
          labelled("smoothed", 4, 5, 0.2, true),
          labelled("one_example", 1, 3, 0, true),
          labelled("one_class", 2, 1, 0.1, true),
          labelled("plain", 4, 5, 0, false),
          labelled("smoothed", 4, 5, 0.2, false),
          Case{"nll_alone",
               [](Trial& t) {
                 return nll(t.b, "loss", t.operand("x", {3, 4}), t.indices("labels", {3}, {0, 3, 1}), 0.3);
               }},
          Case{"softmax_one_class",
               [](Trial& t) {
                 return t.distance(softmax(t.b, "op", t.operand("x", {3, 1})));
               },
               true},
          Case{"mse",
               [](Trial& t) {
                 return mse(t.b, "loss", t.operand("x", {2, 3, 2, 2}), t.target("t", {2, 3, 2, 2}));
               }},
          Case{"mse_one_axis",
               [](Trial& t) { return mse(t.b, "loss", t.operand("x", {4}), t.target("t", {4})); }},
          Case{"bce",
               [](Trial& t) {
                 return bce_with_logits(t.b, "loss", t.operand("x", {3, 4}), t.target("t", {3, 4}));
               }},
          Case{"loss_of_losses", [](Trial& t) {
                 const TensorId one = mse(t.b, "one", t.operand("x", {3, 2}), t.target("t", {3, 2}));
                 return multiply(t.b, "square", one, one);
               }}};
}

INSTANTIATE_TEST_SUITE_P(Loss, Gradient, testing::ValuesIn(loss_cases()), case_name);

// Moves -------------------------------------------------------------------------------------------

std::vector<Case> move_cases() {
  return {
      Case{"reshape",
           [](Trial& t) {
             return t.distance(reshape(t.b, "op", t.operand("x", {2, 6}), {4, 3}));
           }},
      Case{"flatten",
           [](Trial& t) {
             return t.distance(flatten(t.b, "op", t.operand("x", {2, 2, 3, 2})));
           }},
      Case{"reshape_of_a_weight",
           [](Trial& t) {
             return t.distance(reshape(t.b, "op", t.weight("w", {2, 6}), {4, 3}));
           }},
      Case{"reshape_of_a_shared_weight",
           [](Trial& t) {
             const TensorId w = t.weight("w", {2, 6});
             const TensorId y = reshape(t.b, "view", w, {4, 3});
             return t.distance(reshape(t.b, "back",
                                       add(t.b, "op", ulp::tanh(t.b, "tanh", y),
                                           reshape(t.b, "other", sigmoid(t.b, "sigmoid", w), {4, 3})),
                                       {3, 4}));
           }},
      Case{"view_beside_a_reader",
           [](Trial& t) {
             const TensorId x = t.operand("x", {2, 6});
             const TensorId y = reshape(t.b, "view", x, {4, 3});
             const TensorId z = reshape(t.b, "again", ulp::tanh(t.b, "tanh", y), {2, 6});
             return t.distance(multiply(t.b, "op", z, x));
           }},
      Case{"view_of_a_view",
           [](Trial& t) {
             const TensorId x = reshape(t.b, "view", t.operand("x", {2, 6}), {4, 3});
             const TensorId y = reshape(t.b, "again", x, {3, 4});
             return t.distance(multiply(t.b, "op", y, reshape(t.b, "third", sigmoid(t.b, "s", x), {3, 4})));
           }},
      Case{"channel_shuffle",
           [](Trial& t) {
             return t.distance(channel_shuffle(t.b, "op", t.operand("x", {2, 1, 2, 6}), 2));
           }},
      Case{"channel_shuffle_three",
           [](Trial& t) {
             return t.distance(channel_shuffle(t.b, "op", t.operand("x", {2, 6}), 3));
           }},
      Case{"channel_shuffle_of_a_weight_twice",
           [](Trial& t) {
             const TensorId w = t.weight("w", {2, 6});
             return t.distance(
                 multiply(t.b, "op", channel_shuffle(t.b, "a", w, 2), channel_shuffle(t.b, "b", w, 3)));
           }},
      Case{"transpose_2",
           [](Trial& t) {
             return t.distance(transpose(t.b, "op", t.operand("x", {2, 3}), {1, 0}));
           }},
      Case{"transpose_3",
           [](Trial& t) {
             return t.distance(transpose(t.b, "op", t.operand("x", {2, 3, 4}), {1, 2, 0}));
           }},
      Case{"transpose_4",
           [](Trial& t) {
             return t.distance(transpose(t.b, "op", t.operand("x", {2, 3, 1, 4}), {3, 0, 1, 2}));
           }},
      Case{"concat",
           [](Trial& t) {
             return t.distance(
                 concat(t.b, "op", {t.operand("x", {3, 2}), t.operand("y", {3, 1}), t.operand("z", {3, 4})}));
           }},
      Case{"concat_with_data",
           [](Trial& t) {
             return t.distance(
                 concat(t.b, "op", {t.input("a", {3, 2}), t.operand("y", {3, 1}), t.input("c", {3, 2})}));
           }},
      Case{"concat_with_itself",
           [](Trial& t) {
             const TensorId x = t.operand("x", {3, 2});
             return t.distance(concat(t.b, "op", {x, x}));
           }},
      Case{"concat_of_one_weight_twice",
           [](Trial& t) {
             const TensorId w = t.weight("w", {3, 2});
             return t.distance(concat(t.b, "op", {w, w}));
           }},
      Case{"concat_of_weights_read_elsewhere",
           [](Trial& t) {
             const TensorId v = t.weight("v", {3, 2}), w = t.weight("w", {3, 2});
             const TensorId first = multiply(t.b, "first", w, t.input("a", {3, 2}));
             const TensorId joined = concat(t.b, "joined", {v, w});
             const TensorId last = multiply(t.b, "last", v, t.input("c", {3, 2}));
             return t.distance(concat(t.b, "op", {first, joined, last}));
           }},
      Case{"split",
           [](Trial& t) {
             const auto parts = split(t.b, "op", t.operand("x", {2, 6}), 3);
             const TensorId y = multiply(t.b, "product", parts[0], parts[2]);
             return t.distance(add(t.b, "sum", y, parts[1]));
           }},
      Case{"split_with_an_unused_part",
           [](Trial& t) {
             return t.distance(split(t.b, "op", t.operand("x", {2, 2, 1, 6}), 3)[1]);
           }},
      Case{"concat_along_the_first_axis",
           [](Trial& t) {
             return t.distance(concat(t.b, "op", {t.operand("x", {3, 2}), t.operand("y", {1, 2})}, 0));
           }},
      Case{"concat_in_the_middle",
           [](Trial& t) {
             return t.distance(
                 concat(t.b, "op",
                        {t.operand("x", {2, 1, 3}), t.input("y", {2, 2, 3}), t.operand("z", {2, 2, 3})}, -2));
           }},
      Case{"split_in_the_middle",
           [](Trial& t) {
             const auto parts = split(t.b, "op", t.operand("x", {2, 4, 3}), 2, 1);
             return t.distance(multiply(t.b, "product", parts[0], parts[1]));
           }},
      Case{"split_along_the_first_axis",
           [](Trial& t) {
             return t.distance(split(t.b, "op", t.operand("x", {6, 2}), 3, 0)[1]);
           }},
      Case{"split_in_one", [](Trial& t) {
             return t.distance(split(t.b, "op", t.operand("x", {2, 3}), 1)[0]);
           }}};
}

INSTANTIATE_TEST_SUITE_P(Move, Gradient, testing::ValuesIn(move_cases()), case_name);

}  // namespace
}  // namespace ulp::ref
