// What is demanded of a kernel's results, and how near they came.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/conformance/conformance_bench.h"
#include "ulp/numeric/codec.h"

namespace ulp::conformance {
namespace {

std::string text(const EncodeStats& s) {
  return fmt::format("overflow {}, underflow {}, NaN {}, amax {}", s.overflow, s.underflow, s.nan, s.amax);
}

void expect_events(const EncodeStats& expected, const EncodeStats& reported, std::string_view what) {
  if (expected != reported) ADD_FAILURE() << what << ": " << text(expected) << "; but " << text(reported);
}

double double_of(const Bytes& bytes) {
  double value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}
std::vector<float> floats_of(const Bytes& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Codes in the order of their numbers; both zeros are 0.
class Places {
 public:
  explicit Places(const FloatFormat& format)
      : wide_(format == parse_format("fp32")),
        spec_(make_spec(format, format.has_inf() ? Overflow::infinity : Overflow::saturate)) {}
  int64_t apart(float a, float b) const { return std::abs(place(a) - place(b)); }

 private:
  int64_t place(float x) const {
    const uint32_t bits = float_bits(x);
    const uint32_t code = wide_ ? bits : encode_scalar(spec_, Round::nearest_even, bits, 0).code;
    const int64_t magnitude = code & ((uint32_t{1} << spec_.sign_shift) - 1);
    return (code >> spec_.sign_shift) != 0 ? -magnitude : magnitude;
  }

  bool wide_;
  CodecSpec spec_;
};

int64_t bits_of(double x) { return std::bit_cast<int64_t>(x); }

void count(bool identical, int64_t apart, Tally& tally) {
  ++tally.elements;
  ++(identical ? tally.identical : apart <= 1 ? tally.next : tally.further);
}

void count(float a, float b, const Places& places, Tally& tally) {
  const bool identical = float_bits(a) == float_bits(b);
  count(identical, identical ? 0 : places.apart(a, b), tally);
}

double share_of(double error, double allowed) {
  return error == 0 ? 0 : std::abs(error) / allowed;  // of nothing: infinity
}

// The number nearest to `from`, on the way to `to`, that is stored as `to` or lies beyond it.
template <typename Reaches>
double nearest(double from, double to, const Reaches& reaches) {
  if (!std::isfinite(to)) return to;
  for (int i = 0; i < 60; ++i) {
    const double middle = from + (to - from) / 2;
    (reaches(middle) ? to : from) = middle;
  }
  return to;
}

}  // namespace

void Tally::merge(const Tally& other) {
  tensors += other.tensors;
  elements += other.elements;
  identical += other.identical;
  next += other.next;
  further += other.further;
  worst = std::max(worst, other.worst);
}

void Bench::check_kernel(const KernelDef& kernel, const Goal& goal, const Unit& roots, Device& device) {
  SCOPED_TRACE(fmt::format("{}: {} by {}/{}", setting_.where, graph_[roots[0]].name, kernel.op, kernel.name));
  // Primitives of a library may be cut in another way on another number of threads.
  const bool library = kernel.name == "onednn";
  const Result one = run(kernel, roots, formats_, 1, device), two = run(kernel, roots, formats_, 2, device);
  if (!library) expect_same(one, two, "one thread and two");
  Tally& tally = tallies_[{kernel.op, kernel.name}];
  if (goal.allowed.empty()) {
    count_same(goal.expected, two, tally);
    expect_same(goal.expected, two, "the reference and the kernel", moves_codes(roots[0]));
    return;
  }
  expect_close(kernel, goal, roots, two, 2, device, tally);
  Tally again;  // the same elements are counted once
  if (library) expect_close(kernel, goal, roots, one, 1, device, again);
  tally.worst = std::max(tally.worst, again.worst);
  for (const TensorId in : graph_[roots[0]].in) {
    expect_events(goal.expected.stats[number(in)], two.stats[number(in)], "reading " + graph_[in].name);
  }
}

// Joining or splitting tensors of one format rounds nothing: a kernel may move codes without
// looking at them.
bool Bench::moves_codes(NodeId id) const {
  const Node& node = graph_[id];
  const auto alike = [&](TensorId tensor) {
    return formats_[number(tensor)].storage == formats_[number(node.in[0])].storage;
  };
  return node.op->copies && std::all_of(node.in.begin(), node.in.end(), alike) &&
         std::all_of(node.out.begin(), node.out.end(), alike);
}

void Bench::expect_same(const Result& a, const Result& b, std::string_view which, bool moves) {
  for (size_t k = 0; k < a.ids.size(); ++k) {
    const auto [x, y] = std::mismatch(a.outputs[k].begin(), a.outputs[k].end(), b.outputs[k].begin());
    if (x == a.outputs[k].end()) continue;
    ADD_FAILURE() << which << " differ in " << graph_[a.ids[k]].name << ", "
                  << storage_name(formats_[number(a.ids[k])].storage) << " of "
                  << shape_text(graph_[a.ids[k]].shape) << ", byte " << x - a.outputs[k].begin() << ": "
                  << static_cast<int>(*x) << " and " << static_cast<int>(*y);
  }
  for (size_t i = 0; i < a.stats.size(); ++i) {
    if (moves && b.stats[i] == EncodeStats{}) continue;
    expect_events(a.stats[i], b.stats[i],
                  fmt::format("{} report other events of {}, {}", which, graph_.tensors()[i].name,
                              storage_name(formats_[i].storage)));
  }
}

void Bench::expect_close(const KernelDef& kernel, const Goal& goal, const Unit& roots, const Result& result,
                         int threads, Device& device, Tally& tally) {
  ASSERT_EQ(goal.allowed.size(), result.ids.size());
  for (size_t k = 0; k < result.ids.size(); ++k) {
    const TensorId out = result.ids[k];
    if (graph_[out].element == Element::int32) {
      EXPECT_EQ(result.outputs[k], goal.exact.outputs[k]) << graph_[out].name;
      continue;
    }
    if (graph_[out].element != Element::real) {  // a double
      const double a = double_of(result.outputs[k]), b = double_of(goal.exact.outputs[k]);
      const bool same = a == b || (std::isnan(a) && std::isnan(b));
      EXPECT_TRUE(same || std::abs(a - b) <= goal.allowed[k][0])
          << graph_[out].name << ": " << a << ", not " << b;
      ++tally.tensors;
      count(result.outputs[k] == goal.exact.outputs[k], std::abs(bits_of(a) - bits_of(b)), tally);
      if (!same) tally.worst = std::max(tally.worst, share_of(a - b, goal.allowed[k][0]));
      continue;
    }
    const std::vector<float> middle = floats_of(goal.exact.outputs[k]);
    std::vector<double> allowed = goal.allowed[k];
    ASSERT_EQ(allowed.size(), middle.size());
    if (graph_[out].kind == Kind::grad_sum) {  // the addition to what is there rounds too
      for (size_t i = 0; i < middle.size(); ++i) allowed[i] += std::abs(middle[i]) * 0x1p-23;
    }
    const Storage& storage = formats_[number(out)].storage;
    if (const Plain* plain = std::get_if<Plain>(&storage)) {
      expect_within({out, plain->format, result.outputs[k], goal.expected.outputs[k],
                     result.stats[number(out)], middle, allowed, events_of(result, out)},
                    tally);
      continue;
    }
    // Every code of such a storage hangs on the whole tensor. So the kernel is asked for fp32, that
    // is held to the bound, and encoding it must give what the kernel stores.
    const Result own = run(kernel, roots, goal.wide, threads, device);
    expect_within({out, parse_format("fp32"), own.outputs[k], goal.exact.outputs[k], {}, middle, allowed},
                  tally);
    const std::vector<float> values = floats_of(own.outputs[k]);
    const StorageSize size = storage_size(storage, values.size());
    Bytes codes(size.code_bytes);
    std::vector<uint32_t> side(size.side_words);
    const EncodeStats stats = encode(storage, rounding(out), values, codes, side);
    const auto* words = reinterpret_cast<const uint8_t*>(side.data());
    codes.insert(codes.end(), words, words + 4 * side.size());
    EXPECT_EQ(codes, result.outputs[k]) << graph_[out].name << " is not its own fp32 result encoded once";
    expect_events(stats, result.stats[number(out)], graph_[out].name);
  }
}

void Bench::count_same(const Result& expected, const Result& result, Tally& tally) const {
  for (size_t k = 0; k < result.ids.size(); ++k) {
    ++tally.tensors;
    const TensorInfo& tensor = graph_[result.ids[k]];
    const Plain* plain = std::get_if<Plain>(&formats_[number(result.ids[k])].storage);
    if (expected.outputs[k] == result.outputs[k]) {
      tally.elements += tensor.elements();
      tally.identical += tensor.elements();
    } else if (tensor.element == Element::real && plain != nullptr) {
      std::vector<float> a(tensor.elements()), b(tensor.elements());
      decode(plain->format, expected.outputs[k], a);
      decode(plain->format, result.outputs[k], b);
      const Places places(plain->format);
      for (size_t i = 0; i < a.size(); ++i) {
        count(a[i], b[i], places, tally);
      }
    } else {  // elements of no order
      tally.elements += tensor.elements();
      tally.further += tensor.elements();
    }
  }
}

// What a GPU's library writes in bf16 itself is looked at as it is stored, or, but for gradients of
// weights, not at all (docs/gpu.md). The task says so.
Bench::Events Bench::events_of(const Result& result, TensorId out) const {
  if (!result.note.ends_with("the library writes bf16")) return Events::sums;
  EXPECT_EQ(storage_name(formats_[number(out)].storage), "bf16");
  return graph_[out].kind == Kind::weight_grad ? Events::codes : Events::codes_or_none;
}

// Encoding is monotone, also with a given random word: a stored value is right if it lies between
// what the ends of the interval are encoded to, and the number of events between those that must
// and those that may have happened. The sign of a NaN, which a format without NaN keeps, is
// nobody's business where numbers are added up.
void Bench::expect_within(const Stored& stored, Tally& tally) const {
  const auto& [id, format, bytes, reference, stats, middle, allowed, of] = stored;
  const bool narrow = format != parse_format("fp32");
  std::vector<float> values(middle.size()), expected(middle.size());
  decode(format, bytes, values);
  decode(format, reference, expected);
  const Rounding how = rounding(id);
  const CodecSpec spec = make_spec(format, how.overflow);
  const auto stored_as = [&](float x, uint32_t random, EncodeStats& events) {
    if (!narrow) return x;  // as it is: an infinity stays one
    const Encoded made = encode_scalar(spec, how.mode, float_bits(x), random);
    const float value = bits_float(decode_scalar(spec, made.code)), seen = of == Events::sums ? x : value;
    events = {made.event == RangeEvent::overflow, made.event == RangeEvent::underflow,
              made.event == RangeEvent::nan, std::isnan(seen) ? 0 : std::abs(seen)};
    return value;
  };
  const Places places(format);
  ++tally.tensors;
  EncodeStats least, most;
  size_t wrong = 0;
  for (size_t i = 0; i < middle.size(); ++i) {
    count(values[i], expected[i], places, tally);
    if (std::isinf(allowed[i])) {  // anything
      most.merge({1, 1, 1, std::numeric_limits<float>::infinity()});
      continue;
    }
    // Rounding the ends to fp32 is monotone too: it shuts out no number between them.
    const float low = static_cast<float>(middle[i] - allowed[i]),
                high = static_cast<float>(middle[i] + allowed[i]);
    const uint32_t random = how.mode == Round::stochastic ? random_word(how.key, i) : 0;
    EncodeStats a, b;
    const float from = stored_as(low, random, a), to = stored_as(high, random, b);
    const bool right = std::isnan(middle[i]) ? std::isnan(values[i]) || std::abs(values[i]) == std::abs(from)
                                             : values[i] >= from && values[i] <= to;
    if (!right && ++wrong <= 3) {
      ADD_FAILURE() << graph_[id].name << ", " << format_name(format) << " of "
                    << shape_text(graph_[id].shape) << ", element " << i << " is " << values[i]
                    << ", not in [" << from << ", " << to << "]; the reference has " << middle[i]
                    << ", allowed are " << allowed[i];
    }
    if (values[i] != expected[i] && !std::isnan(middle[i])) {
      const auto reaches = [&](double x) {
        EncodeStats ignored;
        const float value = stored_as(static_cast<float>(x), random, ignored);
        return values[i] > expected[i] ? value >= values[i] : value <= values[i];
      };
      const double number_before = narrow ? nearest(middle[i], values[i], reaches) : values[i];
      tally.worst = std::max(tally.worst, share_of(number_before - middle[i], allowed[i]));
    }
    const bool around_zero = low <= 0 && high >= 0;
    least.overflow += std::min(a.overflow, b.overflow);
    most.overflow += std::max(a.overflow, b.overflow);
    least.underflow += around_zero ? 0 : std::min(a.underflow, b.underflow);
    most.underflow += around_zero && low < high ? 1 : std::max(a.underflow, b.underflow);
    least.nan += a.nan;
    most.nan += b.nan;
    least.amax = std::max(least.amax, around_zero ? 0 : std::min(a.amax, b.amax));
    most.amax = std::max({most.amax, a.amax, b.amax});
  }
  EXPECT_EQ(wrong, 0u) << "elements of " << graph_[id].name;
  if (of == Events::codes_or_none && stats == EncodeStats{}) return;
  const bool counted = least.overflow <= stats.overflow && stats.overflow <= most.overflow &&
                       least.underflow <= stats.underflow && stats.underflow <= most.underflow &&
                       least.nan <= stats.nan && stats.nan <= most.nan && least.amax <= stats.amax &&
                       stats.amax <= most.amax;
  if (narrow && !counted) {
    ADD_FAILURE() << graph_[id].name << ", " << format_name(format) << " reports " << text(stats)
                  << ", not between " << text(least) << " and " << text(most);
  }
}

}  // namespace ulp::conformance
