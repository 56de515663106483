#include "runtime/data/formats/idx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <new>
#include <string>

#include "runtime/base/error.h"
#include "runtime/data/array_source.h"
#include "runtime/data/formats/file_reader.h"

namespace rondo {
namespace {

std::optional<DType> idx_dtype(unsigned char code) {
  switch (code) {
    case 0x08:
      return DType::kU8;
    case 0x09:
      return DType::kI8;
    case 0x0b:
      return DType::kI16;
    case 0x0c:
      return DType::kI32;
    case 0x0d:
      return DType::kF32;
    case 0x0e:
      return DType::kF64;
    default:
      return std::nullopt;
  }
}

// Reads all of `to`, or throws.
void read_header(FileReader& file, std::span<unsigned char> to) {
  const size_t got = file.read(std::as_writable_bytes(to));
  if (got < to.size()) {
    raise<FileError>("{}: the file ends inside its IDX header; get the file again", file.path());
  }
}

// Bytes that the header promises. Throws when no file of this size can hold them, before any memory is taken.
int64_t payload_bytes(const FileReader& file, const IdxArray& array, int64_t header_bytes) {
  int64_t bytes = dtype_size(array.dtype);
  bool overflow = false;
  for (const int64_t extent : array.shape.extents())
    overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  if (!overflow && !file.gzip() && file.file_bytes() - header_bytes > bytes) {
    raise<FileError>(
        "{}: {} bytes follow the data of shape {} {}; expected a file of {} bytes, found {}; get the file "
        "again",
        file.path(), file.file_bytes() - header_bytes - bytes, array.shape.text(), dtype_name(array.dtype),
        header_bytes + bytes, file.file_bytes());
  }
  if (overflow || bytes > file.most_bytes() - header_bytes) {
    raise<FileError>(
        "{}: the header promises data of shape {} {}, but the file has only {} bytes{}; it is truncated or "
        "damaged, get the file again",
        file.path(), array.shape.text(), dtype_name(array.dtype), file.file_bytes(),
        file.gzip() ? " (compressed)" : "");
  }
  return bytes;
}

template <size_t kBytes>
void swap_elements(std::span<std::byte> data) {
  for (size_t i = 0; i < data.size(); i += kBytes) {
    std::reverse(data.begin() + static_cast<std::ptrdiff_t>(i),
                 data.begin() + static_cast<std::ptrdiff_t>(i + kBytes));
  }
}

void to_native_order(IdxArray& array) {
  if constexpr (std::endian::native == std::endian::big) return;
  switch (dtype_size(array.dtype)) {
    case 2:
      return swap_elements<2>(array.data);
    case 4:
      return swap_elements<4>(array.data);
    case 8:
      return swap_elements<8>(array.data);
    default:
      return;
  }
}

// Calls visit(std::span<const T>) with the elements of the array.
template <class Visit>
auto visit_elements(const IdxArray& array, Visit&& visit) {
  const auto as = [&]<class T>(T) {
    return visit(std::span(reinterpret_cast<const T*>(array.data.data()), array.data.size() / sizeof(T)));
  };
  switch (array.dtype) {
    case DType::kI8:
      return as(int8_t{});
    case DType::kI16:
      return as(int16_t{});
    case DType::kI32:
      return as(int32_t{});
    case DType::kF32:
      return as(float{});
    case DType::kF64:
      return as(double{});
    default:
      return as(uint8_t{});
  }
}

template <class To>
std::vector<To> converted(const IdxArray& array) {
  return visit_elements(array, [](auto from) {
    std::vector<To> to(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](auto x) { return static_cast<To>(x); });
    return to;
  });
}

// A file of a data set: `name`, or `name`.gz. Empty when neither exists.
std::optional<std::filesystem::path> find_file(const std::filesystem::path& directory,
                                               const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    std::error_code ignored;
    const auto path = directory / (name + ending);
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

std::filesystem::path require_file(const std::filesystem::path& directory, const std::string& name) {
  auto path = find_file(directory, name);
  if (!path) {
    raise<FileError>("{}: neither {} nor {}.gz is there; give a directory with IDX files under MNIST's names",
                     directory.string(), name, name);
  }
  return *path;
}

// Checks labels against [0, classes), or against [0, ...) when classes is 0; returns the number of classes.
int64_t check_labels(const std::filesystem::path& path, const std::vector<int32_t>& labels, int64_t classes) {
  int64_t largest = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || (classes > 0 && labels[i] >= classes)) {
      const std::string expected = classes > 0 ? fmt::format("0 to {}", classes - 1) : "0 or more";
      raise<FileError>("{}: label {} of sample {} is out of range; expected {}", path.string(), labels[i], i,
                       expected);
    }
    largest = std::max<int64_t>(largest, labels[i]);
  }
  return classes > 0 ? classes : largest + 1;
}

std::shared_ptr<const Source> load_part(const std::filesystem::path& directory, const std::string& part,
                                        const std::string& name, int64_t classes) {
  const auto image_path = require_file(directory, part + "-images-idx3-ubyte");
  const auto label_path = require_file(directory, part + "-labels-idx1-ubyte");
  const IdxArray labels = read_idx(label_path);
  if (labels.shape.rank() != 1 || labels.dtype == DType::kF32 || labels.dtype == DType::kF64) {
    raise<FileError>("{}: holds {} of shape {}; expected one integer label a sample (is it an image file?)",
                     label_path.string(), dtype_name(labels.dtype), labels.shape.text());
  }
  IdxArray images = read_idx(image_path);
  if (images.shape.rank() < 2) {
    raise<FileError>("{}: holds {} of shape {}; expected (samples, height, width) (is it a label file?)",
                     image_path.string(), dtype_name(images.dtype), images.shape.text());
  }
  if (images.shape[0] != labels.shape[0]) {
    raise<FileError>("{}: holds {} images, but {} holds {} labels; the two files do not belong together",
                     image_path.string(), images.shape[0], label_path.string(), labels.shape[0]);
  }
  const Shape sample = images.shape.sample();
  if (images.shape[0] == 0 || images.data.empty()) {
    raise<FileError>("{}: the data set is empty (shape {}); at least one sample is needed",
                     image_path.string(), images.shape.text());
  }

  ArrayData data{.name = name};
  data.input_shape = sample.rank() == 2 ? Shape{sample[0], sample[1], 1} : sample;
  if (images.dtype == DType::kU8) {
    data.input_divisor = 255.0f;
    const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(images.data));
    data.input = std::span(reinterpret_cast<const uint8_t*>(owner->data()), owner->size());
    data.owner = owner;
  } else {
    data.input = converted<float>(images);
  }
  auto numbers = converted<int32_t>(labels);
  data.classes = check_labels(label_path, numbers, classes);
  data.labels = std::move(numbers);
  return std::make_shared<ArraySource>(std::move(data));
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  FileReader file(path);
  std::array<unsigned char, 4> magic{};
  read_header(file, magic);
  const auto dtype = idx_dtype(magic[2]);
  if (magic[0] != 0 || magic[1] != 0 || !dtype || magic[3] == 0 || magic[3] > Shape::kMaxRank) {
    raise<FileError>(
        "{}: begins with {:02x} {:02x} {:02x} {:02x}, which is not IDX; expected 00 00, a type (08, 09, 0b "
        "to "
        "0e) and a rank (01 to 06)",
        file.path(), magic[0], magic[1], magic[2], magic[3]);
  }
  std::vector<int64_t> extents;
  for (int axis = 0; axis < magic[3]; ++axis) {
    std::array<unsigned char, 4> extent{};
    read_header(file, extent);
    extents.push_back(int64_t{extent[0]} << 24 | extent[1] << 16 | extent[2] << 8 | extent[3]);
  }
  IdxArray array{.dtype = *dtype, .shape = Shape(extents), .data = {}};
  const int64_t bytes = payload_bytes(file, array, 4 + 4 * int64_t{magic[3]});
  try {
    array.data.resize(static_cast<size_t>(bytes));
  } catch (const std::bad_alloc&) {
    raise<FileError>("{}: no memory for its {} bytes of data", file.path(), bytes);
  }
  const size_t got = file.read(array.data);
  if (got < array.data.size()) {
    raise<FileError>(
        "{}: the data end after {} of {} bytes (shape {} {}); the file is truncated, get it again",
        file.path(), got, bytes, array.shape.text(), dtype_name(array.dtype));
  }
  std::byte more{};
  if (file.read({&more, 1}) > 0) {
    raise<FileError>("{}: more bytes follow the data of shape {} {} ({} bytes); get the file again",
                     file.path(), array.shape.text(), dtype_name(array.dtype), bytes);
  }
  to_native_order(array);
  return array;
}

IdxDataset load_idx_directory(const std::filesystem::path& directory, const IdxOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    raise<FileError>("{}: no such directory; give a directory with IDX files under MNIST's names",
                     directory.string());
  }
  auto name = directory.filename().string();
  if (name.empty()) name = directory.parent_path().filename().string();
  IdxDataset dataset;
  dataset.train = load_part(directory, "train", name + " (train)", options.classes);
  if (find_file(directory, "t10k-images-idx3-ubyte") || find_file(directory, "t10k-labels-idx1-ubyte")) {
    dataset.test = load_part(directory, "t10k", name + " (test)", dataset.train->classes());
    if (dataset.test->input_shape() != dataset.train->input_shape()) {
      raise<FileError>("{}: test images have shape {}, training images {}; both must be the same",
                       directory.string(), dataset.test->input_shape().text(),
                       dataset.train->input_shape().text());
    }
  }
  return dataset;
}

std::optional<std::filesystem::path> find_fashion_mnist() {
  if (const char* chosen = std::getenv("RONDO_DATA_DIR"); chosen != nullptr && *chosen != '\0') return chosen;
  const std::filesystem::path packaged = "/usr/share/datasets/fashion-mnist";
  if (find_file(packaged, "train-images-idx3-ubyte")) return packaged;
  return std::nullopt;
}

}  // namespace rondo
