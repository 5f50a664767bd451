#include "ulp/io/tensorboard.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <vector>

#include "tests/support/temp.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

// One bit after the other, without a table: not how the writer does it.
uint32_t slow_crc(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
  }
  return crc ^ 0xffffffff;
}

uint32_t crc_of(std::string_view bytes) {
  return crc32c({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

// Takes things off the front of bytes; throws where they end too soon.
class Bytes {
 public:
  explicit Bytes(std::string_view left) : left_(left) {}
  bool empty() const { return left_.empty(); }

  std::string_view take(size_t count) {
    if (count > left_.size()) throw std::out_of_range("bytes end too soon");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  template <typename T>
  T value() {
    T t;
    std::memcpy(&t, take(sizeof t).data(), sizeof t);
    return t;
  }

  uint64_t varint() {
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      number |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return number;
    }
  }

 private:
  std::string_view left_;
};

struct Scalar {
  std::string tag;
  uint64_t step = 0;
  float value = 0;
  double wall_time = 0;
};

uint32_t unmasked(uint32_t masked) {
  const uint32_t turned = masked - 0xa282ead8u;
  return turned >> 17 | turned << 15;
}

void read_summary(Bytes summary, Scalar& scalar) {
  EXPECT_EQ(summary.take(1), "\x0a");  // value: field 1, bytes
  Bytes value(summary.take(summary.varint()));
  EXPECT_TRUE(summary.empty());
  EXPECT_EQ(value.take(1), "\x0a");  // tag: field 1, bytes
  scalar.tag = value.take(value.varint());
  EXPECT_EQ(value.take(1), "\x15");  // simple_value: field 2, 32 bits
  scalar.value = value.value<float>();
  EXPECT_TRUE(value.empty());
}

// The scalars of a file, all checksums checked, and that a version stands first and only there.
std::vector<Scalar> read_events(const std::string& path) {
  const std::string file = content(path);
  std::vector<Scalar> scalars;
  bool first = true;
  for (Bytes left(file); !left.empty(); first = false) {
    const std::string_view length = left.take(8);
    EXPECT_EQ(unmasked(left.value<uint32_t>()), slow_crc(length));
    const std::string_view event = left.take(Bytes(length).value<uint64_t>());
    EXPECT_EQ(unmasked(left.value<uint32_t>()), slow_crc(event));

    Scalar scalar;
    std::string version;
    for (Bytes fields(event); !fields.empty();) {
      const uint64_t key = fields.varint();
      if (key == (1 << 3 | 1)) {
        scalar.wall_time = fields.value<double>();
      } else if (key == (2 << 3 | 0)) {
        scalar.step = fields.varint();
      } else if (key == (3 << 3 | 2)) {
        version = fields.take(fields.varint());
      } else if (key == (5 << 3 | 2)) {
        read_summary(Bytes(fields.take(fields.varint())), scalar);
      } else {
        ADD_FAILURE() << "key " << key;
        return scalars;
      }
    }
    EXPECT_EQ(version, first ? "brain.Event:2" : "");
    EXPECT_GT(scalar.wall_time, 0);
    if (!first) scalars.push_back(scalar);
  }
  EXPECT_FALSE(first) << "no version";
  return scalars;
}

// The vectors of RFC 3720 (iSCSI), B.4, and the check value of the catalogues.
TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc_of(""), 0u);
  EXPECT_EQ(crc_of("123456789"), 0xE3069283u);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62A8AB43u);
  std::string up, down;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i), down += static_cast<char>(31 - i);
  EXPECT_EQ(crc_of(up), 0x46DD794Eu);
  EXPECT_EQ(crc_of(down), 0x113FDB5Cu);
}

TEST(EventWriter, WritesWhatAnotherReaderReads) {
  const TempFolder folder;
  const float inf = std::numeric_limits<float>::infinity();
  const Scalar scalars[] = {{"loss/train", 1, 2.25f, 1700000000.5},
                            {"loss/train", 127, -0.0f, 1700000001},
                            {std::string(300, 't'), 128, std::nanf(""), 1.5},
                            {"gr\u00f6\u00dfe", 300, inf, 2},
                            {"", uint64_t{1} << 62, -inf, 3}};
  std::string path;
  {
    EventWriter writer(folder / "runs/first");
    path = writer.path();
    for (const Scalar& s : scalars) writer.scalar(s.tag, s.step, s.value, s.wall_time);
    writer.flush();
    EXPECT_EQ(read_events(path).size(), std::size(scalars)) << "a flush writes all";
  }
  const std::vector<Scalar> got = read_events(path);
  ASSERT_EQ(got.size(), std::size(scalars));
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(got[i].tag, scalars[i].tag);
    EXPECT_EQ(got[i].step, scalars[i].step);
    EXPECT_EQ(std::bit_cast<uint32_t>(got[i].value), std::bit_cast<uint32_t>(scalars[i].value));
    EXPECT_EQ(got[i].wall_time, scalars[i].wall_time);
  }
}

// The bytes that TensorFlow's own writer gives for this event, worked out by hand from its .proto
// files.
TEST(EventWriter, WritesTheseBytes) {
  const TempFolder folder;
  EventWriter writer(folder.path());
  writer.scalar("loss", 300, 1.0f, 2.0);
  writer.flush();
  const std::string_view event(
      "\x09\0\0\0\0\0\0\0\x40"  // wall_time 2.0
      "\x10\xac\x02"            // step 300
      "\x2a\x0d"                // summary, 13 bytes
      "\x0a\x0b"                // value, 11 bytes
      "\x0a\x04loss"            // tag
      "\x15\0\0\x80\x3f",       // simple_value 1.0
      27);
  const std::string file = content(writer.path());
  ASSERT_GT(file.size(), event.size() + 16);
  EXPECT_EQ(file.substr(file.size() - 4 - event.size(), event.size()), event);
  EXPECT_EQ(file.substr(file.size() - 16 - event.size(), 8), std::string("\x1b\0\0\0\0\0\0\0", 8));
}

TEST(EventWriter, NamesItsFileAsTensorBoardExpects) {
  const TempFolder folder;
  const EventWriter writer(folder.path());
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  const std::string name = fs::path(writer.path()).filename();
  const std::string start = "events.out.tfevents.", end = fmt::format(".{}.{}", host, ::getpid());
  ASSERT_TRUE(name.starts_with(start) && name.ends_with(end)) << name;
  const std::string seconds = name.substr(start.size(), name.size() - start.size() - end.size());
  EXPECT_NEAR(std::stod(seconds), static_cast<double>(std::time(nullptr)), 60);
}

TEST(EventWriter, TouchesNoFileOfAnother) {
  const TempFolder folder;
  std::vector<std::string> paths;
  for (int run = 0; run < 3; ++run) {
    EventWriter writer(folder.path());
    writer.scalar("run", 1, static_cast<float>(run), 1);
    paths.push_back(writer.path());
  }
  EXPECT_LT(paths[0], paths[1]);
  EXPECT_LT(paths[1], paths[2]);
  for (size_t run = 0; run < 3; ++run) {
    const std::vector<Scalar> got = read_events(paths[run]);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].value, static_cast<float>(run));
  }
}

TEST(EventWriter, WritesByItselfWhenMuchIsPending) {
  const TempFolder folder;
  EventWriter writer(folder.path());
  for (uint64_t step = 1; step <= 5000; ++step) writer.scalar("loss", step, 1, 1);
  EXPECT_GT(fs::file_size(writer.path()), 60'000u);
  writer.flush();
  const std::vector<Scalar> got = read_events(writer.path());
  ASSERT_EQ(got.size(), 5000u);
  for (uint64_t step = 1; step <= 5000; ++step) EXPECT_EQ(got[step - 1].step, step);
}

TEST(EventWriter, GoesOnWhereAFullDiskStoppedIt) {
  const TempFolder folder;
  EventWriter writer(folder.path());
  for (uint64_t step = 1; step <= 20; ++step) writer.scalar("loss", step, 1, 1);

  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{101, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string first = complaint_of([&] { writer.flush(); }, writer.path());
  const std::string second = complaint_of([&] { writer.flush(); }, writer.path());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_EQ(first, "[tensorboard] cannot write F: File too large");
  EXPECT_EQ(second, first);
  EXPECT_EQ(fs::file_size(writer.path()), 101u);
  writer.scalar("loss", 21, 1, 1);
  writer.flush();
  const std::vector<Scalar> got = read_events(writer.path());
  ASSERT_EQ(got.size(), 21u);
  for (uint64_t step = 1; step <= 21; ++step) EXPECT_EQ(got[step - 1].step, step);
}

TEST(EventWriter, SaysWhereItCannotWrite) {
  const TempFolder folder;
  const std::string file = folder / "file";
  put(file, "x");
  EXPECT_EQ(complaint_of([&] { EventWriter writer(file + "/runs"); }, file),
            "[tensorboard] cannot make the folder F/runs: Not a directory");
  EXPECT_NE(complaint_of([&] { EventWriter writer(file); }, file), "");
}

}  // namespace
}  // namespace ulp
