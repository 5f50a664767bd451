// A folder of pictures: train/ and test/ (or val/), in each one folder a class, in each of those PNG and JPEG
// files. Classes are numbered in the order of their names, byte by byte; within a class files come
// in the order of theirs. Names that start with a dot are passed over. What is no picture by its
// name and by its first bytes is skipped and named in the set: thumbnails, notes, folders within a
// class, and folders without pictures that are no class of either part. A damaged picture is
// refused. The set is grey if every picture is, else RGB. Without a size in the request all
// pictures must have the same.
#include <algorithm>
#include <array>
#include <cctype>
#include <exception>
#include <filesystem>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/data/image.h"
#include "ulp/data/readers.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

// Pictures decoded side by side before they are appended in their order: so many, or so many bytes.
constexpr size_t kAtOnce = 1024;
constexpr size_t kBytesAtOnce = size_t{512} << 20;
constexpr int64_t kMostSide = 4096;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::string name = entries->path().filename();
    if (!name.starts_with('.')) names.push_back(std::move(name));
  }
  if (error) fail("folder", "cannot read folder {}: {}", folder, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// Whether the file's name or its first bytes are those of a picture. A file that has neither is
// ignored and not reported as a damaged picture.
bool is_picture(const std::string& path) {
  std::string ending = fs::path(path).extension();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (ending == ".png" || ending == ".jpg" || ending == ".jpeg") return true;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::array<uint8_t, 4> bytes{};
  const size_t count = RegularFile("folder", path).read(bytes);
  const auto begins = [&](std::string_view with) {
    return count >= with.size() && std::equal(with.begin(), with.end(), bytes.begin(),
                                              [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
  };
  return begins("\x89PNG") || begins("\xff\xd8\xff");
}

bool holds_pictures(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return false;
  const std::vector<std::string> names = names_in(folder);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return is_picture(fmt::format("{}/{}", folder, name)); });
}

// The folders among what a folder holds; the rest is added to what is skipped.
std::vector<std::string> class_folders(const std::string& folder, std::vector<std::string>& skipped) {
  std::vector<std::string> names;
  for (std::string& name : names_in(folder)) {
    const std::string path = fmt::format("{}/{}", folder, name);
    std::error_code error;
    if (fs::is_directory(path, error)) {
      names.push_back(std::move(name));
    } else {
      skipped.push_back(path);
    }
  }
  return names;
}

// The pictures of one part, brought to the set's size and channels.
class PartReader {
 public:
  PartReader(ImageSet& set, Examples& examples, bool scale) : set_(set), examples_(examples), scale_(scale) {}

  void read(const std::string& folder) {
    std::vector<std::string> files;
    std::vector<int32_t> labels;
    for (const std::string& name : class_folders(folder, set_.skipped)) {
      const auto known = std::lower_bound(set_.class_names.begin(), set_.class_names.end(), name);
      const std::string class_folder = fmt::format("{}/{}", folder, name);
      if (known == set_.class_names.end() || *known != name) {
        if (holds_pictures(class_folder))
          fail("folder", "{} is a class that the training pictures do not have", class_folder);
        set_.skipped.push_back(class_folder);
        continue;
      }
      for (const std::string& file : names_in(class_folder)) {
        const std::string path = fmt::format("{}/{}", class_folder, file);
        if (!is_picture(path)) {
          set_.skipped.push_back(path);
          continue;
        }
        files.push_back(path);
        labels.push_back(static_cast<int32_t>(known - set_.class_names.begin()));
      }
      if (labels.empty() || labels.back() != known - set_.class_names.begin()) {
        fail("folder", "{} holds no pictures: a class needs at least one", class_folder);
      }
    }
    if (files.empty()) fail("folder", "{} holds no pictures: put them into {}/CLASS/", folder, folder);

    std::vector<Picture> pictures;
    std::vector<std::exception_ptr> errors;  // thrown in the order of the files, whichever thread was first
    for (size_t begin = 0; begin < files.size(); begin += pictures.size()) {
      pictures.assign(std::min(at_once(), files.size() - begin), {});
      errors.assign(pictures.size(), {});
      parallel_for(pictures.size(), 1, [&](size_t first, size_t last) {
        for (size_t i = first; i < last; ++i) {
          try {
            pictures[i] = read_picture(files[begin + i], [this](Picture& picture) {
              if (scale_) picture = scaled(picture, set_.height, set_.width);
              if (!fits(picture)) picture.bytes = {};  // refused below, in its turn
            });
          } catch (...) {
            errors[i] = std::current_exception();
          }
        }
      });
      for (size_t i = 0; i < pictures.size(); ++i) {
        if (errors[i]) std::rethrow_exception(errors[i]);
        append(files[begin + i], pictures[i], labels[begin + i]);
      }
    }
  }

 private:
  // The first picture alone, where it decides the size.
  size_t at_once() const {
    if (set_.height == 0) return 1;
    return std::clamp<size_t>(kBytesAtOnce / (set_.height * set_.width * 3), 1, kAtOnce);
  }
  bool fits(const Picture& picture) const {
    return set_.height == 0 || (picture.height == set_.height && picture.width == set_.width);
  }

  void append(const std::string& file, const Picture& picture, int32_t label) {
    if (set_.height == 0) {
      set_.height = picture.height;
      set_.width = picture.width;
    }
    if (!fits(picture)) {
      fail("folder", "{} is {}x{}, those before it are {}x{}: make all alike, or ask for one size", file,
           picture.height, picture.width, set_.height, set_.width);
    }
    if (picture.channels > set_.channels) {  // the first in colour
      if (set_.channels == 1) {
        set_.train.images = grey_to_rgb(set_.train.images);
        set_.test.images = grey_to_rgb(set_.test.images);
      }
      set_.channels = picture.channels;
    }
    const bool widen = picture.channels < set_.channels;
    const std::vector<uint8_t> bytes = widen ? grey_to_rgb(picture.bytes) : picture.bytes;
    examples_.images.insert(examples_.images.end(), bytes.begin(), bytes.end());
    examples_.labels.push_back(label);
  }

  ImageSet& set_;
  Examples& examples_;
  const bool scale_;
};

}  // namespace

ImageSet read_folder(const DatasetInfo&, const std::string& place, const DataRequest& request) {
  ImageSet set;
  const bool scale = request.height || request.width;
  if (scale) {
    const int64_t height = request.height.value_or(0), width = request.width.value_or(0);
    if (std::min(height, width) < 1 || std::max(height, width) > kMostSide) {
      fail("folder", "pictures can be scaled to height and width of 1 to {}, got {}x{}", kMostSide, height,
           width);
    }
    set.height = static_cast<size_t>(height);
    set.width = static_cast<size_t>(width);
  }
  const std::string train = place + "/train", test = place + "/test", val = place + "/val";
  const bool has_test = is_there("folder", test);
  if (!has_test && !is_there("folder", val)) {
    fail("folder", "{} has neither test/ nor val/ beside train/", place);
  }
  const std::string& other = has_test ? test : val;
  std::vector<std::string> beside;  // said once, by who reads the part
  for (const std::string& name : class_folders(train, beside)) {
    // What unpacking leaves behind is no class. Where one part has pictures, the other lacks them by mistake.
    const bool any = holds_pictures(train + "/" + name) || holds_pictures(other + "/" + name);
    if (any) set.class_names.push_back(name);
  }
  set.classes = set.class_names.size();
  PartReader(set, set.train, scale).read(train);
  PartReader(set, set.test, scale).read(other);
  return set;
}

}  // namespace ulp
