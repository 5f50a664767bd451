// Operators that are made of several sums, of roots or of exponentials; and the table of all rules.
#include "tests/conformance/conformance_bounds.h"

#include <algorithm>

namespace ulp::conformance {
namespace {

// Mean and variance of n numbers. The mean is a sum. The variance is a mean of squares about the
// mean; a kernel may take them about a mean of its own (also one for each block of rows), which is
// off by what the mean may be. By the triangle inequality the root of the mean of squares then
// moves by no more than that; and the squares are a sum.
struct Moments {
  double mean = 0, variance = 0, mean_off = 0, variance_off = 0;
  Moments(const float* x, int64_t n, int64_t stride) {
    const auto count = static_cast<double>(n);
    double magnitude = 0;
    for (int64_t i = 0; i < n; ++i) {
      mean += x[i * stride] / count;
      magnitude += std::abs(x[i * stride]) / count;
    }
    for (int64_t i = 0; i < n; ++i) variance += (x[i * stride] - mean) * (x[i * stride] - mean) / count;
    mean_off = share(count) * magnitude + dust(count);
    variance_off = share(count) * variance + (2 * std::sqrt(variance) + mean_off) * mean_off + dust(count);
    // Means of blocks of rows, when they are joined, may make a NaN of an infinity.
    const double beyond = std::isfinite(magnitude) ? magnitude * count : kBeyond;
    mean_off = within_fp32(beyond, mean_off);
    variance_off = within_fp32(std::max(beyond, variance * count), variance_off);
  }
};

Allowed batch_stats(const View& v) {
  const int64_t channels = v.in(0).back();
  Allowed bound(2);
  for (int64_t c = 0; c < channels; ++c) {
    const Moments m(v.real[0].data() + c, static_cast<int64_t>(v.in(0).rows()), channels);
    bound[0].push_back(m.mean_off);
    bound[1].push_back(m.variance_off);
  }
  return bound;
}

Allowed batch_norm_sums(const View& v) {
  Sums sum(v.out(0)), product(v.out(1));
  for (size_t i = 0; i < v.real[0].size(); ++i) {
    const size_t c = i % v.real[2].size();
    const double d = v.real[0][i], x = v.real[1][i];
    sum.add(static_cast<int64_t>(c), d);
    const double rest = x - v.real[2][c], inv = 1 / std::sqrt(v.real[3][c] + v.node.attrs.real("epsilon"));
    const bool fits =
        std::max(std::abs(rest), std::abs(d * rest)) <= kLargest || std::isinf(x) || std::isinf(d);
    product.add(static_cast<int64_t>(c), fits ? d * rest * inv : kBeyond);
  }
  return {sum.allowed(), product.allowed()};
}

// out = (x - mean) inv gamma + beta. With the variance off by a share r of variance + epsilon,
// below a half of it, inv is off by at most r of itself (the root halves it, and 1 / sqrt(1 - r)
// stays below 1 + r); x - mean is off by what the mean is.
Allowed layer_norm(const View& v) {
  const int64_t n = v.in(0).back();
  const double epsilon = v.node.attrs.real("epsilon");
  Allowed bound(3);
  for (int64_t row = 0; row < static_cast<int64_t>(v.in(0).rows()); ++row) {
    const float* x = v.real[0].data() + row * n;
    const Moments m(x, n, 1);
    const double inv = 1 / std::sqrt(m.variance + epsilon), r = m.variance_off / (m.variance + epsilon);
    for (int64_t c = 0; c < n; ++c) {
      const double gamma = std::abs(v.real[1][at(c)]) * inv, beta = std::abs(v.real[2][at(c)]);
      const double rest = std::abs(x[c] - m.mean);
      bound[0].push_back(gamma * (m.mean_off * (1 + r) + rest * r) + share(1) * (gamma * rest + beta) +
                         dust(1));
    }
    bound[1].push_back(m.mean_off);
    bound[2].push_back(m.variance_off);
  }
  return bound;
}

// A polynomial in its inputs and inv, which is a root and a division of them.
Allowed layer_norm_grad(const View& v) {
  const int64_t n = v.in(0).back();
  const auto count = static_cast<double>(n);
  Allowed bound(1);
  for (int64_t row = 0; row < static_cast<int64_t>(v.in(0).rows()); ++row) {
    const float *dout = v.real[0].data() + row * n, *x = v.real[1].data() + row * n;
    const double mean = v.real[3][at(row)];
    const double inv = 1 / std::sqrt(v.real[4][at(row)] + v.node.attrs.real("epsilon"));
    const auto g = [&](int64_t c) { return std::abs(static_cast<double>(dout[c]) * v.real[2][at(c)]); };
    const auto u = [&](int64_t c) { return std::abs((x[c] - mean) * inv); };
    double sum = 0, product = 0;
    for (int64_t c = 0; c < n; ++c) {
      sum += g(c);
      product += g(c) * u(c);
    }
    for (int64_t c = 0; c < n; ++c) {
      bound[0].push_back(share(count) * inv * (g(c) + sum / count + u(c) * product / count) + dust(count));
    }
  }
  return bound;
}

Allowed layer_norm_grad_weight(const View& v) {
  const int64_t n = v.in(0).back();
  Sums dgamma(v.out(0)), dbeta(v.out(1));
  for (size_t i = 0; i < v.real[0].size(); ++i) {
    const auto c = static_cast<int64_t>(i) % n, row = static_cast<int64_t>(i) / n;
    const double d = v.real[0][i], inv = 1 / std::sqrt(v.real[3][at(row)] + v.node.attrs.real("epsilon"));
    dgamma.add(c, d * (v.real[1][i] - v.real[2][at(row)]) * inv);
    dbeta.add(c, d);
  }
  return {dgamma.allowed(), dbeta.allowed()};
}

// A row's softmax. An exponent x - top that is rounded is off by a share of |x - top|, and e to it
// by that share of itself; so the sum of all is off by the mean of |x - top| under p, and by what a
// sum is.
struct Row {
  std::vector<double> p, below;  // |x - top|
  double log_sum = 0, mean_below = 0;
  Row(const float* x, int64_t n) : p(at(n)), below(at(n)) {
    const double top = *std::max_element(x, x + n);
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      below[i] = top - x[i];
      sum += p[i] = std::exp(-below[i]);
    }
    log_sum = std::log(sum);
    for (size_t i = 0; i < p.size(); ++i) mean_below += (p[i] /= sum) == 0 ? 0 : p[i] * below[i];
  }
  // What p[i] and its logarithm are off by, in shares: of p[i], and of 1.
  double p_off(size_t i) const { return 1 + below[i] + mean_below; }
  double log_off(size_t i) const { return p_off(i) + log_sum; }
};

template <typename Term>
Allowed by_row(const View& v, size_t scores, const Term& term) {
  const int64_t n = v.in(scores).back();
  Allowed bound(1);
  for (int64_t r = 0; r < static_cast<int64_t>(v.in(scores).rows()); ++r) {
    const Row row(v.real[scores].data() + r * n, n);
    term(row, r, bound[0]);
  }
  return bound;
}

Allowed softmax(const View& v) {
  return by_row(v, 0, [](const Row& row, int64_t, std::vector<double>& bound) {
    const auto n = static_cast<double>(row.p.size());
    for (size_t i = 0; i < row.p.size(); ++i) {
      bound.push_back(row.p[i] == 0 ? dust(n) : share(n) * row.p[i] * row.p_off(i) + dust(n));
    }
  });
}

Allowed log_softmax(const View& v) {
  return by_row(v, 0, [](const Row& row, int64_t, std::vector<double>& bound) {
    for (size_t i = 0; i < row.p.size(); ++i) {
      bound.push_back(share(static_cast<double>(row.p.size())) * row.log_off(i));
    }
  });
}

// Both: one factor for the element and a sum over the row, out (dout - sum) and dout - e^out sum.
template <bool log>
Allowed softmax_grad(const View& v) {
  const auto n = at(v.out().back());
  Allowed bound(1);
  for (size_t i = 0; i < v.real[0].size(); ++i) {
    const size_t first = i / n * n;
    double sum = 0;
    for (size_t k = first; k < first + n; ++k) {
      sum += std::abs(static_cast<double>(v.real[0][k]) * (log ? 1.0 : static_cast<double>(v.real[1][k])));
    }
    const double dout = std::abs(v.real[0][i]), out = v.real[1][i];
    const double magnitude = log ? dout + std::exp(out) * sum : std::abs(out) * (dout + sum);
    bound[0].push_back(share(static_cast<double>(n)) * magnitude + dust(static_cast<double>(n)));
  }
  return bound;
}

// What a smoothed label puts on a class.
double weight(const View& v, int64_t classes, int64_t i, int64_t label) {
  const double smoothing = v.node.attrs.real("smoothing");
  return smoothing / static_cast<double>(classes) + (i == label ? 1 - smoothing : 0);
}

Allowed nll(const View& v) {
  const int64_t n = v.in(0).back();
  Sums sums(v.out());
  for (size_t i = 0; i < v.real[0].size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / n;
    sums.add(row, weight(v, n, static_cast<int64_t>(i) % n, v.integers[1][row]) * v.real[0][i]);
  }
  return {sums.allowed()};
}

Allowed nll_grad(const View& v) {
  const int64_t n = v.out().back();
  Sums sums(v.out());
  for (int64_t i = 0; i < static_cast<int64_t>(v.out().elements()); ++i) {
    sums.add(i, weight(v, n, i % n, v.integers[1][i / n]) * v.real[0][at(i / n)]);
  }
  return {sums.allowed()};
}

// A sum over the row of what log_softmax gives, whose errors it weighs.
Allowed cross_entropy(const View& v) {
  return by_row(v, 0, [&](const Row& row, int64_t r, std::vector<double>& bound) {
    const auto n = static_cast<int64_t>(row.p.size());
    double magnitude = 0;
    for (int64_t i = 0; i < n; ++i) magnitude += weight(v, n, i, v.integers[1][r]) * row.log_off(at(i));
    bound.push_back(share(2 * static_cast<double>(n)) * magnitude);
  });
}

Allowed cross_entropy_grad(const View& v) {
  return by_row(v, 1, [&](const Row& row, int64_t r, std::vector<double>& bound) {
    const auto n = static_cast<int64_t>(row.p.size());
    for (int64_t i = 0; i < n; ++i) {
      const double p = row.p[at(i)] == 0 ? 0 : row.p[at(i)] * row.p_off(at(i));
      bound.push_back(share(static_cast<double>(n)) * std::abs(v.real[0][at(r)]) *
                          (p + weight(v, n, i, v.integers[2][r])) +
                      dust(static_cast<double>(n)));
    }
  });
}

// Losses against a target: means over an example of a term, which is itself a sum of two.
double square(double x, double t) { return (x - t) * (x - t); }
double square_slope(double x, double t) { return 2 * std::abs(x - t); }
double logit(double x, double t) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))) + std::abs(x * t);
}
double logit_slope(double x, double t) { return 1 / (1 + std::exp(-x)) + std::abs(t); }

template <double (*term)(double, double)>
Allowed target_loss(const View& v) {
  const size_t n = v.real[0].size() / v.out().elements();
  Sums sums(v.out());
  for (size_t i = 0; i < v.real[0].size(); ++i) {
    sums.add(static_cast<int64_t>(i / n), term(v.real[0][i], v.real[1][i]));
  }
  return {sums.allowed(1 / static_cast<double>(n))};
}

template <double (*slope)(double, double)>
Allowed target_loss_grad(const View& v) {
  const size_t n = v.real[1].size() / v.real[0].size();
  Sums sums(v.out());
  for (size_t i = 0; i < v.real[1].size(); ++i) {
    sums.add(static_cast<int64_t>(i), v.real[0][i / n] * slope(v.real[1][i], v.real[2][i]));
  }
  return {sums.allowed(1 / static_cast<double>(n))};
}

// The count is exact.
Allowed classify(const View& v) {
  Sums sum(1);
  for (const float loss : v.real[2]) sum.add(0, loss);
  return {{sum.allowed()[0], 0}};
}

Allowed loss_sum(const View& v) {
  Sums sum(1);
  for (size_t i = 0; i < v.real[0].size(); ++i)
    sum.add(0, v.real.size() > 1 ? v.real[0][i] * v.real[1][i] : v.real[0][i]);
  return {sum.allowed()};
}

// A sum of n numbers that are not negative, in double, is off by at most n 2^-53 of itself in any
// order; here are two.
Allowed grad_squares(const View& v) {
  double squares = 0;
  for (const float g : v.real[0]) squares += static_cast<double>(g) * g;
  return {{2 * static_cast<double>(v.real[0].size()) * 0x1p-53 * squares}};
}

// Moves and whatever else adds nothing up, or does so in an order that it states; and all of
// elementwise_table.h.
constexpr std::string_view kExact[] = {
    "input",  "indices",         "target",     "bytes",           "from_bytes",    "image_batch",
    "take",   "take_target",     "dropout",    "dropout_grad",    "sum",           "copy",
    "seed",   "batch_track",     "batch_norm", "batch_norm_grad", "broadcast_add", "concat",
    "split",  "channel_shuffle", "transpose",  "embedding",       "max_pool",      "max_pool_grad",
    "update", "grad_norm",
};

}  // namespace

std::span<const Rule> composed_rules() {
  static constexpr Rule kRules[] = {
      {"batch_stats", batch_stats},
      {"batch_norm_sums", batch_norm_sums},
      {"layer_norm", layer_norm},
      {"layer_norm_grad", layer_norm_grad},
      {"layer_norm_grad_weight", layer_norm_grad_weight},
      {"softmax", softmax},
      {"softmax_grad", softmax_grad<false>},
      {"log_softmax", log_softmax},
      {"log_softmax_grad", softmax_grad<true>},
      {"nll", nll},
      {"nll_grad", nll_grad},
      {"cross_entropy", cross_entropy},
      {"cross_entropy_grad", cross_entropy_grad},
      {"mse", target_loss<square>},
      {"mse_grad", target_loss_grad<square_slope>},
      {"bce_with_logits", target_loss<logit>},
      {"bce_with_logits_grad", target_loss_grad<logit_slope>},
      {"classify", classify},
      {"loss_sum", loss_sum},
      {"grad_squares", grad_squares},
  };
  return kRules;
}

std::optional<Rule> rule_of(std::string_view op) {
  for (const std::string_view exact : kExact) {
    if (exact == op) return Rule{op, nullptr};
  }
  bool elementwise = false;
  elementwise::Activations::for_each(
      [&]<typename Op>(Op) { elementwise |= op == Op::kName || op == Op::kGradName; });
  elementwise::Binaries::for_each([&]<typename Op>(Op) { elementwise |= op == Op::kName; });
  if (elementwise) return Rule{op, nullptr};
  for (const auto& rules : {sum_rules(), composed_rules()}) {
    for (const Rule& rule : rules) {
      if (rule.op == op) return rule;
    }
  }
  return {};
}

bool is_product(std::string_view op) {
  return op == "matmul" || op.starts_with("dot_interaction") || op.starts_with("conv2d") ||
         op.starts_with("linear");
}

}  // namespace ulp::conformance
