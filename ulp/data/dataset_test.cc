#include "ulp/data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <tuple>

#include "tests/support/temp.h"

namespace ulp {
namespace {

// A data root for a scope.
class DataFolder {
 public:
  explicit DataFolder(const std::string& path) { set_data_root(path); }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;
  ~DataFolder() { set_data_root(""); }
};

void make_file(const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  put(path, "");
}

using Places = std::vector<std::string>;

TEST(Datasets, HaveTheNamesOfTheCommandLine) {
  Places names;
  for (const DatasetInfo& info : datasets()) {
    names.emplace_back(info.name);
    EXPECT_EQ(&find_dataset(info.name), &info);
    EXPECT_EQ(info.mean.size(), info.mean.empty() ? 0 : info.channels);
    EXPECT_EQ(info.mean.size(), info.deviation.size());
    EXPECT_EQ(!info.mean.empty(), info.name.starts_with("cifar")) << info.name;  // the others are measured
    EXPECT_FALSE(info.get.empty());
  }
  EXPECT_EQ(names, (Places{"fashion-mnist", "mnist", "cifar10", "cifar100", "folder", "synthetic"}));
  EXPECT_EQ(complaint_of([] { find_dataset("cifar"); }),
            "[data] unknown data set 'cifar'; the nearest is cifar10; known: fashion-mnist, mnist, cifar10, "
            "cifar100, folder, synthetic");
  EXPECT_EQ(complaint_of([] { find_dataset("imagenet"); }),
            "[data] unknown data set 'imagenet'; known: fashion-mnist, mnist, cifar10, cifar100, folder, "
            "synthetic");
}

TEST(Datasets, ClassesHaveTheNamesThatWerePublished) {
  for (const DatasetInfo& info : datasets()) {
    const std::span<const std::string_view> names = published_class_names(info.name);
    const bool named = info.name.starts_with("cifar") || info.name == "fashion-mnist";
    EXPECT_EQ(names.size(), named ? info.classes : 0) << info.name;
    EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size()) << info.name;
  }
  const auto fine = published_class_names("cifar100");
  EXPECT_TRUE(std::is_sorted(fine.begin(), fine.end())) << "they are numbered by the alphabet";
  EXPECT_EQ(fine[23], "cloud");
  EXPECT_EQ(published_class_names("cifar10")[9], "truck");
  EXPECT_EQ(published_class_names("fashion-mnist")[0], "T-shirt/top");
  EXPECT_TRUE(published_class_names("unknown").empty());

  ImageSet set;
  set.name = "cifar10";
  set.classes = 10;
  EXPECT_EQ(class_names_of(set)[0], "airplane");
  set.classes = 9;
  EXPECT_TRUE(class_names_of(set).empty());
  set.class_names = {"own"};
  EXPECT_EQ(class_names_of(set), std::vector<std::string>{"own"});
}

TEST(Locate, LooksInADataFolderAlone) {
  const TempFolder folder;
  const DataFolder unused("/nowhere");
  const std::string root = folder.path();
  const DatasetInfo& info = find_dataset("fashion-mnist");
  DatasetPlace place = locate(info, root);
  EXPECT_FALSE(place.path);
  EXPECT_EQ(place.looked, (Places{root + "/fashion-mnist", root + "/FashionMNIST/raw", root}));
  EXPECT_EQ(
      absence(info, place),
      fmt::format("fashion-mnist is not there: no train-images-idx3-ubyte in {0}/fashion-mnist, "
                  "{0}/FashionMNIST/raw, {0}; to get it: apt-get install dataset-fashion-mnist, and leave "
                  "out --data-dir",
                  root));
  make_file(root + "/train-images-idx3-ubyte.gz");
  EXPECT_EQ(locate(info, root).path, root);
  make_file(root + "/fashion-mnist/train-images-idx3-ubyte");
  place = locate(info, root);
  EXPECT_EQ(place.path, root + "/fashion-mnist");
  EXPECT_EQ(place.looked, (Places{root + "/fashion-mnist"}));
}

TEST(Locate, LooksWhereTheEnvironmentSays) {
  const TempFolder folder;
  const std::string root = folder.path();
  const DatasetInfo& info = find_dataset("cifar10");
  {
    const DataFolder unset("");
    EXPECT_EQ(absence(info, locate(info, "")),
              "cifar10 is not there: neither --data-dir nor ULP_DATA names a folder; to get it: download "
              "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz and unpack it in a folder, then "
              "--data-dir THAT FOLDER, or put it at $ULP_DATA/cifar10");
    // Debian's place, without any setting.
    EXPECT_EQ(locate(find_dataset("fashion-mnist"), "").path, "/usr/share/datasets/fashion-mnist");
  }
  const DataFolder set(root);
  EXPECT_FALSE(locate(info, "").path);
  make_file(root + "/cifar-10-batches-bin/data_batch_1.bin");
  EXPECT_EQ(locate(info, "").path, root + "/cifar-10-batches-bin");
  // MNIST's files and Fashion-MNIST's have the same names: only a sub-folder tells which they are.
  make_file(root + "/train-images-idx3-ubyte");
  EXPECT_FALSE(locate(find_dataset("mnist"), "").path);
  EXPECT_EQ(locate(find_dataset("fashion-mnist"), "").path, "/usr/share/datasets/fashion-mnist");
  make_file(root + "/fashion-mnist/train-images-idx3-ubyte");
  EXPECT_EQ(locate(find_dataset("fashion-mnist"), "").path, root + "/fashion-mnist");
}

// Each set's files as they come, in a folder that is then named, or put where the advice says.
TEST(Locate, FindsWhatIsPutWhereTheAdviceSays) {
  const std::pair<const char*, const char*> sets[] = {
      {"mnist", "train-images-idx3-ubyte.gz"},
      {"cifar10", "cifar-10-batches-bin/data_batch_1.bin"},
      {"cifar100", "cifar-100-binary/train.bin"},
      {"folder", "train/cat/1.png"},
  };
  for (const auto& [name, file] : sets) {
    const TempFolder folder;
    const DataFolder set(folder.path());
    const DatasetInfo& info = find_dataset(name);
    const std::string advice = absence(info, locate(info, "")), before = "or put it at $ULP_DATA/";
    ASSERT_NE(advice.find("--data-dir THAT FOLDER, " + before), advice.npos) << advice;
    make_file(folder / (std::string("got/") + file));
    EXPECT_FALSE(locate(info, "").path) << name;
    EXPECT_TRUE(locate(info, folder / "got").path) << name;
    std::filesystem::rename(folder / "got", folder / advice.substr(advice.find(before) + before.size()));
    EXPECT_TRUE(locate(info, "").path) << name;
  }
}

TEST(Locate, TakesPackedFilesOnlyWhereTheReaderDoes) {
  const TempFolder folder;
  for (const char* name : {"data_batch_1.bin.gz", "train.bin.gz", "train.gz"}) make_file(folder / name);
  for (const char* name : {"cifar10", "cifar100", "folder"}) {
    EXPECT_FALSE(locate(find_dataset(name), folder.path()).path) << name;
  }
}

TEST(Locate, SaysWhereItMayNotLook) {
  const TempFolder folder;
  make_file(folder / "train.bin");
  const Forbidden forbidden(folder.path());
  EXPECT_EQ(
      complaint_of([&] { load_dataset("cifar100", {.dir = folder.path()}); }, folder.path()),
      "[data] cannot look for cifar100 in F/cifar100, F/cifar-100-binary, F/cifar100/cifar-100-binary, F: "
      "permission denied");
}

TEST(Load, RefusesWhatASetDoesNotTake) {
  const auto said = [](std::string_view name, const DataRequest& request) {
    return complaint_of([&] { load_dataset(name, request); });
  };
  EXPECT_EQ(said("mnist", {.dir = "/nowhere", .height = 28}),
            "[data] mnist has a shape, classes and counts of its own: only synthetic takes any");
  EXPECT_EQ(said("folder", {.dir = "/nowhere", .channels = 1}),
            "[data] folder has channels, classes and counts of its own: only synthetic takes any");
  EXPECT_EQ(said("synthetic", {.dir = "/nowhere"}),
            "[data] synthetic is generated and reads no folder: leave out --data-dir");
  EXPECT_TRUE(
      said("cifar100", {.dir = "/nowhere"}).starts_with("[data] cifar100 is not there: no train.bin in "));
}

ImageSet small_set() {
  ImageSet set;
  set.name = "small";
  set.height = 1;
  set.width = 2;
  set.channels = 2;
  set.classes = 3;
  set.train = {{0, 10, 255, 10, 0, 10, 255, 10}, {2, 0}};
  set.test = {{1, 2, 3, 4}, {1}};
  measure(set);
  return set;
}

TEST(CheckSet, MeasuresMeanAndDeviation) {
  const ImageSet set = small_set();
  EXPECT_NO_THROW(check_set(set));
  EXPECT_EQ(set.mean, (std::vector{0.5f, static_cast<float>(10 / 255.0)}));
  EXPECT_EQ(set.deviation, (std::vector{0.5f, static_cast<float>(1 / 255.0)}));  // the least
  EXPECT_EQ(class_counts(set, set.train), (std::vector<size_t>{1, 0, 1}));
}

TEST(CheckSet, RefusesSetsThatAreNotSound) {
  const auto said = [](auto&& spoil) {
    ImageSet set = small_set();
    spoil(set);
    return complaint_of([&] { check_set(set); });
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(said([](ImageSet& s) { s.height = 0; }),
            "[data] small has images of 0x2x2 in 3 classes: none of them may be 0");
  EXPECT_EQ(said([](ImageSet& s) { s.mean.pop_back(); }),
            "[data] small has 2 channels, 1 means and 2 deviations: there must be one for each");
  EXPECT_EQ(said([](ImageSet& s) { s.mean[1] = kNan; }).find("[data] small has mean nan and deviation "), 0u);
  EXPECT_NE(said([](ImageSet& s) { s.deviation[0] = kNan; }), "");
  EXPECT_NE(said([](ImageSet& s) { s.deviation[0] = 0; }), "");
  EXPECT_NE(said([](ImageSet& s) { s.deviation[0] = -1; }), "");
  EXPECT_NE(said([](ImageSet& s) { s.mean[0] = std::numeric_limits<float>::infinity(); }), "");
  EXPECT_NE(said([](ImageSet& s) { s.deviation[1] = 1e-41f; }).find("normalised bytes overflow"),
            std::string::npos);
  EXPECT_NE(said([](ImageSet& s) { s.mean[1] = 1e38f; }).find("normalised bytes overflow"),
            std::string::npos);
  EXPECT_NE(said([](ImageSet& s) {
              s.mean[0] = 1e6f;
              s.deviation[0] = 1e-36f;
            }).find("normalised bytes overflow"),
            std::string::npos);
  // 2^63 * 2 * 2 bytes wrap to none, and 0 of them would fit anything.
  EXPECT_EQ(said([](ImageSet& s) { s.height = size_t{1} << 63; }),
            "[data] small has images of 9223372036854775808x2x2: their bytes are too many to count");
  EXPECT_EQ(said([](ImageSet& s) {
              s.height = size_t{1} << 61;  // 2^63 bytes each: two of them wrap to none
              s.train.images.clear();
            }),
            "[data] small has 2 training labels and 0 bytes of images: 9223372036854775808 a label would be "
            "right");
  EXPECT_EQ(said([](ImageSet& s) { s.train = {}; }), "[data] small has no training examples");
  EXPECT_EQ(said([](ImageSet& s) { s.test.images.pop_back(); }),
            "[data] small has 1 test labels and 3 bytes of images: 4 a label would be right");
  EXPECT_EQ(said([](ImageSet& s) { s.train.labels[1] = 3; }),
            "[data] small has label 3 at training example 1: labels must be 0 to 2");
  EXPECT_EQ(said([](ImageSet& s) { s.test.labels[0] = -1; }),
            "[data] small has label -1 at test example 0: labels must be 0 to 2");
}

TEST(ImageShape, IsTwoOrThreeNumbers) {
  DataRequest request;
  parse_image_shape("28x32", request);
  EXPECT_EQ(request.height, 28);
  EXPECT_EQ(request.width, 32);
  EXPECT_FALSE(request.channels);
  for (const auto& [text, channels, height, width] : {std::tuple("3x28x32", 3, 28, 32),
                                                      {"1x8x8", 1, 8, 8},
                                                      {"3x5x5", 3, 5, 5},
                                                      {"8x28x28", 8, 28, 28},
                                                      {"2x2x2", 2, 2, 2},
                                                      {"9x9x9", 9, 9, 9},
                                                      // As files of before have it.
                                                      {"28x32x3", 3, 28, 32},
                                                      {"8x9x1", 1, 8, 9},
                                                      {"5x5x4", 4, 5, 5}}) {
    DataRequest made;
    parse_image_shape(text, made);
    EXPECT_EQ(made.channels, channels) << text;
    EXPECT_EQ(made.height, height) << text;
    EXPECT_EQ(made.width, width) << text;
  }
  for (const char* text : {"1x4x4", "4x4x1", "1x2x3", "3x5x3", "5x6x5", "28x28x8", "3x1x1"}) {
    const std::string said = complaint_of([&] { parse_image_shape(text, request); });
    EXPECT_TRUE(said.starts_with(fmt::format("[data] the image shape '{}' could be", text))) << said;
  }
  for (const char* text : {"", "5", "5x", "x5", "5x5x", "5x5x5x5", "5x5 ", " 5x5", "5X5", "axb", "+5x5",
                           "99999999999999999999x5"}) {
    EXPECT_EQ(
        complaint_of([&] { parse_image_shape(text, request); }),
        fmt::format("[data] the image shape must be HEIGHTxWIDTH or CHANNELSxHEIGHTxWIDTH, got '{}'", text));
  }
  for (const char* text : {"0x5", "5x-5", "5x5x0"}) {
    EXPECT_EQ(complaint_of([&] { parse_image_shape(text, request); }),
              fmt::format("[data] the image shape must have positive sizes, got '{}'", text));
  }
}

}  // namespace
}  // namespace ulp
