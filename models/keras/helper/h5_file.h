// HDF5 files to records and back. Runs in the helper program only: on damaged files libhdf5 may crash or
// never return. Every failure throws std::runtime_error with the path inside the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/keras/file_content.h"

namespace rondo::keras {

class Wire;

// Sends what the file holds. Refuses links that lead out of the tree or in a circle, data that lies in other
// files, and arrays far larger than the bytes they are stored in. `budget`: bytes of all arrays together.
void send_h5_file(const char* path, int64_t budget, Wire& wire);
// The same for a file in memory.
void send_h5_image(std::vector<char>& image, int64_t budget, Wire& wire);

// Writes as h5py does by default: the oldest format, arrays contiguous and uncompressed; texts of variable
// length in UTF-8, lists of texts of fixed length, padded with zeros.
void write_h5_file(const char* path, const Group& root);
std::vector<char> write_h5_image(const Group& root);

}  // namespace rondo::keras
