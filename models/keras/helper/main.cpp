// The program that reads and writes files for the library, which embeds it (see ../helper_process.h):
//   <name> read|write h5|keras <memory bytes, 0: no limit> <cpu seconds, 0: no limit> <budget bytes>
// Standard input is the socket to the library, descriptor 3 the file. It ends with status 0 also when the
// file is bad: that is told over the socket.
#include <hdf5.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "models/keras/helper/h5_file.h"
#include "models/keras/helper/zip_file.h"
#include "models/keras/wire.h"

namespace {

using namespace rondo::keras;

constexpr const char* kFile = "/proc/self/fd/3";

void limit(int what, long long value) {
  const rlimit both{static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  setrlimit(static_cast<__rlimit_resource>(what), &both);
}

void read_file(bool zip, int64_t budget, Wire& wire) {
  if (!zip) return send_h5_file(kFile, budget, wire);
  ZipContent content = read_zip(kFile, budget);
  wire.send_number(static_cast<int64_t>(Record::kConfig));
  wire.send_text(content.config_json);
  wire.send_number(static_cast<int64_t>(Record::kMetadata));
  wire.send_text(content.metadata_json);
  try {
    send_h5_image(content.weights, budget, wire);
  } catch (const WireError&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error("model.weights.h5: " + std::string(error.what()));
  }
}

void write_file(bool zip, Wire& wire) {
  const FileContent content = receive_content(wire);
  if (!zip) return write_h5_file(kFile, content.root);
  write_zip(kFile, {.config_json = content.config_json,
                    .metadata_json = content.metadata_json,
                    .weights = write_h5_image(content.root)});
}

int run(char** argv) {
  const bool reads = std::strcmp(argv[1], "read") == 0;
  const bool zip = std::strcmp(argv[2], "keras") == 0;
  const long long memory = std::atoll(argv[3]);
  const long long seconds = std::atoll(argv[4]);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit(RLIMIT_CORE, 0);
  if (memory > 0) limit(RLIMIT_AS, memory);
  if (seconds > 0) limit(RLIMIT_CPU, seconds);
  if (reads) limit(RLIMIT_FSIZE, 0);
  signal(SIGXFSZ, SIG_IGN);

  Wire wire(0, std::atoll(argv[5]));
  try {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    H5PLset_loading_state(0);  // a file must not choose code to load
    reads ? read_file(zip, std::atoll(argv[5]), wire) : write_file(zip, wire);
    wire.send_number(static_cast<int64_t>(Record::kEnd));
  } catch (const WireError&) {
    return 1;
  } catch (const std::bad_alloc&) {
    wire.send_number(static_cast<int64_t>(Record::kError));
    wire.send_text("needs more memory than a file of its size should");
  } catch (const std::exception& error) {
    wire.send_number(static_cast<int64_t>(Record::kError));
    wire.send_text(error.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  int status = 1;
  try {
    status = run(argv);
  } catch (const std::exception&) {
    // The library is gone or hears nothing: there is nobody to tell.
  }
  // Handles are closed; what libhdf5 does at exit with a damaged file is of no use to anybody.
  std::_Exit(status);
}
