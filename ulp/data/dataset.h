// Sets of labelled images, and the table of those that `ulp` knows: what each holds, where it is
// looked for and how to get it. A set is read whole and checked: a file that is missing, cut short,
// too long, damaged or holds a label that is no class throws an Error that names it. Images stay
// bytes, which have no NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulp {

struct Examples {
  std::vector<uint8_t> images;  // (count, height, width, channels)
  std::vector<int32_t> labels;  // (count), below the number of classes

  size_t count() const { return labels.size(); }
};

struct ImageSet {
  std::string name;
  size_t height = 0, width = 0, channels = 0, classes = 0;
  // (channels), of byte / 255: the usual recipe's constants, or measured over the training images (measure).
  std::vector<float> mean, deviation;
  std::vector<std::string> class_names;  // (classes), or none where the files name none (class_names_of)
  std::vector<std::string> skipped;      // files beside the pictures that are none
  size_t border = 0;  // zeros on each side, which the files do not have; in height and width
  Examples train, test;

  size_t image_bytes() const { return height * width * channels; }
};

// What is asked of a set. Sizes are signed so that a negative one can be refused by its value.
struct DataRequest {
  std::string dir = {};  // --data-dir; "" stands for the usual places
  // `folder`: each image is scaled to height x width; without them all must have one size already.
  // `synthetic`: the shape to make, 32x32x3 with 10 classes, 10000 and 2000 examples unless said.
  // Every other set has a shape of its own and refuses these.
  std::optional<int64_t> height = {}, width = {}, channels = {}, classes = {}, train = {}, test = {};
  uint64_t seed = 0;  // `synthetic` only
};

struct DatasetInfo {
  std::string_view name, about;
  // As published, after padding; 0 where the files or the request decide.
  size_t height = 0, width = 0, channels = 0, classes = 0, train = 0, test = 0;
  std::vector<float> mean = {}, deviation = {};  // (channels), the usual recipe's constants; none: measured
  std::string_view marker = "";  // the file or folder that shows a set is there; "": generated
  std::vector<std::string_view> subfolders = {};  // where it may lie below a data folder
  std::string_view system = "";                   // where Debian puts it; "" where Debian has none
  std::string_view get;                           // how to get it
  // (classes), as published: files of these sets have numbers alone. A run's checkpoints do not
  // keep these names, since they follow from the name of the set.
  std::span<const std::string_view> class_names = {};
  // As torchvision keeps it: the folder, a file in it that no other version has, and the command that
  // writes the binary version beside it. "": it has none.
  std::string_view pickles = "", pickle = "", convert = "";
  ImageSet (*read)(const DatasetInfo& info, const std::string& place, const DataRequest& request);
};

// The table, and one row of it; an unknown name throws an Error that lists the known ones.
std::span<const DatasetInfo> datasets();
const DatasetInfo& find_dataset(std::string_view name);

// The folder that holds a user's data sets; "": none. Set it before anything looks for one.
void set_data_root(std::string folder);
const std::string& data_root();

// Where a set is. With a data folder it is looked for there alone: in the set's own sub-folders, then in the
// folder itself. Without one, in those sub-folders of the data root (the program sets it from
// ULP_DATA), then where Debian puts it.
struct DatasetPlace {
  std::optional<std::string> path;
  std::vector<std::string> looked;  // as far as it had to look
  std::vector<std::string> denied;  // those of them that may not be searched
};
DatasetPlace locate(const DatasetInfo& info, const std::string& data_dir);

// One line: the set is not there, where it was looked for, how to get it; or where it may not be looked for.
std::string absence(const DatasetInfo& info, const DatasetPlace& place);

// Finds, reads and checks a set.
ImageSet load_dataset(std::string_view name, const DataRequest& request);

// What load_dataset will make: shape and numbers, without the examples. None for a set whose files
// decide. Throws an Error for a request that the set refuses.
struct DataOutline {
  ImageSet set;
  size_t train = 0, test = 0;
};
std::optional<DataOutline> outline_dataset(std::string_view name, const DataRequest& request);

// Throws an Error unless sizes are positive, arrays have the sizes they claim, every label is a
// class, and mean and deviation are finite numbers, the deviation positive, that normalise every
// byte to a finite number.
void check_set(const ImageSet& set);

// What a set's classes are called: as its files say, or as was published; none where neither names them.
std::vector<std::string> class_names_of(const ImageSet& set);
// As was published for the set of this name; none for others.
std::span<const std::string_view> published_class_names(std::string_view name);

// How many examples each class has.
std::vector<size_t> class_counts(const ImageSet& set, const Examples& part);

// Sets mean and deviation to those of the training images, from exact sums. A deviation is at least 1/255, so
// that a channel that is the same everywhere can be divided by it.
void measure(ImageSet& set);

// "28x32" or "3x28x32" into height, width and channels of the request. "28x32x3", which files of
// before have, is read as it was meant. An Error where the two cannot be told apart.
void parse_image_shape(std::string_view text, DataRequest& request);

}  // namespace ulp
