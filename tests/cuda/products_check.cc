// Convolutions and matrix products of the CUDA backend on a real GPU: every kind, unit and shape
// against plain loops in double (|err| <= 2 (n + 8) 2^-23 sum |a| |b|), the same bits when run
// again and from a captured graph, nothing written past a buffer; results that a library writes in
// bf16 must be what a sum within that bound is rounded to, once; then speed. Prints a line for each
// and the number of failures; exits 1 if there are any.
//
//   products_check [check] [halves] [native] [speed] [layers] [engines]     what to do; the first
//                                                                           four if nothing is
//                                                                           named
//
// native: e4m3 on the units for it, each sum held to 2^-10 sum |a| |b|; the rates beside bf16's.
// layers: all convolutions of resnet18 and resnet20, each written in fp32, and in bf16 by plain and
// by fused engines.
#include <cudnn.h>

#include "tests/cuda/products_naive.h"
#include "tests/cuda/products_tools.h"

namespace ulp::cuda {
namespace {

// Runs into `first`, again into `second`, and a third time from a captured graph; says what is
// wrong.
std::string run_thrice(const std::function<void(void*)>& run, const std::function<void(Memory&)>& before,
                       Memory& first, Memory& second, Memory& workspace) {
  std::string wrong;
  const auto words = static_cast<int64_t>(first.bytes() / 4);
  const auto clean = [&](Memory& out, int byte) {
    out.soil(byte);
    workspace.soil(byte);
    before(out);
    check(cudaDeviceSynchronize());
  };
  clean(first, 0xFF);
  run(first.get());
  check(cudaDeviceSynchronize());
  clean(second, 0x7B);
  run(second.get());
  check(cudaDeviceSynchronize());
  if (const uint64_t n = differences(first.get(), second.get(), words)) {
    wrong += fmt::format(", {} of {} differ when run again", n, words);
  }
  clean(second, 0x00);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  run(second.get());
  check(cudaStreamEndCapture(stream(), &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  check(cudaGraphLaunch(executable, stream()));
  check(cudaDeviceSynchronize());
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  if (const uint64_t n = differences(first.get(), second.get(), words)) {
    wrong += fmt::format(", {} of {} differ from a captured graph", n, words);
  }
  if (!first.guard_intact() || !second.guard_intact()) wrong += ", wrote past the result";
  if (!workspace.guard_intact()) wrong += ", wrote past the workspace";
  return wrong;
}

void report(const std::string& title, double error, const std::string& wrong, const std::string& engine,
            const std::string& note, size_t workspace) {
  const bool ok = wrong.empty() && error <= 1;
  if (!ok) ++failures;
  say(fmt::format("{} {}: error {:.4f} of allowed, {}, workspace {}{}{}{}", ok ? "PASS" : "FAIL", title,
                  error, engine, workspace, note.empty() ? "" : ", ", note, wrong));
}

void check_conv(ConvKind kind, const ConvExtents& shape, Unit unit, const ConvEnding& ending, Fill a_fill,
                Fill b_fill) {
  const std::string title =
      conv_title(kind, shape, unit, ending) + (a_fill == Fill::subnormal ? ", subnormal operands" : "");
  std::string why_not;
  const std::shared_ptr<ConvPlan> plan = ConvPlan::find(kind, shape, unit, ending, kLimit, &why_not);
  if (!plan) {
    // Grouped convolutions may have no engine: the caller has another kernel for them. Nor need
    // every way to write bf16.
    const bool wanted = shape.groups == 1 && ending.written == Written::fp32;
    if (wanted) ++failures;
    say(fmt::format("{} {}: {}", wanted ? "FAIL" : "NONE", title, why_not));
    return;
  }
  const ConvSizes sizes = conv_sizes(kind, shape);
  Memory a(static_cast<size_t>(sizes.a) * operand_bytes(unit)),
      b(static_cast<size_t>(sizes.b) * operand_bytes(unit));
  Memory first(static_cast<size_t>(sizes.out) * written_bytes(ending.written)), second(first.bytes()),
      workspace(plan->workspace());
  fill(unit, a_fill, a.get(), sizes.a, 1);
  fill(unit, b_fill, b.get(), sizes.b, 2);
  std::string wrong;
  try {
    wrong = run_thrice([&](void* out) { plan->run(stream(), a.get(), b.get(), out, workspace.get()); },
                       [](Memory&) {}, first, second, workspace);
  } catch (const Error& failed) {  // nothing compiles
    ++failures;
    say(fmt::format("FAIL {}: {}", title, failed.what()));
    return;
  }
  const double error = conv_error(kind, shape, unit, a.get(), b.get(), first.get(), ending.written, 1);
  report(title, error, wrong, plan->name(), plan->note(), plan->workspace());
}

std::vector<ConvExtents> conv_shapes() {
  const ConvExtents wide{37, 9, 7, 24, 9, 7, 40, 3, 3, 1, 1, 1, 1, 1},
      flat{6, 12, 10, 16, 12, 5, 24, 1, 5, 1, 2, 0, 2, 1};
  return {square_conv(128, 32, 64, 64, 3, 1, 1),
          square_conv(128, 32, 64, 64, 1, 1, 0),
          square_conv(128, 32, 64, 128, 3, 2, 1),
          square_conv(128, 32, 64, 128, 1, 2, 0),
          square_conv(128, 32, 8, 64, 3, 1, 1),
          square_conv(128, 4, 512, 512, 3, 1, 1),
          square_conv(64, 8, 256, 256, 3, 1, 1),
          square_conv(128, 32, 16, 16, 3, 1, 1),
          square_conv(128, 32, 16, 32, 3, 2, 1),
          square_conv(16, 32, 8, 64, 7, 2, 3),
          square_conv(5, 13, 16, 32, 5, 2, 2),
          square_conv(1, 4, 32, 32, 3, 1, 1),
          square_conv(3, 1, 64, 16, 1, 1, 0),
          square_conv(16, 16, 64, 64, 3, 1, 1, 4),
          square_conv(16, 16, 64, 64, 3, 1, 1, 64),
          wide,
          flat};
}

void check_convs() {
  const std::vector<ConvExtents> shapes = conv_shapes();
  std::vector<std::shared_ptr<ConvPlan>> plans;
  double start = now();
  for (const ConvExtents& shape : shapes) {
    for (const ConvKind kind : kKinds) {
      for (const Unit unit : kExact) {
        if (auto plan = ConvPlan::find(kind, shape, unit, {}, kLimit)) plans.push_back(std::move(plan));
      }
    }
  }
  const double found = now() - start;
  start = now();
  try {
    prepare_all(plans);
  } catch (const Error& failed) {
    say(fmt::format("FAIL {}", failed.what()));
    ++failures;
  }
  say(fmt::format("TIME {} plans: {:.2f} s to find, {:.2f} s to compile all on threads", plans.size(), found,
                  now() - start));
  for (const ConvExtents& shape : shapes) {
    for (const Unit unit : kExact) {
      for (const ConvKind kind : kKinds) check_conv(kind, shape, unit, {}, Fill::plain, Fill::plain);
    }
  }
  for (const Unit unit : kExact) {
    for (const ConvKind kind : kKinds) check_conv(kind, shapes[0], unit, {}, Fill::subnormal, Fill::large);
    for (const ConvKind kind : kKinds) check_conv(kind, shapes[6], unit, {}, Fill::subnormal, Fill::large);
  }
}

// Elements from the first to the last that a batch of matrices touches.
int64_t extent(int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride) {
  return (batch - 1) * stride + (rows - 1) * ld + columns;
}

void check_matmul(const MatmulShape& s, Unit unit, Written written, Fill a_fill, Fill b_fill) {
  const std::string title =
      matmul_title(s, unit, written) + (a_fill == Fill::subnormal ? ", subnormal operands" : "");
  std::string why_not;
  const std::shared_ptr<MatmulPlan> plan = MatmulPlan::find(s, unit, written, kLimit, &why_not);
  if (!plan) {
    // In fp8 odd shapes may have none, and are bf16 then; round ones have one.
    const bool wanted = unit != Unit::e4m3 || (s.n % 16 == 0 && s.batch == 1);
    if (wanted) ++failures;
    say(fmt::format("{} {}: {}", wanted ? "FAIL" : "NONE", title, why_not));
    return;
  }
  const int64_t a_size =
      extent(s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda, s.batch, s.stride_a);
  const int64_t b_size =
      extent(s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb, s.batch, s.stride_b);
  const int64_t c_size = extent(s.m, s.n, s.ldc, s.batch, s.stride_c);
  Memory a(static_cast<size_t>(a_size) * operand_bytes(unit)),
      b(static_cast<size_t>(b_size) * operand_bytes(unit));
  Memory first(static_cast<size_t>(c_size) * written_bytes(written)), second(first.bytes()),
      held(first.bytes()), workspace(plan->workspace());
  fill(unit, a_fill, a.get(), a_size, 3);
  fill(unit, b_fill, b.get(), b_size, 4);
  fill(written == Written::half ? unit : Unit::fp32, Fill::plain, held.get(), c_size, 5);
  // Gaps between rows must stay as they are, so every run starts from the same.
  const auto before = [&](Memory& out) {
    check(cudaMemcpy(out.get(), held.get(), out.bytes(), cudaMemcpyDeviceToDevice));
  };
  const std::string wrong =
      run_thrice([&](void* out) { plan->run(stream(), a.get(), b.get(), out, workspace.get()); }, before,
                 first, second, workspace);
  const double error =
      matmul_error(s, unit, a.get(), b.get(), s.accumulate ? held.floats() : nullptr, first.get(), written);
  report(title, error, wrong, plan->name(), plan->note(), plan->workspace());
}

void check_matmuls() {
  std::vector<MatmulShape> shapes;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      shapes.push_back(matmul_shape(128, 96, 64, ta, tb));
      shapes.push_back(matmul_shape(37, 29, 53, ta, tb));
      shapes.push_back(matmul_shape(64, 32, 48, ta, tb, 12));
      MatmulShape added = matmul_shape(200, 72, 512, ta, tb);
      added.accumulate = true;
      shapes.push_back(added);
      MatmulShape gaps = matmul_shape(50, 40, 24, ta, tb);
      gaps.lda += 8;
      gaps.ldb += 16;
      gaps.ldc += 4;
      shapes.push_back(gaps);
    }
  }
  shapes.push_back(matmul_shape(1024, 10, 512, false, true));   // a classifier forward,
  shapes.push_back(matmul_shape(1024, 512, 10, false, false));  // the gradient of its input,
  shapes.push_back(matmul_shape(10, 512, 1024, true, false));   // and of its weight
  shapes.push_back(matmul_shape(64, 64, 131072, true, false));  // a long sum that wants splitting
  shapes.push_back(matmul_shape(1, 1000, 2048, false, true));
  shapes.push_back(matmul_shape(1024, 1024, 1024, false, false));
  for (const MatmulShape& shape : shapes) {
    for (const Unit unit : kExact) check_matmul(shape, unit, Written::fp32, Fill::plain, Fill::plain);
  }
  for (const Unit unit : kExact) {
    check_matmul(matmul_shape(256, 256, 256, false, true), unit, Written::fp32, Fill::subnormal, Fill::large);
    check_matmul(matmul_shape(1024, 10, 512, false, true), unit, Written::fp32, Fill::subnormal, Fill::large);
  }
}

// An infinity and a NaN in an image reach the pixels around them and no others; sums beyond the
// range are infinities.
void check_specials(const ConvEnding& ending) {
  const ConvExtents shape = square_conv(16, 16, 64, 64, 3, 1, 1);
  const std::string title = conv_title(ConvKind::forward, shape, Unit::bf16, ending) + ", infinity and NaN";
  const auto plan = ConvPlan::find(ConvKind::forward, shape, Unit::bf16, ending, kLimit);
  if (!plan) return;
  const ConvSizes sizes = conv_sizes(ConvKind::forward, shape);
  const auto count = static_cast<size_t>(sizes.out);
  Memory a(static_cast<size_t>(sizes.a) * 2), b(static_cast<size_t>(sizes.b) * 2), out(count * 2),
      workspace(plan->workspace());
  fill(Unit::bf16, Fill::plain, a.get(), sizes.a, 1);
  fill(Unit::bf16, Fill::plain, b.get(), sizes.b, 2);
  const auto put = [&](int64_t image, int64_t y, int64_t x, uint16_t code) {
    auto* codes = static_cast<uint16_t*>(a.get());
    check(cudaMemcpy(codes + ((image * shape.h + y) * shape.w + x) * shape.c + 5, &code, sizeof code,
                     cudaMemcpyHostToDevice));
  };
  put(2, 4, 7, 0x7F80);
  put(3, 9, 2, 0x7FC0);
  plan->run(stream(), a.get(), b.get(), out.get(), workspace.get());
  check(cudaDeviceSynchronize());
  std::vector<uint16_t> codes(count);
  check(cudaMemcpy(codes.data(), out.get(), count * 2, cudaMemcpyDeviceToHost));
  size_t wrong = 0;
  for (int64_t i = 0; i < sizes.out; ++i) {
    const int64_t x = i / shape.out_c % shape.w, y = i / shape.out_c / shape.w % shape.h,
                  image = i / shape.out_c / shape.w / shape.h;
    const auto near = [&](int64_t at_image, int64_t at_y, int64_t at_x) {
      return image == at_image && std::abs(y - at_y) <= 1 && std::abs(x - at_x) <= 1;
    };
    const int magnitude = codes[static_cast<size_t>(i)] & 0x7FFF;
    const bool right = near(2, 4, 7)   ? magnitude == 0x7F80
                       : near(3, 9, 2) ? magnitude > 0x7F80
                                       : magnitude < 0x7F80;
    wrong += right ? 0 : 1;
  }
  fill(Unit::bf16, Fill::large, a.get(), sizes.a, 1);
  fill(Unit::bf16, Fill::large, b.get(), sizes.b, 2);
  plan->run(stream(), a.get(), b.get(), out.get(), workspace.get());
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(codes.data(), out.get(), count * 2, cudaMemcpyDeviceToHost));
  // Of both signs, so that a sum on its way may also be an infinity less another.
  size_t finite = 0;
  for (const uint16_t code : codes) finite += (code & 0x7FFF) < 0x7F80 ? 1 : 0;
  report(title, 0, wrong + finite == 0 ? "" : fmt::format(", {} codes are wrong, {} finite", wrong, finite),
         plan->name(), plan->note(), plan->workspace());
}

void check_halves() {
  constexpr ConvForm kForms[] = {ConvForm::plain, ConvForm::fused};
  const std::vector<ConvExtents> shapes = conv_shapes();
  for (const ConvForm form : kForms) {
    const ConvEnding ending{Written::half, form};
    for (const ConvExtents& shape : shapes) {
      for (const ConvKind kind : kKinds)
        check_conv(kind, shape, Unit::bf16, ending, Fill::plain, Fill::plain);
    }
    // Results of a normal size, and subnormal ones.
    for (const Fill fill_b : {Fill::large, Fill::plain}) {
      for (const ConvKind kind : kKinds) {
        check_conv(kind, shapes[0], Unit::bf16, ending, Fill::subnormal, fill_b);
        check_conv(kind, shapes[6], Unit::bf16, ending, Fill::subnormal, fill_b);
      }
    }
    check_specials(ending);
  }
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const MatmulShape& shape :
           {matmul_shape(128, 96, 64, ta, tb), matmul_shape(64, 32, 48, ta, tb, 12)})
        check_matmul(shape, Unit::bf16, Written::half, Fill::plain, Fill::plain);
    }
  }
  for (const MatmulShape& shape :
       {matmul_shape(131072, 64, 32, false, true), matmul_shape(1024, 512, 16, false, false),
        matmul_shape(64, 64, 131072, true, false), matmul_shape(512, 512, 4096, true, false)}) {
    check_matmul(shape, Unit::bf16, Written::half, Fill::plain, Fill::plain);
    check_matmul(shape, Unit::bf16, Written::half, Fill::subnormal, Fill::plain);
  }
}

// What runs on fp8 units: convolutions forward, and products of rows by rows; also of subnormal
// numbers, of few rows and columns, with gaps between rows, and of several matrices.
void check_native() {
  const auto conv = [](const ConvExtents& shape, Fill a, Fill b) {
    if (shape.c / shape.groups % 16 == 0 && shape.out_c / shape.groups % 16 == 0)
      check_conv(ConvKind::forward, shape, Unit::e4m3, {}, a, b);
  };
  const std::vector<ConvExtents> shapes = conv_shapes();
  for (const ConvExtents& shape : shapes) conv(shape, Fill::plain, Fill::plain);
  for (const size_t i : {size_t{0}, size_t{6}}) {
    conv(shapes[i], Fill::subnormal, Fill::large);
    conv(shapes[i], Fill::large, Fill::subnormal);
  }
  MatmulShape gaps = matmul_shape(50, 40, 48, false, true);
  gaps.lda += 16;
  gaps.ldb += 32;
  gaps.ldc += 4;
  for (const MatmulShape& shape :
       {matmul_shape(128, 96, 64, false, true), matmul_shape(1024, 16, 512, false, true),
        matmul_shape(1000, 1024, 1024, false, true), matmul_shape(4096, 512, 4608, false, true),
        matmul_shape(131072, 64, 64, false, true), matmul_shape(1, 1000, 2048, false, true),
        matmul_shape(1024, 100, 512, false, true), matmul_shape(64, 32, 48, false, true, 12), gaps})
    check_matmul(shape, Unit::e4m3, Written::fp32, Fill::plain, Fill::plain);
  check_matmul(matmul_shape(256, 256, 256, false, true), Unit::e4m3, Written::fp32, Fill::subnormal,
               Fill::large);
}

void list_engines() {
  for (const ConvExtents& shape :
       {square_conv(1024, 32, 64, 64, 3, 1, 1), square_conv(128, 32, 64, 128, 3, 2, 1)}) {
    for (const Unit unit : kExact) {
      for (const ConvKind kind : kKinds) {
        for (const Written written : {Written::fp32, Written::half}) {
          if (written == Written::half && operand_bytes(unit) != 2) continue;
          say(conv_title(kind, shape, unit, {written}));
          for (const std::string& line : ConvPlan::engines(kind, shape, unit, {written}, kLimit))
            say("  " + line);
        }
      }
    }
  }
}

int run(const std::vector<std::string_view>& what) {
  const auto wants = [&](std::string_view name, bool by_default) {
    for (const std::string_view word : what) {
      if (word == name) return true;
    }
    return what.empty() && by_default;
  };
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0));
  say(fmt::format("{}, cuDNN {}", properties.name, cudnnGetVersion()));
  if (wants("engines", false)) list_engines();
  if (wants("check", true)) {
    check_matmuls();
    check_convs();
  }
  if (wants("halves", true)) check_halves();
  if (wants("native", true)) {
    check_native();
    time_native();
  }
  if (wants("layers", false)) time_layers();
  if (wants("speed", true)) {
    time_matmuls();
    time_convs();
  }
  say(fmt::format("{} failures", failures));
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ulp::cuda

int main(int argc, char** argv) {
  try {
    return ulp::cuda::run({argv + 1, argv + argc});
  } catch (const ulp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
