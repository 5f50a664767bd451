// All convolutions of networks in bf16, with results in fp32 (and what encoding them takes), in
// bf16 by plain engines and in bf16 by fused ones: times, errors, and how many codes differ from
// the fp32 result rounded once, as engines add in other orders.
#include <algorithm>
#include <array>
#include <memory>

#include "tests/cuda/products_naive.h"
#include "tests/cuda/products_tools.h"
#include "ulp/backend/cuda/access/convert.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/library/im2col.h"

namespace ulp::cuda {
namespace {

// What a task gives a library at the least.
constexpr size_t kLibrary = size_t{32} << 20;

struct Layer {
  ConvExtents shape;
  int times;
  bool first = false;  // the gradient of its input is nobody's
};

struct Network {
  std::string_view name;
  int64_t batch;
  std::vector<Layer> layers;
};

// Basic blocks in stages that halve the image and double the planes; the shortcuts between them are
// 1x1.
Network resnet(std::string_view name, int64_t batch, int stages, int64_t planes, int blocks) {
  Network net{name, batch, {{square_conv(batch, 32, 8, planes, 3, 1, 1), 1, true}}};
  int64_t size = 32;
  net.layers.push_back({square_conv(batch, size, planes, planes, 3, 1, 1), 2 * blocks});
  for (int stage = 1; stage < stages; ++stage, size /= 2, planes *= 2) {
    net.layers.push_back({square_conv(batch, size, planes, 2 * planes, 3, 2, 1), 1});
    net.layers.push_back({square_conv(batch, size, planes, 2 * planes, 1, 2, 0), 1});
    net.layers.push_back({square_conv(batch, size / 2, 2 * planes, 2 * planes, 3, 1, 1), 2 * blocks - 1});
  }
  return net;
}

struct Way {
  std::string_view name;
  ConvEnding ending;
};
constexpr std::array<Way, 3> kWays{{{"fp32 fused", {Written::fp32, ConvForm::fused}},
                                    {"bf16 plain", {Written::half, ConvForm::plain}},
                                    {"bf16 fused", {Written::half, ConvForm::fused}}}};

// What a network takes in each way, by kind; and where a way has no engine.
struct Totals {
  std::array<double, kWays.size()> ms{};
  std::array<int, kWays.size()> missing{};
  double encode = 0, taken = 0;
};

double encode_milliseconds(const Memory& wide, const Memory& codes, int64_t count, int times) {
  WriteView view;
  view.stored = stored_view(parse_storage("bf16"), Overflow::saturate, static_cast<size_t>(count));
  view.stored.codes = static_cast<uint8_t*>(codes.get());
  const Memory state(sizeof(StepState)), stats(sizeof(EncodeStats));
  view.stats = static_cast<EncodeStats*>(stats.get());
  return recorded_milliseconds(
      [&] {
        encode(view, static_cast<const StepState*>(state.get()), Rows::all(static_cast<uint64_t>(count)),
               wide.floats(), nullptr, stream());
      },
      times);
}

void time_layer(const Network& net, const Layer& layer, ConvKind kind, Totals& totals) {
  constexpr Unit kUnit = Unit::bf16;
  const int times = net.batch >= 1024 ? 10 : 40;
  const ConvSizes sizes = conv_sizes(kind, layer.shape);
  const Memory a(static_cast<size_t>(sizes.a) * 2), b(static_cast<size_t>(sizes.b) * 2),
      wide(static_cast<size_t>(sizes.out) * 4), codes(static_cast<size_t>(sizes.out) * 2);
  fill(kUnit, Fill::plain, a.get(), sizes.a, 1);
  fill(kUnit, Fill::plain, b.get(), sizes.b, 2);
  check(cudaDeviceSynchronize());
  std::string line =
      fmt::format("{} {} x{} {}", net.name, net.batch, layer.times, conv_title(kind, layer.shape, kUnit));
  bool ok = true, compared = false, taken = false;
  for (size_t way = 0; way < kWays.size(); ++way) {
    const auto& [name, ending] = kWays[way];
    std::string why_not;
    const auto plan = ConvPlan::find(kind, layer.shape, kUnit, ending, kLibrary, &why_not);
    double ms = 0, error = 0;
    const Memory workspace(plan ? plan->workspace() : 0);
    const bool half = ending.written == Written::half;
    void* const out = half ? codes.get() : wide.get();
    if (plan) {
      try {
        ms = recorded_milliseconds([&] { plan->run(stream(), a.get(), b.get(), out, workspace.get()); },
                                   times);
      } catch (const Error& failed) {
        why_not = failed.what();
      }
    }
    if (!why_not.empty()) {
      totals.missing[way] += layer.times;
      line += fmt::format("; {}: none ({})", name, why_not);
      continue;
    }
    error = conv_error(kind, layer.shape, kUnit, a.get(), b.get(), out, ending.written, 997);
    ok = ok && error <= 1;
    line += fmt::format("; {}: {:.4f} ms, error {:.4f}, {}, workspace {}", name, ms, error, plan->name(),
                        plan->workspace());
    totals.ms[way] += layer.times * ms;
    if (!half) compared = true;
    if (half && compared)
      line +=
          fmt::format(", {} of {} codes other", rounded_otherwise(wide.floats(), out, sizes.out), sizes.out);
    // The library's order: plain, fused, fp32.
    if (half && !taken) totals.taken += layer.times * ms;
    taken = taken || half;
  }
  const double encoding = encode_milliseconds(wide, codes, sizes.out, times);
  totals.encode += layer.times * encoding;
  if (!taken && compared) totals.taken += layer.times * encoding;
  if (!ok) ++failures;
  say(fmt::format("{} {}; encoding {:.4f} ms", ok ? "PASS" : "FAIL", line, encoding));
}

// Few channels: windows are gathered and multiplied as matrices.
void time_as_matrix(const Network& net, const ConvExtents& s) {
  const int64_t rows = s.n * s.out_h * s.out_w, padded = (s.taps() * s.c + 7) / 8 * 8;
  const int64_t x_count = s.n * s.h * s.w * s.c;
  const Memory x(static_cast<size_t>(x_count) * 2), gathered(static_cast<size_t>(rows * padded) * 2),
      y(static_cast<size_t>(rows * s.out_c) * 4), weight(static_cast<size_t>(s.out_c * padded) * 4);
  fill(Unit::bf16, Fill::plain, x.get(), x_count, 1);
  fill(Unit::bf16, Fill::plain, weight.get(), s.out_c * padded, 2);
  StoredView view = stored_view(parse_storage("bf16"), Overflow::saturate, static_cast<size_t>(x_count));
  view.codes = static_cast<uint8_t*>(x.get());
  const double gathering = recorded_milliseconds(
      [&] {
        gather_windows(view, s.as<uint32_t>(), 0, static_cast<uint64_t>(s.n), static_cast<uint32_t>(padded),
                       DecodedType::bf16, gathered.get(), stream());
      },
      10);
  std::string line = fmt::format("TIME {} {} {} as matrices: gathering {:.4f} ms", net.name, net.batch,
                                 conv_title(ConvKind::forward, s, Unit::bf16), gathering);
  for (const bool forward : {true, false}) {
    const MatmulShape shape = forward ? matmul_shape(rows, s.out_c, padded, false, true)
                                      : matmul_shape(s.out_c, padded, rows, true, false);
    for (const Written written : {Written::fp32, Written::half}) {
      std::string why_not;
      const auto plan = MatmulPlan::find(shape, Unit::bf16, written, kLibrary, &why_not);
      line +=
          fmt::format("; {}{}: ", forward ? "forward" : "grad_weight", ending_text(Unit::bf16, {written}));
      if (!plan) {
        line += why_not;
        continue;
      }
      const Memory workspace(plan->workspace());
      if (!forward) fill(Unit::bf16, Fill::plain, y.get(), rows * s.out_c, 3);
      check(cudaDeviceSynchronize());
      const double ms = recorded_milliseconds(
          [&] {
            if (forward) {
              plan->run(stream(), gathered.get(), weight.get(), y.get(), workspace.get());
            } else {
              plan->run(stream(), y.get(), gathered.get(), weight.get(), workspace.get());
            }
          },
          10);
      line += fmt::format("{:.4f} ms, {}, workspace {}", ms, plan->name(), plan->workspace());
    }
  }
  say(line);
}

void time_network(const Network& net) {
  std::vector<std::shared_ptr<ConvPlan>> plans;
  const double start = now();
  for (const Layer& layer : net.layers) {
    for (const ConvKind kind : kKinds) {
      for (const Way& way : kWays) {
        if (auto plan = ConvPlan::find(kind, layer.shape, Unit::bf16, way.ending, kLibrary))
          plans.push_back(std::move(plan));
      }
    }
  }
  const double found = now() - start;
  try {
    prepare_all(plans);
  } catch (const Error& error) {
    say(fmt::format("NONE {}", error.what()));
  }
  say(fmt::format("TIME {} {}: {} plans found in {:.2f} s, compiled in {:.2f} s", net.name, net.batch,
                  plans.size(), found, now() - start - found));
  Totals all;
  std::string summary;
  for (const ConvKind kind : kKinds) {
    Totals totals;
    for (const Layer& layer : net.layers) {
      if (!(layer.first && kind == ConvKind::grad_input)) time_layer(net, layer, kind, totals);
    }
    summary += fmt::format("SUM {} {} {}:", net.name, net.batch, kind_name(kind));
    for (size_t way = 0; way < kWays.size(); ++way) {
      summary += fmt::format(" {} {:.3f} ms{};", kWays[way].name, totals.ms[way],
                             totals.missing[way] > 0 ? fmt::format(" without {}", totals.missing[way]) : "");
    }
    summary += fmt::format(" encoding fp32 {:.3f} ms; by the library's choice {:.3f} ms\n", totals.encode,
                           totals.taken);
    all.taken += totals.taken;
    all.ms[0] += totals.ms[0];
    all.encode += totals.encode;
  }
  time_as_matrix(net, [&] {
    ConvExtents stem = net.layers[0].shape;
    stem.c = 3;
    return stem;
  }());
  if (net.layers[3].shape.c <= 64) time_as_matrix(net, net.layers[3].shape);
  say(fmt::format("{}SUM {} {}: fp32 {:.3f} ms and encoding {:.3f} ms; by the library's choice {:.3f} ms",
                  summary, net.name, net.batch, all.ms[0], all.encode, all.taken));
}

}  // namespace

void time_layers() {
  time_network(resnet("resnet18", 1024, 4, 64, 2));
  time_network(resnet("resnet18", 128, 4, 64, 2));
  time_network(resnet("resnet20", 128, 3, 16, 3));
}

}  // namespace ulp::cuda
