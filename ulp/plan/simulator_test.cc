// The simulator finds what is wrong: errors are planted in copies of sound plans, one at a time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/support/made_up_backend.h"
#include "tests/support/made_up_graph.h"
#include "tests/support/plan_simulator.h"
#include "tests/support/random_graph.h"
#include "ulp/graph/ops/update.h"

namespace ulp {
namespace {

using harness::BackendTraits;
using harness::Fault;
using harness::GraphMaker;
using harness::MadeUpPlan;
using harness::PlanImage;
using harness::simulate;
using harness::Traits;

const Shape kShape = {16};

size_t at(TensorId id) { return static_cast<size_t>(id.index); }

// Steps: 0 start (before which all is prepared), 1 p0 and 2 p1 (prepared), 3 side (until 6, in a
// workspace), 4 sums and 5 y (one task, y where p1 lay), 6 reads, 7 z (where y lay), 8 peak, 9
// update.
class SimulatorTest : public testing::Test {
 protected:
  SimulatorTest() {
    w = g.state("w", kShape);
    start = g.any("start", {}, kShape);
    p0 = g.any("p0", {start, w}, kShape);
    p1 = g.any("p1", {p0, w}, {4, 16});
    side = g.any("side", {p0}, kShape);
    sums = g.columns("sums", p1);
    y = g.map("y", {p1, sums});
    reads = g.any("reads", {side, y}, kShape);
    z = g.map("z", {y});
    grad = g.any("peak", {reads, z}, kShape, Kind::weight_grad);
    g.phase = Phase::update;
    g.write(kUpdate, "update", {grad}, {w});
    const Traits prepared{.workspace = 64, .prepared = 200};
    BackendTraits traits;
    traits.pairs = traits.prepares = true;
    traits.of = harness::traits_by_name({{"p0", prepared},
                                         {"p1", prepared},
                                         {"side", {.side_stream = true, .workspace = 100}},
                                         {"sums", {.begins_pair = true, .pair_workspace = 128}},
                                         {"y", {.in_place = true, .ends_pair = true}},
                                         {"z", {.in_place = true}},
                                         {"peak", {.workspace = 1 << 16}}});
    PlanOptions options;
    options.results = {reads};
    plan.emplace(g.graph, traits, options);
  }

  // Expects one of these faults once the image is changed.
  template <typename Change>
  void plant(std::initializer_list<Fault> faults, const Change& change) {
    PlanImage image(**plan);
    change(image);
    const std::vector<harness::PlanFinding> findings = simulate(image);
    EXPECT_TRUE(std::any_of(faults.begin(), faults.end(), [&](Fault fault) { return has(findings, fault); }))
        << "it says: " << text_of(findings);
  }

  GraphMaker g;
  TensorId w, start, p0, p1, side, sums, y, reads, z, grad;
  std::optional<MadeUpPlan> plan;
};

TEST_F(SimulatorTest, SoundAsItIs) {
  EXPECT_EQ(harness::faults_of(**plan), "");
  const auto steps = (*plan)->steps();
  ASSERT_EQ(steps.size(), 10u);
  EXPECT_EQ(steps[3].live_until, 6);
  EXPECT_TRUE(steps[1].prepared && steps[2].prepared && steps[5].merged);
  EXPECT_EQ((*plan)->place(p1).offset, (*plan)->place(z).offset);
}

TEST_F(SimulatorTest, FindsTensorsThatLieOnOthers) {
  plant({Fault::life}, [&](PlanImage& i) { i.places[at(side)].offset = i.places[at(y)].offset; });
  // Each of the two alone is enough.
  plant({Fault::stale}, [&](PlanImage& i) { i.places[at(reads)].offset = i.places[at(z)].offset; });
  plant({Fault::in_place}, [&](PlanImage& i) { i.places[at(p0)].offset = i.places[at(start)].offset; });
  plant({Fault::in_place}, [&](PlanImage& i) { i.places[at(z)].offset += 64; });
}

TEST_F(SimulatorTest, FindsWhatIsOutsideOrNotAligned) {
  plant({Fault::outside}, [&](PlanImage& i) { i.places[at(start)].offset = i.step_bytes; });
  plant({Fault::outside}, [&](PlanImage& i) { i.step_bytes -= 64; });
  plant({Fault::misaligned}, [&](PlanImage& i) { i.places[at(start)].offset += 1; });
  plant({Fault::misaligned}, [&](PlanImage& i) { i.steps[3].workspace += 32; });
  plant({Fault::misaligned}, [&](PlanImage& i) { *i.steps[1].prepared += 4; });
}

TEST_F(SimulatorTest, FindsShortLives) {
  for (const TensorId id : {start, p0, p1, side, sums, y, reads, z, grad}) {
    plant({Fault::life, Fault::result}, [&](PlanImage& i) { --i.places[at(id)].last; });
    plant({Fault::life}, [&](PlanImage& i) { ++i.places[at(id)].first; });
  }
  plant({Fault::result}, [&](PlanImage& i) { --i.places[at(reads)].last; });
}

TEST_F(SimulatorTest, FindsMemoryThatIsNotCounted) {
  plant({Fault::bytes}, [&](PlanImage& i) { i.step_bytes_bound -= 64; });
  plant({Fault::bytes}, [&](PlanImage& i) { i.step_bytes_bound = i.step_bytes + 64; });
  plant({Fault::bytes}, [&](PlanImage& i) { i.peak_bytes -= 1; });
  plant({Fault::bytes}, [&](PlanImage& i) { i.state_bytes -= 64; });
  plant({Fault::bytes}, [&](PlanImage& i) { i.bytes.workspace += 64; });
  plant({Fault::bytes}, [&](PlanImage& i) { i.places[at(p1)].bytes -= 64; });
}

TEST_F(SimulatorTest, FindsWorkspacesOnWhatIsAlive) {
  plant({Fault::race}, [&](PlanImage& i) { i.steps[8].workspace = i.places[at(z)].offset; });
  plant({Fault::race}, [&](PlanImage& i) { i.steps[8].workspace = i.places[at(grad)].offset; });
  // Of the merged task on the second's result; of what runs beside on what another writes
  // meanwhile.
  plant({Fault::race}, [&](PlanImage& i) { i.steps[4].workspace = i.places[at(y)].offset; });
  plant({Fault::race}, [&](PlanImage& i) { i.steps[3].workspace = i.places[at(sums)].offset; });
  // On a tensor that neither reads nor writes, and that is read later.
  plant({Fault::stale}, [&](PlanImage& i) { i.steps[8].workspace = i.places[at(reads)].offset; });
  plant({Fault::stale}, [&](PlanImage& i) { i.steps[3].workspace = i.places[at(p1)].offset; });
}

TEST_F(SimulatorTest, FindsStepsThatRunOnTooLong) {
  plant({Fault::race}, [&](PlanImage& i) { ++i.steps[3].live_until; });
  plant({Fault::race}, [&](PlanImage& i) { i.steps[7].live_until = 9; });
  plant({Fault::order}, [&](PlanImage& i) { i.steps[8].live_until = 10; });
  plant({Fault::order}, [&](PlanImage& i) { i.steps[9].live_until = 11; });
  // What it reads is given up while it may still read it.
  plant({Fault::life}, [&](PlanImage& i) { i.places[at(p0)].last = 3; });
}

TEST_F(SimulatorTest, FindsRangesThatAreReadTooEarly) {
  for (const size_t sound : {6, 7, 8}) {
    PlanImage image(**plan);
    image.steps[sound].reads_range = {side, p1};
    EXPECT_EQ(text_of(simulate(image)), "");
  }
  plant({Fault::stale}, [&](PlanImage& i) { i.steps[1].reads_range = {p1}; });
  plant({Fault::race}, [&](PlanImage& i) { i.steps[4].reads_range = {side}; });
  plant({Fault::race}, [&](PlanImage& i) { i.steps[5].reads_range = {side}; });
  // Of the other half of a pair, and of what it writes itself.
  plant({Fault::in_place}, [&](PlanImage& i) { i.steps[5].reads_range = {sums}; });
  plant({Fault::in_place}, [&](PlanImage& i) { i.steps[6].reads_range = {reads}; });
}

TEST_F(SimulatorTest, FindsResultsThatAreGone) {
  plant({Fault::result}, [&](PlanImage& i) { i.results = {z, y}; });
  plant({Fault::result}, [&](PlanImage& i) { i.places[at(reads)].home = Home::nowhere; });
}

TEST_F(SimulatorTest, FindsKernelsThatMayNotOverwrite) {
  plant({Fault::in_place}, [&](PlanImage& i) { i.steps[7].in_place = false; });
  plant({Fault::in_place}, [&](PlanImage& i) { i.steps[5].in_place = false; });
  // The first half must not: the second still reads.
  plant({Fault::in_place}, [&](PlanImage& i) { i.places[at(sums)].offset = i.places[at(p1)].offset; });
}

TEST_F(SimulatorTest, FindsWhatIsPreparedAtAWrongTimeOrPlace) {
  plant({Fault::life}, [&](PlanImage& i) { *i.steps[2].prepared = i.places[at(p0)].offset; });
  plant({Fault::race}, [&](PlanImage& i) { *i.steps[2].prepared = *i.steps[1].prepared; });
  plant({Fault::stale}, [&](PlanImage& i) { i.steps[0].prepares = {1}; });
  plant({Fault::order}, [&](PlanImage& i) { i.steps[2].prepares.swap(i.steps[0].prepares); });
  plant({Fault::order}, [&](PlanImage& i) { i.steps[2].merged = true; });
  // The update comes before what is made of the weight.
  plant({Fault::stale}, [&](PlanImage& i) { i.steps[0].roots.swap(i.steps[9].roots); });
}

TEST_F(SimulatorTest, FindsStepsInAWrongOrder) {
  plant({Fault::stale}, [&](PlanImage& i) { std::swap(i.steps[6], i.steps[7]); });
  plant({Fault::order}, [&](PlanImage& i) { i.steps[7].roots = i.steps[6].roots; });
  plant({Fault::order}, [&](PlanImage& i) { i.steps[4].merged_task = false; });
  plant({Fault::order}, [&](PlanImage& i) { i.steps[5].merged = false; });
  plant({Fault::order}, [&](PlanImage& i) { i.places[at(y)].base = start; });
}

struct Planted {
  int moved = 0, found = 0;
};

// Where a changed plan is still sound, the byte ranges say so.
bool lies_on_another(const PlanImage& image, size_t tensor) {
  const TensorPlace& p = image.places[tensor];
  const auto meets = [&](size_t offset, size_t bytes, int first, int last) {
    return offset < p.offset + p.bytes && p.offset < offset + bytes && first <= p.last && p.first <= last;
  };
  for (size_t i = 0; i < image.places.size(); ++i) {
    const TensorPlace& q = image.places[i];
    if (q.home != Home::step || at(q.base) != i || i == tensor) continue;
    // It may have come to lie where it takes over an operand, or is taken over.
    const TensorPlace &earlier = q.first < p.first ? q : p, &later = q.first < p.first ? p : q;
    const int until = image.steps[static_cast<size_t>(later.first)].live_until;
    const bool hands_over = q.offset == p.offset && earlier.last <= std::max(later.first, until - 1);
    if (!hands_over && meets(q.offset, q.bytes, q.first, q.last)) return true;
  }
  for (size_t i = 0; i < image.steps.size(); ++i) {
    const PlanImage::Step& step = image.steps[i];
    const int last = std::max(static_cast<int>(i), step.live_until - 1);
    if (meets(step.workspace, step.workspace_bytes, static_cast<int>(i), last)) return true;
  }
  return p.offset + p.bytes > image.step_bytes;
}

// In random plans: every tensor moved by one unit of alignment onto something, every life cut,
// every step that runs on past what reads it.
TEST(SimulatorOnRandomPlans, FindsWhatIsPlanted) {
  Planted moves, cuts, extended;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Graph graph = harness::random_made_up_graph(seed);
    harness::Random random(seed);
    BackendTraits traits;
    const uint64_t salt = random.word();
    traits.of = [&](const Problem& problem) {
      harness::Random own(salt ^ tensor_number(problem.root().name));
      Traits made;
      made.in_place = own.one_in(2);
      made.side_stream = own.one_in(2);
      made.workspace = 64 * static_cast<size_t>(own.between(0, 8));
      return made;
    };
    const MadeUpPlan plan(graph, traits);
    const PlanImage sound(*plan);
    ASSERT_EQ(text_of(simulate(sound)), "");
    for (size_t i = 0; i < sound.places.size(); ++i) {
      if (sound.places[i].home != Home::step || at(sound.places[i].base) != i) continue;
      PlanImage moved = sound, cut = sound;
      for (TensorPlace& p : moved.places) p.offset += at(p.base) == i && p.home == Home::step ? 64 : 0;
      const bool wrong = lies_on_another(moved, i);
      moves.moved += wrong;
      moves.found += wrong && !simulate(moved).empty();
      for (TensorPlace& p : cut.places) p.last -= at(p.base) == i && p.home == Home::step ? 1 : 0;
      ++cuts.moved;
      cuts.found += has(simulate(cut), Fault::life);
    }
    for (size_t i = 0; i < sound.steps.size(); ++i) {
      const int until = sound.steps[i].live_until;
      if (until == 0 || until >= static_cast<int>(sound.steps.size())) continue;
      const Node& next = graph[sound.steps[static_cast<size_t>(until)].roots[0]];
      const Node& mine = graph[sound.steps[i].roots[0]];
      const bool read = std::any_of(next.in.begin(), next.in.end(), [&](TensorId in) {
        return plan->place(in).base == plan->place(mine.out[0]).base;
      });
      if (!read) continue;
      PlanImage longer = sound;
      ++longer.steps[i].live_until;
      ++extended.moved;
      extended.found += has(simulate(longer), Fault::race);
    }
  }
  EXPECT_GE(moves.moved, 500);
  EXPECT_EQ(moves.found, moves.moved);
  EXPECT_GE(cuts.moved, 1000);
  EXPECT_EQ(cuts.found, cuts.moved);
  EXPECT_GE(extended.moved, 30);
  EXPECT_EQ(extended.found, extended.moved);
}

}  // namespace
}  // namespace ulp
