// IDX, the format of MNIST and its kin: big-endian header {0, 0, type, rank, extents...}, then the elements.
// Files may be gzip streams, whatever their names are. http://yann.lecun.com/exdb/mnist/ describes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/data/source.h"
#include "runtime/tensor/shape.h"

namespace rondo {

struct IdxArray {
  DType dtype = DType::kU8;     // u8, i8, i16, i32, f32 or f64
  Shape shape;                  // rank 1 to 6; axis 0 counts the samples
  std::vector<std::byte> data;  // row-major, in this machine's byte order
};

// Reads one file. Throws FileError when it is missing, unreadable, not IDX, damaged, shorter or longer than
// its header says. Memory is taken only for what the file can hold.
IdxArray read_idx(const std::filesystem::path& path);

struct IdxOptions {
  int64_t classes = 0;  // labels must lie in [0, classes); 0: one more than the largest training label
};

struct IdxDataset {
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> test;  // null when the directory has no t10k files
};

// Loads MNIST-named files of a directory: {train,t10k}-{images-idx3,labels-idx1}-ubyte, each with or without
// ".gz". Images (n, height, width) become samples (height, width, 1); 8-bit values are kept as bytes and read
// as x / 255, values of other types are not scaled. Labels are int32 classes. Throws FileError for what
// read_idx refuses, a missing file, image and label counts that differ, no samples at all, a label out of
// range, or test images of another shape.
IdxDataset load_idx_directory(const std::filesystem::path& directory, const IdxOptions& options = {});

// Where Fashion-MNIST lies: $RONDO_DATA_DIR if that is set, whatever it holds; else where Debian's package
// dataset-fashion-mnist puts it; empty when the package is not installed.
std::optional<std::filesystem::path> find_fashion_mnist();

}  // namespace rondo
