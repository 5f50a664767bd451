#include "ulp/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <type_traits>
#include <utility>

#include "tests/support/temp.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

using Shape = std::vector<uint64_t>;

std::span<const uint8_t> bytes_in(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string text_of(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

// A file with this header, as anybody would put it together.
std::string file_with(std::string_view header, std::string_view data = "") {
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data);
}

// One bit after the other; not zlib.
std::string slow_crc(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
  }
  return fmt::format("{:08x}", crc ^ 0xffffffff);
}

constexpr std::string_view kOpening = R"({"__metadata__":{"checksum":"crc32 )";

// Our checksum over whatever header this is: what stands between damage and somebody who writes
// files on purpose.
std::string signed_header(std::string header) {
  header.replace(kOpening.size(), 8, "00000000");
  return header.replace(kOpening.size(), 8, slow_crc(header));
}

class Safetensors : public ::testing::Test {
 protected:
  void save(std::span<const StoredTensor> tensors, const TensorMetadata& metadata = {}) {
    save_tensors(path_, tensors, metadata);
  }

  // What is said of a file with these bytes, where the path is F; "" if it is read.
  std::string refusal(std::string_view bytes, TensorSource source = TensorSource::ulp) {
    put(path_, bytes);
    const std::string why = complaint_of([&] { TensorFile file(path_, source); }, path_);
    EXPECT_TRUE(why.empty() || (why.starts_with("[safetensors] ") && why.find(" F ") != why.npos)) << why;
    return why;
  }

  std::string foreign_refusal(std::string_view header, std::string_view data = "") {
    const std::string why = refusal(file_with(header, data), TensorSource::anywhere);
    const std::string start = "[safetensors] F ";
    return why.starts_with(start) ? why.substr(start.size()) : why;
  }

  // A small file that has everything: text, an empty tensor, a single number, several widths.
  std::string small_file() {
    const StoredTensor tensors[] = {{"w", "F32", {2, 1}, bytes_in("abcdefgh")},
                                    {"none", "F16", {0, 3}, {}},
                                    {"codes", "U8", {3}, bytes_in("xyz")},
                                    {"one", "BF16", {}, bytes_in("12")}};
    save(tensors, {{"step", "7"}, {"text", "\u00e9\x1f\n\""}});
    return content(path_);
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "a.safetensors";
};

TEST_F(Safetensors, ReadsBackWhatWasSaved) {
  const std::string data(8 * 24, 'q');
  const std::pair<const char*, size_t> dtypes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4},
      {"I16", 2}, {"I8", 1},  {"U64", 8}, {"U32", 4},  {"U16", 2},     {"U8", 1},      {"BOOL", 1}};
  const Shape shapes[] = {{}, {0}, {1}, {24}, {2, 3, 4}, {3, 0, 5}, Shape(40, 1)};
  std::vector<StoredTensor> tensors;
  for (const auto& [dtype, element] : dtypes) {
    for (const Shape& shape : shapes) {
      size_t count = 1;
      for (const uint64_t axis : shape) count *= axis;
      const std::span<const uint8_t> bytes = bytes_in(std::string_view(data).substr(0, count * element));
      tensors.push_back({fmt::format("{}/{}", dtype, tensors.size()), dtype, shape, bytes});
    }
  }
  tensors.push_back({"", "U8", {2}, bytes_in("\n\"")});
  tensors.push_back({"\u4e2d \"\\\n\x01", "U8", {3}, bytes_in({"\0\xff\x80", 3})});
  const TensorMetadata metadata = {{"", ""}, {"format", "ulp"}, {"a\nb", std::string(3, '\0')}};
  save(tensors, metadata);

  const TensorFile file(path_);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const StoredTensor& saved : tensors) {
    SCOPED_TRACE(saved.name);
    const StoredTensor& got = file.find(saved.name);
    EXPECT_EQ(got.name, saved.name);
    EXPECT_EQ(got.dtype, saved.dtype);
    EXPECT_EQ(got.shape, saved.shape);
    EXPECT_EQ(text_of(got.bytes), text_of(saved.bytes));
  }
  EXPECT_EQ(complaint_of([&] { file.find("no\nne"); }, path_),
            fmt::format("[safetensors] F has no tensor 'no\\x0ane': it has {} others", tensors.size()));
}

TEST_F(Safetensors, SavesNothingToo) {
  save({});
  const TensorFile file(path_);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
}

// The whole file, byte for byte: other tools and later versions depend on it.
TEST_F(Safetensors, WritesTheseBytes) {
  const StoredTensor tensors[] = {{"b", "U8", {3}, bytes_in("xyz")},
                                  {"a", "F32", {1, 2}, bytes_in("abcdefgh")}};
  save(tensors, {{"step", "7"}});
  std::string header = std::string(kOpening) + "00000000 " + slow_crc("abcdefgh") + " " + slow_crc("xyz") +
                       R"(","step":"7"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(content(path_), file_with(signed_header(header), "abcdefghxyz"));
}

TEST_F(Safetensors, WritesAFormThatOthersRead) {
  const std::string file = small_file();
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  ASSERT_EQ(length % 8, 0u);
  const nlohmann::json header = nlohmann::json::parse(file.substr(8, length));
  const std::string data = file.substr(8 + length);
  const auto bytes = [&](const char* name) {
    const size_t begin = header[name]["data_offsets"][0], end = header[name]["data_offsets"][1];
    return data.substr(begin, end - begin);
  };
  EXPECT_EQ(bytes("w"), "abcdefgh");
  EXPECT_EQ(bytes("none"), "");
  EXPECT_EQ(bytes("codes"), "xyz");
  EXPECT_EQ(bytes("one"), "12");
  EXPECT_EQ(header["w"]["shape"], nlohmann::json({2, 1}));
  EXPECT_EQ(header["one"]["shape"], nlohmann::json::array());
  EXPECT_EQ(header["codes"]["dtype"], "U8");
  EXPECT_EQ(header["__metadata__"]["text"], "\u00e9\x1f\n\"");
  EXPECT_EQ(header.size(), 5u);
}

TEST_F(Safetensors, BytesDoNotDependOnTheOrderGiven) {
  std::vector<StoredTensor> tensors = {{"b", "U8", {3}, bytes_in("xyz")},
                                       {"a", "F16", {1}, bytes_in("ab")},
                                       {"c", "F64", {1}, bytes_in("12345678")},
                                       {"d", "F64", {0}, {}}};
  save(tensors);
  const std::string first = content(path_);
  std::swap(tensors[0], tensors[2]);
  std::swap(tensors[1], tensors[3]);
  save(tensors);
  EXPECT_EQ(content(path_), first);
  const TensorFile file(path_);
  for (const StoredTensor& tensor : file.tensors()) {
    const size_t element = tensor.dtype == "F64" ? 8 : tensor.dtype == "F16" ? 2 : 1;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % element, 0u) << tensor.name;
  }
}

TEST_F(Safetensors, BytesLiveThroughAMove) {
  small_file();
  static_assert(!std::is_copy_constructible_v<TensorFile>);
  TensorFile first(path_);
  const TensorFile second(std::move(first));
  EXPECT_EQ(text_of(second.find("w").bytes), "abcdefgh");
}

TEST_F(Safetensors, RefusesToSaveWhatItCouldNotRead) {
  const auto refused = [&](std::vector<StoredTensor> tensors, const TensorMetadata& metadata = {}) {
    const std::string why = complaint_of([&] { save(tensors, metadata); }, path_);
    EXPECT_FALSE(fs::exists(path_));
    return why;
  };
  const std::span<const uint8_t> four = bytes_in("abcd");
  EXPECT_EQ(refused({{"a", "F32", {1}, four}, {"a", "F32", {1}, four}}),
            "[safetensors] cannot write F: two tensors are called 'a'");
  EXPECT_EQ(refused({{"__metadata__", "F32", {1}, four}}),
            "[safetensors] cannot write F: the name '__metadata__' is taken, no tensor can have it");
  EXPECT_EQ(refused({}, {{"checksum", "1"}}),
            "[safetensors] cannot write F: the metadata key 'checksum' is taken");
  EXPECT_EQ(refused({{"a", "F32", {2}, four}}),
            "[safetensors] cannot write F with tensor 'a' of 4 bytes: shape [2] of F32 takes 8");
  const uint64_t huge = uint64_t{1} << 63;
  EXPECT_EQ(refused({{"a", "U8", {huge, 2, 0}, {}}}),
            fmt::format(
                "[safetensors] cannot write F with tensor 'a' of 0 bytes: shape [{}, 2, 0] of U8 takes more "
                "than can be",
                huge));
  EXPECT_TRUE(
      refused({{"a", "fp(6,9,0)", {2}, four}})
          .starts_with("[safetensors] cannot write F with tensor 'a' of dtype 'fp(6,9,0)': known are F64"));
  EXPECT_EQ(refused({{"\xff", "F32", {1}, four}}), "[safetensors] cannot write F: '\\xff' is not UTF-8");
  EXPECT_EQ(refused({}, {{"a", "\xc3"}}), "[safetensors] cannot write F: '\\xc3' is not UTF-8");
}

TEST_F(Safetensors, AFailedSaveLeavesTheOldFile) {
  const std::string before = small_file();
  EXPECT_NE(complaint_of([&] { save(std::vector<StoredTensor>{{"a", "F32", {1}, {}}}); }), "");
  EXPECT_EQ(content(path_), before);
  EXPECT_NE(complaint_of([&] { save_tensors(folder_ / "no/such", {}, {}); }), "");
}

TEST_F(Safetensors, SeesEveryFlippedBit) {
  const std::string good = small_file();
  ASSERT_EQ(refusal(good), "");
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    ASSERT_NE(refusal(bad), "") << "byte " << bit / 8 << ", bit " << bit % 8;
  }
}

TEST_F(Safetensors, SeesEveryWrongLength) {
  const std::string good = small_file();
  for (size_t length = 0; length < good.size(); ++length) {
    ASSERT_NE(refusal(good.substr(0, length)), "") << length;
    ASSERT_NE(refusal(good.substr(0, length), TensorSource::anywhere), "") << length;
  }
  for (const size_t extra : {1, 8, 4096}) {
    EXPECT_EQ(refusal(good + std::string(extra, '\0')),
              fmt::format("[safetensors] F has {} bytes left over after its last tensor", extra));
  }
  EXPECT_EQ(refusal(good + good),
            fmt::format("[safetensors] F has {} bytes left over after its last tensor", good.size()));
}

TEST_F(Safetensors, NamesWhatIsDamaged) {
  std::string bad = small_file();
  bad.back() ^= 1;
  EXPECT_EQ(refusal(bad), "[safetensors] F is damaged: tensor 'codes' does not match its checksum");
  EXPECT_EQ(refusal(bad, TensorSource::anywhere), refusal(bad)) << "a checksum that is there counts";
  bad = small_file();
  bad[bad.find("step")] = 'x';
  EXPECT_EQ(refusal(bad), "[safetensors] F is damaged: its header does not match its checksum");
}

// Whoever computes the header's checksum still has to have one for each tensor.
TEST_F(Safetensors, HoldsASignedHeaderToItsTensors) {
  const std::string tensor = R"("},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  const auto refused = [&](const std::string& sums) {
    return refusal(file_with(signed_header(std::string(kOpening) + "00000000" + sums + tensor), "ab"));
  };
  const std::string sum = slow_crc("ab");
  EXPECT_EQ(refused(" " + sum), "");
  const std::string count = "[safetensors] F has checksums that are not one for each of its 1 tensors";
  EXPECT_EQ(refused(""), count);
  EXPECT_EQ(refused(" " + sum + " " + sum), count);
  EXPECT_EQ(refused(" 0" + sum.substr(1)),
            "[safetensors] F is damaged: tensor 'a' does not match its checksum");
}

TEST_F(Safetensors, ReadsFilesOfOthersWhenAsked) {
  const std::string theirs =
      file_with(R"({"b":{"shape":[1],"data_offsets":[4,6],"dtype":"F16"}, "a":{"dtype":"F32","shape":[1],)"
                R"("data_offsets":[0,4]},"__metadata__":{"format":"pt","checksum":"theirs"}}   )",
                "abcdef");
  EXPECT_EQ(
      refusal(theirs),
      "[safetensors] F was not written by ulp, or is damaged: its header does not start with a checksum");
  const TensorFile file(path_, TensorSource::anywhere);
  EXPECT_EQ(file.metadata(), (TensorMetadata{{"format", "pt"}, {"checksum", "theirs"}}));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(text_of(file.find("b").bytes), "ef");
  EXPECT_EQ(foreign_refusal("{}"), "");
}

TEST_F(Safetensors, RefusesHeadersThatAreNone) {
  const std::string no = "is no safetensors file, or damaged: byte ";
  EXPECT_EQ(foreign_refusal(""), no + "0 of its header is wrong (it must start with '{')");
  EXPECT_EQ(foreign_refusal(" {}"), no + "0 of its header is wrong (it must start with '{')");
  EXPECT_EQ(foreign_refusal("\xef\xbb\xbf{}"), no + "0 of its header is wrong (it must start with '{')");
  EXPECT_EQ(foreign_refusal({"{}\0\0", 4}), no + "3 of its header is wrong (a zero byte)");
  for (const std::string_view bad :
       {"{", "{}x", "{}{}", "{\"a\":", "{\"a\":{\"shape\":[1e999]}}", "{\"\xff\":{}}", "{\"\xc3\":{}}",
        "{a:1}", "{\"__metadata__\":{},}", "{\"a\\ud800\":{}}", "{} // no", "{\"a\nb\":{}}"}) {
    const std::string why = foreign_refusal(bad);
    EXPECT_TRUE(why.starts_with(no) && why.ends_with("(no JSON in UTF-8)")) << bad << ": " << why;
  }
  const std::string misplaced = "where its header has no place for it, at '";
  for (const std::string_view bad : {"{\"a\":1}",
                                     "{\"a\":null}",
                                     "{\"a\":[]}",
                                     "{\"a\":\"b\"}",
                                     "{\"a\":{\"dtype\":1}}",
                                     "{\"a\":{\"shape\":\"F32\"}}",
                                     "{\"a\":{\"shape\":[-1]}}",
                                     "{\"a\":{\"shape\":[1.0]}}",
                                     "{\"a\":{\"shape\":[true]}}",
                                     "{\"a\":{\"shape\":[18446744073709551616]}}",
                                     "{\"a\":{\"shape\":{}}}",
                                     "{\"a\":{\"shape\":[[1]]}}",
                                     "{\"a\":{\"shape\":[{}]}}",
                                     "{\"a\":{\"data_offsets\":[0]}}",
                                     "{\"a\":{\"data_offsets\":[0,1,2]}}",
                                     "{\"a\":{\"data_offsets\":1}}",
                                     "{\"a\":{\"dtype\":[]}}",
                                     "{\"__metadata__\":1}",
                                     "{\"__metadata__\":{\"a\":1}}",
                                     "{\"__metadata__\":{\"a\":{}}}",
                                     "{\"__metadata__\":{\"a\":[]}}"}) {
    EXPECT_NE(foreign_refusal(bad).find(misplaced), std::string::npos) << bad << ": " << foreign_refusal(bad);
  }
  EXPECT_EQ(foreign_refusal("{\"a\":{\"shape\":[],\"dtype\":\"U8\"}}"),
            "has tensor 'a' without all of dtype, shape and data_offsets");
  EXPECT_EQ(foreign_refusal("{\"a\":{\"shape\":[],\"x\":1}}"),
            "has tensor 'a' with 'x': dtype, shape and data_offsets are known");
}

TEST_F(Safetensors, RefusesNamesThatComeTwice) {
  const std::string tensor = R"(:{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(foreign_refusal("{\"a\"" + tensor + ",\"b\"" + tensor + "}"), "");
  EXPECT_EQ(foreign_refusal("{\"a\"" + tensor + ",\"\\u0061\"" + tensor + "}"),
            "has 'a' twice in its header");
  EXPECT_EQ(foreign_refusal(R"({"a":{"shape":[],"shape":[]}})"), "has 'shape' twice in its header");
  EXPECT_EQ(foreign_refusal(R"({"__metadata__":{"k":"1","k":"1"}})"), "has 'k' twice in its header");
  EXPECT_EQ(foreign_refusal(R"({"__metadata__":{},"__metadata__":{}})"),
            "has '__metadata__' twice in its header");
}

TEST_F(Safetensors, RefusesOffsetsThatDoNotCoverTheData) {
  const auto two = [&](const char* a, const char* b, std::string_view data) {
    return foreign_refusal(fmt::format(R"({{"a":{{"dtype":"U8",{}}},"b":{{"dtype":"U16",{}}}}})", a, b),
                           data);
  };
  const char* const first = R"("shape":[2],"data_offsets":[0,2])";
  EXPECT_EQ(two(first, R"("shape":[1],"data_offsets":[2,4])", "abcd"), "");
  EXPECT_EQ(two(first, R"("shape":[1],"data_offsets":[1,3])", "abc"),
            "has tensor 'b' at byte 1 of the data, which overlaps the one before: it must be at 2");
  EXPECT_EQ(two(first, R"("shape":[1],"data_offsets":[0,2])", "ab"),
            "has tensor 'b' at byte 0 of the data, which overlaps the one before: it must be at 2");
  EXPECT_EQ(two(first, R"("shape":[1],"data_offsets":[3,5])", "abcde"),
            "has tensor 'b' at byte 3 of the data, which leaves a gap: it must be at 2");
  EXPECT_EQ(two(first, R"("shape":[1],"data_offsets":[2,4])", "abc"),
            "is cut short: tensor 'b' ends at byte 4 of the data, 3 are there");
  EXPECT_EQ(two(first, R"("shape":[1],"data_offsets":[2,4])", "abcde"),
            "has 1 bytes left over after its last tensor");
  EXPECT_EQ(two(first, R"("shape":[1],"data_offsets":[4,2])", "abcd"),
            "has tensor 'b' from byte 4 to 2: it ends before it begins");
  EXPECT_EQ(two(first, R"("shape":[2],"data_offsets":[2,4])", "abcd"),
            "has tensor 'b' of 2 bytes: shape [2] of U16 takes 4");
  EXPECT_EQ(two(first, R"("shape":[9223372036854775808],"data_offsets":[2,2])", "ab"),
            "has tensor 'b' of 0 bytes: shape [9223372036854775808] of U16 takes more than can be");
  EXPECT_EQ(two(first, R"("shape":[4611686018427387904],"data_offsets":[2,9223372036854775810])", "ab"),
            "is cut short: tensor 'b' ends at byte 9223372036854775810 of the data, 2 are there");
  const std::string why = foreign_refusal(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "a");
  EXPECT_TRUE(why.starts_with("has tensor 'a' of dtype 'F4': known are F64, F32, F16,")) << why;
}

TEST_F(Safetensors, AsksForNoMemoryThatAHeaderMerelyClaims) {
  for (const uint64_t length :
       {uint64_t{1}, uint64_t{99'000'000}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    EXPECT_EQ(
        refusal(file, TensorSource::anywhere),
        fmt::format("[safetensors] F is no safetensors file, or cut short: it claims a header of {} bytes, 0 "
                    "are left",
                    length));
  }
  // A file that is as long as it says, but for holes.
  const uint64_t length = uint64_t{1} << 30;
  put(path_, std::string(reinterpret_cast<const char*>(&length), sizeof length));
  fs::resize_file(path_, 8 + length);
  EXPECT_EQ(complaint_of([&] { TensorFile file(path_, TensorSource::anywhere); }, path_),
            fmt::format("[safetensors] F has a header of {} bytes: it must have at most 100000000", length));
}

TEST_F(Safetensors, RefusesNestingAtItsFirstStep) {
  const size_t depth = 5'000'000;
  EXPECT_NE(foreign_refusal("{\"a\":{\"shape\":" + std::string(depth, '[')), "");
  std::string objects = "{";
  for (size_t i = 0; i < depth / 5; ++i) objects += "\"a\":{";
  EXPECT_NE(foreign_refusal(objects), "");
}

TEST_F(Safetensors, ReadsRegularFilesAlone) {
  const auto refused = [&](const std::string& path) {
    return complaint_of([&] { TensorFile file(path); }, path);
  };
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(refused(pipe), "[safetensors] cannot read F: it is a pipe or a device, name a file");
  EXPECT_EQ(refused("/dev/zero"), "[safetensors] cannot read F: it is a pipe or a device, name a file");
  EXPECT_EQ(refused(folder_.path()), "[safetensors] cannot read F: it is a folder, name a file");
  EXPECT_EQ(refused(folder_ / "none"), "[safetensors] cannot read F: No such file or directory");
  EXPECT_EQ(refused(""), "[safetensors] cannot read : No such file or directory");
}

// Without checksums in the way, and with tensors that must be inside the data wherever one is read.
TEST_F(Safetensors, SurvivesWhateverItIsGiven) {
  const std::string good =
      file_with(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
                "abcdefghxyz");
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  constexpr std::string_view kParts = "{}[]\",:0123456789-.eE\\untrfl \n\xff\x80";
  int taken = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bad = good;
    for (size_t changes = 1 + below(4); changes > 0; --changes) {
      const size_t at = below(4) == 0 ? below(bad.size()) : 8 + below(bad.size() - 8);
      const std::string part(1, kParts[below(kParts.size())]);
      if (below(3) == 0) {
        bad.erase(at, 1 + below(3));
      } else {
        bad.replace(at, below(2), part);
      }
      if (bad.size() < 10) bad = good;
    }
    if (below(2) == 0) {  // a length that fits, so that the header is looked at
      const uint64_t length =
          bad.rfind('}') == bad.npos ? 0 : bad.rfind('}') + 1 - std::min<size_t>(8, bad.size());
      std::memcpy(bad.data(), &length, sizeof length);
    }
    if (!refusal(bad, TensorSource::anywhere).empty()) continue;
    ++taken;
    const TensorFile file(path_, TensorSource::anywhere);
    size_t total = 0;
    for (const StoredTensor& tensor : file.tensors()) {
      for (const uint8_t byte : tensor.bytes) total += byte > 0;
      EXPECT_LE(tensor.bytes.size(), bad.size());
    }
    EXPECT_LE(total, bad.size());
  }
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, 3000);
}

TEST(SafetensorsDtype, IsThatOfTheSharedFormats) {
  const std::pair<const char*, const char*> names[] = {
      {"fp32", "F32"},   {"fp16", "F16"},   {"bf16", "BF16"}, {"e4m3", "F8_E4M3"}, {"e5m2", "F8_E5M2"},
      {"e8m23", "F32"},  {"e5m10", "F16"},  {"tf32", ""},     {"fp(5,2,0)", ""},   {"fp(4,3,0)", ""},
      {"fp(6,9,0)", ""}, {"fp(4,3,4)", ""}, {"e8m5", ""}};
  for (const auto& [format, dtype] : names)
    EXPECT_EQ(safetensors_dtype(parse_format(format)), dtype) << format;
}

}  // namespace
}  // namespace ulp
