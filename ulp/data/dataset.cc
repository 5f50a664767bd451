#include "ulp/data/dataset.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <tuple>

#include "ulp/base/augment.h"
#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/data/readers.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kClothing[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                          "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

constexpr std::string_view kCifar10[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                         "dog",      "frog",       "horse", "ship", "truck"};

constexpr std::string_view kCifar100[] = {
    "apple",      "aquarium_fish", "baby",         "bear",       "beaver",      "bed",         "bee",
    "beetle",     "bicycle",       "bottle",       "bowl",       "boy",         "bridge",      "bus",
    "butterfly",  "camel",         "can",          "castle",     "caterpillar", "cattle",      "chair",
    "chimpanzee", "clock",         "cloud",        "cockroach",  "couch",       "crab",        "crocodile",
    "cup",        "dinosaur",      "dolphin",      "elephant",   "flatfish",    "forest",      "fox",
    "girl",       "hamster",       "house",        "kangaroo",   "keyboard",    "lamp",        "lawn_mower",
    "leopard",    "lion",          "lizard",       "lobster",    "man",         "maple_tree",  "motorcycle",
    "mountain",   "mouse",         "mushroom",     "oak_tree",   "orange",      "orchid",      "otter",
    "palm_tree",  "pear",          "pickup_truck", "pine_tree",  "plain",       "plate",       "poppy",
    "porcupine",  "possum",        "rabbit",       "raccoon",    "ray",         "road",        "rocket",
    "rose",       "sea",           "seal",         "shark",      "shrew",       "skunk",       "skyscraper",
    "snail",      "snake",         "spider",       "squirrel",   "streetcar",   "sunflower",   "sweet_pepper",
    "table",      "tank",          "telephone",    "television", "tiger",       "tractor",     "train",
    "trout",      "tulip",         "turtle",       "wardrobe",   "whale",       "willow_tree", "wolf",
    "woman",      "worm"};

const std::array<DatasetInfo, 6>& table() {
  static const std::array<DatasetInfo, 6> rows = {{
      {.name = "fashion-mnist",
       .about = "grey pictures of clothing, padded from 28x28",
       .height = 32,
       .width = 32,
       .channels = 1,
       .classes = 10,
       .train = 60000,
       .test = 10000,
       .marker = "train-images-idx3-ubyte",
       .subfolders = {"fashion-mnist", "FashionMNIST/raw"},
       .system = "/usr/share/datasets/fashion-mnist",
       .get = "apt-get install dataset-fashion-mnist",
       .class_names = kClothing,
       .read = read_idx},
      {.name = "mnist",
       .about = "grey handwritten digits, padded from 28x28",
       .height = 32,
       .width = 32,
       .channels = 1,
       .classes = 10,
       .train = 60000,
       .test = 10000,
       .marker = "train-images-idx3-ubyte",
       .subfolders = {"mnist", "MNIST/raw"},
       .get = "download {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz from "
              "https://ossci-datasets.s3.amazonaws.com/mnist into a folder",
       .read = read_idx},
      {.name = "cifar10",
       .about = "colour photographs of animals and vehicles",
       .height = 32,
       .width = 32,
       .channels = 3,
       .classes = 10,
       .train = 50000,
       .test = 10000,
       .mean = {0.4914f, 0.4822f, 0.4465f},
       .deviation = {0.2023f, 0.1994f, 0.2010f},
       .marker = "data_batch_1.bin",
       .subfolders = {"cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"},
       .get = "download https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz and unpack it in a folder",
       .class_names = kCifar10,
       .pickles = "cifar-10-batches-py",
       .pickle = "data_batch_1",
       .convert =
           "python3 -c \"import glob, pickle; [open(n + '.bin', 'wb').write(b''.join(bytes([l]) + "
           "r.tobytes() for l, r in zip(b['labels'], b['data']))) for n in glob.glob('data_batch_?') + "
           "['test_batch'] for b in [pickle.load(open(n, 'rb'), encoding='latin1')]]\"",
       .read = read_cifar10},
      {.name = "cifar100",
       .about = "colour photographs in fine classes",
       .height = 32,
       .width = 32,
       .channels = 3,
       .classes = 100,
       .train = 50000,
       .test = 10000,
       .mean = {0.5074f, 0.4867f, 0.4411f},
       .deviation = {0.2011f, 0.1987f, 0.2025f},
       .marker = "train.bin",
       .subfolders = {"cifar100", "cifar-100-binary", "cifar100/cifar-100-binary"},
       .get = "download https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz and unpack it in a folder",
       .class_names = kCifar100,
       .pickles = "cifar-100-python",
       .pickle = "meta",
       .convert =
           "python3 -c \"import pickle; [open(n + '.bin', 'wb').write(b''.join(bytes([c, f]) + r.tobytes() "
           "for c, f, r in zip(b['coarse_labels'], b['fine_labels'], b['data']))) for n in ('train', 'test') "
           "for b in [pickle.load(open(n, 'rb'), encoding='latin1')]]\"",
       .read = read_cifar100},
      {.name = "folder",
       .about = "your own PNG and JPEG files, a folder a class",
       .marker = "train",
       .subfolders = {"folder"},
       .get = "put images into train/CLASS/ and test/CLASS/ (or val/CLASS/) of a folder",
       .read = read_folder},
      {.name = "synthetic",
       .about = "made-up patterns under noise, of any shape",
       .height = 32,
       .width = 32,
       .channels = 3,
       .classes = 10,
       .train = 10000,
       .test = 2000,
       .get = "it is generated",
       .read = make_synthetic},
  }};
  return rows;
}

bool holds(const DatasetInfo& info, const std::string& folder, std::error_code& error) {
  const std::string marker = folder + "/" + std::string(info.marker);
  return fs::exists(marker, error) || (info.read == read_idx && fs::exists(marker + ".gz", error));
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// Refuses what would otherwise be ignored without a word.
void check_request(const DatasetInfo& info, const DataRequest& r) {
  if (info.marker.empty()) {
    if (!r.dir.empty()) fail("data", "{} is generated and reads no folder: leave out --data-dir", info.name);
    return;
  }
  const bool folder = info.read == read_folder;
  if (r.channels || r.classes || r.train || r.test || (!folder && (r.height || r.width))) {
    fail("data", "{} has {} of its own: only synthetic takes any", info.name,
         folder ? "channels, classes and counts" : "a shape, classes and counts");
  }
}

void check_part(const ImageSet& set, std::string_view part, const Examples& examples) {
  if (examples.count() == 0) fail("data", "{} has no {} examples", set.name, part);
  const size_t bytes = set.image_bytes();
  if (examples.images.size() % bytes != 0 || examples.images.size() / bytes != examples.count()) {
    fail("data", "{} has {} {} labels and {} bytes of images: {} a label would be right", set.name,
         examples.count(), part, examples.images.size(), bytes);
  }
  for (size_t i = 0; i < examples.count(); ++i) {
    const int32_t label = examples.labels[i];
    if (label < 0 || static_cast<size_t>(label) >= set.classes) {
      fail("data", "{} has label {} at {} example {}: labels must be 0 to {}", set.name, label, part, i,
           set.classes - 1);
    }
  }
}

std::string& root_folder() {
  static std::string folder;
  return folder;
}

// Where torchvision has put the set, as Python wrote it; "": nowhere.
std::string pickles_of(const DatasetInfo& info, const DatasetPlace& place) {
  if (info.pickles.empty()) return "";
  for (const std::string& folder : place.looked) {
    const std::string parent = fs::path(folder).parent_path();
    for (const std::string& there :
         {folder, fmt::format("{}/{}", folder, info.pickles), fmt::format("{}/{}", parent, info.pickles)}) {
      std::error_code error;
      if (fs::is_regular_file(fmt::format("{}/{}", there, info.pickle), error)) return there;
    }
  }
  return "";
}

}  // namespace

std::span<const DatasetInfo> datasets() { return table(); }

const DatasetInfo& find_dataset(std::string_view name) {
  std::vector<std::string_view> known;
  for (const DatasetInfo& info : table()) {
    if (info.name == name) return info;
    known.push_back(info.name);
  }
  fail("data", "unknown data set '{}'; {}known: {}", name, nearest_hint(name, known), fmt::join(known, ", "));
}

void set_data_root(std::string folder) { root_folder() = std::move(folder); }
const std::string& data_root() { return root_folder(); }

DatasetPlace locate(const DatasetInfo& info, const std::string& data_dir) {
  if (info.marker.empty()) return {"", {}, {}};
  std::vector<std::string> folders;
  const auto add_below = [&](const std::string& root) {
    for (const std::string_view sub : info.subfolders) folders.push_back(root + "/" + std::string(sub));
  };
  if (!data_dir.empty()) {
    add_below(data_dir);
    folders.push_back(data_dir);
  } else {
    if (!data_root().empty()) add_below(data_root());
    if (!info.system.empty()) folders.emplace_back(info.system);
  }
  DatasetPlace place;
  for (const std::string& folder : folders) {
    place.looked.push_back(folder);
    std::error_code error;
    if (holds(info, folder, error)) {
      place.path = folder;
      break;
    }
    if (error == std::errc::permission_denied) place.denied.push_back(folder);
  }
  return place;
}

std::string absence(const DatasetInfo& info, const DatasetPlace& place) {
  if (!place.denied.empty()) {
    return fmt::format("cannot look for {} in {}: permission denied", info.name, joined(place.denied));
  }
  if (const std::string folder = pickles_of(info, place); !folder.empty()) {
    return fmt::format(
        "{} in {} are Python's pickles, and Ulp reads the binary version; to convert them: cd '{}' && {}; "
        "then "
        "--data-dir '{}'",
        info.name, folder, folder, info.convert, folder);
  }
  std::string use;
  if (info.system.empty()) {
    use = fmt::format(", then --data-dir THAT FOLDER, or put it at $ULP_DATA/{}", info.subfolders[0]);
  } else if (std::find(place.looked.begin(), place.looked.end(), info.system) == place.looked.end()) {
    use = ", and leave out --data-dir";
  }
  return fmt::format("{} is not there: {}; to get it: {}{}", info.name,
                     place.looked.empty() ? "neither --data-dir nor ULP_DATA names a folder"
                                          : fmt::format("no {} in {}", info.marker, joined(place.looked)),
                     info.get, use);
}

ImageSet load_dataset(std::string_view name, const DataRequest& request) {
  const DatasetInfo& info = find_dataset(name);
  check_request(info, request);
  const DatasetPlace place = locate(info, request.dir);
  if (!place.path) fail("data", "{}", absence(info, place));
  ImageSet set = info.read(info, *place.path, request);
  set.name = info.name;
  if (info.mean.empty()) {
    measure(set);
  } else {
    set.mean = info.mean;
    set.deviation = info.deviation;
  }
  check_set(set);
  return set;
}

std::optional<DataOutline> outline_dataset(std::string_view name, const DataRequest& request) {
  const DatasetInfo& info = find_dataset(name);
  check_request(info, request);
  if (info.height == 0) return std::nullopt;
  DataOutline outline = {.set = {}, .train = info.train, .test = info.test};
  if (info.marker.empty()) {
    outline = outline_synthetic(info, request);
  } else {
    outline.set.height = info.height;
    outline.set.width = info.width;
    outline.set.channels = info.channels;
    outline.set.classes = info.classes;
  }
  outline.set.name = info.name;
  return outline;
}

void check_set(const ImageSet& set) {
  if (set.height == 0 || set.width == 0 || set.channels == 0 || set.classes == 0) {
    fail("data", "{} has images of {}x{}x{} in {} classes: none of them may be 0", set.name, set.height,
         set.width, set.channels, set.classes);
  }
  if (set.height > std::numeric_limits<size_t>::max() / set.width / set.channels) {
    fail("data", "{} has images of {}x{}x{}: their bytes are too many to count", set.name, set.height,
         set.width, set.channels);
  }
  if (set.mean.size() != set.channels || set.deviation.size() != set.channels) {
    fail("data", "{} has {} channels, {} means and {} deviations: there must be one for each", set.name,
         set.channels, set.mean.size(), set.deviation.size());
  }
  for (size_t c = 0; c < set.channels; ++c) {
    if (!std::isfinite(set.mean[c]) || !std::isfinite(set.deviation[c]) || set.deviation[c] <= 0) {
      fail("data", "{} has mean {} and deviation {} in channel {}: finite, the deviation positive, is right",
           set.name, set.mean[c], set.deviation[c], c);
    }
    const Normalise n = make_normalise(set.mean[c], set.deviation[c]);
    if (!std::isfinite(n.scale) || !std::isfinite(normalised(0, n)) || !std::isfinite(normalised(255, n))) {
      fail("data", "{} has mean {} and deviation {} in channel {}: normalised bytes overflow", set.name,
           set.mean[c], set.deviation[c], c);
    }
  }
  check_part(set, "training", set.train);
  check_part(set, "test", set.test);
}

std::span<const std::string_view> published_class_names(std::string_view name) {
  for (const DatasetInfo& info : table()) {
    if (info.name == name) return info.class_names;
  }
  return {};
}

std::vector<std::string> class_names_of(const ImageSet& set) {
  if (!set.class_names.empty()) return set.class_names;
  const std::span<const std::string_view> names = published_class_names(set.name);
  if (names.size() != set.classes) return {};
  return {names.begin(), names.end()};
}

std::vector<size_t> class_counts(const ImageSet& set, const Examples& part) {
  std::vector<size_t> counts(set.classes);
  for (const int32_t label : part.labels) ++counts[static_cast<size_t>(label)];
  return counts;
}

void measure(ImageSet& set) {
  set.mean.clear();
  set.deviation.clear();
  const double n = static_cast<double>(set.train.count() * set.height * set.width) * 255;
  for (size_t c = 0; c < set.channels; ++c) {
    uint64_t sum = 0, squares = 0;
    for (size_t i = c; i < set.train.images.size(); i += set.channels) {
      sum += set.train.images[i];
      squares += uint64_t{set.train.images[i]} * set.train.images[i];
    }
    const double mean = static_cast<double>(sum) / n;
    const double variance = static_cast<double>(squares) / (n * 255) - mean * mean;
    set.mean.push_back(static_cast<float>(mean));
    set.deviation.push_back(static_cast<float>(std::sqrt(std::max(variance, 1.0 / (255 * 255)))));
  }
}

void parse_image_shape(std::string_view text, DataRequest& request) {
  std::array<int64_t, 3> sizes = {};
  const char *at = text.data(), *const end = at + text.size();
  size_t count = 0;
  for (bool more = true; more; ++at) {
    const auto [after, error] = std::from_chars(at, end, count < sizes.size() ? sizes[count] : sizes[0]);
    more = after != end && *after == 'x';
    if (count == sizes.size() || error != std::errc{} || (after != end && !more)) {
      count = 0;
      break;
    }
    if (sizes[count++] < 1) fail("data", "the image shape must have positive sizes, got '{}'", text);
    at = after;
  }
  if (count < 2) {
    fail("data", "the image shape must be HEIGHTxWIDTH or CHANNELSxHEIGHTxWIDTH, got '{}'", text);
  }
  if (count == 2) {
    request.height = sizes[0];
    request.width = sizes[1];
    return;
  }
  constexpr int64_t kFewChannels = 4;
  auto [channels, height, width] = sizes;
  if (width <= kFewChannels && channels > kFewChannels) {
    std::tie(height, width, channels) = std::tuple(sizes[0], sizes[1], sizes[2]);  // of older files
  } else if ((channels >= width || width <= kFewChannels) && !(channels == height && height == width)) {
    fail("data",
         "the image shape '{}' could be CHANNELSxHEIGHTxWIDTH or HEIGHTxWIDTHxCHANNELS, as older files have "
         "it: give more than {} rows and columns, and fewer channels than columns",
         text, kFewChannels);
  }
  request.channels = channels;
  request.height = height;
  request.width = width;
}

}  // namespace ulp
