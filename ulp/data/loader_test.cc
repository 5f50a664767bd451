#include "ulp/data/loader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "tests/support/temp.h"
#include "ulp/data/shuffle.h"

namespace ulp {
namespace {

// A set that ends with the call would be read after its end.
static_assert(std::is_constructible_v<Loader, const ImageSet&, Part, LoaderOptions>);
static_assert(!std::is_constructible_v<Loader, ImageSet, Part, LoaderOptions>);
static_assert(!std::is_constructible_v<Loader, const ImageSet, Part, LoaderOptions>);

constexpr int kThreads[] = {1, 2, 7};

ImageSet make_set(size_t height, size_t width, size_t channels, size_t train, size_t test) {
  ImageSet set;
  set.name = "made";
  set.height = height;
  set.width = width;
  set.channels = channels;
  set.classes = 5;
  uint32_t word = 1;
  const auto fill = [&](Examples& part, size_t count) {
    part.images.resize(count * set.image_bytes());
    for (uint8_t& byte : part.images) byte = static_cast<uint8_t>((word = word * 1664525 + 1013904223) >> 24);
    for (size_t i = 0; i < count; ++i) part.labels.push_back(static_cast<int32_t>(i * 7 % 5));
  };
  fill(set.train, train);
  fill(set.test, test);
  measure(set);
  return set;
}

// A batch that outlives the loader's.
struct Copy {
  uint32_t epoch;
  uint64_t index;
  bool last;
  std::vector<float> images;
  std::vector<int32_t> labels;
  std::vector<uint32_t> examples;

  bool operator==(const Copy& other) const {
    return epoch == other.epoch && index == other.index && last == other.last && labels == other.labels &&
           examples == other.examples && images.size() == other.images.size() &&
           std::memcmp(images.data(), other.images.data(), images.size() * sizeof(float)) == 0;
  }
};

void showValue(const Copy& c, std::ostream& os) {  // NOLINT: the name that RapidCheck looks for
  os << "batch " << c.index << " of epoch " << c.epoch;
}

Copy copy(const Batch& b) {
  return {b.epoch,
          b.index,
          b.last,
          {b.images.begin(), b.images.end()},
          {b.labels.begin(), b.labels.end()},
          {b.examples.begin(), b.examples.end()}};
}

std::vector<Copy> take(Loader& loader, uint64_t count) {
  std::vector<Copy> batches;
  for (uint64_t i = 0; i < count; ++i) batches.push_back(copy(loader.next()));
  return batches;
}

// What the loader must give, one value after the other, by the definitions in augment.h and shuffle.h.
Copy reference(const ImageSet& set, const Examples& part, const LoaderOptions& o, uint32_t epoch,
               uint64_t index) {
  std::vector<uint32_t> order(part.count());
  std::iota(order.begin(), order.end(), 0u);
  if (o.subset) order = choose_subset(part.count(), static_cast<size_t>(*o.subset), o.seed);
  if (o.shuffle) shuffle(order, o.seed, epoch);
  const auto batch = static_cast<size_t>(o.batch);
  const size_t begin = index * batch, end = std::min(order.size(), begin + batch);
  const size_t rest = order.size() - end;
  Copy out{epoch, index, rest == 0 || (o.drop_last && rest < batch), {}, {}, {}};
  for (size_t i = begin; i < end; ++i) {
    const uint32_t example = order[i];
    out.examples.push_back(example);
    out.labels.push_back(part.labels[example]);
    const Placement from = placement({o.seed, o.padding, o.mirror}, epoch, example);
    const auto h = static_cast<int32_t>(set.height), w = static_cast<int32_t>(set.width),
               channels = static_cast<int32_t>(set.channels);
    for (int32_t y = 0; y < h; ++y) {
      for (int32_t x = 0; x < w; ++x) {
        for (int32_t c = 0; c < channels; ++c) {
          const uint8_t byte =
              placed_byte(&part.images[example * set.image_bytes()], h, w, channels, from, y, x, c);
          const auto channel = static_cast<size_t>(c);
          out.images.push_back(normalised(byte, make_normalise(set.mean[channel], set.deviation[channel])));
        }
      }
    }
  }
  return out;
}

RC_GTEST_PROP(LoaderProperty, GivesWhatTheReferenceGives, ()) {
  const auto size = [](size_t from, size_t to) { return *rc::gen::inRange(from, to); };
  const ImageSet set = make_set(size(1, 7), size(1, 7), size(1, 5), size(1, 40), size(1, 10));
  const Part part = *rc::gen::element(Part::train, Part::test);
  const Examples& examples = part == Part::train ? set.train : set.test;
  LoaderOptions o;
  if (*rc::gen::arbitrary<bool>()) o.subset = *rc::gen::inRange<int64_t>(1, examples.count() + 1);
  const auto count = static_cast<size_t>(o.subset.value_or(static_cast<int64_t>(examples.count())));
  o.batch = *rc::gen::inRange<int64_t>(1, static_cast<int64_t>(count) + 1);
  o.shuffle = *rc::gen::arbitrary<bool>();
  o.drop_last = *rc::gen::arbitrary<bool>();
  o.padding = static_cast<int>(size(0, std::min(set.height, set.width)));
  o.mirror = *rc::gen::arbitrary<bool>();
  o.seed = *rc::gen::arbitrary<uint64_t>();
  o.threads = *rc::gen::inRange(1, 5);
  o.buffers = *rc::gen::inRange(2, 6);
  Loader loader(set, part, o);
  RC_ASSERT(loader.examples() == count);
  const auto batch = static_cast<size_t>(o.batch);
  RC_ASSERT(loader.batches() == (o.drop_last ? count / batch : (count + batch - 1) / batch));
  uint64_t number = 0;
  if (*rc::gen::arbitrary<bool>()) {
    const auto epoch = *rc::gen::inRange<uint32_t>(0, 4);
    const auto index = *rc::gen::inRange<uint64_t>(0, loader.batches());
    loader.seek(epoch, index);
    number = epoch * loader.batches() + index;
  }
  for (const uint64_t end = number + 12; number < end; ++number) {
    const auto epoch = static_cast<uint32_t>(number / loader.batches());
    RC_ASSERT(copy(loader.next()) == reference(set, examples, o, epoch, number % loader.batches()));
  }
}

const LoaderOptions kUsual = {.batch = 16, .padding = 2, .mirror = true, .seed = 5};

TEST(Loader, LeavesImagesToOthersIfAsked) {
  const ImageSet set = load_dataset("synthetic", {});
  LoaderOptions options;
  options.batch = 33;
  Loader whole(set, Part::train, options);
  options.images = false;
  Loader numbers(set, Part::train, options);
  for (int i = 0; i < 3; ++i) {
    const Batch &a = whole.next(), &b = numbers.next();
    EXPECT_TRUE(b.images.empty());
    EXPECT_TRUE(std::equal(a.labels.begin(), a.labels.end(), b.labels.begin(), b.labels.end()));
    EXPECT_TRUE(std::equal(a.examples.begin(), a.examples.end(), b.examples.begin(), b.examples.end()));
  }
}

TEST(Loader, IsTheSameForAnyNumberOfThreadsAndBuffers) {
  const ImageSet set = make_set(8, 8, 3, 100, 10);
  Loader one(set, Part::train, kUsual);
  const std::vector<Copy> right = take(one, 30);
  for (const int threads : kThreads) {
    for (const int buffers : {2, 3, 9}) {
      LoaderOptions options = kUsual;
      options.threads = threads;
      options.buffers = buffers;
      Loader loader(set, Part::train, options);
      EXPECT_EQ(take(loader, 30), right) << threads << " threads, " << buffers << " buffers";
    }
  }
}

TEST(Loader, ResumesWhereItIsTold) {
  const ImageSet set = make_set(6, 6, 1, 100, 10);
  Loader whole(set, Part::train, kUsual);
  const std::vector<Copy> right = take(whole, 4 * whole.batches());
  for (const int threads : kThreads) {
    LoaderOptions options = kUsual;
    options.threads = threads;
    Loader loader(set, Part::train, options);
    for (const size_t begin : {9, 0, 20, 13}) {
      loader.seek(static_cast<uint32_t>(begin / whole.batches()), begin % whole.batches());
      EXPECT_EQ(take(loader, 8), std::vector(right.begin() + static_cast<ptrdiff_t>(begin),
                                             right.begin() + static_cast<ptrdiff_t>(begin) + 8));
    }
  }
}

TEST(Loader, ShowsEveryExampleOnceAnEpochInANewOrder) {
  const ImageSet set = make_set(3, 3, 1, 100, 10);
  Loader loader(set, Part::train, kUsual);
  std::vector<std::vector<uint32_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<uint32_t> order;
    for (const Copy& batch : take(loader, loader.batches())) {
      EXPECT_EQ(batch.last, batch.index == 6);
      EXPECT_EQ(batch.labels.size(), batch.last ? 4u : 16u);
      order.insert(order.end(), batch.examples.begin(), batch.examples.end());
    }
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    for (uint32_t i = 0; i < 100; ++i) ASSERT_EQ(order[i], i);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(Loader, KeepsToItsSubset) {
  const ImageSet set = make_set(3, 3, 1, 100, 10);
  LoaderOptions options = kUsual;
  options.subset = 32;
  Loader loader(set, Part::train, options);
  EXPECT_EQ(loader.batches(), 2u);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<uint32_t> seen;
    for (const Copy& batch : take(loader, 2))
      seen.insert(seen.end(), batch.examples.begin(), batch.examples.end());
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, choose_subset(100, 32, options.seed));
  }
}

TEST(Loader, CountsTheLastBatchAndDropsItWhenAsked) {
  const ImageSet set = make_set(3, 3, 1, 100, 32);
  LoaderOptions options = kUsual;
  options.drop_last = true;
  Loader train(set, Part::train, options);
  EXPECT_EQ(train.batches(), 6u);
  for (const Copy& batch : take(train, 13)) EXPECT_EQ(batch.labels.size(), 16u);
  EXPECT_EQ(Loader(set, Part::test, options).batches(), 2u);  // 32 is two full batches either way
  EXPECT_EQ(Loader(set, Part::test, kUsual).batches(), 2u);
}

TEST(Loader, ClampsTheBatchToTheTestExamples) {
  const ImageSet set = make_set(3, 3, 1, 100, 10);
  for (const bool drop_last : {false, true}) {
    LoaderOptions options = kUsual;
    options.drop_last = drop_last;
    Loader loader(set, Part::test, options);
    EXPECT_EQ(loader.batches(), 1u);
    for (const Copy& batch : take(loader, 3)) {
      EXPECT_EQ(batch.labels.size(), 10u);
      EXPECT_TRUE(batch.last);
    }
  }
}

TEST(Loader, EndsAfterTheLastEpochNumber) {
  const ImageSet set = make_set(3, 3, 1, 32, 10);
  for (const int threads : kThreads) {
    LoaderOptions options = kUsual;
    options.threads = threads;
    Loader loader(set, Part::train, options);
    loader.seek(UINT32_MAX, 0);
    for (const Copy& batch : take(loader, 2)) EXPECT_EQ(batch.epoch, UINT32_MAX);
    for (int times = 0; times < 2; ++times) {
      EXPECT_EQ(complaint_of([&] { loader.next(); }), "[loader] there is no epoch after 4294967295");
    }
    loader.seek(0, 0);
    EXPECT_EQ(loader.next().epoch, 0u);
  }
}

TEST(Loader, EndsInTheMiddleOfAnEpoch) {
  const ImageSet set = make_set(16, 16, 3, 200, 10);
  for (const int threads : kThreads) {
    for (uint64_t taken = 0; taken < 4; ++taken) {
      LoaderOptions options = kUsual;
      options.threads = threads;
      Loader loader(set, Part::train, options);
      EXPECT_EQ(take(loader, taken).size(), taken);
    }
  }
}

TEST(Loader, AllocatesNothingAfterTheFirstBatch) {
  const ImageSet set = make_set(4, 4, 3, 100, 10);
  LoaderOptions options = kUsual;
  options.threads = 2;
  Loader loader(set, Part::train, options);
  loader.next();
  const size_t before = allocations();
  EXPECT_GT(before, 0u);
  for (int i = 0; i < 50; ++i) loader.next();
  EXPECT_EQ(allocations(), before);
}

TEST(Loader, CountsHowLongItKeptTheCallerWaiting) {
  const ImageSet set = make_set(32, 32, 3, 400, 10);
  LoaderOptions options = kUsual;
  options.batch = 400;
  Loader loader(set, Part::train, options);
  // Asked without a pause it cannot keep up: making a batch takes far longer than asking for one.
  for (int i = 0; i < 11; ++i) loader.next();
  EXPECT_EQ(loader.waits().taken, 10u);
  EXPECT_GT(loader.waits().waited, 0u);
  EXPECT_GT(loader.waits().seconds, 0);
}

TEST(Loader, RefusesOptionsThatMakeNoSense) {
  const ImageSet set = make_set(4, 3, 1, 100, 10);
  const auto said = [&](auto&& spoil, Part part = Part::train) {
    LoaderOptions options = kUsual;
    spoil(options);
    return complaint_of([&] { Loader(set, part, options); });
  };
  EXPECT_EQ(said([](LoaderOptions& o) { o.batch = 0; }), "[loader] the batch must be positive, got 0");
  EXPECT_EQ(said([](LoaderOptions& o) { o.batch = -3; }), "[loader] the batch must be positive, got -3");
  EXPECT_EQ(said([](LoaderOptions& o) { o.batch = 101; }),
            "[loader] the batch of 101 is larger than the set of 100 examples");
  EXPECT_EQ(said([](LoaderOptions& o) { o.subset = 15; }),
            "[loader] the batch of 16 is larger than the set of 15 examples");
  EXPECT_EQ(said([](LoaderOptions& o) { o.subset = 0; }),
            "[loader] the subset must be 1 to 100 examples, got 0");
  EXPECT_EQ(said([](LoaderOptions& o) { o.subset = -1; }),
            "[loader] the subset must be 1 to 100 examples, got -1");
  EXPECT_EQ(said([](LoaderOptions& o) { o.subset = 101; }),
            "[loader] the subset must be 1 to 100 examples, got 101");
  EXPECT_EQ(said([](LoaderOptions& o) { o.padding = 3; }),
            "[loader] the crop's padding must be 0 to 2 for images of 4x3, got 3");
  EXPECT_EQ(said([](LoaderOptions& o) { o.padding = -1; }),
            "[loader] the crop's padding must be 0 to 2 for images of 4x3, got -1");
  EXPECT_EQ(said([](LoaderOptions& o) { o.threads = 0; }),
            "[loader] the number of threads must be 1 to 256, got 0");
  EXPECT_EQ(said([](LoaderOptions& o) { o.buffers = 1; }),
            "[loader] the number of buffers must be 2 to 1024, got 1");
  Loader loader(set, Part::train, kUsual);
  EXPECT_EQ(complaint_of([&] { loader.seek(0, 7); }),
            "[loader] cannot seek to batch 7: an epoch has batches 0 to 6");
  ImageSet bad = set;
  bad.train.labels[3] = 5;
  EXPECT_EQ(complaint_of([&] { Loader(bad, Part::train, kUsual); }),
            "[data] made has label 5 at training example 3: labels must be 0 to 4");
}

}  // namespace
}  // namespace ulp
