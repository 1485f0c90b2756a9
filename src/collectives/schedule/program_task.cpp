// Runs programs over the chunks of a batch, several chunks at the same time.
//
// The life of a chunk in a track:
//  1. Pack: the chunk's elements that this seat contributes are stored in the work area, prescaled. If the chunk is one
//     piece of the output tensor, that piece is the work area, so large tensors are never copied. Otherwise the work
//     area is scratch memory.
//  2. Rounds, one after the other. A round that receives begins when all earlier sends of the chunk are done, so no
//     byte changes while a peer reads it. Data to be reduced arrive in other memory than the work area.
//  3. When all sends are done: unpack the elements that this seat is to get. Then the track begins its next chunk; its
//     number is larger by the number of tracks.
// A message is tagged with its batch, its chunk, and its number among the messages from its sender to its receiver in
// this chunk. (The numbers of rounds differ between seats.) So the tracks of a rank may run ahead of each other and of
// other ranks. An empty message is neither sent nor received; only the messages of a barrier are empty and sent.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/panic.hpp"
#include "collectives/schedule/chunking.hpp"
#include "collectives/schedule/cost_model.hpp"
#include "collectives/schedule/program.hpp"
#include "collectives/schedule/scratch.hpp"
#include "devices/host/host_kernels.hpp"

namespace hvd::collectives {

namespace {

using transport::Link;
using transport::Pending;

void number_messages(Program& program) {
  std::unordered_map<Seat, std::uint16_t> sent, received;
  for (Round& round : program.rounds) {
    if (round.to.value >= 0) round.sent_stage = sent[round.to]++;
    if (round.from.value >= 0) round.received_stage = received[round.from]++;
  }
}

class ProgramTask final : public Task {
 public:
  ProgramTask(const Collective& collective, Team& team, Programs programs, Cut cut)
      : verb_(collective.verb),
        dtype_(collective.dtype),
        element_bytes_(size_of(collective.dtype)),
        scale_{collective.prescale, collective.postscale},
        root_(collective.root),
        me_(team.group.me),
        size_(team.size()),
        link_(team.link),
        kernel_(devices::reduce_kernel(collective.dtype, collective.op)),
        programs_(std::move(programs)),
        chunking_(verb_, programs_.large.blocks, static_cast<std::int64_t>(cut.chunk_bytes / element_bytes_)),
        tracks_(static_cast<std::size_t>(cut.tracks)) {}

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override {
    in_.assign(in, dtype_);
    out_.assign(out, dtype_);
    sequence_ = sequence;
    chunking_.restart(total_of_batch());
    check_lengths();
    chunks_ = verb_ == Verb::barrier ? 1 : chunking_.chunks();
    for (std::size_t track = 0; track < tracks_.size(); ++track)
      begin_chunk(tracks_[track], static_cast<std::int64_t>(track));
  }

  Progress step() override {
    if (failure_) return Progress::failed;
    bool is_done = true;
    for (Track& track : tracks_) {
      Progress progress = advance(track);
      if (progress == Progress::failed) return progress;
      is_done = is_done && progress == Progress::done;
    }
    return is_done ? Progress::done : Progress::pending;
  }

  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    chunking_.resize(sent, received);
  }
  void rescale(double prescale, double postscale) override { scale_ = {prescale, postscale}; }
  const Error& failure() const override { return *failure_; }

  Seat waiting_for() const override {
    for (const Track& track : tracks_) {
      if (track.recv) return track.program->rounds[track.round].from;
      if (!track.sends.empty()) return track.sends.front().to;
    }
    return Seat{-1};
  }

 private:
  struct Send {
    Pending pending;
    Seat to;
  };
  struct Track {
    std::int64_t chunk = 0;  // number of the chunk; from chunks_ on, no chunk is left for the track
    bool is_packed = false;
    const Program* program = nullptr;
    std::size_t round = 0;
    bool is_posted = false;  // the round's messages have been started
    std::optional<Pending> recv;
    bool has_arrival = false;  // data were received and not reduced yet
    std::vector<Send> sends;   // the sends of this track that are under way
    std::byte* work = nullptr;
    std::vector<std::int64_t> offsets;  // where each block begins in the work area, in elements; the last entry is the
                                        // end
    Scratch scratch, landing;
  };

  bool is_root() const { return me_ == root_; }

  std::int64_t total_of_batch() const {
    switch (verb_) {
      case Verb::allgather: return out_.count();
      case Verb::broadcast: return is_root() ? in_.count() : out_.count();
      case Verb::allreduce:
      case Verb::reduce_scatter:
      case Verb::alltoall:
      case Verb::adasum: return in_.count();
      case Verb::barrier:
      case Verb::join:
      case Verb::add_set:
      case Verb::remove_set: break;
    }
    return 0;
  }

  void check_lengths() const {
    auto expect = [this](const SegmentArray& array, std::int64_t count, const char* which) {
      if (array.count() != count)
        panic(std::string(name_of(verb_)) + ": expected " + std::to_string(count) + " elements of " + which +
              ", found " + std::to_string(array.count()));
    };
    switch (verb_) {
      case Verb::allreduce:
      case Verb::alltoall:  // this task does alltoall and adasum only in a team of one
      case Verb::adasum: return expect(out_, in_.count(), "output");
      case Verb::allgather: return expect(in_, chunking_.share_count(me_.value), "input");
      case Verb::reduce_scatter: return expect(out_, chunking_.share_count(me_.value), "output");
      case Verb::broadcast:
        if (is_root() && out_.count() != 0) expect(out_, in_.count(), "output");
        return;
      case Verb::barrier:
      case Verb::join:
      case Verb::add_set:
      case Verb::remove_set: return;
    }
  }

  void begin_chunk(Track& track, std::int64_t chunk) {
    track.chunk = chunk;
    track.is_packed = false;
    track.round = 0;
    track.is_posted = false;
  }

  Progress advance(Track& track) {
    while (track.chunk < chunks_) {
      if (!track.is_packed) pack(track);
      Progress progress = run_rounds(track);
      if (progress == Progress::done) progress = finish_sends(track);
      if (progress != Progress::done) return progress;
      unpack(track);
      begin_chunk(track, track.chunk + static_cast<std::int64_t>(tracks_.size()));
    }
    return Progress::done;
  }

  // ---- packing ---------------------------------------------------------------------------------------------------

  void pack(Track& track) {
    track.is_packed = true;
    std::size_t bytes = static_cast<std::size_t>(chunking_.count(track.chunk)) * element_bytes_;
    bool is_small = programs_.small_bytes != 0 && bytes <= programs_.small_bytes;
    track.program = is_small ? &programs_.small : &programs_.large;
    track.offsets.assign(1, 0);
    for (int block = 0; block < track.program->blocks; ++block)
      track.offsets.push_back(track.offsets.back() + chunking_.count(track.chunk, block, track.program->blocks));
    track.work = nullptr;
    if (bytes == 0) return;
    track.work = work_area(track, bytes);
    switch (verb_) {
      case Verb::allgather: return pack_share(track);
      case Verb::broadcast:
        if (is_root()) in_.gather(begin_of(track, 0), track.offsets.back(), track.work);
        return;
      case Verb::allreduce:
      case Verb::reduce_scatter:
      case Verb::alltoall:
      case Verb::adasum:
        for (int block = 0; block < track.program->blocks; ++block)
          pack_scaled(begin_of(track, block), count_of(track, block), address(track, block));
        return;
      case Verb::barrier:
      case Verb::join:
      case Verb::add_set:
      case Verb::remove_set: return;
    }
  }

  std::byte* work_area(Track& track, std::size_t bytes) {
    std::byte* direct = nullptr;
    // In a reduce_scatter the input must not be changed and the output is too short, so neither can be the work area.
    if (verb_ != Verb::reduce_scatter && chunking_.is_one_range()) {
      const SegmentArray& tensors = verb_ == Verb::broadcast && is_root() ? in_ : out_;
      direct = tensors.contiguous(begin_of(track, 0), track.offsets.back());
    }
    return direct != nullptr ? direct : track.scratch.reserve(bytes);
  }

  void pack_share(Track& track) {
    std::int64_t begin = begin_of(track, me_.value) - chunking_.share_begin(me_.value);
    in_.gather(begin, count_of(track, me_.value), address(track, me_.value));
  }

  void pack_scaled(std::int64_t begin, std::int64_t count, std::byte* to) {
    // In a team of one no round applies the postscale, so it is applied here.
    devices::Scale scale{scale_.pre, size_ == 1 ? scale_.post : 1.0};
    in_.gather_scaled(begin, count, to, kernel_, scale);
  }

  void unpack(Track& track) {
    if (track.offsets.back() == 0) return;
    if (verb_ == Verb::reduce_scatter) {
      std::int64_t begin = begin_of(track, me_.value) - chunking_.share_begin(me_.value);
      return out_.scatter(begin, count_of(track, me_.value), address(track, me_.value));
    }
    if (verb_ == Verb::broadcast && out_.count() == 0) return;
    for (int block = 0; block < track.program->blocks; ++block)
      out_.scatter(begin_of(track, block), count_of(track, block), address(track, block));
  }

  std::int64_t begin_of(const Track& track, int block) const {
    return chunking_.begin(track.chunk, block, track.program->blocks);
  }
  std::int64_t count_of(const Track& track, int block) const {
    return track.offsets[static_cast<std::size_t>(block) + 1] - track.offsets[static_cast<std::size_t>(block)];
  }
  std::byte* address(const Track& track, int block) const {
    return track.work + static_cast<std::size_t>(track.offsets[static_cast<std::size_t>(block)]) * element_bytes_;
  }

  // ---- rounds ----------------------------------------------------------------------------------------------------

  Progress run_rounds(Track& track) {
    for (; track.round < track.program->rounds.size(); ++track.round, track.is_posted = false) {
      const Round& round = track.program->rounds[track.round];
      if (!track.is_posted) {
        if (round.from.value >= 0) {
          Progress progress = finish_sends(track);
          if (progress != Progress::done) return progress;
        }
        post(track, round);
      }
      Progress progress = arrive(track, round);
      if (progress != Progress::done) return progress;
    }
    return Progress::done;
  }

  void post(Track& track, const Round& round) {
    track.is_posted = true;
    auto channel = [&](std::uint16_t stage) {
      return Channel{sequence_, stage, static_cast<std::uint32_t>(track.chunk)};
    };
    if (round.from.value >= 0 && has_message(track, round.received)) {
      std::size_t bytes = bytes_of_blocks(track, round.received);
      std::byte* to = round.is_reduced ? track.landing.reserve(bytes) : start_of(track, round.received);
      track.recv = link_->recv(round.from, {to, bytes}, channel(round.received_stage));
    }
    if (round.to.value >= 0 && has_message(track, round.sent)) {
      ConstBytes bytes{start_of(track, round.sent), bytes_of_blocks(track, round.sent)};
      track.sends.push_back({link_->send(round.to, bytes, channel(round.sent_stage)), round.to});
    }
  }

  // Waits for the round's incoming message and reduces its data.
  Progress arrive(Track& track, const Round& round) {
    if (track.recv) {
      Progress progress = link_->poll(*track.recv);
      if (progress == Progress::failed) return fail();
      if (progress != Progress::done) return progress;
      track.recv.reset();
      track.has_arrival = true;
    }
    if (!track.has_arrival) return Progress::done;
    if (round.is_reduced) {
      // If both sides send each other the same blocks, the peer may still be reading the data that the reduction
      // changes.
      bool is_read = round.sent.first < round.received.last && round.received.first < round.sent.last;
      if (is_read) {
        Progress progress = finish_sends(track);
        if (progress != Progress::done) return progress;
      }
      reduce(track, round);
    }
    track.has_arrival = false;
    return Progress::done;
  }

  void reduce(Track& track, const Round& round) {
    std::size_t bytes = bytes_of_blocks(track, round.received);
    if (bytes == 0) return;
    void* here = start_of(track, round.received);
    const void* arrival = track.landing.reserve(bytes);
    std::array<const void*, 2> sources{here, arrival};
    if (round.arrival_first) std::swap(sources[0], sources[1]);
    devices::Scale scale{1.0, round.is_total ? scale_.post : 1.0};
    kernel_(sources.data(), 2, &here, 1, static_cast<std::int64_t>(bytes / element_bytes_), scale);
  }

  Progress finish_sends(Track& track) {
    while (!track.sends.empty()) {
      Progress progress = link_->poll(track.sends.back().pending);
      if (progress == Progress::failed) return fail();
      if (progress != Progress::done) return progress;
      track.sends.pop_back();
    }
    return Progress::done;
  }

  Progress fail() {
    failure_ = link_->failure();
    return Progress::failed;
  }

  bool has_message(const Track& track, Blocks blocks) const {
    return verb_ == Verb::barrier || bytes_of_blocks(track, blocks) != 0;
  }
  std::size_t bytes_of_blocks(const Track& track, Blocks blocks) const {
    return static_cast<std::size_t>(track.offsets[static_cast<std::size_t>(blocks.last)] -
                                    track.offsets[static_cast<std::size_t>(blocks.first)]) *
           element_bytes_;
  }
  std::byte* start_of(const Track& track, Blocks blocks) const { return address(track, blocks.first); }

  const Verb verb_;
  const DataType dtype_;
  const std::size_t element_bytes_;
  devices::Scale scale_;
  const Seat root_, me_;
  const int size_;
  Link* const link_;
  const devices::ReduceKernel kernel_;
  const Programs programs_;
  Chunking chunking_;
  SegmentArray in_, out_;
  Sequence sequence_;
  std::int64_t chunks_ = 0;
  std::vector<Track> tracks_;
  std::optional<Error> failure_;
};

}  // namespace

// Measured between two nodes of one core each, with 2 MB of cache (benchmarks/over-nodes). 64 MB over TCP take 24 ms
// with 192 KB. They take 27 ms with 128 KB and 31 ms with 64 KB, which need more calls. They take 51 ms with 512 KB.
// With 256 KB they take sometimes 24 ms and sometimes 46 ms.
Cut Cut::for_seats(int seats) {
  constexpr std::size_t least = 192 << 10, most = 512 << 10, of_each_seat = 32 << 10;
  return {std::clamp(static_cast<std::size_t>(seats) * of_each_seat, least, most)};
}

std::unique_ptr<Task> make_program_task(const Collective& collective, Team& team, Programs programs) {
  return make_program_task(collective, team, std::move(programs), Cut::for_seats(team.size()));
}

std::unique_ptr<Task> make_program_task(const Collective& collective, Team& team, Programs programs, Cut cut) {
  number_messages(programs.large);
  number_messages(programs.small);
  return std::make_unique<ProgramTask>(collective, team, std::move(programs), cut);
}

}  // namespace hvd::collectives
