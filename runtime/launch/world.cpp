#include "runtime/launch/world.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/host/tune.h"
#include "runtime/comm/local/self_communicator.h"
#include "runtime/comm/mpi/launcher.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/device/device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/launch/collectives_file.h"
#include "runtime/launch/gpu_connect.h"
#include "runtime/launch/signal_watcher.h"
#include "runtime/launch/supervisor.h"
#include "runtime/launch/version.h"

namespace rondo {
namespace {

constexpr const char* kSimulatedNote =
    "SIMULATED GPUS (RONDO_SIMULATED_GPUS is set): a test double for checking, slow and without any GPU\n";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

int to_int(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  RONDO_CHECK(error == std::errc() && end == text.data() + text.size());
  return value;
}

// What a rank tells the others about its process.
struct Neighbour {
  int pid = 0;
  int instruction_set = 0;
  CoreSet cores;
};

std::vector<Neighbour> introduce(Communicator& comm, const Neighbour& mine) {
  std::vector<Neighbour> all;
  const std::string text = fmt::format("{}\n{}\n{}\n", mine.pid, mine.instruction_set, to_text(mine.cores));
  for (const std::string& said : all_gather_strings(comm, text)) {
    const std::vector<std::string> lines = lines_of(said);
    RONDO_CHECK(lines.size() == 3);
    all.push_back({to_int(lines[0]), to_int(lines[1]), parse_cores(lines[2])});
  }
  return all;
}

}  // namespace

struct World::State {
  State(const std::string& name, const WorldOptions& options)
      : program(name), collectives_file(options.collectives_file), signals(name) {
    const char* variable = std::getenv(kCollectivesVariable);
    if (collectives_file.empty() && variable != nullptr) collectives_file = variable;
  }

  std::string program;
  std::string collectives_file;         // empty: none
  SignalWatcher signals;                // before anything starts a thread
  std::unique_ptr<Device> host_memory;  // what the host communicators work on
  // Ranks meet here first, and those that fail meet here last: it outlives a failure of the other.
  std::unique_ptr<Communicator> meeting;
  std::unique_ptr<Communicator> comm;
  std::shared_ptr<MpiSession> session;  // null: none
  CoreSet cores;
  std::vector<CoreSet> host_cores;
  std::optional<Supervisor> supervisor;
  BindOptions wishes;
  Binding binding;
  bool connected = false;
  std::unique_ptr<Communicator> device_comm;  // null: comm serves

  void connect();
  SupervisedRank meet_the_others();
  CostModel read_costs();
};

void World::State::connect() {
  host_memory = make_cpu_device(1);
  cores = affinity_cores();
  const Launch launch = launched_by();
  if (!launch) {
    host_cores = {cores};
    if (!collectives_file.empty()) read_collectives_file(collectives_file);  // may be wrong all the same
    comm = make_self_communicator(*host_memory);
    supervisor.emplace(SupervisedRank{.program = program}, signals);
    signals.set_ranks(0, {}, {});
    return;
  }
  session = MpiSession::start(launch);
  meeting =
      make_host_communicator(session, *host_memory, {.progress = Progress::kInline, .shared_memory = false});
  SupervisedRank rank = meet_the_others();
  const CostModel costs = read_costs();
  if (session->size() == 1) {
    comm = make_self_communicator(*host_memory);
  } else {
    comm = make_host_communicator(session, *host_memory,
                                  {.compute_threads = share_of_cores(cores, host_cores), .costs = costs});
  }
  rank.comm = comm.get();
  supervisor.emplace(std::move(rank), signals);
}

// The first rank's, where it has any.
CostModel World::State::read_costs() {
  CostModel costs;
  std::string error;
  if (meeting->rank() == 0 && !collectives_file.empty()) {
    try {
      costs = read_collectives_file(collectives_file);
    } catch (const FileError& wrong) {
      error = wrong.what();
    }
  }
  error = all_gather_strings(*meeting, error).front();
  if (error.empty()) return costs;
  if (meeting->rank() == 0) throw FileError(error);
  throw PeerError(error);  // rank 0 prints it
}

// Checks that all ranks run the same program, and learns who shares this host.
SupervisedRank World::State::meet_the_others() {
  const std::array facts{Fact{"the program's build", build_id()}, Fact{"Rondo's version", version()},
                         Fact{"oneDNN's version", onednn_version()}};
  rondo::agree_on(*meeting, facts);
  const std::vector<Neighbour> all = introduce(*meeting, {getpid(), cpu_instruction_set(), cores});
  const Topology& topology = meeting->topology();
  const auto own = static_cast<size_t>(meeting->rank());
  SupervisedRank rank{.program = program, .rank = meeting->rank(), .size = meeting->size()};
  rank.host = topology.host_names.at(static_cast<size_t>(topology.host_of.at(own)));
  rank.meeting = meeting.get();
  std::vector<LocalProcess> neighbours;
  int lowest_set = all[own].instruction_set;
  for (size_t r = 0; r < all.size(); ++r) {
    lowest_set = std::min(lowest_set, all[r].instruction_set);
    if (topology.host_of[r] != topology.host_of[own]) continue;
    host_cores.push_back(all[r].cores);
    if (r != own) neighbours.push_back({static_cast<int>(r), all[r].pid});
  }
  limit_cpu_instruction_set(lowest_set);
  signals.set_ranks(rank.rank, rank.host, std::move(neighbours));
  return rank;
}

World::World(int argc, char** argv, const WorldOptions& options)
    : state_(std::make_unique<State>(program_name(argc > 0 ? argv[0] : nullptr), options)) {
  state_->connect();
}

World::~World() = default;

int World::rank() const {
  return state_->comm->rank();
}
int World::size() const {
  return state_->comm->size();
}
Communicator& World::comm() {
  return *state_->comm;
}
const std::string& World::program() const {
  return state_->program;
}
int World::stop_signal() const {
  return state_->signals.stop_signal();
}

void World::bind(const BindOptions& options) {
  if (state_->binding.device) raise<InternalError>("World::bind was called after the device was bound");
  const Topology& topology = state_->comm->topology();
  state_->wishes = options;
  state_->binding = bind_device(options, state_->cores, state_->host_cores,
                                {.local_rank = topology.local_rank, .local_size = topology.local_size});
}

Communicator& World::device_comm() {
  device();
  if (!state_->connected) {
    state_->device_comm = connect_devices(*state_->comm, state_->binding, state_->wishes);
    state_->connected = true;
  }
  return state_->device_comm ? *state_->device_comm : *state_->comm;
}

Device& World::device() {
  if (!state_->binding.device) bind({});
  return *state_->binding.device;
}

KernelBackend& World::backend() {
  device();
  return *state_->binding.backend;
}

std::vector<KernelBackend*> World::backends() {
  std::vector<KernelBackend*> all{&backend()};
  for (const FurtherDevice& further : state_->binding.further) all.push_back(further.backend.get());
  return all;
}

void World::all_or_none(const std::string& what, const std::function<void()>& action) {
  try {
    rondo::all_or_none(*state_->comm, what, action);
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception& error) {
    state_->supervisor->note_shared_error(error.what());
    throw;
  }
}

void World::agree_on(std::span<const Fact> facts) {
  rondo::agree_on(*state_->comm, facts);
}

CostModel World::measure_collectives() {
  if (size() == 1)
    raise<Unavailable>("collectives cost nothing among 1 rank; start several under a launcher");
  return measure_costs(state_->session, *state_->host_memory);
}

int World::report_failure(const std::exception& error) noexcept {
  return state_->supervisor->report_failure(error);
}

std::string World::banner() {
  const Topology& topology = comm().topology();
  const std::string ranks = size() == 1 ? "1 rank" : fmt::format("{} ranks", size());
  const std::string hosts = topology.hosts() == 1 ? "1 host" : fmt::format("{} hosts", topology.hosts());
  const std::string& file = state_->collectives_file;
  const std::string costs = file.empty() || size() == 1 ? std::string() : fmt::format(" (tuned by {})", file);
  const Communicator& joins = state_->device_comm ? *state_->device_comm : comm();
  const bool simulated = state_->binding.gpus != nullptr && state_->binding.gpus->simulated();
  std::string devices = device().name();
  for (const FurtherDevice& further : state_->binding.further) devices += " + " + further.device->name();
  return fmt::format("Rondo {}: {} on {}, {}{}\nEach rank: {}; {}{}\nLibraries: {}\n{}", version(), ranks,
                     hosts, joins.name(), costs, devices, backend().name(), state_->binding.no_gpu,
                     libraries_of_this_build(), simulated ? kSimulatedNote : "");
}

std::string program_name(const char* path) {
  if (path == nullptr) return "rondo";
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

}  // namespace rondo
