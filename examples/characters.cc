// The next character of a text, from the eight before it. Shows embeddings, data that stays in the
// memory of the device, sequences of two lengths in one run, and a metric over all pieces of an
// evaluation.
//
// Options are those of `ulp train`: characters --policy size:0.5 --update extra:8 --fused-backward
#include <ulp/ulp.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::string_view kText =
    "a number is rounded once, when it is written. what is read is what was written, and what is "
    "summed is summed in more bits than it is read in. a format is a choice for one tensor, and not "
    "for all of them: a weight may have sixteen bits, its gradient eight, and its sum all that there "
    "are. small numbers are lost first, and large ones say so when they are. ";
constexpr int64_t kLetters = 128, kContext = 8, kSequences = 16;
// Characters of a sequence; BatchShape::extents says which.
constexpr int64_t kShort = 8, kLong = 16;

ulp::Network build(ulp::Builder& b, const ulp::BatchShape& shape) {
  const int64_t n = shape.examples, length = shape.extents.at(0), positions = n * length;
  // The rows of the text that lies on the device: where each position of each sequence is.
  const ulp::TensorId places = ulp::indices(b, "places", {positions});
  const auto rows = static_cast<int64_t>(kText.size());
  const int64_t context = kContext;
  ulp::TensorId x = ulp::take(b, "context", places, rows, {&context, 1});
  x = ulp::embedding(b, "letters", x, kLetters, 16);
  x = ulp::relu(b, "relu", ulp::linear(b, "fc1", ulp::flatten(b, "window", x), {.out = 128}));
  const ulp::TensorId scores = ulp::linear(b, "scores", x, {.out = kLetters});
  return {.loss = ulp::cross_entropy(b, "loss", scores, ulp::take(b, "next", places, rows))};
}

// By position of the text, which begins again at its end: the letters before it, and the one there.
struct Resident {
  std::vector<int32_t> context, next;
};
Resident make_resident() {
  Resident made;
  const auto size = static_cast<int64_t>(kText.size());
  for (int64_t at = 0; at < size; ++at) {
    for (int64_t k = kContext; k > 0; --k)
      made.context.push_back(kText[static_cast<size_t>((at - k + size) % size)]);
    made.next.push_back(kText[static_cast<size_t>(at)]);
  }
  return made;
}

std::span<const uint8_t> bytes_of(const std::vector<int32_t>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(int32_t)};
}

ulp::Session make_session(const ulp::SessionOptions& options, const Resident& data) {
  ulp::Session session(build, options);
  for (const ulp::Mode mode : {ulp::Mode::training, ulp::Mode::inference}) {
    session.keep_resident(mode, "context", bytes_of(data.context));
    session.keep_resident(mode, "next", bytes_of(data.next));
  }
  return session;
}

// Sequences from places that the step decides; every other step has short ones.
void train_until(ulp::Session& session, uint64_t steps) {
  while (session.step() < steps) {
    const int64_t length = session.step() % 2 == 0 ? kLong : kShort;
    std::vector<int32_t> places;
    for (int64_t s = 0; s < kSequences; ++s) {
      const uint64_t start = session.step() * 101 + static_cast<uint64_t>(s) * 23;
      for (int64_t k = 0; k < length; ++k)
        places.push_back(static_cast<int32_t>((start + static_cast<uint64_t>(k)) % kText.size()));
    }
    session.train({{kSequences, {length}}, {ulp::feed_of("places", places)}});
  }
}

double bits_per_character(ulp::Session& session) {
  double loss = 0, count = 0;
  for (size_t first = 0; first + kSequences * kLong <= kText.size(); first += kSequences * kLong) {
    std::vector<int32_t> places;
    for (size_t i = 0; i < kSequences * kLong; ++i) places.push_back(static_cast<int32_t>(first + i));
    const ulp::StepResult part = session.evaluate({{kSequences, {kLong}}, {ulp::feed_of("places", places)}});
    loss += part.loss;
    count += part.weight;
  }
  return loss / count / std::log(2.0);
}

}  // namespace

int main(int argc, char** argv) try {
  const Resident data = make_resident();
  for (const std::string policy : {"fp32", "size:0.5"}) {
    ulp::Settings settings = ulp::settings_of(argc, argv);
    settings.insert({{"policy", policy}, {"optimizer", "adam"}, {"lr", "0.005"}});
    const ulp::SessionOptions options{
        .batch = {kSequences, {kLong}}, .training = {{kSequences, {kShort}}}, .settings = settings};
    ulp::Session session = make_session(options, data);
    std::puts(session.plan().c_str());
    train_until(session, 200);
    session.save("characters.safetensors");

    ulp::Session resumed = make_session(options, data);
    resumed.load("characters.safetensors");
    train_until(resumed, 400);
    std::printf("%s: loss %.4f bits a character\n\n", settings["policy"].c_str(),
                bits_per_character(resumed));
  }
} catch (const ulp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
