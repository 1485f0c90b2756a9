// Adasum by vector halving and distance doubling. The number of seats is a power of two.
//
// Two vectors a and b are combined to (1 - ab/2aa) a + (1 - ab/2bb) b. In a group of 2d seats, a is the result of the
// first d seats and b that of the last d. This is done level by level, for d = 1, 2, 4 …:
//  1. A seat holds a part of its own vector, and the seat d places away holds the same part of the other vector. The
//     two halve this part: each seat keeps one half and gives away the other half, and gets the other vector's half of
//     the part that it keeps. So the 2d seats together hold both vectors, and each seat has the same part of both.
//  2. Each seat adds up the products over its part. These sums are then added over the 2d seats.
//  3. Each seat combines its part. At the end the parts are gathered in the reverse order.
// Every tensor of a batch is halved by itself and has its own products, so its bits do not depend on the other tensors
// of the batch. The work area has a block for each seat, and a block holds a share of each tensor. The sums of products
// are added pair by pair, which gives the same bits on both sides. Each element is computed by only one seat.
//
// With a team beside, each of its seats holds another share of every tensor. The products are added over that team,
// too.
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "base/panic.hpp"
#include "collectives/schedule/adasum_task.hpp"
#include "collectives/schedule/peer_links.hpp"
#include "collectives/schedule/program.hpp"
#include "collectives/schedule/scratch.hpp"
#include "devices/host/host_kernels.hpp"

namespace hvd::collectives {

namespace {

using transport::Pending;

// One exchange with one seat.
struct Exchange {
  enum class Of : std::uint8_t { halves, products, results } of = Of::halves;
  Seat peer;
  Blocks sent, received;       // halves and results: the blocks that are exchanged
  bool peer_is_lower = false;  // the peer holds the left vector, a
  bool is_beside = false;      // products: the peer is a seat of the team beside
  bool is_complete = false;    // products: the products of all seats have been added
  bool is_last_level = false;
};

std::vector<Exchange> exchanges_of(Seat me, int size, Seat me_beside, int size_beside) {
  std::vector<Exchange> list;
  std::vector<Blocks> held{{0, size}};  // the blocks that this seat holds after each level
  for (int distance = 1; distance < size; distance *= 2) {
    const Blocks all = held.back();
    const int middle = (all.first + all.last) / 2;
    const bool is_upper = (me.value & distance) != 0;
    const Blocks lower{all.first, middle}, upper{middle, all.last};
    held.push_back(is_upper ? upper : lower);
    const bool is_last = 2 * distance == size;
    list.push_back({Exchange::Of::halves, Seat{me.value ^ distance}, is_upper ? lower : upper, held.back(), is_upper,
                    false, false, is_last});
    for (int other = 1; other <= distance; other *= 2)
      list.push_back({Exchange::Of::products, Seat{me.value ^ other}, {}, {}, false, false, false, is_last});
    for (int other = 1; other < size_beside; other *= 2)
      list.push_back({Exchange::Of::products, Seat{me_beside.value ^ other}, {}, {}, false, true, false, is_last});
    list.back().is_complete = true;
  }
  for (int distance = size / 2; distance >= 1; distance /= 2) {
    const Blocks mine = held.back();
    held.pop_back();
    const Blocks all = held.back();
    const Blocks others = mine.first == all.first ? Blocks{mine.last, all.last} : Blocks{all.first, mine.first};
    list.push_back({Exchange::Of::results, Seat{me.value ^ distance}, mine, others, false, false, false, false});
  }
  return list;
}

class AdasumTask final : public Task {
 public:
  AdasumTask(const Collective& collective, const Team& team, const Team* beside)
      : dtype_(collective.dtype),
        element_bytes_(size_of(collective.dtype)),
        scale_{collective.prescale, collective.postscale},
        size_(team.size()),
        peers_(team),
        link_beside_(beside == nullptr ? nullptr : beside->link),
        scaled_copy_(devices::reduce_kernel(collective.dtype, ReduceOp::sum)),
        products_of_(devices::products_kernel(collective.dtype)),
        add_weighted_(devices::weighted_sum_kernel(collective.dtype)),
        exchanges_(exchanges_of(team.group.me, size_, beside == nullptr ? Seat{0} : beside->group.me,
                                beside == nullptr ? 1 : beside->size())) {}

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override {
    in_.assign(in, dtype_);
    out_.assign(out, dtype_);
    if (in_.count() != out_.count())
      panic("adasum: expected " + std::to_string(in_.count()) + " elements of output, found " +
            std::to_string(out_.count()));
    sequence_ = sequence;
    lengths_.clear();
    for (const Segment& tensor : in)
      if (tensor.view.count != 0) lengths_.push_back(tensor.view.count);
    lay_out_blocks();
    products_.assign(lengths_.size(), {});
    arrived_products_.assign(lengths_.size(), {});
    next_ = in_.count() == 0 ? exchanges_.size() : 0;
    is_packed_ = false;
    is_posted_ = false;
  }

  Progress step() override {
    if (failure_) return Progress::failed;
    if (!is_packed_) pack();
    for (; next_ < exchanges_.size(); ++next_, is_posted_ = false) {
      const Exchange& exchange = exchanges_[next_];
      if (!is_posted_) post(exchange);
      Progress progress = wait(exchange);
      if (progress != Progress::done) return progress;
      finish(exchange);
      if (next_ + 1 == exchanges_.size()) unpack();
    }
    return Progress::done;
  }

  void rescale(double prescale, double postscale) override { scale_ = {prescale, postscale}; }
  const Error& failure() const override { return *failure_; }
  Seat waiting_for() const override {
    return (receive_ || send_) && !exchanges_[next_].is_beside ? exchanges_[next_].peer : Seat{-1};
  }

 private:
  // ---- the work area: by block, in it by tensor --------------------------------------------------------------------

  void lay_out_blocks() {
    block_begins_.assign(1, 0);
    for (int block = 0; block < size_; ++block) {
      std::int64_t end = block_begins_.back();
      for (std::int64_t length : lengths_) end += transport::share_of(length, Seat{block}, size_).count();
      block_begins_.push_back(end);
    }
  }
  std::int64_t begin_of(int block) const { return block_begins_[static_cast<std::size_t>(block)]; }
  std::size_t bytes_of(Blocks blocks) const {
    return static_cast<std::size_t>(begin_of(blocks.last) - begin_of(blocks.first)) * element_bytes_;
  }
  std::byte* address(std::int64_t element) const { return work_ + static_cast<std::size_t>(element) * element_bytes_; }

  struct Piece {
    std::size_t tensor;
    std::int64_t place, count;  // a piece of a tensor, as elements of the work area
    std::int64_t position;      // the beginning of the piece in the batch
  };
  template <typename Visit>
  void visit_pieces(Blocks blocks, Visit visit) const {
    std::int64_t place = begin_of(blocks.first);
    for (int block = blocks.first; block < blocks.last; ++block) {
      std::int64_t tensor_begin = 0;
      for (std::size_t tensor = 0; tensor < lengths_.size(); tensor_begin += lengths_[tensor++]) {
        transport::Share share = transport::share_of(lengths_[tensor], Seat{block}, size_);
        if (share.count() == 0) continue;
        visit(Piece{tensor, place, share.count(), tensor_begin + share.begin});
        place += share.count();
      }
    }
  }

  void pack() {
    is_packed_ = true;
    // With a single tensor, the order of the blocks is the order of the tensor. The output can then be the work area.
    std::byte* output = lengths_.size() == 1 ? out_.contiguous(0, out_.count()) : nullptr;
    is_in_output_ = output != nullptr;
    work_ = is_in_output_ ? output : scratch_.reserve(bytes_of({0, size_}));
    visit_pieces({0, size_}, [&](const Piece& piece) {
      in_.gather_scaled(piece.position, piece.count, address(piece.place), scaled_copy_, {scale_.pre, 1.0});
    });
  }
  void unpack() {
    if (is_in_output_) return;
    visit_pieces({0, size_},
                 [&](const Piece& piece) { out_.scatter(piece.position, piece.count, address(piece.place)); });
  }

  // ---- exchanges ---------------------------------------------------------------------------------------------------

  void post(const Exchange& exchange) {
    is_posted_ = true;
    ConstBytes sent = std::as_bytes(std::span(products_));
    Bytes received = std::as_writable_bytes(std::span(arrived_products_));
    if (exchange.of != Exchange::Of::products) {
      std::size_t bytes = bytes_of(exchange.received);
      sent = {address(begin_of(exchange.sent.first)), bytes_of(exchange.sent)};
      received = {address(begin_of(exchange.received.first)), bytes};
      if (exchange.of == Exchange::Of::halves) received = {landing_.reserve(bytes), bytes};
    }
    const PeerLinks::Peer peer = peer_of(exchange);
    const Channel channel{sequence_, 0, static_cast<std::uint32_t>(next_)};
    // If a message would be empty, neither side sends or receives it.
    if (!received.empty()) receive_ = peer.link->recv(peer.seat, received, channel);
    if (!sent.empty()) send_ = peer.link->send(peer.seat, sent, channel);
  }

  PeerLinks::Peer peer_of(const Exchange& exchange) const {
    return exchange.is_beside ? PeerLinks::Peer{link_beside_, exchange.peer} : peers_.to(exchange.peer);
  }

  Progress wait(const Exchange& exchange) {
    transport::Link& link = *peer_of(exchange).link;
    for (std::optional<Pending>* pending : {&receive_, &send_}) {
      if (!*pending) continue;
      Progress progress = link.poll(**pending);
      if (progress == Progress::failed) failure_ = link.failure();
      if (progress != Progress::done) return progress;
      pending->reset();
    }
    return Progress::done;
  }

  void finish(const Exchange& exchange) {
    switch (exchange.of) {
      case Exchange::Of::halves:
        pair_ = exchange;
        std::fill(products_.begin(), products_.end(), devices::Products{});
        return visit_pairs([&](const Piece& piece, const void* left, const void* right) {
          add(products_[piece.tensor], products_of_(left, right, piece.count));
        });
      case Exchange::Of::products:
        for (std::size_t tensor = 0; tensor < products_.size(); ++tensor)
          add(products_[tensor], arrived_products_[tensor]);
        if (exchange.is_complete) combine();
        return;
      case Exchange::Of::results: return;
    }
  }

  void combine() {
    const double postscale = pair_.is_last_level ? scale_.post : 1.0;
    visit_pairs([&](const Piece& piece, const void* left, const void* right) {
      const devices::Products& products = products_[piece.tensor];
      devices::Weights weights{weight(products.dot, products.left) * postscale,
                               weight(products.dot, products.right) * postscale};
      add_weighted_(left, right, address(piece.place), piece.count, weights);
    });
  }

  // Calls visit(piece, left, right) for this seat's part of the two vectors of this level.
  template <typename Visit>
  void visit_pairs(Visit visit) {
    const std::byte* arrival = landing_.reserve(bytes_of(pair_.received));
    visit_pieces(pair_.received, [&](const Piece& piece) {
      const std::byte* mine = address(piece.place);
      visit(piece, pair_.peer_is_lower ? arrival : mine, pair_.peer_is_lower ? mine : arrival);
      arrival += static_cast<std::size_t>(piece.count) * element_bytes_;
    });
  }

  static void add(devices::Products& sum, const devices::Products& more) {
    sum.dot += more.dot;
    sum.left += more.left;
    sum.right += more.right;
  }
  static double weight(double dot, double square) {
    static const double least = std::sqrt(std::numeric_limits<double>::min());
    return square < least ? 1.0 : 1.0 - dot / (2 * square);
  }

  const DataType dtype_;
  const std::size_t element_bytes_;
  devices::Scale scale_;
  const int size_;
  const PeerLinks peers_;
  transport::Link* const link_beside_;  // null without a team beside
  const devices::ReduceKernel scaled_copy_;
  const devices::ProductsKernel products_of_;
  const devices::WeightedSumKernel add_weighted_;
  const std::vector<Exchange> exchanges_;

  SegmentArray in_, out_;
  Sequence sequence_;
  std::vector<std::int64_t> lengths_;  // lengths of the tensors that are not empty
  // where each block begins in the work area; the last entry is the end
  std::vector<std::int64_t> block_begins_;
  std::vector<devices::Products> products_, arrived_products_;  // one for each tensor
  Exchange pair_;                                               // the exchange with the partner of this level
  std::byte* work_ = nullptr;
  bool is_in_output_ = false;  // the output is the work area
  Scratch scratch_, landing_;

  std::size_t next_ = 0;
  bool is_packed_ = false, is_posted_ = false;
  std::optional<Pending> receive_, send_;
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<Task> make_adasum_task(const Collective& collective, const Team& team, const Team* beside) {
  return std::make_unique<AdasumTask>(collective, team, beside);
}

}  // namespace hvd::collectives
