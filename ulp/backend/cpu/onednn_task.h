// A product in oneDNN's terms, and the task that runs it. Convolutions, linear layers and matrix
// products differ in how primitives are made; the rest is shared. fp32 operands are used in place,
// others are decoded. The batch is processed in slices if decoding would need too much workspace.
// Weights are reordered to the layout that the primitive prefers, and results are encoded once.
#pragma once

#include <dnnl.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/kernel.h"

namespace ulp::onednn {

using Desc = dnnl::memory::desc;

const dnnl::engine& engine();
const dnnl::stream& stream();
// User scratchpad, strict fp32.
dnnl::primitive_attr attributes();

Desc dense(const dnnl::memory::dims& dims, const dnnl::memory::dims& strides);

// What oneDNN offers for a number of items; nothing is compiled before `compile` is called.
struct Offer {
  std::vector<Desc> in;  // of a slice, like OnednnProduct::in
  Desc out;              // of a slice, or of the whole result if it is summed
  Desc weight;           // as the primitive wants it; for a summed result that is `out`
  Desc bias;
  size_t scratchpad = 0;
  std::string implementation;
  std::function<dnnl::primitive()> compile;
};

// An operand that is sliced along the batch.
struct Sliced {
  TensorId id;
  size_t item;  // elements of one item
  int arg;      // oneDNN's name
};

struct OnednnProduct {
  int64_t items = 1;  // images, rows or matrices that can be processed separately
  std::vector<Sliced> in;
  Sliced out;       // `item` is 0 for a result that is summed over all items
  TensorId weight;  // read as a whole; may be none
  int weight_arg = DNNL_ARG_WEIGHTS;
  TensorId bias;  // may be none
  Desc plain;     // the layout of the weight, or of the summed result, as stored
  // Throws dnnl::error. With a layout the weight (or summed result) must have it; otherwise the
  // primitive chooses.
  std::function<Offer(int64_t items, const Desc* layout)> offer;

  bool summed() const { return out.item == 0; }
  // Items of a slice whose operands oneDNN can count: it does so in 32 bits here and there, and a
  // primitive for more divides by zero while it is made. 0 where not even one item will do.
  int64_t most_items() const;
};

// Why oneDNN cannot do it, or "".
std::string why_not(const Problem& problem, const std::function<OnednnProduct(const Problem&)>& describe);
std::unique_ptr<Task> make_task(const Problem& problem, OnednnProduct product);

// why_not and make of a KernelDef for one operator, from a description.
template <OnednnProduct (*describe)(const Problem&)>
constexpr KernelDef kernel(std::string_view op) {
  return {op, "onednn", [](const Problem& problem) { return why_not(problem, describe); },
          [](const Problem& problem) { return make_task(problem, describe(problem)); }};
}

OnednnProduct describe_conv(const Problem& problem);
OnednnProduct describe_conv_grad_input(const Problem& problem);
OnednnProduct describe_conv_grad_weight(const Problem& problem);
OnednnProduct describe_linear(const Problem& problem);
OnednnProduct describe_linear_grad_input(const Problem& problem);
OnednnProduct describe_linear_grad_weight(const Problem& problem);
OnednnProduct describe_matmul(const Problem& problem);

}  // namespace ulp::onednn
